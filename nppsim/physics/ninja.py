"""The ninja: integration, contacts with tiles and doors, and the control step.

Source: docs/physics.md, sections 6.1 to 6.7.  Section numbers refer to that page.  ``ninja`` is one record of NINJA_DTYPE,
changed in place.
"""

import math

from nppsim._numba.decorators import inlined, kernel, merged
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.physics import state as s
from nppsim.physics.bodies import BLOCK_MARGIN, add_crush, blocks_near, count_contact, touch_bodies
from nppsim.physics.segments import (
    BAND,
    BOX_MARGIN,
    cell_at,
    cells_around,
    clamped_cell,
    closest_point,
    is_open,
    nearest_surface,
    searches,
    settles,
    sweep_to,
)
from nppsim.physics.shapes import MAX_X, MAX_Y, MIN_X, MIN_Y, SHAPES

SUBSTEPS = 4  # rounds of contacts per frame
NO_CELLS = (0.0, 0.0, 0.0, 0.0)  # placeholder for a result of ``cells_around``, before the first query
SWEEP_RADIUS = 5.0  # px, radius of the circle that is swept along the move
MAX_PUSHES = 32  # maximum number of pushes out of surfaces per substep
LEAST_PUSH = 1e-7  # px; a smaller depth does not count as overlap
CLEARLY_LESS = 1e-8  # px; less than LEAST_PUSH by more than any rounding error
SAME_X = 1e-7  # px; maximum difference in x of a surface point that counts as straight above or below the centre
FREE_STEP = 14.0  # px along an axis; a shorter move hits nothing if the 3 x 3 cells around its end have no segments
SMALL_STEP = 3.0  # px along an axis; a shorter sweep to a settled position (see ``collide``) hits nothing
WALL_REACH = 10.1  # px; maximum distance of a wall beside the ninja from the ninja's centre
LEVEL_WITH = 1e-5  # px; maximum difference in y between the centre and the nearest point of such a wall
CRUSH_RATIO = 0.05  # the ninja dies if |sum of pushes| / (sum of their lengths) is below this
STILL = 0.1  # px per frame along the floor; a slower ninja that does not run is STANDING


# A vector to a horizontal surface has x = 0.  For such a vector, the next two functions skip square root and division;
# the result is the same.
@inlined
def length_of(x, y):
    """Return sqrt(x^2 + y^2).  A vector other than 0 must be so long that x^2 does not underflow to 0."""
    return abs(y) if x == 0.0 else math.sqrt(x * x + y * y)


@inlined
def unit_vector(x, y, length):
    """Return (x, y) / length.  length: ``length_of(x, y)``, above 0."""
    if x == 0.0:
        return x, math.copysign(1.0, y)
    return x / length, y / length


@inlined
def _end(ninja, state):
    """Set the state to DYING or CELEBRATING, unless the ninja is already dead, dying or celebrating."""
    if ninja["state"] < s.DEAD:
        if ninja["state"] == s.JUMPING:
            ninja["gravity"] = s.GRAVITY_FALL
        ninja["state"] = state


@kernel
def kill(ninja):
    """Start the ninja's death, from any cause."""
    _end(ninja, s.DYING)


@kernel
def win(ninja):
    """Start the ninja's celebration of reaching the exit."""
    _end(ninja, s.CELEBRATING)


@kernel
def is_valid_target(ninja):
    """Return True if hazards react to the ninja.  A ninja that dies in this frame is still a valid target."""
    return ninja["state"] < s.DEAD or ninja["state"] == s.DYING


@kernel
def integrate(ninja):
    """Apply drag, gravity and motion (section 6.2), and reset the sums of contacts (section 6.3)."""
    ninja["vx"] = ninja["vx"] * ninja["drag"]
    ninja["vy"] = ninja["vy"] * ninja["drag"]
    ninja["vy"] = ninja["vy"] + ninja["gravity"]
    ninja["start_x"] = ninja["x"]
    ninja["start_y"] = ninja["y"]
    ninja["x"] = ninja["x"] + ninja["vx"]
    ninja["y"] = ninja["y"] + ninja["vy"]
    ninja["free_vx"] = ninja["vx"]
    ninja["free_vy"] = ninja["vy"]
    ninja["floor_count"] = 0
    ninja["ceiling_count"] = 0
    ninja["floor_sum_x"] = 0.0
    ninja["floor_sum_y"] = 0.0
    ninja["ceiling_sum_x"] = 0.0
    ninja["ceiling_sum_y"] = 0.0


# What ``collide`` computes, without its shortcuts:
#
#     for _ in range(SUBSTEPS):
#         touch_bodies(ninja, ...)                                                  # section 6.4.1
#         wx, wy = x - start_x, y - start_y                                         # section 6.4.2
#         t = sweep(start_x, start_y, wx, wy, SWEEP_RADIUS, ...)
#         x, y = start_x + t * wx, start_y + t * wy
#         for _ in range(MAX_PUSHES):
#             result, point_x, point_y = nearest_surface(x, y, RADIUS, ...)
#             dx, dy = x - point_x, y - point_y                                     # dx: 0.0 if at most SAME_X
#             distance = sqrt(dx * dx + dy * dy)
#             depth = RADIUS - distance * result
#             if result == 0 or distance == 0.0 or depth < LEAST_PUSH:
#                 break
#             x, y = x + dx / distance * depth, y + dy / distance * depth
#             count_contact(...); the part of the velocity that leads into the surface is removed
#
# The shortcuts do not change the result in any bit:
# * Neither blocks, segments nor one-ways are near: only the rounding of the sweep is left to compute (``_fly``).
# * Settled: the last substep has shown that no surface pushes the ninja at its position, so the next one skips the query.
# * Fixed point: after a substep that changed nothing, the remaining ones would change nothing either.
# * No wall: no segment in the cells that were searched is beside the ninja and within WALL_REACH.
@kernel
def collide(ninja, entities, movers, world, level):
    """Run four substeps of contacts with bodies, tiles and closed doors (section 6.4).

    Returns True if it is certain that ``wall_beside`` would find no wall at the ninja's new position.
    """
    start_x, start_y = ninja["start_x"], ninja["start_y"]
    x, y, vx, vy = ninja["x"], ninja["y"], ninja["vx"], ninja["vy"]
    segments, first, cell_start = world.segments, world.level[level]["segment_first"], world.cell_start[level]
    has_bodies = world.level[level]["blocks"] or world.level[level]["one_ways"]
    near = world.near[level]
    blocks, checked_x, checked_y = False, x, y  # True if blocks were near at the last check; its position
    if has_bodies:
        ninja["crushable"] = 0
        ninja["crush_x"], ninja["crush_y"], ninja["crush_length"] = 0.0, 0.0, 0.0
        blocks = blocks_near(x, y, movers, world.level[level])
    is_short = abs(x - start_x) < FREE_STEP and abs(y - start_y) < FREE_STEP
    if not blocks and is_short and near[cell_at(x, y)] & (s.NEAR_SEGMENTS | s.NEAR_ONE_WAYS) == 0:
        _fly(ninja, x, y)
        return True
    # settled: a query at the ninja's position, in the cells ``searched``, would find no surface that pushes it.
    settled, searched, no_wall = False, NO_CELLS, False
    for _ in range(SUBSTEPS):
        before_x, before_y, contacts = x, y, 0
        if has_bodies:
            if abs(x - checked_x) > BLOCK_MARGIN or abs(y - checked_y) > BLOCK_MARGIN:
                checked_x, checked_y = x, y
                blocks = blocks_near(x, y, movers, world.level[level])
            if blocks or near[cell_at(x, y)] & s.NEAR_ONE_WAYS:
                ninja["x"], ninja["y"], ninja["vx"], ninja["vy"] = x, y, vx, vy
                contacts = touch_bodies(ninja, movers, world, level)
                x, y, vx, vy = ninja["x"], ninja["y"], ninja["vx"], ninja["vy"]
                settled = settled and contacts == 0
        wx, wy = x - start_x, y - start_y
        if settled and abs(wx) < SMALL_STEP and abs(wy) < SMALL_STEP:
            x, y = start_x + 1.0 * wx, start_y + 1.0 * wy
            if x == before_x and y == before_y:
                break
            if searches(x, y, s.RADIUS, searched):
                continue
        x, y, found = sweep_to(start_x, start_y, wx, wy, SWEEP_RADIUS, s.RADIUS, segments, cell_start, first, entities)
        x, y, vx, vy, pushes, settled, searched, no_wall = _push_out(
            ninja, x, y, vx, vy, found, has_bodies, segments, cell_start, first, entities
        )
        if contacts + pushes == 0 and x == before_x and y == before_y:
            break  # a fixed point
    ninja["x"], ninja["y"], ninja["vx"], ninja["vy"] = x, y, vx, vy
    return no_wall and searches(x, y, WALL_REACH, searched)


@inlined
def _fly(ninja, x, y):
    """Run the substeps of a ninja that touches nothing; only the rounding of the sweep changes its position."""
    start_x, start_y = ninja["start_x"], ninja["start_y"]
    for _ in range(SUBSTEPS):
        x = start_x + (x - start_x)
        y = start_y + (y - start_y)
    ninja["x"], ninja["y"] = x, y


@merged
def _push_out(ninja, x, y, vx, vy, found, has_bodies, segments, cell_start, first, entities):
    """Push the ninja out of the surfaces that it overlaps, nearest first.

    found: result of ``nearest_surface`` at (x, y).
    Returns (x, y, vx, vy, number of pushes, settled, searched, no_wall); ``collide`` explains the last three.
    """
    settled, searched, no_wall, pushes = False, NO_CELLS, False, 0
    for _ in range(MAX_PUSHES):
        if pushes > 0:
            found = nearest_surface(x, y, s.RADIUS, segments, cell_start, first, entities)
        result, point_x, point_y, side, best, others, beside = found
        searched = cells_around(x, y, s.RADIUS)
        if result == 0:
            settled = no_wall = True
            break
        dx, dy = x - point_x, y - point_y
        if abs(dx) <= SAME_X:
            dx = 0.0
        distance = length_of(dx, dy)
        depth = s.RADIUS - distance * result
        if distance == 0.0 or depth < LEAST_PUSH:
            settled = depth < CLEARLY_LESS and settles(s.RADIUS, -1.0, result, side, best, others)
            no_wall = _rules_out_wall(0.0, beside)
            break
        nx, ny = unit_vector(dx, dy, distance)
        x += nx * depth
        y += ny * depth
        if has_bodies:
            add_crush(ninja, nx, ny, depth)
        if vx * dx + vy * dy < 0.0:
            c = (vx * dy - vy * dx) / (distance * distance)
            vx, vy = c * dy, c * -dx
        count_contact(ninja, dy, nx, ny)
        pushes += 1
        settled = searches(x, y, s.RADIUS, searched) and settles(s.RADIUS, depth, result, side, best, others)
        if settled:
            no_wall = _rules_out_wall(depth, beside)
            break
    return x, y, vx, vy, pushes, settled, searched, no_wall


@inlined
def _rules_out_wall(depth, beside):
    """Return True if ``wall_beside`` finds no wall after a push by ``depth`` px; beside: see ``nearest_segment``."""
    return depth < BAND - BOX_MARGIN and beside > WALL_REACH + depth + BOX_MARGIN


@kernel
def wall_beside(ninja, segments, cell_start, first, near, entities):
    """Return the normal's x of the first wall within reach in the order of section 4.1, or 0.0 (section 6.5 B)."""
    x, y = ninja["x"], ninja["y"]
    if near[cell_at(x, y)] & s.NEAR_SEGMENTS == 0:
        return 0.0
    cy1, cy2 = clamped_cell(y - WALL_REACH, CELLS_Y), clamped_cell(y + WALL_REACH, CELLS_Y)
    for cx in range(clamped_cell(x - WALL_REACH, CELLS_X), clamped_cell(x + WALL_REACH, CELLS_X) + 1):
        for k in range(first + cell_start[cx * CELLS_Y + cy1], first + cell_start[cx * CELLS_Y + cy2 + 1]):
            if is_open(segments[k]["entity"], entities):
                continue
            ax, ay, shape = segments[k]["x"], segments[k]["y"], segments[k]["shape"]
            if (
                ay + SHAPES[shape, MIN_Y] > y + BOX_MARGIN
                or ay + SHAPES[shape, MAX_Y] < y - BOX_MARGIN
                or ax + SHAPES[shape, MIN_X] > x + WALL_REACH + BOX_MARGIN
                or ax + SHAPES[shape, MAX_X] < x - WALL_REACH - BOX_MARGIN
            ):
                continue  # the bounding box is above, below or out of reach
            point_x, point_y, _side = closest_point(x, y, ax, ay, shape)
            dx, dy = x - point_x, y - point_y
            if abs(dy) < LEVEL_WITH:
                distance = math.sqrt(dx * dx + dy * dy)
                if 0.0 < distance <= WALL_REACH and dx != 0.0:
                    return dx / distance
    return 0.0


@kernel
def settle_contacts(ninja, wall):
    """Set contact flags and average normals; kill the ninja on impact or crushing (section 6.5 C to F)."""
    ninja["airborne_before"] = ninja["airborne"]
    ninja["airborne"] = 1
    ninja["walled"] = 0
    if wall != 0.0:
        ninja["walled"] = 1
        ninja["wall_normal"] = wall
    if ninja["floor_count"] > 0:
        ninja["airborne"] = 0
        sx, sy = ninja["floor_sum_x"], ninja["floor_sum_y"]
        length = length_of(sx, sy)
        if length == 0.0:
            ninja["floor_x"], ninja["floor_y"] = 0.0, -1.0
        else:
            ninja["floor_x"], ninja["floor_y"] = unit_vector(sx, sy, length)
        if ninja["airborne_before"]:
            _impact(ninja, ninja["floor_x"], ninja["floor_y"])
    if ninja["ceiling_count"] > 0:
        sx, sy = ninja["ceiling_sum_x"], ninja["ceiling_sum_y"]
        length = math.sqrt(sx * sx + sy * sy)
        if length == 0.0:
            _impact(ninja, 0.0, 1.0)
        else:
            _impact(ninja, sx / length, sy / length)
    if ninja["crushable"] and ninja["crush_length"] > 0.0:
        sx, sy = ninja["crush_x"], ninja["crush_y"]
        if math.sqrt(sx * sx + sy * sy) / ninja["crush_length"] < CRUSH_RATIO:
            kill(ninja)


@kernel
def _impact(ninja, nx, ny):
    """Kill the ninja if its velocity before the contacts was too high towards a surface with normal (nx, ny)."""
    if ninja["state"] != s.CELEBRATING:
        speed = -(nx * ninja["free_vx"] + ny * ninja["free_vy"])
        if speed > s.IMPACT_SPEED - s.IMPACT_EASE * abs(ny):
            ninja["vx"], ninja["vy"] = ninja["free_vx"], ninja["free_vy"]
            kill(ninja)


@kernel
def _advance(buffer, last):
    """Return the next value of a counter of frames, which counts up to ``last`` + 1 and then becomes -1 (inactive)."""
    return buffer + 1 if 0 <= buffer <= last else -1


@kernel
def control(ninja, h, j):
    """Apply inputs: running, friction, jumps and wall slides (section 6.6).  h: -1, 0 or +1 (right); j: 1 for jump."""
    press = j == 1 and ninja["jump_held"] == 0
    ninja["jump_held"] = j

    ninja["pad_buffer"] = _advance(ninja["pad_buffer"], 2)
    ninja["jump_buffer"] = _advance(ninja["jump_buffer"], 4)
    ninja["wall_buffer"] = _advance(ninja["wall_buffer"], 4)
    ninja["floor_buffer"] = _advance(ninja["floor_buffer"], 4)
    pad_usable = 0 <= ninja["pad_buffer"] < 4
    jump_usable = 0 <= ninja["jump_buffer"] < 5
    wall_usable = 0 <= ninja["wall_buffer"] < 5
    floor_usable = 0 <= ninja["floor_buffer"] < 5
    if press and ninja["airborne"]:
        ninja["jump_buffer"] = 0
    if ninja["walled"]:
        ninja["wall_buffer"] = 0
    if not ninja["airborne"]:
        ninja["floor_buffer"] = 0

    state = ninja["state"]
    if state == s.DEAD or state == s.DISABLED:
        return
    if state == s.DYING:
        ninja["state"] = s.DEAD
    elif state == s.CELEBRATING:
        ninja["drag"] = s.DRAG if ninja["airborne"] else s.DRAG_SLOW
    elif ninja["airborne"]:
        _control_in_air(ninja, h, j, press, jump_usable, wall_usable, floor_usable, pad_usable)
    else:
        _control_on_floor(ninja, h, press or jump_usable)


@kernel
def _control_on_floor(ninja, h, jump):
    vx = ninja["vx"]
    u = vx + s.ACCELERATION_GROUND * h
    if abs(u) < s.MAX_SPEED:
        vx = u
        ninja["vx"] = u
    if ninja["state"] >= s.JUMPING:
        if ninja["state"] == s.JUMPING:
            ninja["gravity"] = s.GRAVITY_FALL
        ninja["state"] = s.BRAKING if vx * h <= 0.0 else s.RUNNING
    if jump:
        _floor_jump(ninja, h)
        return
    fx, fy, vy = ninja["floor_x"], ninja["floor_y"], ninja["vy"]
    tangential = abs(vy * fx - vx * fy)
    state = ninja["state"]
    if state == s.BRAKING:
        if h * tangential * vx > 0.0:
            ninja["state"] = s.RUNNING
        elif tangential < STILL and fx == 0.0:
            ninja["state"] = s.STANDING
        elif vy < 0.0 and fx != 0.0:  # friction on an uphill slope
            speed = math.sqrt(vx * vx + vy * vy)
            friction = abs(vx * (1.0 - s.FRICTION_GROUND) * fy)
            slowed = speed - friction * (fy * fy)
            if speed > 0.0:  # a ninja in a wedge can be so slow that vx * vx is 0
                ninja["vx"] = vx / speed * slowed
                ninja["vy"] = vy / speed * slowed
        else:
            ninja["vx"] = vx * s.FRICTION_GROUND
    elif state == s.RUNNING:
        if h * tangential * vx > 0.0:
            if h * fx < 0.0 and abs(u) < s.MAX_SPEED:  # additional acceleration on an uphill slope
                q = s.ACCELERATION_GROUND / 2.0 * h
                ninja["vx"] = vx + q * fy * fy
                ninja["vy"] = vy + q * fy * -fx
        else:
            ninja["state"] = s.BRAKING
    elif h != 0:
        ninja["state"] = s.RUNNING
    elif tangential < STILL:
        ninja["vx"] = vx * s.FRICTION_SLOW
    else:
        ninja["state"] = s.BRAKING


@kernel
def _control_in_air(ninja, h, j, press, jump_usable, wall_usable, floor_usable, pad_usable):
    u = ninja["vx"] + s.ACCELERATION_AIR * h
    if abs(u) < s.MAX_SPEED:
        ninja["vx"] = u
    if ninja["state"] <= s.BRAKING:
        ninja["state"] = s.FALLING
        return
    if ninja["state"] == s.JUMPING:
        ninja["hold"] += 1
        if j == 0 or ninja["hold"] > s.MAX_JUMP_HOLD:
            ninja["gravity"] = s.GRAVITY_FALL
            ninja["state"] = s.FALLING
            return
    if jump_usable or press:
        if ninja["walled"] or wall_usable:
            _wall_jump(ninja, h)
            return
        if floor_usable:
            _floor_jump(ninja, h)
            return
        if pad_usable and press:
            _pad_jump(ninja)
            return
    if not ninja["walled"]:
        if ninja["state"] == s.WALL_SLIDING:
            ninja["state"] = s.FALLING
        return
    into_wall = h * ninja["wall_normal"]
    if ninja["state"] == s.WALL_SLIDING:
        if into_wall <= 0.0:
            ninja["vy"] = ninja["vy"] * s.FRICTION_WALL
        else:
            ninja["state"] = s.FALLING
    elif ninja["vy"] > 0.0 and into_wall < 0.0:
        if ninja["state"] == s.JUMPING:
            ninja["gravity"] = s.GRAVITY_FALL
        ninja["state"] = s.WALL_SLIDING


@kernel
def _floor_jump(ninja, h):
    ninja["jump_buffer"] = -1
    ninja["floor_buffer"] = -1
    ninja["pad_buffer"] = -1
    ninja["state"] = s.JUMPING
    ninja["gravity"] = s.GRAVITY_JUMP
    fx, fy, vx = ninja["floor_x"], ninja["floor_y"], ninja["vx"]
    if fx == 0.0:
        jx, jy = 0.0, -2.0
    elif vx * fx >= 0.0:  # downhill or at rest
        if vx * h >= 0.0:
            jx, jy = 2.0 / 3.0 * fx, 2.0 * fy
        else:
            jx, jy = 0.0, -1.4
    elif vx * h > 0.0:
        jx, jy = 0.0, -1.4
    else:
        ninja["vx"] = 0.0
        jx, jy = 2.0 / 3.0 * fx, 2.0 * fy
    if ninja["vy"] > 0.0:
        ninja["vy"] = 0.0
    ninja["vx"] += jx
    ninja["vy"] += jy
    ninja["x"] += jx
    ninja["y"] += jy
    ninja["hold"] = 0


@kernel
def _wall_jump(ninja, h):
    wall = ninja["wall_normal"]
    if h * wall < 0.0 and ninja["state"] == s.WALL_SLIDING:
        jx, jy = 2.0 / 3.0, -1.0
    else:
        jx, jy = 1.0, -1.4
    ninja["state"] = s.JUMPING
    ninja["gravity"] = s.GRAVITY_JUMP
    if ninja["vx"] * wall < 0.0:
        ninja["vx"] = 0.0
    if ninja["vy"] > 0.0:
        ninja["vy"] = 0.0
    ninja["vx"] += jx * wall
    ninja["vy"] += jy
    ninja["x"] += jx * wall
    ninja["y"] += jy
    ninja["jump_buffer"] = -1
    ninja["wall_buffer"] = -1
    ninja["pad_buffer"] = -1
    ninja["hold"] = 0


@kernel
def _pad_jump(ninja):
    ninja["jump_buffer"] = -1
    ninja["floor_buffer"] = -1
    ninja["wall_buffer"] = -1
    ninja["pad_buffer"] = -1
    bx, by = ninja["pad_x"], ninja["pad_y"]
    k = 2.0 * abs(bx) + 2.0
    if k == 2.0:
        k = 1.7
    ninja["vx"] += bx * k * 2.0 / 3.0
    ninja["vy"] += by * k * 2.0 / 3.0
