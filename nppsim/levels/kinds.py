"""Entity types (the first byte of a record), and groups of types with a common property.

Source: docs/physics.md, sections 2 and 7.
"""

NINJA = 0  # the spawn
MINE = 1  # a toggle mine that is armed at the start
GOLD = 2
EXIT = 3
EXIT_SWITCH = 4
REGULAR_DOOR = 5  # opens while touched
LOCKED_DOOR = 6  # opens when the ninja touches its switch
LOCKED_SWITCH = 7
TRAP_DOOR = 8  # closes when the ninja touches its switch
TRAP_SWITCH = 9
LAUNCH_PAD = 10
ONE_WAY = 11
CHAINGUN_DRONE = 12
LASER_DRONE = 13
ZAP_DRONE = 14
CHASER_DRONE = 15
FLOOR_GUARD = 16
BOUNCE_BLOCK = 17
ROCKET_TURRET = 18
GAUSS_TURRET = 19
THWUMP = 20
TOGGLE_MINE = 21
EVIL_NINJA = 22
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

# Groups of types.
MINES = (MINE, TOGGLE_MINE)
DOORS = (REGULAR_DOOR, LOCKED_DOOR, TRAP_DOOR)
CLOSED_AT_FIRST = (REGULAR_DOOR, LOCKED_DOOR)
SWITCH_OF_DOOR = {LOCKED_DOOR: LOCKED_SWITCH, TRAP_DOOR: TRAP_SWITCH}  # the door's next record is its switch
PAIRED = (EXIT, EXIT_SWITCH, *SWITCH_OF_DOOR, *SWITCH_OF_DOOR.values())  # doors that have a switch, and these switches
SHOOTING_DRONES = (CHAINGUN_DRONE, LASER_DRONE)  # stop to shoot; contact is harmless
DRONES = (*SHOOTING_DRONES, ZAP_DRONE, CHASER_DRONE, MINI_DRONE)  # their mode byte selects how they turn
TURRETS = (ROCKET_TURRET, GAUSS_TURRET)  # shoot, but do not move
BLOCKS = (BOUNCE_BLOCK, THWUMP, SHOVE_THWUMP)  # squares that push the ninja
ORIENTED = (*DOORS, LAUNCH_PAD, ONE_WAY, *DRONES, THWUMP, LASER)  # use the orientation byte
ON_THE_GRID = (*DRONES, FLOOR_GUARD, THWUMP, SHOVE_THWUMP)  # move on the half-cell grid
MOVING = (*DRONES, FLOOR_GUARD, *BLOCKS, EVIL_NINJA, DEATH_BALL)  # change their position
MOVERS = (EXIT, *MOVING, LASER, *TURRETS)  # have a record MOVER_DTYPE in the simulator's state (``physics.state``)
AIMING = (*SHOOTING_DRONES, *TURRETS, LASER)  # have a beam, shots, a crosshair or a rocket
HAZARDS = (*MINES, *DRONES, FLOOR_GUARD, *TURRETS, THWUMP, EVIL_NINJA, LASER, DEATH_BALL, SHOVE_THWUMP)  # can kill
# In the game, but not in the reference simulator (docs/physics.md, section 8).
COMPLETIONS = (CHASER_DRONE, LASER, *SHOOTING_DRONES, *TURRETS, EVIL_NINJA)
WITHOUT_EFFECT = (27,)  # known to the file format, but not simulated
# Types whose records create entities.  Switches are left out: the record of a door or exit also creates its switch.
CREATING = (*MINES, GOLD, EXIT, *DOORS, LAUNCH_PAD, ONE_WAY, *MOVING, LASER, *TURRETS, BOOST_PAD)
