"""Vector observations: state, path, entities, doors, hazards and the local surroundings.

Every kernel writes the observation of one environment to ``out``.  ``layout`` lists the components, and
``docs/observations.md`` describes them.  STATE.vx is the index of the component "vx" of ``game_state``.
"""

import numpy as np

from nppsim import paths
from nppsim._numba.decorators import inlined, kernel
from nppsim.actions import ACTION_INPUT, JUMP, NUM_ACTIONS
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, HALF_CELL, HALF_CELLS_X, HALF_CELLS_Y
from nppsim.levels.tiles import NUM_TILE_SHAPES, solid_mask
from nppsim.observe import layout
from nppsim.observe.blend import LANES, blend
from nppsim.observe.layout import NUM_DOORS, NUM_HAZARDS, SURROUNDINGS_SIZE
from nppsim.physics.bodies import BLOCK_HALF, ONE_WAY_HALF_LENGTH, SHOVE_HALF, THWUMP_HALF
from nppsim.physics.entities import (
    ARMED,
    ARMED_RADIUS,
    ARMING_RADIUS,
    DORMANT,
    DORMANT_RADIUS,
    LETHAL_HALF_WIDTH,
    LETHAL_REACH,
)
from nppsim.physics.evil_ninjas import EVIL_RADIUS
from nppsim.physics.groups import is_mine, is_shooter
from nppsim.physics.movers import BALL_RADIUS, GUARD_RADIUS, MINI_RADIUS, SHOVE_CORE, THWUMP_REACH, ZAP_RADIUS
from nppsim.physics.segments import clamped_cell
from nppsim.physics.shooters import FIRING, POSTFIRE, PREFIRE, ROCKET_SPEEDS, WATCHING
from nppsim.physics.state import (
    BRAKING,
    FALLING,
    HORIZONTAL,
    ITEM_ENTITY,
    JUMPING,
    RADIUS,
    RUNNING,
    STANDING,
    TRIGGERED,
    WALL_SLIDING,
)

# Indices of components along the last axis.
STATE = layout.slots(layout.SPECS["game_state"].components)
PATH = layout.slots(layout.SPECS["reachability_features"].components)
PLACE = layout.slots(layout.SPECS["entity_positions"].components)
DOOR = layout.slots(layout.SPECS["switch_states"].components)
HAZARD = layout.slots(layout.SPECS["hazards"].components)
PLANE = layout.slots(layout.SURROUNDINGS_PLANES)
DOOR_SLOTS = len(DOOR) // NUM_DOORS  # components per door

PAD = SURROUNDINGS_SIZE + 1  # half-cells: width of the solid margin of ``solid_map``; more than the window's width
SOLID_SHAPE = (HALF_CELLS_Y + 2 * PAD, HALF_CELLS_X + 2 * PAD)  # rows (y), columns (x)
WINDOW_REACH = HALF_CELL * SURROUNDINGS_SIZE / 2  # px from the ninja to the edge of the window
NO_HAZARD = 2 * WINDOW_REACH  # px; ``dy`` in rows of ``hazards`` without a hazard: outside of the window
BEAM_RADIUS = 0.1  # px, radius of beams, rockets, turrets and shooting drones; not 0, which marks unused rows
NEAR_STEPS = 3  # lattice steps to the first waypoint: about 36 px
FAR_STEPS = 10  # lattice steps to the second waypoint: about 120 px
BLEND_STEPS = 16  # the window moves in steps of 1 / BLEND_STEPS of a half-cell
DOOR_POINTS = 5  # points along a closed door; the half-cells that contain them are solid

_COVERAGE = np.stack(
    [solid_mask(t, 16).reshape(2, 8, 2, 8).mean(axis=(1, 3)) * 255 for t in range(NUM_TILE_SHAPES)]
).astype(np.uint8)  # [tile, half-cell row, half-cell column]: solid share, 0..255


@kernel
def solid_map(stage, out):
    """Write the solid share of each half-cell, 0..255: uint8[90, 128], y first, with a solid margin.

    stage: uint8[44, 25], tiles, x first.
    """
    out[:] = 255
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            for half_y in range(2):
                for half_x in range(2):
                    out[PAD + 2 * cy + half_y, PAD + 2 * cx + half_x] = _COVERAGE[stage[cx, cy], half_y, half_x]


@kernel
def game_state(ninja, out):
    """Write float32[26], see ``layout``."""
    state = ninja["state"]
    out[STATE.x], out[STATE.y] = ninja["x"], ninja["y"]
    out[STATE.vx], out[STATE.vy] = ninja["vx"], ninja["vy"]
    out[STATE.state_standing] = state == STANDING
    out[STATE.state_running] = state == RUNNING
    out[STATE.state_braking] = state == BRAKING
    out[STATE.state_jumping] = state == JUMPING
    out[STATE.state_falling] = state == FALLING
    out[STATE.state_wall_sliding] = state == WALL_SLIDING
    out[STATE.airborne] = ninja["airborne"]
    out[STATE.walled] = ninja["walled"]
    out[STATE.ceiling_contact] = ninja["ceiling_count"] > 0
    out[STATE.wall_normal] = ninja["wall_normal"]
    out[STATE.floor_normal_x], out[STATE.floor_normal_y] = ninja["floor_x"], ninja["floor_y"]
    out[STATE.gravity] = ninja["gravity"]
    out[STATE.drag] = ninja["drag"]
    out[STATE.jump_hold] = ninja["hold"]
    out[STATE.jump_buffer] = ninja["jump_buffer"]
    out[STATE.floor_buffer] = ninja["floor_buffer"]
    out[STATE.wall_buffer] = ninja["wall_buffer"]
    out[STATE.pad_buffer] = ninja["pad_buffer"]
    out[STATE.jump_held] = ninja["jump_held"]
    out[STATE.pad_direction_x], out[STATE.pad_direction_y] = ninja["pad_x"], ninja["pad_y"]


@kernel
def reachability_features(ninja, distance, next_step, switch_to_exit, path_start, out):
    """Write float32[9], see ``layout``.

    distance, next_step: uint16 and uint8 [2, 4539], path fields for the current doors (``nppsim.paths``).
    switch_to_exit: path length from the switch to the exit, units of ``paths.UNIT`` px.
    path_start: path length of the level, px.
    """
    phase = 1 if ninja["switch_taken"] else 0
    length, node = paths.nearest_node(distance[phase], ninja["x"], ninja["y"])
    out[:] = 0.0
    out[PATH.path_to_objective] = out[PATH.path_to_exit] = paths.MAX_PATH
    out[PATH.switch_collected] = phase
    out[PATH.path_from_start] = path_start
    if node < 0:
        return
    out[PATH.reachable] = 1.0
    out[PATH.path_to_objective] = max(length - (0.0 if phase else switch_to_exit * paths.UNIT), 0.0)
    out[PATH.path_to_exit] = length
    near = paths.waypoint(next_step[phase], node, NEAR_STEPS)
    far = paths.waypoint(next_step[phase], near, FAR_STEPS - NEAR_STEPS)
    out[PATH.waypoint1_dx] = paths.SPACING * (near // paths.NODES_Y) - ninja["x"]
    out[PATH.waypoint1_dy] = paths.SPACING * (near % paths.NODES_Y) - ninja["y"]
    out[PATH.waypoint2_dx] = paths.SPACING * (far // paths.NODES_Y) - ninja["x"]
    out[PATH.waypoint2_dy] = paths.SPACING * (far % paths.NODES_Y) - ninja["y"]


@kernel
def entity_positions(ninja, entities, world, level, out):
    """Write float32[6]: ninja, exit switch and exit, px.

    The exit is the first open one or, before any switch is taken, the first one with an active switch.  Exit and switch
    are zeros if there is no such exit.
    """
    out[:] = 0.0
    out[PLACE.ninja_x], out[PLACE.ninja_y] = ninja["x"], ninja["y"]
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["exits_first"], world.level[level]["exits_end"]):
        if world.entity[k]["type"] != kinds.EXIT:
            continue
        switch = base + world.entity[k]["partner"]
        is_open = entities[k - base]["clock"] > 0
        if is_open or (ninja["switch_taken"] == 0 and entities[switch - base]["active"]):
            out[PLACE.switch_x], out[PLACE.switch_y] = world.entity[switch]["x"], world.entity[switch]["y"]
            out[PLACE.exit_x], out[PLACE.exit_y] = world.entity[k]["x"], world.entity[k]["y"]
            return


@kernel
def switch_states(entities, world, level, out):
    """Write float32[25] for the first five locked doors: x, y of the switch, x, y of the door (px), open."""
    out[:] = 0.0
    first = 0  # first component of the next door
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["switches_first"], world.level[level]["switches_end"]):
        door = world.entity[k]
        if door["type"] == kinds.LOCKED_DOOR and first < len(out):
            out[first + DOOR.door0_switch_x], out[first + DOOR.door0_switch_y] = door["x"], door["y"]
            out[first + DOOR.door0_door_x] = (door["x1"] + door["x2"]) / 2.0
            out[first + DOOR.door0_door_y] = (door["y1"] + door["y2"]) / 2.0
            out[first + DOOR.door0_open] = 1.0 - entities[k - base]["closed"]
            first += DOOR_SLOTS


@kernel
def _mine_radius(state):
    return ARMED_RADIUS if state == ARMED else (DORMANT_RADIUS if state == DORMANT else ARMING_RADIUS)


@kernel
def hazards_and_surroundings(ninja, entities, movers, world, level, solid, gaps, hazards, surroundings):
    """Write ``hazards`` float32[8, 5], nearest first, and ``surroundings`` uint8[3, 19, 19] (PLANE, y, x).

    Rows without a hazard have radius 0 and ``dy`` NO_HAZARD.
    Plane ``solid`` is the solid share, 0..255, of the squares (12 x 12 px) of a window around the ninja, interpolated.
    solid: uint8[90, 128], see ``solid_map``.
    gaps: float64[8], scratch array for the squared distances of ``hazards``.
    """
    left, top = ninja["x"] - WINDOW_REACH, ninja["y"] - WINDOW_REACH
    _blend_tiles(left, top, solid, surroundings[PLANE.solid])
    surroundings[PLANE.deadly :] = 0
    record = world.level[level]
    base = record["entity_first"]
    for k in range(record["doors_first"], record["doors_end"]):
        _draw_door(entities[k - base], world.entity[k], left, top, surroundings[PLANE.solid])
    for k in range(record["switches_first"], record["switches_end"]):
        _draw_door(entities[k - base], world.entity[k], left, top, surroundings[PLANE.solid])
    found = _registered(ninja, entities, world, level, surroundings, hazards, gaps)
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        found = _mover(ninja, movers[m], surroundings, hazards, gaps, found)
    hazards[found:] = 0.0
    hazards[found:, HAZARD.dy] = NO_HAZARD


@inlined
def _blend_tiles(left, top, solid, plane):
    """Write the solid share of each square of the window whose corner is (left, top), px."""
    ix, iy = int(np.floor(left / HALF_CELL)), int(np.floor(top / HALF_CELL))
    wx, wy = int((left / HALF_CELL - ix) * BLEND_STEPS), int((top / HALF_CELL - iy) * BLEND_STEPS)
    row0 = min(max(iy + PAD, 0), SOLID_SHAPE[0] - SURROUNDINGS_SIZE - 1)
    col0 = min(max(ix + PAD, 0), SOLID_SHAPE[1] - SURROUNDINGS_SIZE - 1)
    w00, w01 = (BLEND_STEPS - wy) * (BLEND_STEPS - wx), (BLEND_STEPS - wy) * wx
    w10, w11 = wy * (BLEND_STEPS - wx), wy * wx
    for r in range(SURROUNDINGS_SIZE):
        above, below, target = solid[row0 + r, col0:], solid[row0 + r + 1, col0:], plane[r]
        for c in (0, SURROUNDINGS_SIZE - LANES):  # two overlapping groups of LANES columns
            blend(above[c:], below[c:], target[c:], w00, w01, w10, w11)


@inlined
def _registered(ninja, entities, world, level, surroundings, hazards, gaps):
    """Draw the one-ways and mines in the window and add the mines to ``hazards``; return the number of hazards."""
    x, y = ninja["x"], ninja["y"]
    base, items = world.level[level]["entity_first"], world.level[level]["items_first"]
    cell_start = world.entity_cell_start[level]
    cy1, cy2 = clamped_cell(y - WINDOW_REACH, CELLS_Y), clamped_cell(y + WINDOW_REACH, CELLS_Y)
    found = 0
    for cx in range(clamped_cell(x - WINDOW_REACH, CELLS_X), clamped_cell(x + WINDOW_REACH, CELLS_X) + 1):
        for i in range(items + cell_start[cx * CELLS_Y + cy1], items + cell_start[cx * CELLS_Y + cy2 + 1]):
            k = world.entity_items[i, ITEM_ENTITY]
            placed = world.entity[base + k]
            kind = placed["type"]
            if not is_mine(kind) and kind != kinds.ONE_WAY:
                continue
            dx, dy = placed["x"] - x, placed["y"] - y
            if abs(dx) > WINDOW_REACH or abs(dy) > WINDOW_REACH:
                continue
            if kind == kinds.ONE_WAY:
                tx, ty = -ONE_WAY_HALF_LENGTH * placed["y1"], ONE_WAY_HALF_LENGTH * placed["x1"]
                _draw_line(surroundings[PLANE.one_way], dx - tx, dy - ty, dx + tx, dy + ty)
                continue
            state = entities[k]["state"]
            if state != DORMANT:
                _splat(surroundings[PLANE.deadly], dx, dy)
            found = _insert(hazards, gaps, found, dx, dy, 0.0, 0.0, _mine_radius(state))
    return found


@kernel
def _insert(hazards, gaps, found, dx, dy, vx, vy, radius):
    """Insert a hazard by distance, after those at the same distance; return the number of hazards."""
    gap = dx * dx + dy * dy
    if found == NUM_HAZARDS and gap >= gaps[found - 1]:
        return found
    slot = found if found < NUM_HAZARDS else NUM_HAZARDS - 1
    while slot > 0 and gaps[slot - 1] > gap:
        gaps[slot] = gaps[slot - 1]
        for component in range(hazards.shape[1]):
            hazards[slot, component] = hazards[slot - 1, component]
        slot -= 1
    gaps[slot] = gap
    hazards[slot, HAZARD.dx], hazards[slot, HAZARD.dy] = dx, dy
    hazards[slot, HAZARD.vx], hazards[slot, HAZARD.vy] = vx, vy
    hazards[slot, HAZARD.radius] = radius
    return min(found + 1, NUM_HAZARDS)


@kernel
def _mover(ninja, mover, surroundings, hazards, gaps, found):
    """Draw one mover and add its deadly part to ``hazards``; return the number of hazards."""
    solid, deadly = surroundings[PLANE.solid], surroundings[PLANE.deadly]
    kind = mover["type"]
    dx, dy = mover["x"] - ninja["x"], mover["y"] - ninja["y"]
    if kind == kinds.LASER:
        return _beam(ninja, mover, mover["target_x"], mover["target_y"], deadly, hazards, gaps, found)
    if is_shooter(kind):
        return _shooter(ninja, mover, deadly, hazards, gaps, found)
    if abs(dx) > WINDOW_REACH or abs(dy) > WINDOW_REACH:
        return found
    if kind == kinds.BOUNCE_BLOCK:
        _draw_square(solid, dx, dy, BLOCK_HALF)
        return found
    if kind == kinds.THWUMP:
        _draw_square(solid, dx, dy, THWUMP_HALF)
        ahead = THWUMP_REACH * mover["direction"]
        if mover["mode"] == HORIZONTAL:
            dx += ahead
            _draw_line(deadly, dx, dy - LETHAL_HALF_WIDTH, dx, dy + LETHAL_HALF_WIDTH)
        else:
            dy += ahead
            _draw_line(deadly, dx - LETHAL_HALF_WIDTH, dy, dx + LETHAL_HALF_WIDTH, dy)
        return _insert(hazards, gaps, found, dx, dy, mover["vx"], mover["vy"], LETHAL_REACH - RADIUS)
    _splat(deadly, dx, dy)
    if kind == kinds.SHOVE_THWUMP:
        if mover["state"] <= TRIGGERED:  # solid until it starts to move
            _draw_square(solid, dx, dy, SHOVE_HALF)
        radius = SHOVE_CORE
    elif kind == kinds.DEATH_BALL:
        radius = BALL_RADIUS
    elif kind == kinds.FLOOR_GUARD:
        radius = GUARD_RADIUS
    elif kind == kinds.EVIL_NINJA:
        radius = EVIL_RADIUS
    else:
        radius = MINI_RADIUS if kind == kinds.MINI_DRONE else ZAP_RADIUS
    return _insert(hazards, gaps, found, dx, dy, mover["vx"], mover["vy"], radius)


@kernel
def _shooter(ninja, shooter, deadly, hazards, gaps, found):
    """Draw the deadly part of a turret or shooting drone and add it to ``hazards``; return the number of hazards.

    The hazard of a rocket turret is its flying rocket, or else the turret; of a gauss turret, its crosshair or its beam;
    of a laser drone, its beam, or else the drone; of a chaingun drone, the drone.
    """
    kind, state = shooter["type"], shooter["state"]
    x, y, vx, vy = shooter["x"], shooter["y"], 0.0, 0.0
    if kind == kinds.GAUSS_TURRET:
        if state == WATCHING or state == POSTFIRE:
            return found
        if state == PREFIRE:
            return _beam(ninja, shooter, shooter["target_x"], shooter["target_y"], deadly, hazards, gaps, found)
        x, y = shooter["target_x"], shooter["target_y"]
    elif kind == kinds.ROCKET_TURRET:
        if state == FIRING:
            speed = ROCKET_SPEEDS[shooter["timer"]]
            vx, vy = speed * shooter["vx"], speed * shooter["vy"]
    elif state == WATCHING:
        vx, vy = shooter["vx"], shooter["vy"]
    elif kind == kinds.LASER_DRONE and state == FIRING:
        end_x, end_y = x + shooter["beam"] * shooter["vx"], y + shooter["beam"] * shooter["vy"]
        return _beam(ninja, shooter, end_x, end_y, deadly, hazards, gaps, found)
    dx, dy = x - ninja["x"], y - ninja["y"]
    if abs(dx) > WINDOW_REACH or abs(dy) > WINDOW_REACH:
        return found
    if kind == kinds.ROCKET_TURRET and state == FIRING:
        _splat(deadly, dx, dy)
    return _insert(hazards, gaps, found, dx, dy, vx, vy, BEAM_RADIUS)


@kernel
def _beam(ninja, source, target_x, target_y, deadly, hazards, gaps, found):
    """Draw a beam; add its point that is nearest to the ninja to ``hazards``; return the number of hazards.

    source: mover at the start of the beam.  target_x, target_y: end of the beam, px.
    """
    dx, dy = source["x"] - ninja["x"], source["y"] - ninja["y"]
    end_x, end_y = target_x - ninja["x"], target_y - ninja["y"]
    _draw_line(deadly, dx, dy, end_x, end_y)
    wx, wy = end_x - dx, end_y - dy
    length_squared = wx * wx + wy * wy
    t = min(max(-(dx * wx + dy * wy) / length_squared, 0.0), 1.0) if length_squared > 0.0 else 0.0
    dx, dy = dx + t * wx, dy + t * wy
    if abs(dx) > WINDOW_REACH or abs(dy) > WINDOW_REACH:
        return found
    return _insert(hazards, gaps, found, dx, dy, 0.0, 0.0, BEAM_RADIUS)


@kernel
def _draw_square(plane, dx, dy, half):
    """Raise each cell that a square overlaps to the covered share of the cell.

    dx, dy: centre of the square, px from the ninja.  half: half of its side, px.
    """
    left, right = (dx - half + WINDOW_REACH) / HALF_CELL, (dx + half + WINDOW_REACH) / HALF_CELL
    top, bottom = (dy - half + WINDOW_REACH) / HALF_CELL, (dy + half + WINDOW_REACH) / HALF_CELL
    for row in range(max(int(np.floor(top)), 0), min(int(np.floor(bottom)) + 1, SURROUNDINGS_SIZE)):
        for column in range(max(int(np.floor(left)), 0), min(int(np.floor(right)) + 1, SURROUNDINGS_SIZE)):
            width, height = min(right, column + 1.0) - max(left, column), min(bottom, row + 1.0) - max(top, row)
            plane[row, column] = max(plane[row, column], int(255 * (width * height)))


@kernel
def _draw_line(plane, x1, y1, x2, y2):
    """Fill the cells that contain points along a line, at most half a cell apart.  Coordinates are px from the ninja."""
    steps = int(np.ceil(max(abs(x2 - x1), abs(y2 - y1)) / (HALF_CELL / 2.0)))
    for step in range(steps + 1):
        share = step / steps if steps else 0.0
        column = int(np.floor((x1 + (x2 - x1) * share + WINDOW_REACH) / HALF_CELL))
        row = int(np.floor((y1 + (y2 - y1) * share + WINDOW_REACH) / HALF_CELL))
        if 0 <= row < SURROUNDINGS_SIZE and 0 <= column < SURROUNDINGS_SIZE:
            plane[row, column] = 255


@kernel
def _splat(plane, dx, dy):
    """Add a point at (dx, dy) px from the ninja, distributed over the four nearest cells (bilinear)."""
    u, v = (dx + WINDOW_REACH) / HALF_CELL - 0.5, (dy + WINDOW_REACH) / HALF_CELL - 0.5
    c, r = int(np.floor(u)), int(np.floor(v))
    fu, fv = u - c, v - r
    for a in range(2):
        for b in range(2):
            row, column = r + a, c + b
            if 0 <= row < SURROUNDINGS_SIZE and 0 <= column < SURROUNDINGS_SIZE:
                weight = (fv if a else 1.0 - fv) * (fu if b else 1.0 - fu)
                plane[row, column] = min(np.int64(plane[row, column]) + int(255 * weight), 255)


@kernel
def _draw_door(state, door, left, top, plane):
    if state["closed"] == 0:
        return
    for step in range(DOOR_POINTS):
        px = door["x1"] + (door["x2"] - door["x1"]) * step / (DOOR_POINTS - 1.0)
        py = door["y1"] + (door["y2"] - door["y1"]) * step / (DOOR_POINTS - 1.0)
        column, row = int(np.floor((px - left) / HALF_CELL)), int(np.floor((py - top) / HALF_CELL))
        if 0 <= row < SURROUNDINGS_SIZE and 0 <= column < SURROUNDINGS_SIZE:
            plane[row, column] = 255


@kernel
def action_mask(ninja, out):
    """Write bool[6]: False for jump actions in which the jump key has no effect.

    This is the case if the ninja is in the air, the jump key was held in the last frame, and no jump is in progress or
    buffered.
    """
    out[:] = True
    waiting = ninja["jump_buffer"] >= 0
    no_jump = ninja["airborne"] and ninja["jump_held"] and ninja["state"] != JUMPING and not waiting
    for action in range(NUM_ACTIONS):
        if no_jump and ACTION_INPUT[action] & JUMP:
            out[action] = False
