"""What lasers and shooters aim at, for pictures: beams, shots, crosshairs and flying rockets.

Shots last one frame and leave no entity behind.  Their direction, length and age follow from the MOVER record of the shooter.
"""

import numpy as np

from nppsim._kernel import kernel
from nppsim.levels import kinds
from nppsim.physics.shooters import (
    CHAINGUN_INTERVAL,
    FIRING,
    POSTFIRE,
    PREFIRE,
    TARGETING,
    WATCHING,
    chaingun_direction,
)

NO_AIM = 0
CROSSHAIR = 1  # of a gauss turret, while it moves
LOCKED = 2  # the same, once it is fixed
WARNING = 3  # a drone is about to shoot; the point shows the direction, or is the drone's centre if that is not known
BEAM = 4  # a beam or shot that kills in this frame
TRACE = 5  # a shot of the last frames
ROCKET = 6  # in flight; the point shows the direction
TRACE_FRAMES = 4  # for which a shot is visible, that of the shot included
AHEAD = 16.0  # px between an entity and a point that shows a direction


@kernel
def write_aims(movers, aiming, out):
    """Write the aim of some movers.

    movers: MOVER_DTYPE[>= max(aiming) + 1].
    aiming: int[A], indices of lasers and shooters in ``movers``.
    out: float64[A, 3], receives x, y (px) and one of NO_AIM ... ROCKET.
    """
    for i in range(len(aiming)):
        mover = movers[aiming[i]]
        sign, x, y = _aim(mover)
        out[i, 0], out[i, 1], out[i, 2] = x, y, sign


@kernel
def _aim(mover):
    """(sign, x, y) of a laser or shooter."""
    kind, x, y = mover["type"], mover["x"], mover["y"]
    if kind == kinds.LASER:
        shines = mover["target_x"] != x or mover["target_y"] != y
        return BEAM if shines else NO_AIM, mover["target_x"], mover["target_y"]
    sign, ux, uy = _sign(mover), mover["vx"], mover["vy"]
    if sign == CROSSHAIR or sign == LOCKED:
        return sign, mover["target_x"], mover["target_y"]
    length = AHEAD
    if sign == BEAM or sign == TRACE:
        length = mover["beam"]
        if kind == kinds.CHAINGUN_DRONE:
            ux, uy = chaingun_direction(mover)
    elif sign == NO_AIM or (kind == kinds.CHAINGUN_DRONE and mover["state"] == PREFIRE):
        length = 0.0
    return sign, x + length * ux, y + length * uy


@kernel
def _sign(shooter):
    """Return what there is to see of a shooter: one of NO_AIM ... ROCKET."""
    kind, state, timer = shooter["type"], shooter["state"], np.int64(shooter["timer"])
    if state == WATCHING:
        return NO_AIM
    if kind == kinds.ROCKET_TURRET:
        return ROCKET if state == FIRING else NO_AIM
    if kind == kinds.GAUSS_TURRET:
        if state == POSTFIRE:
            return _shot(timer)
        return CROSSHAIR if state == TARGETING else LOCKED
    if kind == kinds.LASER_DRONE:
        if state == POSTFIRE:  # begins in the last frame of the beam
            return BEAM if timer == 0 else NO_AIM
        return BEAM if state == FIRING and timer > 0 else WARNING
    if state == POSTFIRE:
        return NO_AIM
    shot = NO_AIM
    if state == FIRING and timer >= CHAINGUN_INTERVAL:
        shot = _shot(timer % CHAINGUN_INTERVAL)
    return WARNING if shot == NO_AIM else shot


@kernel
def _shot(age):
    """Return what there is to see of a shot after some frames."""
    if age == 0:
        return BEAM
    return TRACE if age < TRACE_FRAMES else NO_AIM
