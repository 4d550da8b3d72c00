"""The state of an environment as flat records, and the constants of the ninja.

No state that affects the future is stored elsewhere, so snapshots, restores and comparisons work on bytes.
Source: docs/physics.md, sections 1, 6.1 and 7.  Section numbers refer to that page.
"""

import numpy as np

# The ninja's constants (section 1.2).  Some literals deliberately differ from the nearest double of the fraction (such
# as 1/15) that they resemble.
RADIUS = 10.0  # px
GRAVITY_FALL = 0.06666666666666665  # px per frame^2, unless a jump is held
GRAVITY_JUMP = 0.01111111111111111  # px per frame^2, while a jump is held
ACCELERATION_GROUND = 0.06666666666666665  # px per frame^2 while the left or right key is held on a floor
ACCELERATION_AIR = 0.04444444444444444  # px per frame^2 while the left or right key is held in the air
MAX_SPEED = 3.333333333333333  # px per frame; the keys never raise the horizontal speed to this or more
MAX_JUMP_HOLD = 45  # maximum number of frames after the press in which holding the jump key has an effect
IMPACT_SPEED = 6.0  # px per frame; maximum speed into a wall that the ninja survives
IMPACT_EASE = 4.0 / 3.0  # px per frame; other surfaces lower this maximum by IMPACT_EASE * |y of the normal|

# Factors on the velocity per frame.
DRAG = 0.9933221725495059  # 0.99^(2/3)
DRAG_SLOW = 0.8617738760127536  # 0.80^(2/3), on a floor after winning
FRICTION_GROUND = 0.9459290248857720  # 0.92^(2/3), braking
FRICTION_SLOW = 0.8617738760127536  # 0.80^(2/3), standing
FRICTION_WALL = 0.9113380468927672  # 0.87^(2/3), sliding down a wall

# States of the ninja (section 6.1).
STANDING, RUNNING, BRAKING, JUMPING, FALLING, WALL_SLIDING, DEAD, DYING, CELEBRATING, DISABLED = range(10)

NINJA_DTYPE = np.dtype(
    [
        ("x", "f8"), ("y", "f8"),  # centre, px, y grows downward
        ("vx", "f8"), ("vy", "f8"),  # px per frame
        ("start_x", "f8"), ("start_y", "f8"),  # position at the start of the frame, before integration
        ("free_vx", "f8"), ("free_vy", "f8"),  # velocity of this frame before collisions
        ("gravity", "f8"), ("drag", "f8"),  # current gravity in px per frame^2, and factor on the velocity per frame
        ("wall_normal", "f8"),  # x of the last wall's normal, about -1 or +1; 0 before the first wall
        ("floor_x", "f8"), ("floor_y", "f8"),  # normal of the last floor
        ("floor_sum_x", "f8"), ("floor_sum_y", "f8"),  # sums of this frame's contact normals
        ("ceiling_sum_x", "f8"), ("ceiling_sum_y", "f8"),
        ("pad_x", "f8"), ("pad_y", "f8"),  # direction of the last launch pad
        ("win_fraction", "f8"),  # fraction of the frame that had passed when the ninja touched the exit
        ("level", "i4"),  # index in the bank
        ("frame", "i4"), ("gold", "i4"), ("hold", "i4"),  # frames since the start, gold collected, frames of this jump
        ("floor_count", "i4"), ("ceiling_count", "i4"),  # contacts in this frame
        ("state", "i1"),
        ("airborne", "i1"), ("airborne_before", "i1"), ("walled", "i1"),
        ("jump_held", "i1"),  # jump input of the previous frame
        ("jump_buffer", "i1"), ("floor_buffer", "i1"), ("wall_buffer", "i1"), ("pad_buffer", "i1"),  # frames; -1: inactive
        ("switch_taken", "i1"),  # 1 after the ninja has touched an exit switch
        ("arming", "i1"),  # 1 while any mine is in its arming state
        ("suicide_held", "i1"),  # self-destruct input of the previous frame
        ("crushable", "i1"),  # 1 if a thwump touches the ninja in this frame: it may be crushed
        ("crush_x", "f8"), ("crush_y", "f8"), ("crush_length", "f8"),  # sum of this frame's pushes, and of their lengths
        ("registrations", "i4"),  # order of the next entity that is registered in a cell
    ],
    align=True,
)  # fmt: skip

# States of movers (section 7).
ROAMING, CHASING = range(2)  # chasers
WAITING, CHARGING, RETREATING = 0, 1, -1  # thwumps; the state of a floor guard is 0 (waiting) or the sign of its motion
IDLE, TRIGGERED, LAUNCHING, RETURNING = range(4)  # shove thwumps
UNTOUCHED, COMING, FOLLOWING = range(3)  # evil ninjas

# The changing part of one entity; the level bank stores the constant part.
ENTITY_DTYPE = np.dtype(
    [
        ("active", "u1"),
        ("state", "i1"),  # mines: 0 armed, 1 dormant, 2 arming
        ("closed", "u1"),  # doors
        ("clock", "u1"),  # regular doors: frames since the last touch; exits: 1 when open; boost pads: 1 while touched
        ("blocking", "i4"),  # doors: count added to the door's edges of the half-cell grid; a sum other than 0 blocks
    ],
    align=True,
)

# Columns of ``entity_items``, the entities that stay in their cell: index in the level's list of entities, position in px,
# and reach in px: the entity has no effect on a ninja whose centre is at least this far away along x or y.
ITEM_ENTITY, ITEM_X, ITEM_Y, ITEM_REACH = range(4)

# Flags of a cell in ``world.near``: the 3 x 3 cells around the cell contain segments, entities that stay in their cell,
# or one-ways.
NEAR_SEGMENTS, NEAR_ITEMS, NEAR_ONE_WAYS = 1, 2, 4

# The ninja's position at the end of a frame.  Evil ninjas follow these positions.  On levels with evil ninjas, the
# state stores the latest ``trail`` positions; that of frame t is at index t modulo ``trail``.
TRAIL_DTYPE = np.dtype([("x", "f8"), ("y", "f8")], align=True)  # px

# A mover: an entity that moves or thinks, or an exit.  ``bank.world.mover`` has the records at the start of a level.
UNREGISTERED = 255  # cell_x and cell_y of a mover in no cell
HORIZONTAL = 1  # mode of a thwump that moves horizontally
MOVER_DTYPE = np.dtype(
    [
        ("x", "f8"), ("y", "f8"),  # px
        # Bounce blocks and death balls: velocity, px per frame.  Lasers: unit vector of the beam.  Shooters: see
        # ``shooters``.  Others: motion in the last frame, px.
        ("vx", "f8"), ("vy", "f8"),
        # Drones: next point of their grid.  Lasers: end of the beam.  Gauss turrets: crosshair.  Evil ninjas: see
        # ``evil_ninjas``.
        ("target_x", "f8"), ("target_y", "f8"),
        ("beam", "f8"),  # spinning lasers: angle of the beam, rad; shooters: length of the last shot, px
        ("order", "i4"),  # order of registration; within a cell, lower numbers come first
        ("entity", "i2"),  # index in the level's list of entities
        ("type", "u1"),
        ("cell_x", "u1"), ("cell_y", "u1"),  # cell of registration, or UNREGISTERED
        ("mode", "u1"),  # drones: row of ``movers.TURNS``; thwumps: HORIZONTAL or 0; lasers: 1 on a surface
        ("state", "i1"),  # shooters: see ``shooters``; others: see above
        ("direction", "i1"),  # drones: 0 right, 1 down, 2 left, 3 up; thwumps: facing sign; lasers: sign of the motion
        ("timer", "u1"),  # shooters: frames in the current state
        ("push_x", "i1"), ("push_y", "i1"),  # shove thwumps: normal of the triggered face
        # 1 if a shove thwump is touched in this frame, a surface laser is at a vertex, a death ball is stuck on a surface, or
        # the shots of a chaingun drone sweep clockwise.
        ("flag", "i1"),
    ],
    align=True,
)  # fmt: skip


def allocate(count: int, parts: list[tuple[np.dtype, tuple[int, ...]]]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Allocate one row of bytes per environment, and a view of the rows for each part.

    parts: (dtype, shape within a row) of each view.
    Returns uint8[rows, size] and views [rows, *shape].  ``rows`` is ``count``, but at least 2: numpy flags a view of one row
    as contiguous, and Numba would compile every kernel again for it.
    """
    rows = max(count, 2)
    offsets = np.cumsum([0] + [-(-dtype.itemsize * int(np.prod(shape)) // 8) * 8 for dtype, shape in parts])
    data = np.zeros((rows, int(offsets[-1])), np.uint8)
    views = []
    for (dtype, shape), offset in zip(parts, offsets[:-1], strict=True):
        strides = (data.strides[0], *([dtype.itemsize] if shape else []))
        views.append(np.ndarray((rows, *shape), dtype, data, int(offset), strides))
    return data, views
