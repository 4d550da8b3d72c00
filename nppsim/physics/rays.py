"""Rays for laser beams, shots and lines of sight (docs/physics.md, sections 8.2 and 8.4)."""

import math

import numpy as np

from nppsim._numba.decorators import inlined, kernel
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.physics.segments import impact_segment
from nppsim.physics.shapes import MAX_X, MAX_Y, MIN_X, MIN_Y, SHAPES

RAY_LENGTH = 2000.0  # px, longer than the stage's diagonal
# Values of ``any_door``; not literals, because Numba would compile ``ray_length`` for each literal.
ANY_DOOR, CLOSED_DOORS = np.True_, np.False_
DOOR_OVERHANG = 2.0 * TILE  # px along a ray; more than the part of any door outside the cell that lists the door
CLEAR = 0.01  # px; a ray whose line passes the bounding box of a segment by more than this does not hit the segment


@kernel
def ray_length(x, y, ux, uy, limit, any_door, walls, entities):
    """Length in px, at most ``limit``, of a ray with unit direction (ux, uy) that starts at (x, y).

    The ray ends in the first cell that lists a segment which blocks it, at the nearest such segment.
    any_door: open doors stop the ray too.
    """
    segments, cell_start, first = walls
    wx, wy = RAY_LENGTH * ux, RAY_LENGTH * uy
    cx, cy = int(math.floor(x / TILE)), int(math.floor(y / TILE))
    while 0 <= cx < CELLS_X and 0 <= cy < CELLS_Y:
        cell = cx * CELLS_Y + cy
        t = 1.0
        for k in range(first + cell_start[cell], first + cell_start[cell + 1]):
            door = segments[k]["entity"]
            if any_door or door < 0 or entities[door]["closed"]:
                ax, ay, shape = segments[k]["x"], segments[k]["y"], segments[k]["shape"]
                if not _passes(x - ax, y - ay, ux, uy, shape):
                    t = min(t, impact_segment(x, y, wx, wy, ax, ay, shape, 0.0))
        if t < 1.0:
            return min(RAY_LENGTH * t, limit)
        to_x = (TILE * (cx + 1 if ux > 0.0 else cx) - x) / ux if ux != 0.0 else math.inf
        to_y = (TILE * (cy + 1 if uy > 0.0 else cy) - y) / uy if uy != 0.0 else math.inf
        if min(to_x, to_y) > limit + DOOR_OVERHANG:
            return limit
        if to_x < to_y:
            cx += 1 if ux > 0.0 else -1
        else:
            cy += 1 if uy > 0.0 else -1
    return limit


@inlined
def _passes(x, y, ux, uy, shape):
    """Return True if the line of a ray clearly passes a segment; (x, y): start of the ray, relative to the segment."""
    min_x, max_x, min_y, max_y = SHAPES[shape, MIN_X], SHAPES[shape, MAX_X], SHAPES[shape, MIN_Y], SHAPES[shape, MAX_Y]
    distance = abs(ux * ((min_y + max_y) / 2.0 - y) - uy * ((min_x + max_x) / 2.0 - x))
    return distance > abs(ux) * (max_y - min_y) / 2.0 + abs(uy) * (max_x - min_x) / 2.0 + CLEAR


@kernel
def ray_gap(ninja, x, y, ux, uy, length):
    """Distance in px from the ninja's centre to a ray of a given length, with unit direction (ux, uy), from (x, y)."""
    ex, ey = ninja["x"] - x, ninja["y"] - y
    along = min(max(ex * ux + ey * uy, 0.0), length)
    dx, dy = ex - along * ux, ey - along * uy
    return math.sqrt(dx * dx + dy * dy)
