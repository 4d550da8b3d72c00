"""Movers that cannot affect the ninja within the horizon of foresight: they are too far away, or their next shot is too late.

A branch of foresight omits them, because nothing in the branch would read their state.
"""

import math

from nppsim._numba.decorators import entry, inlined, kernel, merged
from nppsim.levels import kinds
from nppsim.physics.bodies import BLOCK_MARGIN, BLOCK_REACH
from nppsim.physics.groups import is_block, is_shooting_drone
from nppsim.physics.lasers import move_laser
from nppsim.physics.movers import CHASE_SPEED, GUARD_SPEED, MINI_SPEED, SHOVE_LAUNCH, THWUMP_CHARGE, ZAP_SPEED
from nppsim.physics.segments import walls_of
from nppsim.physics.shooters import (
    FIRING,
    GAUSS_TARGETING,
    POSTFIRE,
    PREFIRE,
    ROCKET_MAX_SPEED,
    TARGETING,
    WATCHING,
)
from nppsim.physics.state import IDLE, RADIUS, UNTOUCHED

PREPARED = 40  # frames; shooting drones and gauss turrets without a target do not shoot within this time
TOUCH = 32.0  # px along an axis; no mover other than a block touches the ninja from farther away
PUSH = BLOCK_REACH + BLOCK_MARGIN + 28.0  # px, the same for blocks, with a margin for pushes within the frame
SWING = 7.0  # frames; a bounce block stays within its current distance from home plus SWING times its speed
BEAM_TOUCH = RADIUS + 1.0  # px, more than any distance at which a beam kills
DOORS_NEARBY = 128.0  # px along an axis; doors farther than this from a laser do not affect its motion


@kernel
def find_clearances(level, entities, movers, world, area, settings, later, out):
    """Write how far outside of an area the ninja must be to be affected by each mover within the horizon.

    area: (x, y, half-width, half-height) of the rectangle, px.
    settings: record of FORESIGHT_DTYPE.
    later: MOVER_DTYPE[M], output: each laser with a clearance above 0, as it will be at the horizon.
    out: float64[M], lower bounds in px along an axis; at most 0: the mover may affect a ninja that stays in the area;
        inf: it affects the ninja nowhere.  Exits are left out.
    """
    record, walls = world.level[level], walls_of(world, level)
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        if movers[m]["type"] != kinds.LASER:
            out[m] = _clearance(movers[m], world.entity[record["entity_first"] + movers[m]["entity"]], area, settings)
        elif _door_is_nearby(movers[m], record, world):
            out[m] = -math.inf
        else:
            later[m] = movers[m]
            out[m] = _beam_clearance(later[m], area, settings["horizon"], record["rules"], walls, entities)


@inlined
def _outside(body, area, reach):
    """Distance in px along an axis by which an area, extended by ``reach``, must grow to contain a body."""
    x, y, width, height = area
    return max(abs(body["x"] - x) - width, abs(body["y"] - y) - height) - reach


@merged
def _clearance(mover, home, area, settings):
    """See ``find_clearances``.  home: PLACED_DTYPE record of the entity."""
    kind, state, horizon = mover["type"], mover["state"], settings["horizon"]
    if is_shooting_drone(kind):
        return -math.inf if (state != WATCHING and state != POSTFIRE) or horizon > PREPARED else math.inf
    if kind == kinds.GAUSS_TURRET:
        ready = state == TARGETING and mover["timer"] + settings["credit"] > GAUSS_TARGETING
        return -math.inf if ready or state == PREFIRE or horizon > PREPARED else math.inf
    reach = PUSH if is_block(kind) else TOUCH
    if kind == kinds.BOUNCE_BLOCK:
        x, y, width, height = area
        swing_x = abs(mover["x"] - home["x"]) + SWING * abs(mover["vx"])
        swing_y = abs(mover["y"] - home["y"]) + SWING * abs(mover["vy"])
        return _outside(home, (x, y, width + swing_x, height + swing_y), reach)
    if kind == kinds.ROCKET_TURRET:  # after an explosion, the next rocket starts at home
        far = reach + horizon * ROCKET_MAX_SPEED
        found = _outside(home, area, far if state == PREFIRE else reach + settings["flight"])
        return min(found, _outside(mover, area, far)) if state == FIRING else found
    if kind == kinds.MINI_DRONE:
        reach += horizon * MINI_SPEED
    elif kind == kinds.ZAP_DRONE:
        reach += horizon * ZAP_SPEED
    elif kind == kinds.CHASER_DRONE:
        reach += horizon * CHASE_SPEED
    elif kind == kinds.FLOOR_GUARD:
        reach += horizon * GUARD_SPEED
    elif kind == kinds.THWUMP:
        reach += horizon * THWUMP_CHARGE
    elif kind == kinds.SHOVE_THWUMP:
        reach += horizon * SHOVE_LAUNCH if state != IDLE else 0.0
    elif kind != kinds.EVIL_NINJA or state != UNTOUCHED:
        return -math.inf
    return _outside(mover, area, reach)


@inlined
def _door_is_nearby(laser, record, world):
    for k in range(record["doors_first"], record["switches_end"]):
        door = world.entity[k]
        x, y = (door["x1"] + door["x2"]) / 2.0, (door["y1"] + door["y2"]) / 2.0
        if abs(x - laser["x"]) < DOORS_NEARBY and abs(y - laser["y"]) < DOORS_NEARBY:
            return True
    return False


@inlined
def _beam_clearance(laser, area, horizon, rules, walls, entities):
    """Simulate a laser until the horizon, or until it may matter; see ``find_clearances``.  Nothing stops the beam."""
    x, y, width, height = area
    found, frame = math.inf, 0
    while frame < horizon and found > 0.0:
        dx, dy, ux, uy = x - laser["x"], y - laser["y"], laser["vx"], laser["vy"]
        aside = abs(ux * dy - uy * dx) - abs(ux) * height - abs(uy) * width
        behind = -(ux * dx + uy * dy) - abs(ux) * width - abs(uy) * height
        found = min(found, (max(aside, behind) - BEAM_TOUCH) / (abs(ux) + abs(uy)))
        move_laser(laser, rules, walls, entities)
        frame += 1
    return found


@entry
def find_near(level, entities, movers, world, area, settings, later, clearances, near):
    """Write to ``near``, bool[M], whether each mover is an exit or may affect a ninja that stays in an area; for
    the reference implementation (``nppsim.shadow``).

    settings: FORESIGHT_DTYPE[1].  clearances: float64[M], output.  Other arguments: see ``find_clearances``.
    """
    find_clearances(level, entities, movers, world, area, settings[0], later, clearances)
    record = world.level[level]
    for m in range(record["mover_end"] - record["mover_first"]):
        near[m] = m < record["first_moving"] or clearances[m] <= 0.0
