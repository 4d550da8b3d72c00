"""The half-cell grid: whether drones, guards and thwumps can pass (docs/physics.md, sections 3.6, 4.8 and 7.1).

``edges``: uint8[GRID_SIZE], one level's row of ``world.grid``.  Indices beyond the grid are clamped; rows and columns that
do not exist are solid.
"""

import math

from nppsim._kernel import inlined, kernel
from nppsim.compile import CELLS_Y, DOOR_EDGE, HORIZONTAL_EDGES, SLOPE_EDGE, SOLID_EDGE

TILE_EDGE = SLOPE_EDGE | SOLID_EDGE


@inlined
def half_cell(value):
    """Index of the half-cell of a coordinate in pixels."""
    return int(math.floor(value / 12.0))


@kernel
def _doors_block(cx, cy, horizontal, entities, world, level):
    """Whether the doors on the far edges of cell (cx, cy) add up to anything but 0."""
    edge = 2 * (cx * CELLS_Y + cy) + horizontal
    base = world.level[level]["entity_first"]
    total = 0
    for k in range(world.level[level]["doors_first"], world.level[level]["switches_end"]):
        if world.entity[k]["edge"] == edge:
            total += entities[k - base]["blocking"]
    return total != 0


@kernel
def column_free(hx, hy1, hy2, direction, entities, world, level):
    """Whether motion along x, from half-cell column hx to the next, is free in rows hy1 to hy2.  direction: -1 or +1."""
    edges = world.grid[world.level[level]["grid"]]
    i = min(max(hx + (1 if direction > 0 else 0), 0), 88)
    for hy in range(hy1, hy2 + 1):
        j = min(max(hy, 0), 50)
        edge = edges[51 * i + j]
        if edge & TILE_EDGE:
            return False
        if edge & DOOR_EDGE and _doors_block(i // 2 - 1, j // 2, 0, entities, world, level):
            return False
    return True


@kernel
def row_free(hy, hx1, hx2, direction, entities, world, level):
    """Whether motion along y, from half-cell row hy to the next, is free in columns hx1 to hx2."""
    edges = world.grid[world.level[level]["grid"]]
    j = min(max(hy + (1 if direction > 0 else 0), 0), 50)
    for hx in range(hx1, hx2 + 1):
        i = min(max(hx, 0), 88)
        edge = edges[HORIZONTAL_EDGES + 89 * j + i]
        if edge & TILE_EDGE:
            return False
        if edge & DOOR_EDGE and _doors_block(i // 2, j // 2 - 1, 1, entities, world, level):
            return False
    return True


@kernel
def is_floor(hx, hy, world, level):
    """Whether the upper edge of half-cell (hx, hy) is a solid part of a tile; neither slopes nor doors are."""
    edges = world.grid[world.level[level]["grid"]]
    i, j = min(max(hx, 0), 88), min(max(hy, 0), 50)
    return edges[HORIZONTAL_EDGES + 89 * j + i] & TILE_EDGE == SOLID_EDGE


@kernel
def way_free(x, y, target, radius, direction, entities, world, level):
    """Whether a square body (half-side radius) at (x, y) can move along an axis until it stands at ``target``.

    direction: 0 right, 1 down, 2 left, 3 up.  target: x or y, in px, of the end.
    """
    sign = 1 if direction < 2 else -1
    along, across = (y, x) if direction & 1 else (x, y)
    k, end = half_cell(along + sign * radius), half_cell(target + sign * radius)
    low, high = half_cell(across - radius), half_cell(across + radius)
    while k != end:
        if direction & 1:
            free = row_free(k, low, high, sign, entities, world, level)
        else:
            free = column_free(k, low, high, sign, entities, world, level)
        if not free:
            return False
        k += sign
    return True


@inlined
def register(ninja, mover, cell_x, cell_y):
    """Enter a cell behind all that is in it."""
    mover["cell_x"], mover["cell_y"] = cell_x, cell_y
    mover["order"] = ninja["registrations"]
    ninja["registrations"] += 1
