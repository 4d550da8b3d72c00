"""Laser turrets, type 23: a completion (physics specification, section 8.2), which the reference simulator leaves out.

A turret far from every surface is a spinner: its beam turns on the spot.  One next to a surface creeps along it with the
beam along the surface's normal.  What the beam's way, its speeds and its kill rule rest on is told in the specification;
how surface lasers take corners is a guess.  In a MOVER record (x, y) is the emitter, (target_x, target_y) the end of the
beam; the anchor of a surface laser is EMITTER_RADIUS behind the emitter.
"""

import math

from numba import njit

from nppsim.geometry import CELLS_X, CELLS_Y
from nppsim.level import LASER
from nppsim.physics.ninja import kill
from nppsim.physics.segments import clamped_cell, impact_segment, nearest_surface
from nppsim.physics.state import RADIUS

EMITTER_RADIUS = 5.9
SPIN_SPEED = 0.010471975  # rad per frame
SURFACE_SPEED = 0.1  # px per frame
CORNER_SPEED = 0.005524805665672641  # rad per frame
SURFACE_REACH, SURFACE_DISTANCE = 12.0, 7.0  # px: search, and how near a surface must be
BEAM_LENGTH = 2000.0
HALF_STEP = 0.0052359875  # rad: aiming this closely always hits
SPINNER, SURFACE = 0, 1


@njit(cache=True, nogil=True, error_model="numpy")
def place_lasers(world):
    """Decide which lasers of the bank are spinners, and put the others on their surface."""
    for level in range(len(world.level)):
        record = world.level[level]
        for m in range(record["mover_first"] + record["first_moving"], record["mover_end"]):
            laser = world.mover[m]
            if laser["type"] == LASER:
                closed = world.entity[record["entity_first"] : record["entity_end"]]
                result, x, y = nearest_surface(
                    laser["x"], laser["y"], SURFACE_REACH, world.segments, world.cell_start[level],
                    record["segment_first"], closed,
                )  # fmt: skip
                dx, dy = laser["x"] - x, laser["y"] - y
                distance = math.sqrt(dx * dx + dy * dy)
                if result == -1 or (result == 1 and distance < SURFACE_DISTANCE):
                    laser["mode"] = SURFACE
                    if distance > 0.0:
                        _attach(laser, x, y, dx / distance * result, dy / distance * result)


@njit(cache=True, nogil=True, error_model="numpy")
def _attach(laser, x, y, nx, ny):
    """Stand on the surface point (x, y) with the unit normal (nx, ny)."""
    laser["x"], laser["y"] = x + EMITTER_RADIUS * nx, y + EMITTER_RADIUS * ny
    laser["angle"] = math.atan2(ny, nx)


@njit(cache=True, nogil=True, error_model="numpy")
def think_laser(ninja, laser, target, entities, world, level):
    """Shine, kill, then turn or creep on.  target: the ninja is a valid target."""
    x, y = laser["x"], laser["y"]
    ux, uy = math.cos(laser["angle"]), math.sin(laser["angle"])
    length = beam_length(x, y, ux, uy, world, level)
    laser["target_x"], laser["target_y"] = x + length * ux, y + length * uy
    if target and _hits(ninja, x, y, ux, uy, length, laser["angle"], world, level):
        kill(ninja)
    if laser["mode"] == SPINNER:
        laser["angle"] = (laser["angle"] + laser["direction"] * SPIN_SPEED) % (2.0 * math.pi)
    else:
        _creep(laser, ux, uy, entities, world, level)
    laser["vx"], laser["vy"] = laser["x"] - x, laser["y"] - y


@njit(cache=True, nogil=True, error_model="numpy")
def _hits(ninja, x, y, ux, uy, length, angle, world, level):
    """Whether the beam kills: the ninja is in sight, and the beam is aimed at its centre or closer than RADIUS to it."""
    dx, dy = ninja["x"] - x, ninja["y"] - y
    distance = math.sqrt(dx * dx + dy * dy)
    along = min(max(dx * ux + dy * uy, 0.0), length)
    off_x, off_y = dx - along * ux, dy - along * uy
    aimed = abs(angle - math.atan2(dy, dx)) % (2.0 * math.pi) <= HALF_STEP
    if not (aimed or math.sqrt(off_x * off_x + off_y * off_y) < RADIUS):
        return False
    if distance < RADIUS:
        return True
    reach = beam_length(x, y, dx / distance, dy / distance, world, level)
    return reach == 0.0 or reach > distance - RADIUS


@njit(cache=True, nogil=True, error_model="numpy")
def beam_length(x, y, ux, uy, world, level):
    """Length in px of a ray of unit direction (ux, uy) up to the first segment of the first cell in which it meets one.

    0.0 if it leaves the stage.  Doors stop it whether open or closed.
    """
    segments, first, cell_start = world.segments, world.level[level]["segment_first"], world.cell_start[level]
    wx, wy = BEAM_LENGTH * ux, BEAM_LENGTH * uy
    cx, cy = clamped_cell(x, CELLS_X), clamped_cell(y, CELLS_Y)
    step_x, step_y = 1 if ux > 0.0 else -1, 1 if uy > 0.0 else -1
    far = 4.0 * BEAM_LENGTH
    next_x = (24.0 * (cx + (1 if ux > 0.0 else 0)) - x) / ux if ux != 0.0 else far
    next_y = (24.0 * (cy + (1 if uy > 0.0 else 0)) - y) / uy if uy != 0.0 else far
    while 0 <= cx < CELLS_X and 0 <= cy < CELLS_Y:
        cell = cx * CELLS_Y + cy
        t = 1.0
        for k in range(first + cell_start[cell], first + cell_start[cell + 1]):
            t = min(t, impact_segment(x, y, wx, wy, segments[k, 0], segments[k, 1], segments[k, 2], 0.0))
        if t < 1.0:
            return BEAM_LENGTH * t
        if next_x < next_y:
            cx += step_x
            next_x += 24.0 / abs(ux)
        else:
            cy += step_y
            next_y += 24.0 / abs(uy) if uy != 0.0 else far
    return 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _creep(laser, nx, ny, entities, world, level):
    """Move along the surface: straight on, into a concave corner, or around a convex one."""
    segments, first, cell_start = world.segments, world.level[level]["segment_first"], world.cell_start[level]
    anchor_x, anchor_y = laser["x"] - EMITTER_RADIUS * nx, laser["y"] - EMITTER_RADIUS * ny
    if laser["flag"]:
        angle = laser["angle"] + laser["direction"] * CORNER_SPEED
        x, y = anchor_x + EMITTER_RADIUS * math.cos(angle), anchor_y + EMITTER_RADIUS * math.sin(angle)
    else:
        angle = laser["angle"]
        x = laser["x"] - laser["direction"] * SURFACE_SPEED * ny
        y = laser["y"] + laser["direction"] * SURFACE_SPEED * nx
        anchor_x, anchor_y = x - EMITTER_RADIUS * nx, y - EMITTER_RADIUS * ny
    result, near_x, near_y = nearest_surface(x, y, SURFACE_REACH, segments, cell_start, first, entities)
    dx, dy = x - near_x, y - near_y
    distance = math.sqrt(dx * dx + dy * dy)
    if result == 0 or distance == 0.0:
        return  # its surface was a door that has opened: it stays
    same = abs(near_x - anchor_x) + abs(near_y - anchor_y) < 1e-6
    if same or (laser["flag"] and distance > EMITTER_RADIUS + 1e-9):
        laser["x"], laser["y"], laser["angle"] = x, y, angle
        return
    _attach(laser, near_x, near_y, dx / distance, dy / distance)
    laser["flag"] = 1 if not laser["flag"] and distance > EMITTER_RADIUS else 0
