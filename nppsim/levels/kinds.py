"""Entity types and their groups: the first byte of a record, and what records of that type have in common.

Source: docs/physics.md, sections 2 and 7.
"""

NINJA = 0  # the spawn
MINE = 1  # a toggle mine that starts armed
GOLD = 2
EXIT = 3
EXIT_SWITCH = 4
REGULAR_DOOR = 5  # opens while touched
LOCKED_DOOR = 6  # opens when its switch is taken
LOCKED_SWITCH = 7
TRAP_DOOR = 8  # closes when its switch is taken
TRAP_SWITCH = 9
LAUNCH_PAD = 10
ONE_WAY = 11
ZAP_DRONE = 14
CHASER_DRONE = 15
FLOOR_GUARD = 16
BOUNCE_BLOCK = 17
THWUMP = 20
TOGGLE_MINE = 21
LASER = 23
BOOST_PAD = 24
DEATH_BALL = 25
MINI_DRONE = 26
SHOVE_THWUMP = 28

ENTITY_NAMES = (
    ("ninja", "mine", "gold", "exit door", "exit switch", "regular door", "locked door", "locked-door switch")
    + ("trap door", "trap-door switch", "launch pad", "one-way platform", "chaingun drone", "laser drone", "zap drone")
    + ("chaser drone", "floor guard", "bounce block", "rocket turret", "gauss turret", "thwump", "toggle mine")
    + ("evil ninja", "laser turret", "boost pad", "death ball", "mini drone", "alternative death ball", "shove thwump")
)

MINES = (MINE, TOGGLE_MINE)
DOORS = (REGULAR_DOOR, LOCKED_DOOR, TRAP_DOOR)
SWITCH_OF_DOOR = {LOCKED_DOOR: LOCKED_SWITCH, TRAP_DOOR: TRAP_SWITCH}  # the door's next record is its switch
PAIRED = (EXIT, EXIT_SWITCH, LOCKED_DOOR, LOCKED_SWITCH, TRAP_DOOR, TRAP_SWITCH)  # a door and its switch
DRONES = (ZAP_DRONE, CHASER_DRONE, MINI_DRONE)  # their mode byte says how they turn
ORIENTED = (
    REGULAR_DOOR,
    LOCKED_DOOR,
    TRAP_DOOR,
    LAUNCH_PAD,
    ONE_WAY,
    *DRONES,
    THWUMP,
    LASER,
)  # orientation byte counts
ON_THE_GRID = (*DRONES, FLOOR_GUARD, THWUMP, SHOVE_THWUMP)  # move on the half-cell grid
MOVERS = (EXIT, *DRONES, FLOOR_GUARD, BOUNCE_BLOCK, THWUMP, LASER, DEATH_BALL, SHOVE_THWUMP)  # have a MOVER record
COMPLETIONS = (CHASER_DRONE, LASER)  # in the game, but not in the reference simulator: docs/physics.md, section 8
WITHOUT_EFFECT = (12, 13, 18, 19, 22, 27)  # known to the file format, created by nobody
CREATING = (
    *(*MINES, GOLD, EXIT, *DOORS, LAUNCH_PAD, ONE_WAY, *DRONES, FLOOR_GUARD, BOUNCE_BLOCK),
    *(THWUMP, LASER, BOOST_PAD, DEATH_BALL, SHOVE_THWUMP),
)  # types whose records create something; switches are created with their doors
