"""The state of an environment as flat records, and the constants of the ninja.

Snapshot, restore, clone and compare are copies of bytes: no state that affects the future is stored elsewhere.
Source: docs/physics.md, sections 1, 6.1 and 7; section numbers below are those of that page.
"""

import numpy as np

# The ninja's constants (section 1.2).  The literals are not always the doubles nearest to the fractions they stand for.
RADIUS = 10.0  # px
GRAVITY_FALL = 0.06666666666666665  # px per frame^2, unless a jump is held
GRAVITY_JUMP = 0.01111111111111111  # px per frame^2, while a jump is held
ACCELERATION_GROUND = 0.06666666666666665  # px per frame^2, of running
ACCELERATION_AIR = 0.04444444444444444  # px per frame^2, of steering
MAX_SPEED = 3.333333333333333  # px per frame: input never pushes the horizontal speed to or past this
MAX_JUMP_HOLD = 45  # frames that holding a jump has an effect
IMPACT_SPEED = 6.0  # px per frame into a wall, above which the ninja dies
IMPACT_EASE = 4.0 / 3.0  # px per frame that a flat floor or ceiling takes off that limit; slopes in proportion

# Factors by which a velocity shrinks in each frame.
DRAG = 0.9933221725495059  # 0.99^(2/3)
DRAG_SLOW = 0.8617738760127536  # 0.80^(2/3), on the ground after winning
FRICTION_GROUND = 0.9459290248857720  # 0.92^(2/3), of braking
FRICTION_SLOW = 0.8617738760127536  # 0.80^(2/3), of standing
FRICTION_WALL = 0.9113380468927672  # 0.87^(2/3), of sliding down a wall

# States of the ninja (section 6.1).
STANDING, RUNNING, BRAKING, JUMPING, FALLING, WALL_SLIDING, DEAD, DYING, CELEBRATING, DISABLED = range(10)

NINJA_DTYPE = np.dtype(
    [
        ("x", "f8"), ("y", "f8"),  # centre, px, y grows downward
        ("vx", "f8"), ("vy", "f8"),  # px per frame
        ("start_x", "f8"), ("start_y", "f8"),  # position at the start of the frame, before integration
        ("free_vx", "f8"), ("free_vy", "f8"),  # velocity of this frame before collisions
        ("gravity", "f8"), ("drag", "f8"),  # current values
        ("wall_normal", "f8"),  # about -1 or +1; keeps its last value, 0 before the first wall
        ("floor_x", "f8"), ("floor_y", "f8"),  # floor normal, unchanged in the air
        ("floor_sum_x", "f8"), ("floor_sum_y", "f8"),  # sums of this frame's contact normals
        ("ceiling_sum_x", "f8"), ("ceiling_sum_y", "f8"),
        ("pad_x", "f8"), ("pad_y", "f8"),  # direction of the last launch pad
        ("win_fraction", "f8"),  # part of the frame elapsed when the exit was touched
        ("level", "i4"),  # index in the bank
        ("frame", "i4"), ("gold", "i4"), ("hold", "i4"),  # frames since the start, gold taken, frames of jump hold
        ("floor_count", "i4"), ("ceiling_count", "i4"),  # contacts in this frame
        ("state", "i1"),
        ("airborne", "i1"), ("airborne_before", "i1"), ("walled", "i1"),
        ("jump_held", "i1"),  # jump input of the previous frame
        ("jump_buffer", "i1"), ("floor_buffer", "i1"), ("wall_buffer", "i1"), ("pad_buffer", "i1"),  # -1: inactive
        ("switch_taken", "i1"),  # an exit switch has been hit
        ("arming", "i1"),  # a mine is in its arming state
        ("suicide_held", "i1"),  # self-destruct input of the previous frame
        ("crushable", "i1"),  # a thwump touches the ninja in this frame
        ("crush_x", "f8"), ("crush_y", "f8"), ("crush_length", "f8"),  # sum of this frame's pushes, and of their lengths
        ("registrations", "i4"),  # next number in the order of registration in cells
    ],
    align=True,
)  # fmt: skip

# States of movers (section 7).
ROAMING, CHASING = range(2)  # chasers
WAITING, CHARGING, RETREATING = 0, 1, -1  # thwumps; floor guards: 0 waiting, else the sign of their motion
IDLE, TRIGGERED, LAUNCHING, RETURNING = range(4)  # shove thwumps
UNTOUCHED, COMING, FOLLOWING = range(3)  # evil ninjas

# One entity, as changed by play; everything constant is in the level bank.
ENTITY_DTYPE = np.dtype(
    [
        ("active", "u1"),
        ("state", "i1"),  # mines: 0 armed, 1 dormant, 2 arming
        ("closed", "u1"),  # doors
        ("clock", "u1"),  # regular doors: frames since the last touch; exits: 1 when open; boost pads: 1 while touched
        ("blocking", "i4"),  # doors: what they add to their edges of the half-cell grid; any sum but 0 blocks
    ],
    align=True,
)

# Columns of an entity that stays in its cell: its place in the level's list, its position, and how many px farther than
# that from the ninja's centre, along an axis, nothing happens.
ITEM_ENTITY, ITEM_X, ITEM_Y, ITEM_REACH = range(4)

# Flags in ``near`` of a level: the 3 x 3 block of cells around a cell holds segments; entities that stay; one-ways.
NEAR_SEGMENTS, NEAR_ITEMS, NEAR_ONE_WAYS = 1, 2, 4

# Where the ninja was at the end of a frame.  On levels with evil ninjas, which repeat its way, the state keeps the latest
# ``trail`` positions of the level, that of frame t at t modulo their number.
TRAIL_DTYPE = np.dtype([("x", "f8"), ("y", "f8")], align=True)  # px

# An entity that moves, thinks for itself or enters its cell late (exits); ``bank.world.mover`` holds them at the start.
UNREGISTERED = 255
HORIZONTAL = 1  # mode of a thwump that moves sideways
MOVER_DTYPE = np.dtype(
    [
        ("x", "f8"), ("y", "f8"),  # px
        # px per frame: of bounce blocks and death balls their velocity, of others the motion of the last frame; lasers: the
        # unit vector of the beam; shooters: see ``shooters``
        ("vx", "f8"), ("vy", "f8"),
        ("target_x", "f8"), ("target_y", "f8"),  # drones: the cell centre they move to; lasers: the end of the beam;
        # gauss turrets: the crosshair; evil ninjas: the frame from which they kill, and how many frames they are late
        ("beam", "f8"),  # spinning lasers: angle of the beam, rad; shooters: length of the last shot, px
        ("order", "i4"),  # place in the order of registration: within a cell, lower numbers come first
        ("entity", "i2"),  # index in the level's list of entities
        ("type", "u1"),
        ("cell_x", "u1"), ("cell_y", "u1"),  # cell of registration; UNREGISTERED: in none
        ("mode", "u1"),  # drones: how they turn; thwumps: HORIZONTAL or 0; lasers: 1 on a surface
        ("state", "i1"),  # chasers, floor guards, thwumps, shove thwumps, evil ninjas: see above; shooters: see ``shooters``
        ("direction", "i1"),  # drones: 0 right, 1 down, 2 left, 3 up; thwumps: facing sign; lasers: sense of motion
        ("timer", "u1"),  # shooters: frames in the present state
        ("push_x", "i1"), ("push_y", "i1"),  # shove thwumps: normal of the face that was pushed
        ("flag", "i1"),  # shove thwumps: pushed in this frame; surface lasers: at a vertex; death balls: stuck on a surface;
        # chaingun drones: the sweep goes clockwise
    ],
    align=True,
)  # fmt: skip


def allocate(count: int, parts: list[tuple[np.dtype, tuple[int, ...]]]) -> tuple[np.ndarray, list[np.ndarray]]:
    """One row of bytes per environment, and views of its columns.

    parts: (dtype, shape within a row) of each view.  Returns uint8[rows, size] and views [rows, *shape]; rows is ``count``
    but at least 2, as numpy flags a view of one row as contiguous, and Numba would compile every kernel again for it.
    """
    rows = max(count, 2)
    offsets = np.cumsum([0] + [-(-dtype.itemsize * int(np.prod(shape)) // 8) * 8 for dtype, shape in parts])
    data = np.zeros((rows, int(offsets[-1])), np.uint8)
    views = []
    for (dtype, shape), offset in zip(parts, offsets[:-1], strict=True):
        strides = (data.strides[0], *([dtype.itemsize] if shape else []))
        views.append(np.ndarray((rows, *shape), dtype, data, int(offset), strides))
    return data, views
