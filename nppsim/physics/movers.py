"""Drones, floor guards, bounce blocks, thwumps, boost pads, death balls, shove thwumps: moving and thinking.

``movers``: MOVER[M], of one environment.  Source: docs/physics.md, sections 7.7 to 7.13 and 8.1; section numbers below
are those of that page.  Chaser drones are a completion (section 8.1): the details of their chase are not known.
"""

import math

import numpy as np

from nppsim._kernel import kernel
from nppsim.compile import CELLS_X, CELLS_Y
from nppsim.levels import kinds
from nppsim.physics.grid import column_free, half_cell, is_floor, register, row_free, way_free
from nppsim.physics.lasers import think_laser
from nppsim.physics.ninja import is_valid_target
from nppsim.physics.segments import cell_range, clamped_cell, nearest_surface, settles, sweep, way_is_free

ZAP_RADIUS, ZAP_STEP, ZAP_SPEED = 7.5, 24.0, 8.0 / 7.0
MINI_RADIUS, MINI_STEP, MINI_SPEED = 4.0, 12.0, 1.3
CHASE_SPEED, CHASE_LATERAL = 16.0 / 7.0, 12.0
# Order in which the drones of each mode try to turn, added to the present direction.
TURNS = np.array([[1, 0, 3, 2], [3, 0, 1, 2], [0, 1, 3, 2], [0, 3, 1, 2]], np.int64)
GUARD_RADIUS, GUARD_SPEED = 6.0, 3.428571428571428
BLOCK_DRAG, BLOCK_SPRING = 0.98, 0.02222222222222222
THWUMP_CHARGE, THWUMP_RETREAT, THWUMP_REACH, THWUMP_SIGHT = 20.0 / 7.0, 8.0 / 7.0, 11.0, 38.0
BOOST_RADIUS, BOOST = 6.0, 2.0
BALL_RADIUS, BALL_BODY, BALL_SWEEP = 5.0, 8.0, 4.0
BALL_ACCELERATION, BALL_SPEED, BALL_DRAG = 0.04, 0.85, 0.95
SHOVE_CORE, SHOVE_LAUNCH, SHOVE_RETURN = 8.0, 4.0, 1.0


@kernel
def _reregister(ninja, mover):
    """Change to the cell of the present position, if it is another one."""
    left, top = 24.0 * mover["cell_x"], 24.0 * mover["cell_y"]
    if left + 1e-6 < mover["x"] < left + 23.999999 and top + 1e-6 < mover["y"] < top + 23.999999:
        return  # clearly inside the old one
    cell_x, cell_y = clamped_cell(mover["x"], CELLS_X), clamped_cell(mover["y"], CELLS_Y)
    if cell_x != mover["cell_x"] or cell_y != mover["cell_y"]:
        register(ninja, mover, cell_x, cell_y)


@kernel
def move_all(ninja, entities, movers, world, level):
    """The move pass."""
    record = world.level[level]
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        mover = movers[m]
        kind = mover["type"]
        x, y = mover["x"], mover["y"]
        if kind == kinds.ZAP_DRONE or kind == kinds.MINI_DRONE or kind == kinds.CHASER_DRONE:
            _move_drone(ninja, mover, entities, world, level)
        elif kind == kinds.BOUNCE_BLOCK:
            _move_block(ninja, mover, world.entity[record["entity_first"] + mover["entity"]])
            continue
        elif kind == kinds.THWUMP:
            if mover["state"] != 0:
                home = world.entity[record["entity_first"] + mover["entity"]]
                _move_thwump(ninja, mover, home["x"], home["y"], entities, world, level)
        elif kind == kinds.FLOOR_GUARD:
            if mover["state"] != 0:
                _move_guard(ninja, mover, entities, world, level)
        else:
            continue
        mover["vx"], mover["vy"] = mover["x"] - x, mover["y"] - y
    base = record["entity_first"]
    for k in range(record["boosts_first"], record["boosts_end"]):
        _boost(ninja, entities[k - base], world.entity[k]["x"], world.entity[k]["y"])


@kernel
def think_all(ninja, entities, movers, world, level):
    """The think pass of everything that moves."""
    record = world.level[level]
    target = is_valid_target(ninja)
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        mover = movers[m]
        kind = mover["type"]
        if kind == kinds.FLOOR_GUARD:
            if target and mover["state"] == 0:
                _think_guard(ninja, mover, entities, world, level)
        elif kind == kinds.THWUMP:
            if target and mover["state"] == 0:
                _think_thwump(ninja, mover, entities, world, level)
        elif kind == kinds.DEATH_BALL:
            _think_ball(ninja, m, entities, movers, world, level)
        elif kind == kinds.SHOVE_THWUMP:
            mover["vx"], mover["vy"] = 0.0, 0.0
            if mover["state"] != 0:
                home = world.entity[record["entity_first"] + mover["entity"]]
                _think_shove(ninja, mover, home["x"], home["y"], entities, world, level)
        elif kind == kinds.CHASER_DRONE:
            if target and mover["state"] == 0:
                _think_chaser(ninja, mover, entities, world, level)
        elif kind == kinds.LASER:
            think_laser(ninja, mover, is_valid_target(ninja), entities, world, level)


# ------------------------------------------------------------------------------------------------------ drones (7.7)
@kernel
def _step_x(direction):
    return 1.0 if direction == 0 else (-1.0 if direction == 2 else 0.0)


@kernel
def _step_y(direction):
    return 1.0 if direction == 1 else (-1.0 if direction == 3 else 0.0)


@kernel
def _move_drone(ninja, mover, entities, world, level):
    mini = mover["type"] == kinds.MINI_DRONE
    speed = MINI_SPEED if mini else (CHASE_SPEED if mover["state"] == 1 else ZAP_SPEED)
    x, y = mover["x"], mover["y"]
    sx, sy = speed * _step_x(mover["direction"]), speed * _step_y(mover["direction"])
    dx, dy = mover["target_x"] - x, mover["target_y"] - y
    squared = dx * dx + dy * dy
    after_x, after_y = mover["target_x"] - (x + sx), mover["target_y"] - (y + sy)
    passes = dx * after_x + dy * after_y < 0.0
    if not passes and (squared > 1e-11 or math.sqrt(squared) >= 1e-6):
        mover["x"], mover["y"] = x + sx, y + sy
        _reregister(ninja, mover)
        return
    # The step would pass the target: turn there, and go on with what is left of the step.
    distance = math.sqrt(squared)
    x, y = mover["target_x"], mover["target_y"]
    mover["x"], mover["y"] = x, y
    if mover["type"] == kinds.CHASER_DRONE:
        _settle_chase(mover, entities, world, level)
    for n in range(4):
        direction = (mover["direction"] + TURNS[mover["mode"], n]) & 3
        if mover["state"] == 1:
            direction = mover["direction"]  # a chaser keeps to its way, known to be free
        if _drone_passes(x, y, direction, mini, entities, world, level):
            step = MINI_STEP if mini else ZAP_STEP
            ux, uy = _step_x(direction), _step_y(direction)
            mover["direction"] = direction
            mover["target_x"], mover["target_y"] = x + step * ux, y + step * uy
            mover["x"], mover["y"] = x + ux * (speed - distance), y + uy * (speed - distance)
            return


@kernel
def _drone_passes(x, y, direction, mini, entities, world, level):
    """Whether a drone can move on to the next point of its grid."""
    radius, step = (MINI_RADIUS, MINI_STEP) if mini else (ZAP_RADIUS, ZAP_STEP)
    end = y + step * _step_y(direction) if direction & 1 else x + step * _step_x(direction)
    return way_free(x, y, end, radius, direction, entities, world, level)


@kernel
def _settle_chase(mover, entities, world, level):
    """At a cell centre: start a chase in the wished direction, or end one that is blocked.  Completion, section 8.1."""
    x, y = mover["x"], mover["y"]
    if mover["state"] == 1:
        if not _drone_passes(x, y, mover["direction"], False, entities, world, level):
            mover["state"] = 0
            mover["wish"] = -1
    elif mover["wish"] >= 0 and _drone_passes(x, y, mover["wish"], False, entities, world, level):
        mover["direction"] = mover["wish"]
        mover["state"] = 1


@kernel
def _think_chaser(ninja, mover, entities, world, level):
    """Look left, ahead and right for the ninja.  Completion, section 8.1."""
    dx, dy = ninja["x"] - mover["x"], ninja["y"] - mover["y"]
    for turn in (3, 0, 1):
        direction = (mover["direction"] + turn) & 3
        ux, uy = _step_x(direction), _step_y(direction)
        aligned = dx * ux + dy * uy > 0.0 and abs(dx * uy - dy * ux) <= CHASE_LATERAL
        if aligned and _sees(ninja, mover, direction, entities, world, level):
            mover["wish"] = direction
            return


@kernel
def _sees(ninja, chaser, direction, entities, world, level):
    """Whether a chaser's body could pass from its front to the half-cell of the ninja's centre."""
    sign = 1 if direction < 2 else -1
    if direction & 1:
        front, end, across = chaser["y"] + sign * ZAP_RADIUS, ninja["y"], chaser["x"]
    else:
        front, end, across = chaser["x"] + sign * ZAP_RADIUS, ninja["x"], chaser["y"]
    k, last = half_cell(front), half_cell(end)
    low, high = half_cell(across - ZAP_RADIUS), half_cell(across + ZAP_RADIUS)
    while (last - k) * sign > 0:
        if direction & 1:
            free = row_free(k, low, high, sign, entities, world, level)
        else:
            free = column_free(k, low, high, sign, entities, world, level)
        if not free:
            return False
        k += sign
    return True


# ------------------------------------------------------------------------------------------------ floor guards (7.8)
@kernel
def _move_guard(ninja, mover, entities, world, level):
    sign = mover["state"]
    x, y = mover["x"], mover["y"]
    moved = x + sign * GUARD_SPEED
    column, next_column = half_cell(x + GUARD_RADIUS * sign), half_cell(moved + GUARD_RADIUS * sign)
    if column != next_column:
        row = half_cell(y)
        if not column_free(column, row, row, sign, entities, world, level) or not is_floor(
            next_column, row + 1, world, level
        ):
            edge = column + 1 if sign > 0 else column
            moved = 12 * edge - (GUARD_RADIUS + 0.01) * sign
            mover["state"] = 0
    mover["x"] = moved
    _reregister(ninja, mover)


@kernel
def _think_guard(ninja, mover, entities, world, level):
    x, y = mover["x"], mover["y"]
    if not (y + GUARD_RADIUS - 24.0 <= ninja["y"] <= y + GUARD_RADIUS):
        return
    if ninja["x"] == x:
        return
    sign = 1 if ninja["x"] > x else -1
    if way_free(x, y, ninja["x"], 0.0, 1 - sign, entities, world, level):
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
def _move_thwump(ninja, mover, home_x, home_y, entities, world, level):
    horizontal = mover["mode"] == 1
    along, across, home = (mover["x"], mover["y"], home_x) if horizontal else (mover["y"], mover["x"], home_y)
    sign = mover["direction"] * mover["state"]
    speed = THWUMP_CHARGE if mover["state"] == 1 else THWUMP_RETREAT
    moved = along + speed * sign
    if mover["state"] == -1 and (moved - home) * (along - home) < 0.0:
        if horizontal:
            mover["x"] = home
        else:
            mover["y"] = home
        mover["state"] = 0
        return
    cell = half_cell(along + THWUMP_REACH * sign)
    if cell != half_cell(moved + THWUMP_REACH * sign):
        low, high = half_cell(across - THWUMP_REACH), half_cell(across + THWUMP_REACH)
        if horizontal:
            free = column_free(cell, low, high, sign, entities, world, level)
        else:
            free = row_free(cell, low, high, sign, entities, world, level)
        if not free:
            mover["state"] = -1
            return
    if horizontal:
        mover["x"] = moved
    else:
        mover["y"] = moved
    _reregister(ninja, mover)


@kernel
def _think_thwump(ninja, mover, entities, world, level):
    horizontal = mover["mode"] == 1
    if horizontal:
        along, across, ninja_along, ninja_across = mover["x"], mover["y"], ninja["x"], ninja["y"]
    else:
        along, across, ninja_along, ninja_across = mover["y"], mover["x"], ninja["y"], ninja["x"]
    if not abs(across - ninja_across) < THWUMP_SIGHT:
        return
    facing = np.int64(mover["direction"])
    cell, wanted = half_cell(along - THWUMP_REACH * facing), half_cell(ninja_along)
    rest = wanted - cell
    if rest * facing < 0:
        return
    low, high = half_cell(across - THWUMP_REACH), half_cell(across + THWUMP_REACH)
    steps = 0
    while steps < 100:
        if horizontal:
            free = column_free(cell, low, high, facing, entities, world, level)
        else:
            free = row_free(cell, low, high, facing, entities, world, level)
        if not free:
            rest = wanted - cell
            break
        cell += facing
        steps += 1
    if steps > 0 and rest * facing <= 0:
        mover["state"] = 1


# ------------------------------------------------------------------------------------------------- boost pads (7.11)
@kernel
def _boost(ninja, pad, x, y):
    dx, dy = ninja["x"] - x, ninja["y"] - y
    if not is_valid_target(ninja) or not math.sqrt(dx * dx + dy * dy) < BOOST_RADIUS + 10.0:
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
def _think_ball(ninja, m, entities, movers, world, level):
    ball = movers[m]
    x, y, vx, vy = ball["x"], ball["y"], ball["vx"], ball["vy"]
    if not is_valid_target(ninja):
        vx, vy = vx * BALL_DRAG, vy * BALL_DRAG
    else:
        dx, dy = ninja["x"] - x, ninja["y"] - y
        distance = math.sqrt(dx * dx + dy * dy)
        if distance > 0.0:
            dx, dy = dx / distance, dy / distance
        vx, vy = vx + dx * BALL_ACCELERATION, vy + dy * BALL_ACCELERATION
        speed = math.sqrt(vx * vx + vy * vy)
        if speed > BALL_SPEED:
            allowed = (speed - BALL_SPEED) * 0.9
            if allowed <= 0.01:
                allowed = 0.0
            allowed += BALL_SPEED
            vx, vy = vx / speed * allowed, vy / speed * allowed
    if ball["flag"]:
        ball["vx"], ball["vy"] = vx, vy
        return
    segments, first, cell_start = world.segments, world.level[level]["segment_first"], world.cell_start[level]
    cell = clamped_cell(x, CELLS_X) * CELLS_Y + clamped_cell(y, CELLS_Y)
    sum_x, sum_y = 0.0, 0.0
    if world.near[level, cell] == 0 and abs(vx) < 12.0 and abs(vy) < 12.0:
        x, y = x + 1.0 * vx, y + 1.0 * vy  # no segment within a cell's width
    else:
        from_x, from_y = x, y
        x, y = x + 1.0 * vx, y + 1.0 * vy
        result, near_x, near_y, side, best, others = nearest_surface(
            x, y, BALL_BODY, segments, cell_start, first, entities
        )
        if not way_is_free(vx, vy, BALL_BODY, BALL_SWEEP, best, others):
            t = sweep(from_x, from_y, vx, vy, BALL_SWEEP, segments, cell_start, first, entities)
            if t != 1.0:
                x, y = from_x + t * vx, from_y + t * vy
                result, near_x, near_y, side, best, others = nearest_surface(
                    x, y, BALL_BODY, segments, cell_start, first, entities
                )
        for push in range(16):
            if push > 0:
                result, near_x, near_y, side, best, others = nearest_surface(
                    x, y, BALL_BODY, segments, cell_start, first, entities
                )
            if result == 0:
                break
            dx, dy = x - near_x, y - near_y
            distance = math.sqrt(dx * dx + dy * dy)
            depth = BALL_BODY - distance * result
            if depth < 1e-7:
                break
            if distance == 0.0:
                # On a tile's front face every further sweep ends where it begins, and the thought here.
                no_doors = world.level[level]["doors_first"] == world.level[level]["switches_end"]
                ball["flag"] = result == 1 and (side == 0.0 or no_doors)
                ball["x"], ball["y"], ball["vx"], ball["vy"] = x, y, vx, vy
                return
            looked_at = cell_range(x, y, BALL_BODY)
            x += dx / distance * depth
            y += dy / distance * depth
            sum_x += dx / distance
            sum_y += dy / distance
            if settles(BALL_BODY, depth, result, side, best, others) and cell_range(x, y, BALL_BODY) == looked_at:
                break
    length = math.sqrt(sum_x * sum_x + sum_y * sum_y)
    if length > 0.0:
        nx, ny = sum_x / length, sum_y / length
        toward = vx * nx + vy * ny
        if toward < 0.0:
            speed = math.sqrt(vx * vx + vy * vy)
            factor = 1.0 if speed <= 1.35 else 2.0
            vx, vy = vx - nx * toward * factor, vy - ny * toward * factor
    ball["x"], ball["y"], ball["vx"], ball["vy"] = x, y, vx, vy
    _part_balls(m, movers, world, level)
    _reregister(ninja, ball)


@kernel
def _part_balls(m, movers, world, level):
    """Push apart this ball and those after it that it overlaps."""
    record = world.level[level]
    count = record["mover_end"] - record["mover_first"]
    number = 0
    while m - number - 1 >= 0 and movers[m - number - 1]["type"] == kinds.DEATH_BALL:
        number += 1
    if number + 1 >= record["ball_count"]:
        return
    ball = movers[m]
    for other_m in range(m + 1, count):
        other = movers[other_m]
        if other["type"] != kinds.DEATH_BALL:
            break
        dx, dy = ball["x"] - other["x"], ball["y"] - other["y"]
        distance = math.sqrt(dx * dx + dy * dy)
        if 0.0 < distance < 2.0 * BALL_BODY:
            ix, iy = dx / distance * 4.0, dy / distance * 4.0
            ball["vx"] += ix
            ball["vy"] += iy
            other["vx"] -= ix
            other["vy"] -= iy


# ---------------------------------------------------------------------------------------------- shove thwumps (7.13)
@kernel
def _think_shove(ninja, mover, home_x, home_y, entities, world, level):
    if mover["state"] == 1:
        if mover["flag"]:
            mover["flag"] = 0
            return
        mover["state"] = 2
    x, y = mover["x"], mover["y"]
    if mover["state"] == 3:
        if abs(x - home_x) + abs(y - home_y) >= 1.0:
            _travel(ninja, mover, mover["push_x"], mover["push_y"], SHOVE_RETURN, entities, world, level)
        else:
            mover["x"], mover["y"] = home_x, home_y
            mover["state"] = 0
    elif mover["state"] == 2:
        _travel(ninja, mover, -mover["push_x"], -mover["push_y"], SHOVE_LAUNCH, entities, world, level)
    mover["vx"], mover["vy"] = mover["x"] - x, mover["y"] - y


@kernel
def _travel(ninja, mover, step_x, step_y, speed, entities, world, level):
    """Move, or turn back when the wall is reached."""
    x, y = mover["x"], mover["y"]
    if mover["push_y"] == 0:
        moved = x + step_x * speed
        if half_cell(x) != half_cell(moved):
            low, high = half_cell(y - SHOVE_CORE), half_cell(y + SHOVE_CORE)
            if not column_free(half_cell(x), low, high, step_x, entities, world, level):
                mover["state"] = 3
                return
        mover["x"] = moved
    else:
        moved = y + step_y * speed
        if half_cell(y) != half_cell(moved):
            low, high = half_cell(x - SHOVE_CORE), half_cell(x + SHOVE_CORE)
            if not row_free(half_cell(y), low, high, step_y, entities, world, level):
                mover["state"] = 3
                return
        mover["y"] = moved
    _reregister(ninja, mover)
