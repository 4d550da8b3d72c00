"""Movers that cannot affect the ninja within HORIZON frames: they are too far away, or their next shot is too late.

A branch of foresight omits them, because nothing in the branch would read their state.
"""

from nppsim._kernel import entry, inlined, kernel
from nppsim.levels import kinds
from nppsim.physics.bodies import BLOCK_MARGIN, BLOCK_REACH
from nppsim.physics.groups import is_block, is_shooting_drone
from nppsim.physics.movers import CHASE_SPEED, GUARD_SPEED, MINI_SPEED, SHOVE_LAUNCH, THWUMP_CHARGE, ZAP_SPEED
from nppsim.physics.shooters import (
    FIRING,
    GAUSS_CREDIT,
    GAUSS_PREFIRE,
    GAUSS_TARGETING,
    POSTFIRE,
    PREFIRE,
    ROCKET_MAX_SPEED,
    ROCKET_PREFIRE,
    ROCKET_SPEEDS,
    TARGETING,
    WATCHING,
)
from nppsim.physics.state import IDLE, UNTOUCHED

HORIZON = 40  # frames of a branch of foresight
TOUCH = 32.0  # px along an axis; no mover other than a block touches the ninja from farther away
PUSH = BLOCK_REACH + BLOCK_MARGIN + 28.0  # px, the same for blocks, with a margin for pushes within the frame
SWING = 7.0  # frames; a bounce block stays within its current distance from home plus SWING times its speed
FLIGHT = float(sum(ROCKET_SPEEDS[: HORIZON + 1 - ROCKET_PREFIRE]))  # px, longest flight of a rocket not yet launched
CREDIT = int(max(GAUSS_CREDIT)) * (HORIZON - GAUSS_PREFIRE)  # maximum gain of a gauss turret's timer in time to shoot


@inlined
def _within(body, x, y, reach_x, reach_y):
    return abs(body["x"] - x) <= reach_x and abs(body["y"] - y) <= reach_y


@kernel
def may_matter(mover, home, x, y, reach_x, reach_y):
    """Return False if a mover certainly has no effect on a ninja that stays in a rectangle for HORIZON frames.

    home: PLACED_DTYPE record of the entity.
    x, y, reach_x, reach_y: centre and half-sides of the rectangle that contains the ninja's centre, px.
    """
    kind, state = mover["type"], mover["state"]
    # Shooting drones and gauss turrets without a target do not shoot within HORIZON frames.
    if is_shooting_drone(kind):
        return state != WATCHING and state != POSTFIRE
    if kind == kinds.GAUSS_TURRET:
        ready = state == TARGETING and mover["timer"] + CREDIT > GAUSS_TARGETING
        return ready or state == PREFIRE
    reach = PUSH if is_block(kind) else TOUCH
    if kind == kinds.BOUNCE_BLOCK:
        swing_x = abs(mover["x"] - home["x"]) + SWING * abs(mover["vx"])
        swing_y = abs(mover["y"] - home["y"]) + SWING * abs(mover["vy"])
        return _within(home, x, y, reach_x + reach + swing_x, reach_y + reach + swing_y)
    if kind == kinds.ROCKET_TURRET:  # after an explosion, the next rocket starts at home
        far = reach + HORIZON * ROCKET_MAX_SPEED
        launch = far if state == PREFIRE else reach + FLIGHT
        flies = state == FIRING and _within(mover, x, y, reach_x + far, reach_y + far)
        return flies or _within(home, x, y, reach_x + launch, reach_y + launch)
    if kind == kinds.MINI_DRONE:
        reach += HORIZON * MINI_SPEED
    elif kind == kinds.ZAP_DRONE:
        reach += HORIZON * ZAP_SPEED
    elif kind == kinds.CHASER_DRONE:
        reach += HORIZON * CHASE_SPEED
    elif kind == kinds.FLOOR_GUARD:
        reach += HORIZON * GUARD_SPEED
    elif kind == kinds.THWUMP:
        reach += HORIZON * THWUMP_CHARGE
    elif kind == kinds.SHOVE_THWUMP:
        reach += HORIZON * SHOVE_LAUNCH if state != IDLE else 0.0
    elif kind != kinds.EVIL_NINJA or state != UNTOUCHED:
        return True
    return _within(mover, x, y, reach_x + reach, reach_y + reach)


@entry
def find_near(level, movers, world, area, near):
    """Write to ``near``, bool[M], whether each mover is an exit or may affect a ninja that stays in an area; for the twin.

    area: (x, y, half-width, half-height, px).
    """
    record = world.level[level]
    for m in range(record["mover_end"] - record["mover_first"]):
        home = world.entity[record["entity_first"] + movers[m]["entity"]]
        near[m] = m < record["first_moving"] or may_matter(movers[m], home, area[0], area[1], area[2], area[3])
