"""Laser turrets, type 23: a completion of the rules (docs/physics.md, section 8.2).

A turret far from every surface is a spinner: its beam turns on the spot.  One next to a surface creeps along it with the
beam along the surface's normal.  What the beam's path, its speeds and its kill rule rest on is told there; how surface
lasers take corners is a guess: at the end of a surface the normal turns around the vertex until the emitter
is beside another surface.

In a MOVER record (x, y) is the emitter, (vx, vy) the unit vector of the beam, (target_x, target_y) its end; mode tells
spinners from surface lasers; flag is set at a vertex, which is then EMITTER_RADIUS behind the emitter.
"""

import math

from nppsim._kernel import kernel
from nppsim.compile import (
    CELLS_X,
    CELLS_Y,
    CONVEX_ARC,
    DOOR_LINE,
    DX,
    DY,
    KIND,
    LENGTH_SQUARED,
    LINE,
    SEG_ENTITY,
    SEG_SHAPE,
    SEG_X,
    SEG_Y,
    SHAPES,
    UNIT_X,
    UNIT_Y,
)
from nppsim.levels import kinds
from nppsim.physics.ninja import kill
from nppsim.physics.segments import ARC_RADIUS, clamped_cell, closest_point, impact_segment
from nppsim.physics.state import RADIUS

EMITTER_RADIUS = 5.9
SPIN_SPEED = 0.010471975  # rad per frame
SURFACE_SPEED = 0.1  # px per frame
CORNER_SPEED = 0.005524805665672641  # rad per frame
SURFACE_REACH, SURFACE_DISTANCE = 12.0, 7.0  # px: search, and how near a surface must be
BEAM_LENGTH = 2000.0
HALF_STEP = 0.0052359875  # rad: aiming this closely always hits
SPINNER, SURFACE = 0, 1


@kernel
def place_lasers(world):
    """Decide which lasers of the bank are spinners, and put the others on their surface."""
    for level in range(len(world.level)):
        record = world.level[level]
        for m in range(record["mover_first"] + record["first_moving"], record["mover_end"]):
            laser = world.mover[m]
            if laser["type"] != kinds.LASER:
                continue
            closed = world.entity[record["entity_first"] : record["entity_end"]]
            k, result, x, y = _nearest_segment(laser["x"], laser["y"], closed, world, level)
            dx, dy = laser["x"] - x, laser["y"] - y
            if result == 0 or (result == 1 and math.sqrt(dx * dx + dy * dy) >= SURFACE_DISTANCE):
                laser["mode"] = SPINNER
                laser["vx"], laser["vy"] = math.cos(laser["angle"]), math.sin(laser["angle"])
            else:
                laser["mode"] = SURFACE
                _stand_on(laser, k, x, y, world)
            _shine(laser, world, level)  # so that the first observation shows the beam


@kernel
def think_laser(ninja, laser, target, entities, world, level):
    """Shine, kill, then turn or creep on.  target: the ninja is a valid target."""
    length = _shine(laser, world, level)
    if target and _hits(ninja, laser, length) and _sees(ninja, laser["x"], laser["y"], world, level):
        kill(ninja)
    if laser["mode"] == SPINNER:
        laser["angle"] = (laser["angle"] + laser["direction"] * SPIN_SPEED) % (2.0 * math.pi)
        laser["vx"], laser["vy"] = math.cos(laser["angle"]), math.sin(laser["angle"])
    else:
        _creep(laser, entities, world, level)


@kernel
def _shine(laser, world, level):
    """Set the end of the beam; returns its length in px."""
    x, y, ux, uy = laser["x"], laser["y"], laser["vx"], laser["vy"]
    length = beam_length(x, y, ux, uy, world, level)
    laser["target_x"], laser["target_y"] = x + length * ux, y + length * uy
    return length


@kernel
def _hits(ninja, laser, length):
    """Whether the beam comes closer than RADIUS to the ninja's centre, or a spinner is aimed at it."""
    ex, ey = ninja["x"] - laser["x"], ninja["y"] - laser["y"]
    along = min(max(ex * laser["vx"] + ey * laser["vy"], 0.0), length)
    dx, dy = ex - along * laser["vx"], ey - along * laser["vy"]
    if math.sqrt(dx * dx + dy * dy) < RADIUS:
        return True
    return laser["mode"] == SPINNER and abs(laser["angle"] - math.atan2(ey, ex)) % (2.0 * math.pi) <= HALF_STEP


@kernel
def _sees(ninja, x, y, world, level):
    """Whether nothing stands between the emitter and the ninja."""
    dx, dy = ninja["x"] - x, ninja["y"] - y
    distance = math.sqrt(dx * dx + dy * dy)
    return distance < RADIUS or beam_length(x, y, dx / distance, dy / distance, world, level) > distance - RADIUS


@kernel
def beam_length(x, y, ux, uy, world, level):
    """Length in px of a ray of unit direction (ux, uy) up to the first segment of the first cell in which it meets one.

    0.0 if it leaves the stage.  Doors stop it whether open or closed.
    """
    segments, first, cell_start = world.segments, world.level[level]["segment_first"], world.cell_start[level]
    wx, wy = BEAM_LENGTH * ux, BEAM_LENGTH * uy
    cx, cy = int(math.floor(x / 24.0)), int(math.floor(y / 24.0))
    while 0 <= cx < CELLS_X and 0 <= cy < CELLS_Y:
        cell = cx * CELLS_Y + cy
        t = 1.0
        for k in range(first + cell_start[cell], first + cell_start[cell + 1]):
            t = min(t, impact_segment(x, y, wx, wy, segments[k, 0], segments[k, 1], segments[k, 2], 0.0))
        if t < 1.0:
            return BEAM_LENGTH * t
        to_x = (24.0 * (cx + 1 if ux > 0.0 else cx) - x) / ux if ux != 0.0 else math.inf
        to_y = (24.0 * (cy + 1 if uy > 0.0 else cy) - y) / uy if uy != 0.0 else math.inf
        if to_x < to_y:
            cx += 1 if ux > 0.0 else -1
        else:
            cy += 1 if uy > 0.0 else -1
    return 0.0


@kernel
def _nearest_segment(x, y, entities, world, level):
    """(segment, result, x, y of its closest point) by the rule of ``nearest_surface``; result 0: none near."""
    segments, first, cell_start = world.segments, world.level[level]["segment_first"], world.cell_start[level]
    best, found, result, best_x, best_y = 9999999.0, -1, 0, 0.0, 0.0
    cy1, cy2 = clamped_cell(y - SURFACE_REACH, CELLS_Y), clamped_cell(y + SURFACE_REACH, CELLS_Y)
    for cx in range(clamped_cell(x - SURFACE_REACH, CELLS_X), clamped_cell(x + SURFACE_REACH, CELLS_X) + 1):
        for k in range(first + cell_start[cx * CELLS_Y + cy1], first + cell_start[cx * CELLS_Y + cy2 + 1]):
            if segments[k, SEG_ENTITY] >= 0 and entities[segments[k, SEG_ENTITY]]["closed"] == 0:
                continue
            px, py, side = closest_point(x, y, segments[k, SEG_X], segments[k, SEG_Y], segments[k, SEG_SHAPE])
            distance = (x - px) * (x - px) + (y - py) * (y - py) - (0.0 if side < 0.0 else 0.1)
            if distance < best:
                best, found, result, best_x, best_y = distance, k, -1 if side < 0.0 else 1, px, py
    return found, result, best_x, best_y


@kernel
def _stand_on(laser, k, x, y, world):
    """Put the emitter above the point (x, y) of segment k, on its open side; of a door, on the side where it is."""
    shape = world.segments[k, SEG_SHAPE]
    kind = SHAPES[shape, KIND]
    if kind == LINE or kind == DOOR_LINE:
        nx, ny = -SHAPES[shape, UNIT_Y], SHAPES[shape, UNIT_X]
        if kind == DOOR_LINE and (laser["x"] - x) * nx + (laser["y"] - y) * ny < 0.0:
            nx, ny = -nx, -ny
    else:
        out = ARC_RADIUS if kind == CONVEX_ARC else -ARC_RADIUS
        nx, ny = (x - world.segments[k, SEG_X]) / out, (y - world.segments[k, SEG_Y]) / out
    laser["x"], laser["y"] = x + EMITTER_RADIUS * nx, y + EMITTER_RADIUS * ny
    laser["vx"], laser["vy"] = nx, ny
    laser["flag"] = 0


@kernel
def _is_beside(x, y, k, world):
    """Whether the closest point of segment k to (x, y) is inside the segment, not past one of its ends."""
    shape = world.segments[k, SEG_SHAPE]
    ex, ey = x - world.segments[k, SEG_X], y - world.segments[k, SEG_Y]
    dx, dy = SHAPES[shape, DX], SHAPES[shape, DY]
    if SHAPES[shape, KIND] == LINE or SHAPES[shape, KIND] == DOOR_LINE:
        return 0.0 <= (ex * dx + ey * dy) / SHAPES[shape, LENGTH_SQUARED] <= 1.0
    return ex * dx > 0.0 and ey * dy > 0.0


@kernel
def _creep(laser, entities, world, level):
    """Move along the surface, or turn at a vertex; then the nearest surface decides what comes next."""
    nx, ny = laser["vx"], laser["vy"]
    if laser["flag"]:
        vertex_x, vertex_y = laser["x"] - EMITTER_RADIUS * nx, laser["y"] - EMITTER_RADIUS * ny
        c, s = math.cos(laser["direction"] * CORNER_SPEED), math.sin(laser["direction"] * CORNER_SPEED)
        nx, ny = nx * c - ny * s, nx * s + ny * c
        laser["vx"], laser["vy"] = nx, ny
        laser["x"], laser["y"] = vertex_x + EMITTER_RADIUS * nx, vertex_y + EMITTER_RADIUS * ny
    else:
        laser["x"] += SURFACE_SPEED * (laser["direction"] * -ny)
        laser["y"] += SURFACE_SPEED * (laser["direction"] * nx)
    k, result, x, y = _nearest_segment(laser["x"], laser["y"], entities, world, level)
    if result == 0:
        return
    if _is_beside(laser["x"], laser["y"], k, world):
        _stand_on(laser, k, x, y, world)
    else:
        laser["x"], laser["y"] = x + EMITTER_RADIUS * nx, y + EMITTER_RADIUS * ny
        laser["flag"] = 1
