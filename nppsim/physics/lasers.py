"""Laser turrets, type 23, which the reference simulator does not have (docs/physics.md, section 8.2).

A turret far from all surfaces is a spinner, whose beam turns on the spot.  Other turrets are surface lasers: they move along
a surface, and the beam follows its normal.  Section 8.2 gives the evidence for the path of the beam, the speeds and the
kill rule.  The motion of surface lasers around corners is a guess: at the end of a surface the normal turns around the
vertex until the emitter is beside another surface.

In a MOVER record, (x, y) is the emitter, (vx, vy) the unit vector of the beam and (target_x, target_y) its end, which only
``update_beams`` computes.  ``mode`` is SPINNER or SURFACE.  ``flag`` is 1 at a vertex, which is then EMITTER_RADIUS behind
the emitter.
"""

import math

import numpy as np

from nppsim._numba.decorators import entry, inlined, kernel, merged
from nppsim.levels import kinds
from nppsim.physics.ninja import kill
from nppsim.physics.rays import ANY_DOOR, CLEAR, RAY_LENGTH, ray_gap, ray_length
from nppsim.physics.rules import FAST_LASERS
from nppsim.physics.segments import is_beside, nearest_segment, surface_normal, walls_of
from nppsim.physics.state import RADIUS
from nppsim.physics.trigonometry import atan2, sin_cos

EMITTER_RADIUS = 5.9  # px from the emitter of a surface laser to its surface
SPIN_SPEED = 0.010471975  # rad per frame, spinners
SURFACE_SPEED = 0.1  # px per frame, surface lasers
FAST_SURFACE_SPEED = 1.0  # px per frame, surface lasers with the rule FAST_LASERS
CORNER_SPEED = 0.005524805665672641  # rad per frame around a vertex, surface lasers
CORNER_COS, CORNER_SIN = 0.9999847382999983, 0.005524777559668499  # of CORNER_SPEED
SURFACE_REACH = 12.0  # px, half-side of the square whose cells are searched for surfaces
SURFACE_DISTANCE = 7.0  # px; a turret closer than this to a surface is a surface laser
HALF_STEP = 0.0052359875  # rad; maximum angle between the beam and the ninja's centre at which a spinner hits
CLEARLY_ASIDE = 0.006  # exceeds the tangent of HALF_STEP by more than any rounding error

SPINNER, SURFACE = range(2)


@entry
def place_lasers(world, entities):
    """Decide which lasers of the bank are spinners, and place the others on their surface.

    entities: ENTITY_DTYPE[n], scratch array for the largest level, of the type that ``think_laser`` is compiled for.
    """
    for index in range(len(world.level)):
        level = np.int32(index)  # type of ``ninja["level"]``, so that kernels are compiled only once
        record, walls = world.level[index], walls_of(world, level)
        for k in range(record["entity_end"] - record["entity_first"]):
            entities[k]["closed"] = world.entity[record["entity_first"] + k]["closed"]
        for m in range(record["mover_first"] + record["first_moving"], record["mover_end"]):
            laser = world.mover[m]
            if laser["type"] != kinds.LASER:
                continue
            k, result, x, y = _nearest_segment(laser["x"], laser["y"], walls, entities)
            dx, dy = laser["x"] - x, laser["y"] - y
            if result == 0 or (result == 1 and math.sqrt(dx * dx + dy * dy) >= SURFACE_DISTANCE):
                laser["mode"] = SPINNER
                laser["vy"], laser["vx"] = sin_cos(laser["beam"])
            else:
                laser["mode"] = SURFACE
                _stand_on(laser, world.segments[k], x, y)
            _update_beam(laser, walls, entities)


@kernel
def think_laser(ninja, laser, target, rules, walls, entities):
    """Kill the ninja if the beam hits it, then turn or move the laser.

    target: the ninja is a valid target.  rules: bits of ``physics.rules``.
    """
    if target and _hits(ninja, laser, RAY_LENGTH, RADIUS + CLEAR):
        length = _beam_length(laser["x"], laser["y"], laser["vx"], laser["vy"], walls, entities)
        if _hits(ninja, laser, length, RADIUS) and _sees(ninja, laser["x"], laser["y"], walls, entities):
            kill(ninja)
    move_laser(laser, rules, walls, entities)


@kernel
def move_laser(laser, rules, walls, entities):
    """Turn or move a laser."""
    if laser["mode"] == SPINNER:
        laser["beam"] = (laser["beam"] + laser["direction"] * SPIN_SPEED) % (2.0 * math.pi)
        laser["vy"], laser["vx"] = sin_cos(laser["beam"])
    else:
        _creep(laser, rules, walls, entities)


@kernel
def update_beams(entities, movers, world, level):
    """Compute the end of the beam of each laser.  Frames leave it out, as only observations and pictures read it."""
    record, walls = world.level[level], walls_of(world, level)
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        if movers[m]["type"] == kinds.LASER:
            _update_beam(movers[m], walls, entities)


@inlined
def _update_beam(laser, walls, entities):
    x, y, ux, uy = laser["x"], laser["y"], laser["vx"], laser["vy"]
    length = _beam_length(x, y, ux, uy, walls, entities)
    laser["target_x"], laser["target_y"] = x + length * ux, y + length * uy


@kernel
def _hits(ninja, laser, length, radius):
    """Return True if the ninja's centre is closer than ``radius`` to the beam, or HALF_STEP to a spinner's
    direction."""
    if ray_gap(ninja, laser["x"], laser["y"], laser["vx"], laser["vy"], length) < radius:
        return True
    ex, ey = ninja["x"] - laser["x"], ninja["y"] - laser["y"]
    aside, ahead = abs(laser["vx"] * ey - laser["vy"] * ex), laser["vx"] * ex + laser["vy"] * ey
    if laser["mode"] != SPINNER or aside > CLEARLY_ASIDE * ahead:
        return False  # avoids the arc tangent
    return abs(laser["beam"] - atan2(ey, ex)) % (2.0 * math.pi) <= HALF_STEP


@merged
def _sees(ninja, x, y, walls, entities):
    """Return True if no segment is between the emitter and the ninja."""
    dx, dy = ninja["x"] - x, ninja["y"] - y
    distance = math.sqrt(dx * dx + dy * dy)
    return distance < RADIUS or _beam_length(x, y, dx / distance, dy / distance, walls, entities) > distance - RADIUS


@inlined
def _beam_length(x, y, ux, uy, walls, entities):
    """Length in px of a beam; 0.0 if it leaves the stage.  Open doors stop the beam too."""
    length = ray_length(x, y, ux, uy, RAY_LENGTH, ANY_DOOR, walls, entities)
    return length if length < RAY_LENGTH else 0.0


@kernel
def _nearest_segment(x, y, walls, entities):
    """Return (k, result, x, y) of ``nearest_segment`` within SURFACE_REACH; ``result`` is 0 if there is none."""
    segments, cell_start, first = walls
    result, near_x, near_y, _side, _best, _others, _beside, k = nearest_segment(
        x, y, SURFACE_REACH, segments, cell_start, first, entities
    )
    return k, result, near_x, near_y


@kernel
def _stand_on(laser, segment, x, y):
    """Place the emitter above point (x, y) of a segment: on the open side of a tile, on the same side of a door."""
    nx, ny = surface_normal(x, y, segment, laser["x"], laser["y"])
    laser["x"], laser["y"] = x + EMITTER_RADIUS * nx, y + EMITTER_RADIUS * ny
    laser["vx"], laser["vy"] = nx, ny
    laser["flag"] = 0


@merged
def _creep(laser, rules, walls, entities):
    """Move along the surface, or turn at a vertex; then attach to the nearest segment or to its end point."""
    nx, ny = laser["vx"], laser["vy"]
    if laser["flag"]:
        vertex_x, vertex_y = laser["x"] - EMITTER_RADIUS * nx, laser["y"] - EMITTER_RADIUS * ny
        c, s = CORNER_COS, laser["direction"] * CORNER_SIN
        nx, ny = nx * c - ny * s, nx * s + ny * c
        laser["vx"], laser["vy"] = nx, ny
        laser["x"], laser["y"] = vertex_x + EMITTER_RADIUS * nx, vertex_y + EMITTER_RADIUS * ny
    else:
        speed = FAST_SURFACE_SPEED if rules & FAST_LASERS else SURFACE_SPEED
        laser["x"] += speed * (laser["direction"] * -ny)
        laser["y"] += speed * (laser["direction"] * nx)
    k, result, x, y = _nearest_segment(laser["x"], laser["y"], walls, entities)
    if result == 0:
        return
    if is_beside(laser["x"], laser["y"], walls.segments[k]):
        _stand_on(laser, walls.segments[k], x, y)
    else:
        laser["x"], laser["y"] = x + EMITTER_RADIUS * nx, y + EMITTER_RADIUS * ny
        laser["flag"] = 1
