"""The think pass of mines and regular doors, and the effects of the entities that the ninja touches.

Source: docs/physics.md, sections 4.2, 6.5 and 7.  Section numbers refer to that page.  ``entities`` is ENTITY_DTYPE[E] and
``movers`` MOVER_DTYPE[M] of one environment; ``base`` is the row of the level's first entity in ``world.entity``.
"""

import math

import numpy as np

from nppsim._numba.decorators import inlined, kernel, merged
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.physics import state as s
from nppsim.physics.bodies import (
    BEFORE_ALL,
    BLOCK_HALF,
    SAME_FACE,
    SHOVE_HALF,
    THWUMP_HALF,
    WALL_MARGIN,
    gather_key,
    next_mover,
    one_way_depth,
    point_in_square,
)
from nppsim.physics.evil_ninjas import EVIL_RADIUS, SPAWNER_RADIUS, wake
from nppsim.physics.grid import register
from nppsim.physics.groups import is_mine
from nppsim.physics.movers import BALL_RADIUS, GUARD_RADIUS, MINI_RADIUS, SHOVE_CORE, THWUMP_REACH, ZAP_RADIUS
from nppsim.physics.ninja import is_valid_target, kill, win
from nppsim.physics.segments import clamped_cell, impact_point
from nppsim.physics.shooters import explode
from nppsim.physics.state import ITEM_ENTITY, ITEM_REACH, ITEM_X, ITEM_Y

# Mines (section 7.2): their states, and the radius in each state.
ARMED, DORMANT, ARMING = range(3)
ARMED_RADIUS = 4.0  # px
DORMANT_RADIUS = 3.5  # px
ARMING_RADIUS = 4.5  # px

# Radii, px.
GOLD_RADIUS = 6.0
EXIT_RADIUS = 12.0
EXIT_SWITCH_RADIUS = 6.0
REGULAR_DOOR_RADIUS = 10.0
DOOR_SWITCH_RADIUS = 5.0  # switches of locked doors and trap doors
PAD_RADIUS = 6.0  # launch pads

MOVER_REACH = 23.0  # px along an axis; touching a mover that is farther from the ninja has no effect
REGULAR_DOOR_OPEN_FRAMES = 5  # frames that a regular door stays open after the last touch
PAD_SPEED = 36.0 / 7.0  # px per frame; a launch pad gives the ninja two thirds of this speed, more if it points upwards
PAD_BEHIND = -0.1  # px; minimum overlap of the ninja's circle with a launch pad's plane for a launch; negative: a gap
LETHAL_HALF_WIDTH = 7.0  # px, half the width of a thwump's lethal face
LETHAL_REACH = 12.0  # px; a ninja whose centre is closer than this to the lethal face dies
SHOVE_OVERLAP = 0.2  # px; a shove thwump triggers if the overlap along the touched face exceeds this
BALL_KICK = 10.0  # px per frame, speed that a death ball gains when it kills the ninja


@kernel
def _touches(ninja, x, y, radius):
    dx, dy = ninja["x"] - x, ninja["y"] - y
    return math.sqrt(dx * dx + dy * dy) < radius + s.RADIUS


@inlined
def _within_reach(ninja, item):
    """Quick test: return False if the ninja cannot touch an entity.  item: the entity's row of ``entity_items``."""
    reach = item[ITEM_REACH]
    return abs(ninja["x"] - item[ITEM_X]) < reach and abs(ninja["y"] - item[ITEM_Y]) < reach


@merged
def think(ninja, entities, world, level):
    """Run the think pass of regular doors, which close after a while, and of mines, which arm."""
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["doors_first"], world.level[level]["doors_end"]):  # regular doors
        door = entities[k - base]
        if door["closed"] == 0:
            door["clock"] += 1
            if door["clock"] > REGULAR_DOOR_OPEN_FRAMES:
                door["closed"] = 1
                door["blocking"] += 1
    if world.level[level]["toggle_mines"] == 0 and ninja["arming"] == 0:
        return
    # Dormant mines start to arm when touched, so a search of the cells around the ninja finds them.  The ninja may have
    # left the cells around an arming mine, so the state of all mines is checked.
    target = is_valid_target(ninja)
    if ninja["arming"]:
        still_arming = 0
        for k in range(base, world.level[level]["entity_end"]):
            kind = world.entity[k]["type"]
            if is_mine(kind) and entities[k - base]["state"] == ARMING:
                if target and _touches(ninja, world.entity[k]["x"], world.entity[k]["y"], ARMING_RADIUS):
                    still_arming = 1
                else:
                    dead = ninja["state"] == s.DEAD or ninja["state"] == s.DISABLED
                    entities[k - base]["state"] = DORMANT if dead else ARMED
        ninja["arming"] = still_arming
    if not target:
        return
    cell_x, cell_y = clamped_cell(ninja["x"], CELLS_X), clamped_cell(ninja["y"], CELLS_Y)
    cell_start, items = world.entity_cell_start[level], world.level[level]["items_first"]
    cy1, cy2 = max(cell_y - 1, 0), min(cell_y + 1, CELLS_Y - 1)
    for cx in range(max(cell_x - 1, 0), min(cell_x + 2, CELLS_X)):
        for i in range(items + cell_start[cx * CELLS_Y + cy1], items + cell_start[cx * CELLS_Y + cy2 + 1]):
            if not _within_reach(ninja, world.entity_items[i]):
                continue
            k = world.entity_items[i, ITEM_ENTITY]
            kind = world.entity[base + k]["type"]
            if (
                is_mine(kind)
                and entities[k]["state"] == DORMANT
                and _touches(ninja, world.entity[base + k]["x"], world.entity[base + k]["y"], DORMANT_RADIUS)
            ):
                entities[k]["state"] = ARMING
                ninja["arming"] = 1


@merged
def interact(ninja, entities, movers, world, level):
    """Apply the effects of the entities that the ninja touches, in the order of section 4.2.

    Returns the normal's x of the first body that is a wall beside the ninja, or 0.0 if there is none.  If this pass opens
    an exit, the exit can be touched from the next frame on.
    """
    x, y = ninja["x"], ninja["y"]
    cell_x, cell_y = clamped_cell(x, CELLS_X), clamped_cell(y, CELLS_Y)
    record = world.level[level]
    base, items = record["entity_first"], record["items_first"]
    cell_start, count = world.entity_cell_start[level], len(movers)
    cx1, cx2 = max(cell_x - 1, 0), min(cell_x + 1, CELLS_X - 1)
    cy1, cy2 = max(cell_y - 1, 0), min(cell_y + 1, CELLS_Y - 1)
    limit = ninja["registrations"]
    wall = 0.0
    m, key, low, high = -1, 0, 0, 0
    if record["moves"] or ninja["switch_taken"]:  # otherwise all movers are closed exits, which cannot be touched
        m, key, low, high = next_mover(
            movers, np.int64(0), count, cx1, cx2, cy1, cy2, x, y, MOVER_REACH, BEFORE_ALL, limit
        )
    if m < 0 and world.near[level, cell_x * CELLS_Y + cell_y] & s.NEAR_ITEMS == 0:
        return wall
    if m < 0 and record["pads"] == 0:
        for cx in range(cx1, cx2 + 1):
            for i in range(items + cell_start[cx * CELLS_Y + cy1], items + cell_start[cx * CELLS_Y + cy2 + 1]):
                if _within_reach(ninja, world.entity_items[i]):
                    felt = _touch(ninja, entities, movers, world, base, world.entity_items[i, ITEM_ENTITY])
                    wall = felt if wall == 0.0 else wall
        return wall
    for cx in range(cx1, cx2 + 1):
        for cy in range(cy1, cy2 + 1):
            cell = cx * CELLS_Y + cy
            for i in range(items + cell_start[cell], items + cell_start[cell + 1]):
                k = world.entity_items[i, ITEM_ENTITY]
                while m >= 0 and key < gather_key(cell, world.entity[base + k]["order"]):
                    felt = _touch_mover(ninja, movers[m], movers, world, base)
                    wall = felt if wall == 0.0 else wall
                    m, key, low, high = next_mover(movers, low, high, cx1, cx2, cy1, cy2, x, y, MOVER_REACH, key, limit)
                if _within_reach(ninja, world.entity_items[i]):
                    felt = _touch(ninja, entities, movers, world, base, k)
                    wall = felt if wall == 0.0 else wall
                    if ninja["x"] != x or ninja["y"] != y:  # a launch pad has moved the ninja, maybe to other movers
                        x, y, after = ninja["x"], ninja["y"], gather_key(cell, world.entity[base + k]["order"])
                        m, key, low, high = next_mover(
                            movers, np.int64(0), count, cx1, cx2, cy1, cy2, x, y, MOVER_REACH, after, limit
                        )
    while m >= 0:
        felt = _touch_mover(ninja, movers[m], movers, world, base)
        wall = felt if wall == 0.0 else wall
        m, key, low, high = next_mover(movers, low, high, cx1, cx2, cy1, cy2, x, y, MOVER_REACH, key, limit)
    return wall


@kernel
def _touch(ninja, entities, movers, world, base, k):
    """Apply the effects of an entity that stays in its cell; return its normal's x if it is a wall, else 0.0."""
    entity = entities[k]
    if entity["active"] == 0:
        return 0.0
    kind = world.entity[base + k]["type"]
    x, y = world.entity[base + k]["x"], world.entity[base + k]["y"]
    if is_mine(kind):
        if entity["state"] == ARMED and is_valid_target(ninja) and _touches(ninja, x, y, ARMED_RADIUS):
            entity["state"] = DORMANT
            kill(ninja)
    elif kind == kinds.GOLD:
        if ninja["state"] != s.CELEBRATING and _touches(ninja, x, y, GOLD_RADIUS):
            ninja["gold"] += 1
            entity["active"] = 0
    elif kind == kinds.EXIT_SWITCH:
        if _touches(ninja, x, y, EXIT_SWITCH_RADIUS):
            entity["active"] = 0
            ninja["switch_taken"] = 1
            door = world.entity[base + k]["partner"]
            entities[door]["clock"] = 1
            mover = movers[world.entity[base + door]["mover"]]
            register(ninja, mover, clamped_cell(mover["x"], CELLS_X), clamped_cell(mover["y"], CELLS_Y))
    elif kind == kinds.REGULAR_DOOR:
        if _touches(ninja, x, y, REGULAR_DOOR_RADIUS):
            entity["closed"] = 0
            entity["clock"] = 0
            entity["blocking"] -= 1
    elif kind == kinds.LOCKED_DOOR or kind == kinds.TRAP_DOOR:
        if _touches(ninja, x, y, DOOR_SWITCH_RADIUS):
            entity["closed"] = 1 if kind == kinds.TRAP_DOOR else 0
            entity["blocking"] += 1 if kind == kinds.TRAP_DOOR else -1
            entity["active"] = 0
    elif kind == kinds.LAUNCH_PAD:
        if is_valid_target(ninja) and _touches(ninja, x, y, PAD_RADIUS):
            _launch(ninja, x, y, world.entity[base + k]["x1"], world.entity[base + k]["y1"])
    elif kind == kinds.ONE_WAY:
        nx = world.entity[base + k]["x1"]
        if abs(nx) == 1.0 and one_way_depth(ninja, x, y, nx, world.entity[base + k]["y1"]) >= 0.0:
            return nx
    return 0.0


@kernel
def _launch(ninja, x, y, nx, ny):
    """Apply the boost of a launch pad unless the ninja is too far in front of the pad (sections 7.5 and 6.5 A)."""
    if not (x - (ninja["x"] - s.RADIUS * nx)) * nx + (y - (ninja["y"] - s.RADIUS * ny)) * ny >= PAD_BEHIND:
        return
    boost_x = nx * PAD_SPEED * 2.0 / 3.0
    boost_y = ny * PAD_SPEED * (1.0 - ny if ny < 0.0 else 1.0) * 2.0 / 3.0
    ninja["x"] += boost_x
    ninja["y"] += boost_y
    ninja["vx"], ninja["vy"] = boost_x, boost_y
    ninja["floor_count"] = 0
    ninja["floor_buffer"] = -1
    length = math.sqrt(boost_x * boost_x + boost_y * boost_y)
    ninja["pad_x"], ninja["pad_y"] = boost_x / length, boost_y / length
    ninja["pad_buffer"] = 0
    if ninja["state"] == s.JUMPING:
        ninja["gravity"] = s.GRAVITY_FALL
    ninja["state"] = s.FALLING


@kernel
def _touch_mover(ninja, mover, movers, world, base):
    """Apply the effects of an exit or a moving entity; return its normal's x if it is a wall, else 0.0."""
    kind = mover["type"]
    x, y = mover["x"], mover["y"]
    if kind == kinds.EXIT:
        if _touches(ninja, x, y, EXIT_RADIUS):
            win(ninja)
            px, py = ninja["start_x"], ninja["start_y"]
            wx, wy = ninja["x"] - px, ninja["y"] - py
            ninja["win_fraction"] = impact_point(px, py, wx, wy, x, y, EXIT_RADIUS + s.RADIUS)
    elif kind == kinds.BOUNCE_BLOCK:
        return point_in_square(ninja["x"], ninja["y"], x, y, BLOCK_HALF + WALL_MARGIN + s.RADIUS)[1]
    elif kind == kinds.SHOVE_THWUMP:
        return _touch_shove(ninja, mover)
    elif is_valid_target(ninja):
        if kind == kinds.THWUMP:
            return _touch_thwump(ninja, mover)
        if kind == kinds.DEATH_BALL:
            if _touches(ninja, x, y, BALL_RADIUS):
                dx, dy = x - ninja["x"], y - ninja["y"]
                distance = math.sqrt(dx * dx + dy * dy)
                if distance > 0.0:
                    mover["vx"] += dx / distance * BALL_KICK
                    mover["vy"] += dy / distance * BALL_KICK
                kill(ninja)
        elif kind == kinds.EVIL_NINJA:
            if mover["state"] == s.FOLLOWING:
                if _touches(ninja, x, y, EVIL_RADIUS):
                    kill(ninja)
            elif _touches(ninja, x, y, SPAWNER_RADIUS):
                wake(ninja, mover, movers, world, ninja["level"])
        elif kind == kinds.ROCKET_TURRET:
            if _touches(ninja, x, y, 0.0):
                kill(ninja)
                explode(mover, world.entity[base + mover["entity"]])
        else:
            radius = (
                MINI_RADIUS if kind == kinds.MINI_DRONE else (GUARD_RADIUS if kind == kinds.FLOOR_GUARD else ZAP_RADIUS)
            )
            if _touches(ninja, x, y, radius):
                kill(ninja)
    return 0.0


@kernel
def _touch_thwump(ninja, thwump):
    """Kill a ninja at the lethal face of a thwump; return the touched face's normal x, or 0.0 (section 7.10)."""
    x, y = thwump["x"], thwump["y"]
    inside, nx, _ny, _depth, _other = point_in_square(
        ninja["x"], ninja["y"], x, y, THWUMP_HALF + WALL_MARGIN + s.RADIUS
    )
    if not inside:
        return 0.0
    ahead = THWUMP_REACH * thwump["direction"]
    if thwump["mode"] == s.HORIZONTAL:
        x1, y1, dx, dy = x + ahead, y - LETHAL_HALF_WIDTH, 0.0, 2.0 * LETHAL_HALF_WIDTH
    else:
        x1, y1, dx, dy = x - LETHAL_HALF_WIDTH, y + ahead, 2.0 * LETHAL_HALF_WIDTH, 0.0
    u = ((ninja["x"] - x1) * dx + (ninja["y"] - y1) * dy) / (dx * dx + dy * dy)
    u = min(max(u, 0.0), 1.0)
    off_x, off_y = ninja["x"] - (x1 + u * dx), ninja["y"] - (y1 + u * dy)
    if off_x * off_x + off_y * off_y < LETHAL_REACH * LETHAL_REACH:
        kill(ninja)
    return nx


@kernel
def _touch_shove(ninja, thwump):
    """Trigger a shove thwump, or kill a ninja at its core; return the touched face's normal x, or 0.0."""
    inside, nx, ny, _depth, other = point_in_square(
        ninja["x"], ninja["y"], thwump["x"], thwump["y"], SHOVE_HALF + WALL_MARGIN + s.RADIUS
    )
    if inside and thwump["state"] == s.IDLE:
        thwump["flag"] = 1
        if other > SHOVE_OVERLAP:
            thwump["push_x"], thwump["push_y"] = int(nx), int(ny)
            thwump["state"] = s.TRIGGERED
        return nx
    if inside and thwump["state"] == s.TRIGGERED:
        if thwump["push_x"] * nx + thwump["push_y"] * ny >= SAME_FACE:
            thwump["flag"] = 1
            return nx
        return 0.0
    if _touches(ninja, thwump["x"], thwump["y"], SHOVE_CORE):
        kill(ninja)
    return 0.0
