"""Queries on the segments of a level: closest point, nearest surface, sweep.

Source: docs/physics.md, sections 4.1 to 4.6.  Section numbers refer to that page.  Every formula is evaluated in the order
given there, so that results are exact to the last bit (section 12).  ``shapes`` defines the segment records.  All queries
ignore open doors.
"""

import math
from collections import namedtuple

from nppsim._numba.decorators import inlined, kernel
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.physics.shapes import (
    ARC_RADIUS,
    CONVEX_ARC,
    DOOR_LINE,
    DX,
    DY,
    KIND,
    LENGTH,
    LENGTH_SQUARED,
    LINE,
    MAX_X,
    MAX_Y,
    MIN_X,
    MIN_Y,
    SHAPES,
    UNIT_X,
    UNIT_Y,
)

FAR = 9999999.0  # px^2, more than any squared distance
FRONT_BONUS = 0.1  # px^2 subtracted from the squared distance of front faces
CLEARLY_FARTHER = 0.2  # px^2, above FRONT_BONUS: boxes farther than the best point by this squared distance are skipped
SWEEP_MARGIN = 1.0  # px around a swept circle; cells within this margin are searched
SIDE = float(TILE)  # px, side of a cell
LEAST_MOVE = 0.0001  # px^2; a move whose squared length is at most this hits nothing

# The segments of one level, see ``nearest_segment``.  Kernels that are called for each mover take this tuple instead of
# ``world``, because a call costs time for each array of its arguments.
Walls = namedtuple("Walls", "segments cell_start first")

# Margins of shortcuts, far above any rounding error.
BOX_MARGIN = 0.01  # px around bounding boxes
BAND = 1.0  # px; half the height of the band around a point in which ``nearest_segment`` measures ``beside``
SURE = 1e-3  # margin of the comparisons in ``settles``, px or px^2


@kernel
def clamped_cell(value, limit):
    """Index of the cell that contains a coordinate in px, clamped to 0 .. limit - 1.

    Equals the floor of ``value / TILE``.  Integer division is exact here, because no double just below a multiple of 24 has
    a quotient that rounds up to an integer.
    """
    return min(max(int(value), 0), TILE * limit - 1) // TILE


@inlined
def cell_at(x, y):
    """Number of the cell that contains a point in px, clamped to the stage."""
    return clamped_cell(x, CELLS_X) * CELLS_Y + clamped_cell(y, CELLS_Y)


@inlined
def walls_of(world, level):
    """Return the Walls of a level."""
    return Walls(world.segments, world.cell_start[level], world.level[level]["segment_first"])


@inlined
def is_open(entity, entities):
    """Return True if a segment belongs to an open door.  entity: the segment's field of that name."""
    return entity >= 0 and entities[entity]["closed"] == 0


@kernel
def closest_point(px, py, x, y, shape):
    """Return (x, y, side): the point of a segment that is closest to (px, py), and the side of (px, py); section 4.3.

    side: below 0 if (px, py) is behind the segment.  The absolute value is the distance from the line times the segment's
        length, or the distance from the arc's full circle; 1.0 for doors and end points of arcs.
    """
    kind = SHAPES[shape, KIND]
    dx, dy = SHAPES[shape, DX], SHAPES[shape, DY]
    ex, ey = px - x, py - y
    if kind == LINE or kind == DOOR_LINE:
        u = (ex * dx + ey * dy) / SHAPES[shape, LENGTH_SQUARED]
        if u < 0.0:
            u = 0.0
        elif u > 1.0:
            u = 1.0
        return x + u * dx, y + u * dy, ey * dx - ex * dy if kind == LINE else 1.0
    if ex * dx > 0.0 and ey * dy > 0.0:
        rho = math.sqrt(ex * ex + ey * ey)
        side = rho - ARC_RADIUS if kind == CONVEX_ARC else ARC_RADIUS - rho
        return x + ARC_RADIUS * ex / rho, y + ARC_RADIUS * ey / rho, side
    if ex * dx > ey * dy:
        return x + ARC_RADIUS * dx, y, 1.0
    return x, y + ARC_RADIUS * dy, 1.0


@inlined
def nearest_segment(px, py, radius, segments, cell_start, first, entities):
    """Return (result, x, y, side, best, others, beside, k) of the surface point nearest to (px, py); section 4.4.

    segments: SEGMENT_DTYPE[S] of the bank.
    cell_start: int32[1101] of the level, relative to ``first``, the index of the level's first segment.
    radius: px; segments in the cells that overlap the square (px, py) +- radius are searched; their distance is not
    limited.
    result: 1 if (px, py) is in front of the segment, -1 behind it, 0 if there is no segment.
    side: see ``closest_point``.
    best: squared distance in px^2, minus FRONT_BONUS for a front face.  In a tie the earlier segment wins.
    others: lower bound of the same quantity for all other segments that were searched.
    beside: lower bound of the distance in px along x to all segments within BAND above or below the point.
    k: index of the segment, -1 if there is none.
    """
    best, others, beside = FAR, FAR, FAR
    result, best_x, best_y, best_side, found = 0, 0.0, 0.0, 1.0, -1
    cy1, cy2 = clamped_cell(py - radius, CELLS_Y), clamped_cell(py + radius, CELLS_Y)
    for cx in range(clamped_cell(px - radius, CELLS_X), clamped_cell(px + radius, CELLS_X) + 1):
        for k in range(first + cell_start[cx * CELLS_Y + cy1], first + cell_start[cx * CELLS_Y + cy2 + 1]):
            if is_open(segments[k]["entity"], entities):
                continue
            ax, ay, shape = segments[k]["x"], segments[k]["y"], segments[k]["shape"]
            ex, ey = px - ax, py - ay
            gap_x = max(max(SHAPES[shape, MIN_X] - ex, ex - SHAPES[shape, MAX_X]), 0.0)
            gap_y = max(max(SHAPES[shape, MIN_Y] - ey, ey - SHAPES[shape, MAX_Y]), 0.0)
            if gap_y < BAND:
                beside = min(beside, gap_x)
            gap = gap_x * gap_x + gap_y * gap_y
            if gap - CLEARLY_FARTHER > best:
                others = min(others, gap - CLEARLY_FARTHER)
                continue
            x, y, side = closest_point(px, py, ax, ay, shape)
            distance = (px - x) * (px - x) + (py - y) * (py - y)
            if side >= 0.0:
                distance -= FRONT_BONUS
            if distance < best:
                others = best
                best, best_x, best_y, best_side, found = distance, x, y, side, k
                result = -1 if side < 0.0 else 1
            else:
                others = min(others, distance)
    return result, best_x, best_y, best_side, best, others, beside, found


@kernel
def nearest_surface(px, py, radius, segments, cell_start, first, entities):
    """Return the results of ``nearest_segment`` without the segment's index k, which most callers do not need."""
    result, x, y, side, best, others, beside, _k = nearest_segment(
        px, py, radius, segments, cell_start, first, entities
    )
    return result, x, y, side, best, others, beside


# One result of ``nearest_surface`` makes most other queries of a frame superfluous; the next functions decide which.
@inlined
def cells_around(x, y, radius):
    """Cells that a query searches: left edges of the first and last column, top edges of the first and last row, px."""
    return (
        SIDE * clamped_cell(x - radius, CELLS_X),
        SIDE * clamped_cell(x + radius, CELLS_X),
        SIDE * clamped_cell(y - radius, CELLS_Y),
        SIDE * clamped_cell(y + radius, CELLS_Y),
    )


@inlined
def searches(x, y, radius, cells):
    """Return True if a query searches exactly the ``cells``, see ``cells_around``; False if it reaches beyond the stage."""
    left, right, top, bottom = cells
    left, right = (x - radius) - left, (x + radius) - right
    top, bottom = (y - radius) - top, (y + radius) - bottom
    return min(min(left, right), min(top, bottom)) >= 0.0 and max(max(left, right), max(top, bottom)) < SIDE


@inlined
def settles(radius, depth, result, side, best, others):
    """Return True if no surface is closer than ``radius`` after a push by ``depth`` px.

    depth: push away from the surface that a query found; below 0 for no push.
    The other arguments are results of the query.  A query after the push, in the same cells, would find the same front
    face again at a distance of ``radius``, up to rounding.  All other segments are clearly farther away.
    """
    if result == 0:
        return True
    clear = radius + max(depth, 0.0) + SURE
    return result == 1 and side > SURE and others > clear * clear and others > best + SURE


@inlined
def move_is_free(wx, wy, query_radius, radius, best, others):
    """Return True if a sweep by (wx, wy) of a circle with ``radius`` hits no segment.

    query_radius, best, others: argument and results of a ``nearest_surface`` at the end of the sweep.
    """
    # A sweep shorter than ``reach`` searches only cells that the query has searched.
    reach = query_radius - radius - SWEEP_MARGIN - BOX_MARGIN
    if not (abs(wx) < reach and abs(wy) < reach):
        return False
    clear = radius + math.sqrt(wx * wx + wy * wy) + BOX_MARGIN
    return min(min(best, others), query_radius * query_radius) > clear * clear


@kernel
def impact_point(x, y, wx, wy, ax, ay, radius):
    """Fraction of the move (wx, wy) at which a point at (x, y) hits a circle around (ax, ay).

    0 if the point starts in the circle, 1 if there is no impact, above 1 for an impact beyond the end of the move.
    """
    ex, ey = x - ax, y - ay
    b = ex * wx + ey * wy
    vv = wx * wx + wy * wy
    k = ex * ex + ey * ey - radius * radius
    if k <= 0.0:
        return 0.0
    if vv > LEAST_MOVE and b < 0.0:
        root = b * b - vv * k
        if root >= 0.0:
            return (-b - math.sqrt(root)) / vv
    return 1.0


@kernel
def _impact_line(x, y, wx, wy, ax, ay, shape, radius):
    """Fraction of the move at which a circle hits the interior of a line segment, as in ``impact_point``."""
    nx, ny, length = SHAPES[shape, UNIT_X], SHAPES[shape, UNIT_Y], SHAPES[shape, LENGTH]
    q = (x - ax) * ny - (y - ay) * nx
    s = (x - ax) * nx + (y - ay) * ny
    if abs(q) >= radius:
        m = wx * ny - wy * nx
        if m * q < 0.0:
            t = min((abs(q) - radius) / abs(m), 1.0)
            along = s + t * (wx * nx + wy * ny)
            if 0.0 <= along <= length:
                return t
        return 1.0
    return 0.0 if 0.0 <= s <= length else 1.0


@kernel
def _impact_arc(x, y, wx, wy, ax, ay, shape, radius):
    """Fraction of the move at which a circle hits the interior of an arc, as in ``impact_point``."""
    hor, ver = SHAPES[shape, DX], SHAPES[shape, DY]
    ex, ey = x - ax, y - ay
    vv = wx * wx + wy * wy
    b = ex * wx + ey * wy
    ee = ex * ex + ey * ey
    outer, inner = ARC_RADIUS + radius, ARC_RADIUS - radius
    t = 1.0
    if ee > outer * outer:
        if vv > LEAST_MOVE and b < 0.0:
            root = b * b - vv * (ee - outer * outer)
            if root >= 0.0:
                t = (-b - math.sqrt(root)) / vv
    elif ee < inner * inner:
        if vv > LEAST_MOVE:
            t = min((-b + math.sqrt(b * b - vv * (ee - inner * inner))) / vv, 1.0)
    else:
        t = 0.0
    if (ex + t * wx) * hor > 0.0 and (ey + t * wy) * ver > 0.0:
        return t
    return 1.0


@kernel
def impact_segment(x, y, wx, wy, ax, ay, shape, radius):
    """Fraction of the move (wx, wy) at which a circle hits a segment, end points included; see ``impact_point``."""
    ax, ay = float(ax), float(ay)
    dx, dy = SHAPES[shape, DX], SHAPES[shape, DY]
    kind = SHAPES[shape, KIND]
    if kind == LINE or kind == DOOR_LINE:
        first = impact_point(x, y, wx, wy, ax, ay, radius)
        second = impact_point(x, y, wx, wy, ax + dx, ay + dy, radius)
        return min(min(first, second), _impact_line(x, y, wx, wy, ax, ay, shape, radius))
    first = impact_point(x, y, wx, wy, ax + ARC_RADIUS * dx, ay, radius)
    second = impact_point(x, y, wx, wy, ax, ay + ARC_RADIUS * dy, radius)
    return min(min(first, second), _impact_arc(x, y, wx, wy, ax, ay, shape, radius))


@kernel
def sweep(x, y, wx, wy, radius, segments, cell_start, first, entities):
    """Fraction of the move (wx, wy) at which a circle first touches a segment; 1 if it touches none (section 4.6)."""
    low_x, high_x = min(x, x + wx), max(x, x + wx)
    low_y, high_y = min(y, y + wy), max(y, y + wy)
    cy1, cy2 = (
        clamped_cell(low_y - (radius + SWEEP_MARGIN), CELLS_Y),
        clamped_cell(high_y + (radius + SWEEP_MARGIN), CELLS_Y),
    )
    cx1, cx2 = (
        clamped_cell(low_x - (radius + SWEEP_MARGIN), CELLS_X),
        clamped_cell(high_x + (radius + SWEEP_MARGIN), CELLS_X),
    )
    reach = radius + BOX_MARGIN
    t = 1.0
    for cx in range(cx1, cx2 + 1):
        for k in range(first + cell_start[cx * CELLS_Y + cy1], first + cell_start[cx * CELLS_Y + cy2 + 1]):
            ax, ay, shape = segments[k]["x"], segments[k]["y"], segments[k]["shape"]
            if (
                ax + SHAPES[shape, MIN_X] > high_x + reach
                or ax + SHAPES[shape, MAX_X] < low_x - reach
                or ay + SHAPES[shape, MIN_Y] > high_y + reach
                or ay + SHAPES[shape, MAX_Y] < low_y - reach
            ):
                continue
            if is_open(segments[k]["entity"], entities):
                continue
            t = min(t, impact_segment(x, y, wx, wy, ax, ay, shape, radius))
    return t


@inlined
def sweep_to(x, y, wx, wy, sweep_radius, radius, segments, cell_start, first, entities):
    """Move a body by (wx, wy) until a circle with ``sweep_radius`` around its centre touches a segment.

    Returns (x, y, result of ``nearest_surface`` at (x, y) with ``radius``).  The sweep is skipped if the result at the end
    of the move shows that nothing is hit.
    """
    to_x, to_y = x + 1.0 * wx, y + 1.0 * wy
    found = nearest_surface(to_x, to_y, radius, segments, cell_start, first, entities)
    if not move_is_free(wx, wy, radius, sweep_radius, found[4], found[5]):
        t = sweep(x, y, wx, wy, sweep_radius, segments, cell_start, first, entities)
        if t != 1.0:
            to_x, to_y = x + t * wx, y + t * wy
            found = nearest_surface(to_x, to_y, radius, segments, cell_start, first, entities)
    return to_x, to_y, found


@kernel
def is_beside(x, y, segment):
    """Return True if the point of a segment that is closest to (x, y) is not beyond one of its ends."""
    shape = segment["shape"]
    ex, ey = x - segment["x"], y - segment["y"]
    dx, dy = SHAPES[shape, DX], SHAPES[shape, DY]
    if SHAPES[shape, KIND] == LINE or SHAPES[shape, KIND] == DOOR_LINE:
        return 0.0 <= (ex * dx + ey * dy) / SHAPES[shape, LENGTH_SQUARED] <= 1.0
    return ex * dx > 0.0 and ey * dy > 0.0


@kernel
def surface_normal(x, y, segment, from_x, from_y):
    """Unit normal of a segment at its point (x, y), towards its open side; towards (from_x, from_y) for a door."""
    shape = segment["shape"]
    kind = SHAPES[shape, KIND]
    if kind != LINE and kind != DOOR_LINE:
        out = ARC_RADIUS if kind == CONVEX_ARC else -ARC_RADIUS
        return (x - segment["x"]) / out, (y - segment["y"]) / out
    nx, ny = -SHAPES[shape, UNIT_Y], SHAPES[shape, UNIT_X]
    if kind == DOOR_LINE and (from_x - x) * nx + (from_y - y) * ny < 0.0:
        return -nx, -ny
    return nx, ny
