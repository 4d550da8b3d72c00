"""Small levels for tests (rooms, corridors, random ones), and access to states."""

import numpy as np
from numba import njit

from nppsim.bank import LevelBank
from nppsim.levels.kinds import GOLD, MINE, REGULAR_DOOR, TOGGLE_MINE
from nppsim.levels.level import Level
from nppsim.measure.kernels import advance, start_all
from nppsim.physics.rules import DEFAULT_RULES
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE
from nppsim.reward import STRAIGHT_LINE_SHAPING, RewardConfig
from nppsim.shadow.state_simulator import StateSimulator

# Rewards with several terms, under which dying pays more than staying alive.
SPARSE_REWARDS = RewardConfig(1.0, -0.5, 0.1, -0.01, 0.05, STRAIGHT_LINE_SHAPING, closest=0.0001, exploration=0.001)

LEFT, RIGHT, JUMP, JUMP_LEFT, JUMP_RIGHT = 1, 2, 3, 4, 5  # actions
FLOOR = 46  # y byte of a ninja standing on a floor of cell row 12
MOST_FRAMES = 10_000  # of a Walk


def tiles(*columns, floor=12):
    """Tiles with a floor in one row of cells; columns: (cx, cy, tile) more, in cells of the whole stage."""
    out = np.zeros((23, 42), np.uint8)
    if floor is not None:
        out[floor - 1] = 1
    for cx, cy, tile in columns:
        out[cy - 1, cx - 1] = tile
    return out


def pillar(cx, rows):
    """Full tiles in column cx, to hand to ``tiles``."""
    return [(cx, cy, 1) for cy in rows]


NO_HAZARD = [0.0, 228.0, 0.0, 0.0, 0.0]  # a row of ``hazards`` in which there is none: far below


def corridor(spawn=20, switch=30, door=40, **more):
    """A floor with a ceiling one tile above the ninja; bytes of the switch and of the exit along it."""
    grid = np.ones((23, 42), np.uint8)
    grid[9:11] = 0
    return Level.build(grid, (spawn, FLOOR), exits=[((switch, FLOOR), (door, FLOOR))], **more)


def straight(mine=False, length=12, name=""):
    """A flat corridor: spawn, switch and exit in a row, finished by running right; with a mine, to die on."""
    grid = np.ones((23, 42), np.uint8)
    grid[10:12, 2 : 2 + length] = 0
    ground = 4 * 12 + 4 - 2  # centre of the ninja, 10 px above the floor of tile row 11, in steps of 6 px
    mines = [(MINE, 4 * 6, ground)] if mine else []
    return Level.build(grid, (14, ground), exits=[((4 * 8, ground), (4 * 11, ground))], entities=mines, name=name)


def small_room(width=10, height=4, extra=(), switch=7):
    """A room with its corner at tile (5, 8): the ninja left, the switch, and the exit right, all on the floor."""
    tiles = np.ones((23, 42), np.uint8)
    tiles[7 : 7 + height, 4 : 4 + width] = 0
    floor = 4 * (8 + height) - 2
    records = [(0, 4 * 5 + 3, floor, 0, 0), (3, 4 * (5 + width) - 4, floor, 0, 0), (4, 4 * (5 + switch), floor, 0, 0)]
    return Level(tiles, np.array([*records[:1], *extra, *records[1:]], np.uint8), "corridor")


def room(spawn=(88, 46), exits=(), **more):
    """A floor under an open sky."""
    return Level.build(tiles(), spawn, exits=exits, **more)


def random_level(seed, density=0.3, num_entities=12, doors=True, exits=1, shapes=38):
    """A random level with a free square around the spawn in the middle; mines, gold, exits and doors."""
    rng = np.random.default_rng(seed)
    grid = np.where(rng.random((23, 42)) < density, rng.integers(1, shapes, (23, 42)), 0).astype(np.uint8)
    grid[10:13, 20:23] = 0

    def place():
        return int(rng.integers(6, 170)), int(rng.integers(6, 94))

    pairs = [(place(), place()) for _ in range(exits)]
    kinds = rng.choice([MINE, GOLD, TOGGLE_MINE, REGULAR_DOOR] if doors else [MINE, GOLD, TOGGLE_MINE], num_entities)
    others = [(int(kind), *place(), int(rng.integers(8))) for kind in kinds]
    near = [(kind, *(int(v) for v in rng.integers((78, 42), (95, 58)))) for kind in (MINE, GOLD, TOGGLE_MINE)]

    def locks():
        return [(place(), place(), int(rng.integers(8))) for _ in range(rng.integers(0, 4) if doors else 0)]

    return Level.build(grid, (86, 50), exits=pairs, locked_doors=locks(), trap_doors=locks(), entities=others + near)


# Types of mixed_level: all that exist but exits, locked doors and trap doors; then those unfinished in the original.
MIXED = (1, 2, 5, 10, 11, 14, 16, 17, 20, 21, 24, 25, 26, 28)
UNFINISHED = (12, 13, 15, 18, 19, 23)
SHOOTERS = (12, 13, 18, 19)
# All types, and few at a time: the ninja then meets more of each, and lives longer where nothing kills.
KINDS = (
    MIXED,
    (10, 11, 17, 20, 24, 28),
    (11, 17),
    (1, 2, 5, 10, 21),
    (5, 14, 16, 26),
    (17, 25),
    (5, 20, 28),
    UNFINISHED,
    (5, *SHOOTERS),
)


def mixed_level(seed, density=0.1, num_entities=40, kinds=MIXED, doors=3, exits=2, shapes=38):
    """A random level with entities of all types, a third of them close to the spawn, some in the border.

    density: share of tiles that are not empty; none near the spawn.  num_entities: records drawn from ``kinds``, with
    any orientation and mode; with few kinds the ninja meets more of each, and without killers it lives longer.
    doors: of each kind with a switch; half of them hang on the edge of a cell, as doors should.  exits: exit doors.
    shapes: tile ids are below this number.
    """
    rng = np.random.default_rng(seed)
    grid = np.where(rng.random((23, 42)) < density, rng.integers(1, shapes, (23, 42)), 0).astype(np.uint8)
    spawn = np.array([rng.integers(12, 165), rng.integers(12, 89)])  # bytes, so units of 6 px
    column, row = spawn // 4 - 1
    grid[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = 0

    def place():
        where = rng.integers(6)
        if where == 0:  # anywhere, the border and its outer edges too
            xy = rng.integers(0, (177, 101))
        elif where < 3:
            xy = spawn + rng.integers(-16, 17, 2)
        else:
            xy = rng.integers(4, (173, 97))
        if rng.integers(2):  # in the middle of a cell
            xy = xy // 4 * 4 + 2
        return tuple(int(v) for v in np.clip(xy, 0, (176, 100)))

    def door():
        x, y = place()
        orientation = int(rng.integers(8))
        if rng.integers(2):
            x, y = (x // 4 * 4, y // 4 * 4 + 2) if orientation in (0, 4) else (x // 4 * 4 + 2, y // 4 * 4)
        return place(), (x, y), orientation

    entities = [
        (int(kind), *place(), int(rng.integers(8)), int(rng.integers(4))) for kind in rng.choice(kinds, num_entities)
    ]
    return Level.build(
        grid,
        tuple(int(v) for v in spawn),
        exits=[(place(), place()) for _ in range(exits)],
        locked_doors=[door() for _ in range(doors)],
        trap_doors=[door() for _ in range(doors)],
        entities=entities,
    )


def moving_level():
    """Things that move and push, and none that kills: random play lives for some time."""
    return mixed_level(1, kinds=KINDS[1])


def states(sim, i=0):
    """(ninja, entities) of environment i, copied."""
    return sim.state.ninja[i].copy(), sim.state.entities[i].copy()


def callable_kernel(kernel):
    """A kernel that only kernels call, compiled so that tests can call it."""
    return njit(error_model="numpy")(lambda *arguments: kernel(*arguments))


class Walk:
    """The bare physics of one level, frame by frame; unlike in play, also after death and win."""

    def __init__(self, level, rules=DEFAULT_RULES):
        self.bank = LevelBank([level], rules=rules)
        self.ninjas, self.entities = np.zeros(1, NINJA_DTYPE), np.zeros((1, self.bank.max_entities), ENTITY_DTYPE)
        self.movers = np.zeros((1, self.bank.max_movers), MOVER_DTYPE)
        self.trail = np.zeros((1, self.bank.max_trail), TRAIL_DTYPE)
        self._inputs, self._beams = np.zeros((1, MOST_FRAMES), np.uint8), StateSimulator(self.bank)
        start_all(self.ninjas, self.entities, self.movers, self.bank.world, np.zeros(1, int))

    def frame(self, input_byte):
        """(ninja, entities) after one more frame, copied."""
        state = self.ninjas, self.entities, self.movers, self.trail
        self._inputs[0, self.ninjas["frame"]] = input_byte
        advance(0, 1, *state, self.bank.world, self._inputs, np.array([MOST_FRAMES]), 1, False)
        self._beams.load(tuple(array[0] for array in state))
        self._beams.play([])  # which computes the beams of lasers
        self.movers[0] = self._beams.rows[2]
        return self.ninjas[0].copy(), self.entities[0].copy()
