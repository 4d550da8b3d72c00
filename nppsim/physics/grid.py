"""The half-cell grid, which stops drones, guards and thwumps (docs/physics.md, sections 3.6 and 4.8).

A level's grid is one vector of edges.  Vertical edge V(i, j) is at index LINES_Y * i + j, horizontal edge H(i, j) at
HORIZONTAL_EDGES + LINES_X * j + i.  The last row of V and the last column of H are outside of the stage and are
solid.  Indices beyond the grid are clamped.  Axis 0 is motion along x, which crosses vertical edges; axis 1 is motion
along y.
"""

import math
from collections import namedtuple

from nppsim._numba.decorators import inlined, kernel
from nppsim.levels.stage import CELLS_Y, HALF_CELL, LINES_X, LINES_Y

HORIZONTAL_EDGES = LINES_X * LINES_Y  # index of the first horizontal edge
GRID_SIZE = 2 * HORIZONTAL_EDGES

# Bits of an edge; 0 is open.
SLOPE_EDGE = 1
SOLID_EDGE = 2
DOOR_EDGE = 4  # a door may block the edge, depending on the state of the environment
TILE_EDGE = SLOPE_EDGE | SOLID_EDGE

# The grid of one environment: uint8[GRID_SIZE] of its level, and the level's doors, PLACED_DTYPE[D] and ENTITY_DTYPE[D].
Grid = namedtuple("Grid", "edges doors states")


@inlined
def half_cell(value):
    """Index of the half-cell of a coordinate in pixels."""
    return int(math.floor(value / HALF_CELL))


@inlined
def axis_of(direction):
    """Axis of a direction: 0 right, 1 down, 2 left, 3 up."""
    return 1 if direction & 1 else 0


@inlined
def sign_of(direction):
    """Sign of a direction along its axis."""
    return 1 if direction < 2 else -1


@inlined
def grid_of(entities, world, level):
    """Return the Grid of a level."""
    record = world.level[level]
    base, first, end = record["entity_first"], record["doors_first"], record["switches_end"]
    return Grid(world.grid[record["grid"]], world.entity[first:end], entities[first - base : end - base])


@kernel
def _doors_block(cx, cy, horizontal, grid):
    """Return True if doors block one edge of cell (cx, cy): their ``blocking`` counts do not add up to 0.

    horizontal: 0 for the right edge, 1 for the lower edge.
    """
    edge = 2 * (cx * CELLS_Y + cy) + horizontal
    total = 0
    for k in range(len(grid.doors)):
        if grid.doors[k]["edge"] == edge:
            total += grid.states[k]["blocking"]
    return total != 0


@kernel
def step_free(axis, k, low, high, sign, grid):
    """Return True if a body can move from half-cell column k to column k + sign in all rows low to high.

    axis: 0 for motion along x.  If it is 1, k is a row, and ``low`` to ``high`` are columns.
    sign: -1 or +1.
    """
    border = k + (1 if sign > 0 else 0)
    for across in range(low, high + 1):
        i, j = (across, border) if axis else (border, across)
        i, j = min(max(i, 0), LINES_X - 1), min(max(j, 0), LINES_Y - 1)
        edge = grid.edges[HORIZONTAL_EDGES + LINES_X * j + i if axis else LINES_Y * i + j]
        if edge & TILE_EDGE:
            return False
        if edge & DOOR_EDGE and _doors_block(i // 2 - (1 - axis), j // 2 - axis, axis, grid):
            return False
    return True


@kernel
def steps_free(axis, k, end, low, high, sign, grid):
    """Return True if all steps from half-cell column (or row) k to ``end`` are free, or if there are none."""
    while (end - k) * sign > 0:
        if not step_free(axis, k, low, high, sign, grid):
            return False
        k += sign
    return True


@kernel
def is_floor(hx, hy, grid):
    """Return True if the upper edge of half-cell (hx, hy) is a surface of a tile; slopes and doors do not count."""
    i, j = min(max(hx, 0), LINES_X - 1), min(max(hy, 0), LINES_Y - 1)
    return grid.edges[HORIZONTAL_EDGES + LINES_X * j + i] & TILE_EDGE == SOLID_EDGE


@inlined
def path_is_free(x, y, target, radius, direction, grid):
    """Return True if a square body with half-side ``radius`` at (x, y) can move to coordinate ``target`` along its axis.

    direction: 0 right, 1 down, 2 left, 3 up.
    target: px; x for motion along x, else y.
    """
    axis, sign = axis_of(direction), sign_of(direction)
    along, across = (y, x) if axis else (x, y)
    k, end = half_cell(along + sign * radius), half_cell(target + sign * radius)
    low, high = half_cell(across - radius), half_cell(across + radius)
    return steps_free(axis, k, end, low, high, sign, grid)


@inlined
def register(ninja, mover, cell_x, cell_y):
    """Register a mover in a cell; contacts with it come after those with all entities already registered there."""
    mover["cell_x"], mover["cell_y"] = cell_x, cell_y
    mover["order"] = ninja["registrations"]
    ninja["registrations"] += 1
