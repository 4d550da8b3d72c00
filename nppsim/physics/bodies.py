"""Bodies that push the ninja: one-ways, bounce blocks, thwumps, shove thwumps (docs/physics.md, section 6.4.1).

Section numbers refer to that page.  Section 4.2 defines the order of contacts with entities, section 4.7 the overlap
of a point with a square.
"""

import math

import numpy as np

from nppsim._numba.decorators import inlined, kernel
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.physics import state as s
from nppsim.physics.groups import is_block
from nppsim.physics.segments import clamped_cell
from nppsim.physics.state import ITEM_ENTITY

# One-way platforms (section 7.6).
ONE_WAY_HALF_LENGTH = 12.0  # px
ONE_WAY_DEPTH = 1.1  # px; no contact if the ninja overlapped the platform by more than this at the start of the frame
ONE_WAY_SHARE = 0.51  # maximum distance of the ninja's centre past an end of the platform, as a fraction of its radius
ONE_WAY_SHARE_INWARDS = 0.90  # the same fraction while the ninja moves towards the middle of the platform

# Half-sides of square bodies, px.
BLOCK_HALF = 9.0
THWUMP_HALF = 9.0
SHOVE_HALF = 12.0

WALL_MARGIN = 0.1  # px on each side by which the square that counts as a wall exceeds the square that pushes the ninja
BLOCK_SHARE = 0.2  # fraction of the overlap by which a bounce block moves the ninja; the block moves by the rest
SAME_FACE = 0.01  # minimum cosine between contact normal and face normal for a triggered shove thwump to push
FLOOR_LIMIT = -0.0001  # minimum y of the normal of a ceiling or wall; a contact with a smaller y is a floor

# A bounce block, thwump or shove thwump whose centre is farther than BLOCK_REACH + BLOCK_MARGIN px along an axis from
# the ninja's centre cannot touch the ninja until one of the two has moved by BLOCK_MARGIN px.
BLOCK_REACH = 24.0
BLOCK_MARGIN = 12.0

BEFORE_ALL = np.int64(-1)  # below any ``gather_key``; not a literal, because Numba would compile ``next_mover`` twice
ANY_DISTANCE = math.inf  # px, a ``reach`` of ``next_mover`` that excludes nothing


@kernel
def point_in_square(px, py, x, y, half):
    """Return (inside, normal x, normal y, depth, depth along the other axis) of a point in a square; section 4.7.

    The normal is that of the face nearest to the point, and ``depth`` the distance to this face in px.  All numbers are
    0.0 if the point is not inside.
    """
    depth_x = half - abs(px - x)
    depth_y = half - abs(py - y)
    if not (depth_x > 0.0 and depth_y > 0.0):
        return False, 0.0, 0.0, 0.0, 0.0
    if depth_y <= depth_x:
        return True, 0.0, -1.0 if py - y < 0.0 else 1.0, depth_y, depth_x
    return True, -1.0 if px - x < 0.0 else 1.0, 0.0, depth_x, depth_y


@kernel
def one_way_depth(ninja, x, y, nx, ny):
    """Depth in px, at least 0, of the ninja's contact with a one-way; -1.0 without contact (section 7.6)."""
    ex, ey = ninja["x"] - x, ninja["y"] - y
    lateral = ey * nx - ex * ny
    drift = (ninja["vy"] * nx - ninja["vx"] * ny) * lateral
    share = ONE_WAY_SHARE_INWARDS if drift < 0.0 else ONE_WAY_SHARE
    if not abs(lateral) < share * s.RADIUS + ONE_WAY_HALF_LENGTH:
        return -1.0
    distance = ex * nx + ey * ny
    if not 0.0 < distance <= s.RADIUS:
        return -1.0
    if not ninja["vx"] * nx + ninja["vy"] * ny <= 0.0:
        return -1.0
    before = (ninja["start_x"] - x) * nx + (ninja["start_y"] - y) * ny
    if not s.RADIUS - before <= ONE_WAY_DEPTH:
        return -1.0
    return s.RADIUS - distance


@kernel
def next_mover(movers, first, end, x1, x2, y1, y2, x, y, reach, after, limit):
    """Find the next mover in the order of section 4.2; return (index, key, low, high).

    The candidates are movers ``first`` to ``end`` - 1 that are registered in cells x1..x2, y1..y2, with a ``gather_key``
    above ``after``, an order below ``limit`` and a centre within ``reach`` px of (x, y) along each axis.  The candidate with
    the smallest key is next.
    index, key: index of the next mover and its ``gather_key``; -1 and 0 if there is no candidate.
    low, high: the candidates' indices are in the range low to high - 1; the next call needs to search only this range.
    """
    best, best_key, low, high = -1, 0, end, end
    for m in range(first, end):
        cell_x, cell_y = movers[m]["cell_x"], movers[m]["cell_y"]
        if abs(movers[m]["x"] - x) > reach or abs(movers[m]["y"] - y) > reach:
            continue
        if x1 <= cell_x <= x2 and y1 <= cell_y <= y2 and movers[m]["order"] < limit:
            key = gather_key(np.int64(cell_x) * CELLS_Y + np.int64(cell_y), movers[m]["order"])
            if key > after:
                low, high = min(low, m), m + 1
                if best < 0 or key < best_key:
                    best, best_key = m, key
    return best, best_key, low, high


@inlined
def gather_key(cell, order):
    """Sort key of the entities around the ninja: the number of their cell, then the order of registration in it."""
    return (np.int64(cell) << 32) + order


@kernel
def blocks_near(x, y, movers, record):
    """Return True if any bounce block, thwump or shove thwump may touch a ninja within BLOCK_MARGIN of (x, y).

    record: LEVEL_DTYPE of the level.
    """
    reach = BLOCK_REACH + BLOCK_MARGIN
    if record["blocks"]:
        for m in range(record["first_moving"], len(movers)):
            near = abs(movers[m]["x"] - x) <= reach and abs(movers[m]["y"] - y) <= reach
            if near and is_block(movers[m]["type"]):
                return True
    return False


@kernel
def touch_bodies(ninja, movers, world, level):
    """Apply the contacts of one substep, one by one in the order of section 4.2; return the number of contacts."""
    cell_x, cell_y = clamped_cell(ninja["x"], CELLS_X), clamped_cell(ninja["y"], CELLS_Y)
    x1, x2 = max(cell_x - 1, 0), min(cell_x + 1, CELLS_X - 1)
    y1, y2 = max(cell_y - 1, 0), min(cell_y + 1, CELLS_Y - 1)
    record = world.level[level]
    base, items = record["entity_first"], record["items_first"]
    cell_start, count = world.entity_cell_start[level], len(movers)
    limit = ninja["registrations"]
    contacts = 0
    m, key, low, high = next_mover(
        movers, record["first_moving"], count, x1, x2, y1, y2, 0.0, 0.0, ANY_DISTANCE, BEFORE_ALL, limit
    )
    if world.near[level, cell_x * CELLS_Y + cell_y] & s.NEAR_ONE_WAYS:
        for cx in range(x1, x2 + 1):
            for cy in range(y1, y2 + 1):
                cell = cx * CELLS_Y + cy
                for i in range(items + cell_start[cell], items + cell_start[cell + 1]):
                    k = base + world.entity_items[i, ITEM_ENTITY]
                    if world.entity[k]["type"] != kinds.ONE_WAY:
                        continue
                    while m >= 0 and key < gather_key(cell, world.entity[k]["order"]):
                        contacts += _touch_mover(ninja, movers[m])
                        m, key, low, high = next_mover(
                            movers, low, high, x1, x2, y1, y2, 0.0, 0.0, ANY_DISTANCE, key, limit
                        )
                    nx, ny = world.entity[k]["x1"], world.entity[k]["y1"]
                    depth = one_way_depth(ninja, world.entity[k]["x"], world.entity[k]["y"], nx, ny)
                    if depth >= 0.0:
                        _push(ninja, nx, ny, depth)
                        c = ninja["vx"] * ny - ninja["vy"] * nx
                        ninja["vx"], ninja["vy"] = c * ny, c * -nx
                        contacts += 1
    while m >= 0:
        contacts += _touch_mover(ninja, movers[m])
        m, key, low, high = next_mover(movers, low, high, x1, x2, y1, y2, 0.0, 0.0, ANY_DISTANCE, key, limit)
    return contacts


@kernel
def _touch_mover(ninja, mover):
    """Apply the contact with one bounce block, thwump or shove thwump; return the number of contacts, 0 or 1."""
    kind = mover["type"]
    if kind == kinds.BOUNCE_BLOCK:
        inside, nx, ny, depth, _other = point_in_square(
            ninja["x"], ninja["y"], mover["x"], mover["y"], BLOCK_HALF + s.RADIUS
        )
        if not inside:
            return 0
        mover["x"] -= nx * depth * (1.0 - BLOCK_SHARE)
        mover["y"] -= ny * depth * (1.0 - BLOCK_SHARE)
        mover["vx"] -= nx * depth * (1.0 - BLOCK_SHARE)
        mover["vy"] -= ny * depth * (1.0 - BLOCK_SHARE)
        depth = depth * BLOCK_SHARE
        ninja["x"] += nx * depth
        ninja["y"] += ny * depth
        count_contact(ninja, ny, nx, ny)
    elif kind == kinds.THWUMP or (kind == kinds.SHOVE_THWUMP and mover["state"] <= s.TRIGGERED):
        half = THWUMP_HALF if kind == kinds.THWUMP else SHOVE_HALF
        inside, nx, ny, depth, _other = point_in_square(ninja["x"], ninja["y"], mover["x"], mover["y"], half + s.RADIUS)
        if not inside:
            return 0
        triggered = kind == kinds.SHOVE_THWUMP and mover["state"] == s.TRIGGERED
        if triggered and mover["push_x"] * nx + mover["push_y"] * ny < SAME_FACE:
            return 0
        if kind == kinds.THWUMP:
            ninja["crushable"] = 1
        _push(ninja, nx, ny, depth)
    else:
        return 0
    ninja["vx"] += nx * depth
    ninja["vy"] += ny * depth
    return 1


@kernel
def _push(ninja, nx, ny, depth):
    ninja["x"] += nx * depth
    ninja["y"] += ny * depth
    add_crush(ninja, nx, ny, depth)
    count_contact(ninja, ny, nx, ny)


@inlined
def add_crush(ninja, nx, ny, depth):
    """Add a push by ``depth`` px along (nx, ny) to the sums that decide whether the ninja is crushed."""
    ninja["crush_x"] += nx * depth
    ninja["crush_y"] += ny * depth
    ninja["crush_length"] += depth


@inlined
def count_contact(ninja, steepness, nx, ny):
    """Count a contact with unit normal (nx, ny) as a floor, or as a ceiling (walls included).

    steepness: y of the normal, not necessarily of unit length.
    """
    if steepness >= FLOOR_LIMIT:
        ninja["ceiling_count"] += 1
        ninja["ceiling_sum_x"] += nx
        ninja["ceiling_sum_y"] += ny
    else:
        ninja["floor_count"] += 1
        ninja["floor_sum_x"] += nx
        ninja["floor_sum_y"] += ny
