"""Aims of lasers and shooters, for pictures: beams, shots, crosshairs and flying rockets.

A shot lasts one frame and is not an entity: its direction, length and age are computed from the shooter's MOVER record.
Rules: docs/physics.md, sections 8.2 and 8.4.
"""

import numpy as np

from nppsim._numba.decorators import entry, kernel
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

# Kinds of aims.  The comments state which point (x, y) ``write_aims`` writes for each kind.
NO_AIM = 0
CROSSHAIR = 1  # moving crosshair of a gauss turret; the point is the crosshair
LOCKED = 2  # fixed crosshair of a gauss turret; the point is the crosshair
WARNING = 3  # a drone is about to shoot; the point is ahead of it, or its centre until the direction is fixed
BEAM = 4  # a beam or shot that kills in this frame; the point is where the beam or shot ends
TRACE = 5  # a shot in one of the previous frames; the point is where the shot ended
ROCKET = 6  # a rocket in flight; the point is ahead of the rocket
TRACE_FRAMES = 4  # number of frames in which a shot is visible, including the frame of the shot
AHEAD = 16.0  # px between a drone or rocket and the point ahead of it


@entry
def write_aims(movers, aiming, out):
    """Write the aims of lasers and shooters.

    movers: MOVER_DTYPE[M].
    aiming: int[A], indices of lasers and shooters in ``movers``.
    out: float64[A, 3], output: x and y of the point in px, and the kind of aim, NO_AIM ... ROCKET.
    """
    for i in range(len(aiming)):
        mover = movers[aiming[i]]
        sign, x, y = _aim(mover)
        out[i, 0], out[i, 1], out[i, 2] = x, y, sign


@kernel
def _aim(mover):
    """Return (kind of aim, x, y) of a laser or shooter."""
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
    """Return the kind of aim of a shooter."""
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
        if state == POSTFIRE:  # the beam still kills in the first frame of this state
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
    """Return the kind of aim ``age`` frames after a shot."""
    if age == 0:
        return BEAM
    return TRACE if age < TRACE_FRAMES else NO_AIM
