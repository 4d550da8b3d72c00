"""The move and think passes of drones, floor guards, bounce blocks, thwumps, boost pads, death balls and shove thwumps.

Source: docs/physics.md, sections 7.7 to 7.13 and 8.1.  Section numbers refer to that page.  The reference simulator
has no chaser drones; their rules are those of N v2.0.  ``movers`` is MOVER_DTYPE[M] of one environment.
"""

import math

import numpy as np

from nppsim._numba.decorators import inlined, kernel, merged
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, HALF_CELL, TILE
from nppsim.physics.evil_ninjas import think_evil_ninja
from nppsim.physics.grid import (
    axis_of,
    grid_of,
    half_cell,
    is_floor,
    path_is_free,
    register,
    sign_of,
    step_free,
    steps_free,
)
from nppsim.physics.groups import is_drone, is_shooter, is_shooting_drone
from nppsim.physics.lasers import think_laser
from nppsim.physics.ninja import is_valid_target
from nppsim.physics.segments import (
    cell_at,
    cells_around,
    clamped_cell,
    nearest_surface,
    searches,
    settles,
    sweep_to,
    walls_of,
)
from nppsim.physics.shooters import CHAINGUN_SPEED, LASER_DRONE_SPEED, WATCHING, think_shooter
from nppsim.physics.state import (
    CHARGING,
    CHASING,
    HORIZONTAL,
    IDLE,
    LAUNCHING,
    NEAR_SEGMENTS,
    RADIUS,
    RETREATING,
    RETURNING,
    ROAMING,
    TRIGGERED,
    UNTOUCHED,
    WAITING,
)

# Drones (section 7.7) and chaser drones (section 8.1).
ZAP_RADIUS = 7.5  # px; also for chaser drones
ZAP_STEP = 24.0  # px between the grid points at which a drone other than a mini drone may turn
ZAP_SPEED = 8.0 / 7.0  # px per frame
MINI_RADIUS = 4.0  # px
MINI_STEP = 12.0  # px between the grid points at which a mini drone may turn
MINI_SPEED = 1.3  # px per frame
CHASE_SPEED = 16.0 / 7.0  # px per frame
CHASE_LATERAL = 12.0  # px, maximum distance of a visible ninja from the line along which a chaser looks
# For each mode: the turns that a drone tries, in order, as numbers to add to its direction.
TURNS = np.array([[1, 0, 3, 2], [3, 0, 1, 2], [0, 1, 3, 2], [0, 3, 1, 2]], np.int64)

# Floor guards (section 7.8).
GUARD_RADIUS = 6.0  # px
GUARD_SPEED = 3.428571428571428  # px per frame
GUARD_GAP = 0.01  # px between a guard that has stopped and the border of the half-cell that stopped it

# Bounce blocks (section 7.9).
BLOCK_DRAG = 0.98  # factor on the velocity per frame
BLOCK_SPRING = 0.02222222222222222  # acceleration in px per frame^2 for each px of distance from the home position

# Thwumps (section 7.10).
THWUMP_CHARGE = 20.0 / 7.0  # px per frame
THWUMP_RETREAT = 8.0 / 7.0  # px per frame
THWUMP_REACH = 11.0  # px, half-side of the square that collides with walls
THWUMP_SIGHT = 38.0  # px; a thwump sees a ninja whose distance from its line of motion is less than this
THWUMP_FAR = 100  # maximum number of half-cells that a thwump looks ahead; more than the stage is wide

# Boost pads (section 7.11).
BOOST_RADIUS = 6.0  # px
BOOST = 2.0  # px per frame added to the ninja's speed

# Death balls (section 7.12).
BALL_RADIUS = 5.0  # px, radius of the circle that kills
BALL_BODY = 8.0  # px, radius of the circle that collides with surfaces and other balls
BALL_SWEEP = 4.0  # px, radius of the circle that is swept along the move
BALL_FREE_STEP = 12.0  # px along an axis; a shorter move hits nothing if the 3 x 3 cells at the start have no segments
BALL_PUSHES = 16  # maximum number of pushes out of surfaces per frame
BALL_LEAST_PUSH = 1e-7  # px; a smaller depth does not count as overlap
BALL_ACCELERATION = 0.04  # px per frame^2
BALL_SPEED = 0.85  # px per frame; the part of the speed above this is the excess
BALL_EXCESS = 0.9  # factor on the excess per frame
BALL_LEAST_EXCESS = 0.01  # px per frame; an excess up to this becomes 0
BALL_DRAG = 0.95  # factor on the velocity per frame while the ninja is not a valid target
BALL_BOUNCE_SPEED = 1.35  # px per frame; a faster ball bounces off a surface, a slower one slides along it
BALL_PARTING = 4.0  # px per frame that each of two overlapping balls gains away from the other
MOVED, HALTED, STUCK = range(3)  # last result of ``_move_ball``: moved, stopped for this frame, stuck permanently

# Shove thwumps (section 7.13).
SHOVE_CORE = 8.0  # px, half-width of the part that collides with walls, and radius of the circle that kills
SHOVE_LAUNCH = 4.0  # px per frame
SHOVE_RETURN = 1.0  # px per frame; also the distance from home, in px, below which the thwump is back


@kernel
def _reregister(ninja, mover):
    """Register a mover in the cell of its position if this cell has changed."""
    left, top = TILE * np.int64(mover["cell_x"]), TILE * np.int64(mover["cell_y"])
    if 1e-6 < mover["x"] - left < TILE - 1e-6 and 1e-6 < mover["y"] - top < TILE - 1e-6:
        return  # still clearly inside its cell
    cell_x, cell_y = clamped_cell(mover["x"], CELLS_X), clamped_cell(mover["y"], CELLS_Y)
    if cell_x != mover["cell_x"] or cell_y != mover["cell_y"]:
        register(ninja, mover, cell_x, cell_y)


@inlined
def _along(body, axis):
    """Coordinate of a record along an axis: x for axis 0, y for axis 1."""
    return body["y"] if axis else body["x"]


@inlined
def _set_along(body, axis, value):
    if axis:
        body["y"] = value
    else:
        body["x"] = value


@kernel
def _advance(ninja, mover, axis, sign, step, face, half, grid):
    """Move a thwump by ``step`` px along an axis unless an edge of the half-cell grid stops it; return True if it moved.

    sign: sign of the step.
    face: px along the axis from the centre to the face that hits edges.
    half: half of the thwump's width across the axis, in px.
    """
    along, across = _along(mover, axis), _along(mover, 1 - axis)
    cell = half_cell(along + face)
    if cell != half_cell(along + step + face):
        low, high = half_cell(across - half), half_cell(across + half)
        if not step_free(axis, cell, low, high, sign, grid):
            return False
    _set_along(mover, axis, along + step)
    _reregister(ninja, mover)
    return True


@kernel
def move_all(ninja, entities, movers, world, level):
    """Run the move pass of all movers, then apply the boost pads."""
    record, grid = world.level[level], grid_of(entities, world, level)
    for m in range(record["first_moving"], len(movers)):
        mover = movers[m]
        kind = mover["type"]
        x, y = mover["x"], mover["y"]
        if is_drone(kind):
            if is_shooting_drone(kind) and mover["state"] != WATCHING:
                continue
            if not _glide(ninja, mover):
                _turn(ninja, mover, grid)
        elif kind == kinds.BOUNCE_BLOCK:
            _move_block(ninja, mover, world.entity[record["entity_first"] + mover["entity"]])
            continue
        elif kind == kinds.THWUMP:
            if mover["state"] != WAITING:
                home = world.entity[record["entity_first"] + mover["entity"]]
                _move_thwump(ninja, mover, home, grid)
        elif kind == kinds.FLOOR_GUARD:
            if mover["state"] != 0:
                _move_guard(ninja, mover, grid)
        else:
            continue
        mover["vx"], mover["vy"] = mover["x"] - x, mover["y"] - y
    base = record["entity_first"]
    for k in range(record["boosts_first"], record["boosts_end"]):
        _boost(ninja, entities[k - base], world.entity[k]["x"], world.entity[k]["y"])


@kernel
def think_all(ninja, entities, movers, trail, world, level):
    """Run the think pass of all movers."""
    record, grid, walls = world.level[level], grid_of(entities, world, level), walls_of(world, level)
    target = is_valid_target(ninja)
    for m in range(record["first_moving"], len(movers)):
        mover = movers[m]
        kind = mover["type"]
        if kind == kinds.FLOOR_GUARD:
            if target and mover["state"] == 0 and _is_level_with(ninja, mover):
                _think_guard(ninja, mover, grid)
        elif kind == kinds.THWUMP:
            if target and mover["state"] == WAITING and _in_sight(ninja, mover):
                _think_thwump(ninja, mover, grid)
        elif kind == kinds.DEATH_BALL:
            _think_ball(ninja, m, movers, record, world.near[level], walls, entities)
        elif kind == kinds.SHOVE_THWUMP:
            mover["vx"], mover["vy"] = 0.0, 0.0
            if mover["state"] != IDLE:
                home = world.entity[record["entity_first"] + mover["entity"]]
                _think_shove(ninja, mover, home, grid)
        elif kind == kinds.LASER:
            think_laser(ninja, mover, is_valid_target(ninja), record["rules"], walls, entities)
        elif kind == kinds.EVIL_NINJA:
            if mover["state"] != UNTOUCHED:
                home = world.entity[record["entity_first"] + mover["entity"]]
                think_evil_ninja(ninja, mover, home, trail, record["trail"])
        elif is_shooter(kind):
            home = world.entity[record["entity_first"] + mover["entity"]]
            think_shooter(ninja, mover, home, is_valid_target(ninja), record["rules"], walls, entities)


# ------------------------------------------------------------------------------------------------------ drones (7.7)
@kernel
def _step_x(direction):
    return 1.0 if direction == 0 else (-1.0 if direction == 2 else 0.0)


@kernel
def _step_y(direction):
    return 1.0 if direction == 1 else (-1.0 if direction == 3 else 0.0)


@inlined
def _speed_of(drone):
    """Speed of a drone in px per frame."""
    kind = drone["type"]
    if kind == kinds.ZAP_DRONE:
        return ZAP_SPEED
    if kind == kinds.MINI_DRONE:
        return MINI_SPEED
    if kind == kinds.CHAINGUN_DRONE:
        return CHAINGUN_SPEED
    if kind == kinds.LASER_DRONE:
        return LASER_DRONE_SPEED
    return CHASE_SPEED if drone["state"] == CHASING else ZAP_SPEED


@inlined
def _glide(ninja, mover):
    """Move a drone ahead by one step; return False, without a move, if the step would pass the next point of its grid."""
    speed, heading = _speed_of(mover), np.int64(mover["direction"])
    x, y = mover["x"], mover["y"]
    sx, sy = speed * _step_x(heading), speed * _step_y(heading)
    dx, dy = mover["target_x"] - x, mover["target_y"] - y
    squared = dx * dx + dy * dy
    after_x, after_y = mover["target_x"] - (x + sx), mover["target_y"] - (y + sy)
    passes = dx * after_x + dy * after_y < 0.0
    if passes or not (squared > 1e-11 or math.sqrt(squared) >= 1e-6):
        return False
    mover["x"], mover["y"] = x + sx, y + sy
    if not is_shooting_drone(mover["type"]):  # shooting drones are in no cell, because touching them has no effect
        _reregister(ninja, mover)
    return True


@kernel
def _turn(ninja, mover, grid):
    """Move a drone to the next point of its grid, turn there, and continue with the rest of the step."""
    speed, heading = _speed_of(mover), np.int64(mover["direction"])
    dx, dy = mover["target_x"] - mover["x"], mover["target_y"] - mover["y"]
    distance = math.sqrt(dx * dx + dy * dy)
    mover["x"], mover["y"] = mover["target_x"], mover["target_y"]
    if mover["type"] == kinds.CHASER_DRONE and _chases(ninja, mover, grid):
        _leave(mover, np.int64(mover["direction"]), speed - distance)
        return
    for n in range(4):
        direction = (heading + TURNS[mover["mode"], n]) & 3
        if _drone_passes(mover, direction, grid):
            _leave(mover, direction, speed - distance)
            return


@kernel
def _leave(drone, direction, rest):
    """Send a drone from a point of its grid towards the next point; move it by ``rest`` px in this frame."""
    step = MINI_STEP if drone["type"] == kinds.MINI_DRONE else ZAP_STEP
    ux, uy = _step_x(direction), _step_y(direction)
    x, y = drone["x"], drone["y"]
    drone["direction"] = direction
    drone["target_x"], drone["target_y"] = x + step * ux, y + step * uy
    drone["x"], drone["y"] = x + ux * rest, y + uy * rest


@kernel
def _drone_passes(drone, direction, grid):
    """Return True if a drone can move in a direction to the next point of its grid."""
    x, y = drone["x"], drone["y"]
    radius, step = (MINI_RADIUS, MINI_STEP) if drone["type"] == kinds.MINI_DRONE else (ZAP_RADIUS, ZAP_STEP)
    end = y + step * _step_y(direction) if direction & 1 else x + step * _step_x(direction)
    return path_is_free(x, y, end, radius, direction, grid)


@merged
def _chases(ninja, mover, grid):
    """Return True if a chaser at a point of its grid continues or begins a chase; set its direction (section 8.1).

    A blocked chase ends; then the chaser looks left, ahead and right for the ninja.
    """
    heading = np.int64(mover["direction"])
    if mover["state"] == CHASING:
        if _drone_passes(mover, heading, grid):
            return True
        mover["state"] = ROAMING
    if not is_valid_target(ninja):
        return False
    dx, dy = ninja["x"] - mover["x"], ninja["y"] - mover["y"]
    for turn in (3, 0, 1):
        direction = (heading + turn) & 3
        ux, uy = _step_x(direction), _step_y(direction)
        aligned = dx * ux + dy * uy > 0.0 and abs(dx * uy - dy * ux) <= CHASE_LATERAL
        if aligned and _sees(ninja, mover, direction, grid) and _drone_passes(mover, direction, grid):
            mover["direction"], mover["state"] = direction, CHASING
            return True
    return False


@merged
def _sees(ninja, chaser, direction, grid):
    """Return True if no edge of the half-cell grid blocks the chaser's row or column up to the ninja's half-cell."""
    axis, sign = axis_of(direction), sign_of(direction)
    k, end = half_cell(_along(chaser, axis)), half_cell(_along(ninja, axis))
    across = half_cell(_along(chaser, 1 - axis))
    return steps_free(axis, k, end, across, across, sign, grid)


# ------------------------------------------------------------------------------------------------ floor guards (7.8)
@kernel
def _move_guard(ninja, mover, grid):
    sign = np.int64(mover["state"])
    x, y = mover["x"], mover["y"]
    moved = x + sign * GUARD_SPEED
    column, next_column = half_cell(x + GUARD_RADIUS * sign), half_cell(moved + GUARD_RADIUS * sign)
    if column != next_column:
        row = half_cell(y)
        free = step_free(np.int64(0), column, row, row, sign, grid)
        if not (free and is_floor(next_column, row + 1, grid)):
            edge = column + 1 if sign > 0 else column
            moved = HALF_CELL * edge - (GUARD_RADIUS + GUARD_GAP) * sign
            mover["state"] = 0
    mover["x"] = moved
    _reregister(ninja, mover)


@inlined
def _is_level_with(ninja, guard):
    return guard["y"] + GUARD_RADIUS - TILE <= ninja["y"] <= guard["y"] + GUARD_RADIUS


@kernel
def _think_guard(ninja, mover, grid):
    x, y = mover["x"], mover["y"]
    if ninja["x"] == x:
        return
    sign = 1 if ninja["x"] > x else -1
    if path_is_free(x, y, ninja["x"], 0.0, 1 - sign, grid):
        mover["state"] = sign


# ----------------------------------------------------------------------------------------------- bounce blocks (7.9)
@kernel
def _move_block(ninja, mover, home):
    if mover["vx"] == 0.0 and mover["vy"] == 0.0 and mover["x"] == home["x"] and mover["y"] == home["y"]:
        return  # at rest
    vx, vy = mover["vx"] * BLOCK_DRAG, mover["vy"] * BLOCK_DRAG
    x, y = mover["x"] + vx, mover["y"] + vy
    fx, fy = BLOCK_SPRING * (home["x"] - x), BLOCK_SPRING * (home["y"] - y)
    mover["x"], mover["y"] = x + fx, y + fy
    mover["vx"], mover["vy"] = vx + fx, vy + fy
    _reregister(ninja, mover)


# ---------------------------------------------------------------------------------------------------- thwumps (7.10)
@kernel
def _move_thwump(ninja, mover, home, grid):
    axis = 0 if mover["mode"] == HORIZONTAL else 1
    along, start = _along(mover, axis), _along(home, axis)
    sign = mover["direction"] * mover["state"]
    step = (THWUMP_CHARGE if mover["state"] == CHARGING else THWUMP_RETREAT) * sign
    if mover["state"] == RETREATING and (along + step - start) * (along - start) < 0.0:
        _set_along(mover, axis, start)
        mover["state"] = WAITING
    elif not _advance(ninja, mover, axis, sign, step, THWUMP_REACH * sign, THWUMP_REACH, grid):
        mover["state"] = RETREATING


@inlined
def _in_sight(ninja, thwump):
    """Return True if the ninja is close enough to a thwump's line of motion."""
    axis = 0 if thwump["mode"] == HORIZONTAL else 1
    return abs(_along(thwump, 1 - axis) - _along(ninja, 1 - axis)) < THWUMP_SIGHT


@kernel
def _think_thwump(ninja, mover, grid):
    axis = 0 if mover["mode"] == HORIZONTAL else 1
    along, across = _along(mover, axis), _along(mover, 1 - axis)
    facing = np.int64(mover["direction"])
    cell, wanted = half_cell(along - THWUMP_REACH * facing), half_cell(_along(ninja, axis))
    rest = wanted - cell
    if rest * facing < 0:
        return
    low, high = half_cell(across - THWUMP_REACH), half_cell(across + THWUMP_REACH)
    steps = 0
    while steps < THWUMP_FAR:
        if not step_free(axis, cell, low, high, facing, grid):
            rest = wanted - cell
            break
        cell += facing
        steps += 1
    if steps > 0 and rest * facing <= 0:
        mover["state"] = CHARGING


# ------------------------------------------------------------------------------------------------- boost pads (7.11)
@kernel
def _boost(ninja, pad, x, y):
    dx, dy = ninja["x"] - x, ninja["y"] - y
    reach = BOOST_RADIUS + RADIUS
    is_near = abs(dx) < reach and abs(dy) < reach  # avoids the square root for distant pads
    if not is_near or not is_valid_target(ninja) or not math.sqrt(dx * dx + dy * dy) < reach:
        pad["clock"] = 0
        return
    if pad["clock"] == 0:
        vx, vy = ninja["vx"], ninja["vy"]
        speed = math.sqrt(vx * vx + vy * vy)
        if speed > 0.0:
            ninja["vx"] = vx + BOOST * vx / speed
            ninja["vy"] = vy + BOOST * vy / speed
        pad["clock"] = 1


# ------------------------------------------------------------------------------------------------ death balls (7.12)
@kernel
def _think_ball(ninja, m, movers, record, near, walls, entities):
    """Accelerate a death ball towards the ninja, move it, and push it away from other balls."""
    ball = movers[m]
    vx, vy = _ball_velocity(ninja, ball)
    if ball["flag"]:
        ball["vx"], ball["vy"] = vx, vy
        return
    x, y, sum_x, sum_y, end = _move_ball(ball["x"], ball["y"], vx, vy, record, near, walls, entities)
    if end != MOVED:
        ball["flag"] = end == STUCK
        ball["x"], ball["y"], ball["vx"], ball["vy"] = x, y, vx, vy
        return
    length = math.sqrt(sum_x * sum_x + sum_y * sum_y)
    if length > 0.0:
        nx, ny = sum_x / length, sum_y / length
        toward = vx * nx + vy * ny
        if toward < 0.0:
            factor = 1.0 if math.sqrt(vx * vx + vy * vy) <= BALL_BOUNCE_SPEED else 2.0
            vx, vy = vx - nx * toward * factor, vy - ny * toward * factor
    ball["x"], ball["y"], ball["vx"], ball["vy"] = x, y, vx, vy
    _part_balls(m, movers, record)
    _reregister(ninja, ball)


@merged
def _ball_velocity(ninja, ball):
    """Velocity (x, y) of a ball before surfaces and other balls change it."""
    vx, vy = ball["vx"], ball["vy"]
    if not is_valid_target(ninja):
        return vx * BALL_DRAG, vy * BALL_DRAG
    dx, dy = ninja["x"] - ball["x"], ninja["y"] - ball["y"]
    distance = math.sqrt(dx * dx + dy * dy)
    if distance > 0.0:
        dx, dy = dx / distance, dy / distance
    vx, vy = vx + dx * BALL_ACCELERATION, vy + dy * BALL_ACCELERATION
    speed = math.sqrt(vx * vx + vy * vy)
    if speed > BALL_SPEED:
        allowed = (speed - BALL_SPEED) * BALL_EXCESS
        if allowed <= BALL_LEAST_EXCESS:
            allowed = 0.0
        allowed += BALL_SPEED
        vx, vy = vx / speed * allowed, vy / speed * allowed
    return vx, vy


@merged
def _move_ball(x, y, vx, vy, record, near, walls, entities):
    """Sweep a ball along its move and push it out of surfaces.

    Returns (x, y, sum of the normals' x, sum of their y, MOVED, HALTED or STUCK).
    """
    if near[cell_at(x, y)] & NEAR_SEGMENTS == 0 and abs(vx) < BALL_FREE_STEP and abs(vy) < BALL_FREE_STEP:
        return x + 1.0 * vx, y + 1.0 * vy, 0.0, 0.0, MOVED  # no segment in the 3 x 3 cells around the ball
    segments, cell_start, first = walls
    x, y, found = sweep_to(x, y, vx, vy, BALL_SWEEP, BALL_BODY, segments, cell_start, first, entities)
    sum_x, sum_y = 0.0, 0.0
    for push in range(BALL_PUSHES):
        if push > 0:
            found = nearest_surface(x, y, BALL_BODY, segments, cell_start, first, entities)
        result, near_x, near_y, side, best, others, _beside = found
        if result == 0:
            break
        dx, dy = x - near_x, y - near_y
        distance = math.sqrt(dx * dx + dy * dy)
        depth = BALL_BODY - distance * result
        if depth < BALL_LEAST_PUSH:
            break
        if distance == 0.0:
            # The centre is on a surface: in the game the ball's think pass ends here.  On the front face of a tile,
            # every later sweep ends at its start, so the ball is stuck permanently.
            no_doors = record["doors_first"] == record["switches_end"]
            return x, y, 0.0, 0.0, STUCK if result == 1 and (side == 0.0 or no_doors) else HALTED
        searched = cells_around(x, y, BALL_BODY)
        x += dx / distance * depth
        y += dy / distance * depth
        sum_x += dx / distance
        sum_y += dy / distance
        if settles(BALL_BODY, depth, result, side, best, others) and searches(x, y, BALL_BODY, searched):
            break
    return x, y, sum_x, sum_y, MOVED


@merged
def _part_balls(m, movers, record):
    """Push apart ball m and each later ball in ``movers`` that overlaps it."""
    number = 0
    while m - number - 1 >= 0 and movers[m - number - 1]["type"] == kinds.DEATH_BALL:
        number += 1
    if number + 1 >= record["ball_count"]:
        return
    ball = movers[m]
    for other_m in range(m + 1, len(movers)):
        other = movers[other_m]
        if other["type"] != kinds.DEATH_BALL:
            break
        dx, dy = ball["x"] - other["x"], ball["y"] - other["y"]
        distance = math.sqrt(dx * dx + dy * dy)
        if 0.0 < distance < 2.0 * BALL_BODY:
            ix, iy = dx / distance * BALL_PARTING, dy / distance * BALL_PARTING
            ball["vx"] += ix
            ball["vy"] += iy
            other["vx"] -= ix
            other["vy"] -= iy


# ---------------------------------------------------------------------------------------------- shove thwumps (7.13)
@kernel
def _think_shove(ninja, mover, home, grid):
    if mover["state"] == TRIGGERED:
        if mover["flag"]:
            mover["flag"] = 0
            return
        mover["state"] = LAUNCHING
    x, y = mover["x"], mover["y"]
    if mover["state"] == RETURNING:
        if abs(x - home["x"]) + abs(y - home["y"]) >= SHOVE_RETURN:
            _travel(ninja, mover, SHOVE_RETURN, grid)
        else:
            mover["x"], mover["y"] = home["x"], home["y"]
            mover["state"] = IDLE
    elif mover["state"] == LAUNCHING:
        _travel(ninja, mover, -SHOVE_LAUNCH, grid)
    mover["vx"], mover["vy"] = mover["x"] - x, mover["y"] - y


@kernel
def _travel(ninja, mover, speed, grid):
    """Move along the triggered face's normal (backwards for a negative speed); if blocked, begin to return."""
    axis = 0 if mover["push_y"] == 0 else 1
    push = np.int64(mover["push_y"] if axis else mover["push_x"])
    sign = push if speed > 0.0 else -push
    if not _advance(ninja, mover, axis, sign, push * speed, 0.0, SHOVE_CORE, grid):
        mover["state"] = RETURNING
