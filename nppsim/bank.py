"""LevelBank: many levels in one set of arrays, so that switching levels changes only an index."""

import functools
import hashlib
import threading
from collections import namedtuple
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nppsim import paths
from nppsim._numba.decorators import allocating_entry
from nppsim.compile import LevelGeometry, compile_level
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.paths import MAX_PATH
from nppsim.physics.evil_ninjas import FOLLOW_FRAMES, TRAIL_SLACK
from nppsim.physics.grid import GRID_SIZE
from nppsim.physics.lasers import place_lasers
from nppsim.physics.rules import DEFAULT_RULES, Rules
from nppsim.physics.state import ENTITY_DTYPE, allocate

TIME_LIMIT_BASE = 300  # frames, time limit of a level whose path has length 0
TIME_LIMIT_PER_PX = 2.0  # additional frames per px of path; a straight run at top speed takes 0.3 frames per px
MAX_TIME_LIMIT = 6000  # frames, maximum time limit of a level
GAME_TIME = 5400  # frames; the game gives the player 90 s

# One level.  ``*_first`` and ``*_end`` are its first row, and the row after its last, in arrays that all levels share.
LEVEL_DTYPE = np.dtype(
    [
        ("spawn_x", "f8"), ("spawn_y", "f8"),  # px
        ("segment_first", "i8"),
        ("entity_first", "i8"), ("entity_end", "i8"),
        ("items_first", "i8"),  # entities registered in cells
        ("exits_first", "i8"), ("exits_end", "i8"),  # exits and their switches
        ("doors_first", "i8"), ("doors_end", "i8"),  # regular doors
        ("switches_first", "i8"), ("switches_end", "i8"),  # doors with a switch: locked and trap doors
        ("boosts_first", "i8"), ("boosts_end", "i8"),  # boost pads
        ("toggles_first", "i8"), ("toggles_end", "i8"),  # toggle mines
        ("mover_first", "i8"), ("mover_end", "i8"),  # exits and moving entities
        ("first_moving", "i8"),  # number of exits, which come first among the movers
        ("moves", "u1"),  # 1 if there are boost pads, or movers other than exits
        ("grid", "i8"),  # row in ``World.grid``, if any entity needs the half-cell grid
        ("registrations", "i4"),  # number of entities registered in cells at the start
        ("ball_count", "i4"),  # number of death balls stated in the level file
        ("toggle_mines", "u1"),  # 1 if there are toggle mines
        ("pads", "u1"), ("one_ways", "u1"),  # 1 if there are launch pads; 1 if there are one-ways
        ("blocks", "u1"),  # 1 if there are bounce blocks, thwumps or shove thwumps
        ("rules", "u1"),  # bits of ``physics.rules``
        ("trail", "i4"),  # number of past positions of the ninja that a state stores; 0 without evil ninjas
    ],
    align=True,
)  # fmt: skip
# One entity at its position in the level.  ENTITY_DTYPE has the fields that change during an episode; those with the
# names ``active``, ``state`` and ``closed`` begin an episode with the values here.
PLACED_DTYPE = np.dtype(
    [
        ("x", "f8"), ("y", "f8"),  # px; for doors with a switch, the position of the switch
        ("x1", "f8"), ("y1", "f8"), ("x2", "f8"), ("y2", "f8"),  # segment of a door; normal (x1, y1) of pads and one-ways
        ("order", "i4"),  # position in the level file; entities are registered in cells in this order
        ("type", "i2"),
        ("partner", "i2"),  # index of an exit's switch or a switch's exit, counted from the level's first entity; else -1
        ("mover", "i2"),  # index counted from the level's first mover; else -1
        ("edge", "i2"),  # doors: code of the edges that they block, see ``half_cell_grid``; else -1
        ("active", "u1"), ("state", "u1"), ("closed", "u1"),
    ],
    align=True,
)  # fmt: skip
# Constant arrays of the physics kernels.  Their number is small, because each array of a tuple costs nanoseconds at
# every call that Numba does not inline: an empty call took 145 ns with 27 arrays, 41 ns with 9.
World = namedtuple(
    "World",
    "level entity mover "  # LEVEL_DTYPE[L], PLACED_DTYPE[E], MOVER_DTYPE[M] (initial values)
    "segments cell_start near "  # SEGMENT_DTYPE[S], int32[L, 1101], uint8[L, 1100]; see ``LevelGeometry``
    "entity_cell_start entity_items "  # int32[L, 1101], int16[I, 4]
    "grid",  # uint8[G, 9078], half-cell edges of the levels that need them
)


_SEARCHING = threading.Lock()  # several threads may share a bank; only one computes its path fields


class LevelPaths(NamedTuple):
    """Path fields of a bank's levels with the doors in their initial state (see ``paths.compute_fields``)."""

    nodes: np.ndarray  # uint16[L, 4539], see ``paths.prepare_level``
    effects: np.ndarray  # uint16[D, 81], see ``paths.prepare_level``; doors with a switch of all levels
    effects_first: np.ndarray  # int64[L + 1], row of each level's first effect, and the number of rows
    distance: np.ndarray  # uint16[L, 2, 4539]
    next_step: np.ndarray  # uint8[L, 2, 4539]
    switch_to_exit: np.ndarray  # int64[L], shortest path length from an exit switch to its exit, in units of 1.2 px
    length: np.ndarray  # float32[L], px from spawn via the switch to the exit; MAX_PATH without a path
    time_limit: np.ndarray  # int32[L], frames after which an episode is truncated

    def lattice(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ``nodes`` and ``effects`` of one level."""
        return self.nodes[level], self.effects[self.effects_first[level] : self.effects_first[level + 1]]


class LevelBank:
    """Compiled levels.

    levels: at least one; the index of a level is its position in this sequence.
    completions: also create the entities that the reference simulator leaves out (``kinds.COMPLETIONS``).
    known: geometry of levels that were compiled before with the same ``completions``.
    rules: variants of the rules that no recording of the game has decided.
    least_time: minimum of the time limits in frames, at most MAX_TIME_LIMIT.  Evaluation uses GAME_TIME; training ends
        hopeless episodes earlier.

    Attributes:
    compiled: LevelGeometry of each level.
    world: arrays of the physics kernels.
    stage: uint8[L, 44, 25], tile ids, x first.
    max_entities, max_movers: the largest number of any level, at least 1.
    max_trail: the largest ``trail`` of any level, at least 1.
    paths: path fields, path lengths and time limits.  The first access computes them; playback does not need them.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        completions: bool = True,
        known: Mapping[Level, LevelGeometry] = MappingProxyType({}),
        rules: Rules = DEFAULT_RULES,
        least_time: int = 0,
    ):
        self.levels = list(levels)
        self.completions, self.rules, self._least_time = completions, rules, least_time
        if not self.levels:
            raise ValueError("a bank needs at least one level")
        self.compiled = [known.get(level) or compile_level(level, completions) for level in self.levels]
        self.max_entities = max(1, *(len(c.entity_type) for c in self.compiled))
        self.max_movers = max(1, *(len(c.movers) for c in self.compiled))
        self.stage = np.stack([c.stage for c in self.compiled])
        self.max_trail = max(1, *(_trail(c.entity_type) for c in self.compiled))
        self.world = _world(self.compiled, self.levels, rules)
        _rows, (entities,) = allocate(1, [(ENTITY_DTYPE, (self.max_entities,))])
        place_lasers(self.world, entities[0])
        self._paths: LevelPaths | None = None

    @property
    def paths(self) -> LevelPaths:
        """Path fields of all levels; the first access computes them."""
        if self._paths is None:
            with _SEARCHING:
                self._paths = self._paths or _search_paths(self.world, self.stage, self._least_time)
        return self._paths

    @property
    def path_length(self) -> np.ndarray:
        """float32[L]: px from the spawn via the switch to the exit; MAX_PATH without a path (``reachable``)."""
        return self.paths.length

    @property
    def reachable(self) -> np.ndarray:
        """bool[L]: True if a path leads via an exit switch to its exit."""
        return self.paths.length < MAX_PATH

    @property
    def time_limit(self) -> np.ndarray:
        """int32[L]: frames after which an episode is truncated."""
        return self.paths.time_limit

    @functools.cached_property
    def level_ids(self) -> np.ndarray:
        """int64[L]: hash of each level's content, equal in all processes; it is the first number of ``graph_state``."""
        digests = (hashlib.sha256(f"{level.fingerprint} {self.completions}".encode()) for level in self.levels)
        return np.array([int.from_bytes(digest.digest()[:8], "little", signed=True) for digest in digests], np.int64)

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def paths_change(self) -> bool:
        """True if paths can change during an episode: a level has several exits, or doors with a switch."""
        level = self.world.level
        doors, exits = level["switches_end"] > level["switches_first"], level["exits_end"] > level["exits_first"] + 2
        return bool((doors | exits).any())


def _world(compiled: list[LevelGeometry], levels: list[Level], rules: Rules) -> World:
    def each(field):
        return [getattr(c, field) for c in compiled]

    return World(
        level=_level_records(compiled, levels, rules),
        entity=_entity_records(compiled),
        mover=np.concatenate(each("movers")),
        segments=np.concatenate(each("segments")),
        cell_start=np.stack(each("cell_start")),
        near=np.stack(each("near")),
        entity_cell_start=np.stack(each("entity_cell_start")),
        entity_items=np.concatenate(each("entity_items")),
        grid=np.stack([grid for grid in each("grid") if len(grid)] or [np.zeros(GRID_SIZE, np.uint8)]),
    )


def _trail(entity_type: np.ndarray) -> int:
    """Number of past positions of the ninja to store on a level with these entities."""
    evil = int(np.count_nonzero(entity_type == kinds.EVIL_NINJA))
    return evil * FOLLOW_FRAMES + TRAIL_SLACK if evil else 0


def _level_records(compiled: list[LevelGeometry], levels: list[Level], rules: Rules) -> np.ndarray:
    records = np.zeros(len(compiled), LEVEL_DTYPE)
    records["rules"] = rules.bits
    records["spawn_x"], records["spawn_y"] = np.array([c.spawn for c in compiled]).T
    for name, field in (
        ("segment_first", "segments"),
        ("entity_first", "entity_type"),
        ("items_first", "entity_items"),
        ("mover_first", "movers"),
    ):
        lengths = [len(getattr(c, field)) for c in compiled]
        records[name] = np.cumsum([0, *lengths[:-1]])
    records["entity_end"] = records["entity_first"] + [len(c.entity_type) for c in compiled]
    records["mover_end"] = records["mover_first"] + [len(c.movers) for c in compiled]
    records["trail"] = [_trail(c.entity_type) for c in compiled]
    records["registrations"] = [len(c.entity_type) for c in compiled]
    records["ball_count"] = [level.ball_count for level in levels]
    uses_grid = np.array([len(c.grid) > 0 for c in compiled])
    records["grid"] = np.where(uses_grid, np.cumsum(uses_grid) - 1, 0)

    # Entities are in type order.  Exit switches follow their exits, so they count as exits.
    counts = np.array([np.bincount(c.entity_type, minlength=len(kinds.ENTITY_NAMES)) for c in compiled])
    records["first_moving"] = counts[:, kinds.EXIT]
    records["moves"] = [len(c.movers) for c in compiled] > counts[:, kinds.EXIT]
    records["moves"] |= counts[:, kinds.BOOST_PAD] > 0
    records["toggle_mines"] = counts[:, kinds.TOGGLE_MINE] > 0
    records["pads"] = counts[:, kinds.LAUNCH_PAD] > 0
    records["one_ways"] = counts[:, kinds.ONE_WAY] > 0
    records["blocks"] = counts[:, list(kinds.BLOCKS)].any(axis=1)
    counts[:, kinds.EXIT] += counts[:, kinds.EXIT_SWITCH]
    counts[:, kinds.EXIT_SWITCH] = 0
    ends = records["entity_first"][:, None] + np.cumsum(counts, axis=1)
    for name, first, last in (
        ("exits", kinds.EXIT, kinds.EXIT),
        ("doors", kinds.REGULAR_DOOR, kinds.REGULAR_DOOR),
        ("switches", kinds.LOCKED_DOOR, kinds.TRAP_DOOR),
        ("boosts", kinds.BOOST_PAD, kinds.BOOST_PAD),
        ("toggles", kinds.TOGGLE_MINE, kinds.TOGGLE_MINE),
    ):
        records[f"{name}_first"] = ends[:, first] - counts[:, first]
        records[f"{name}_end"] = ends[:, last]
    return records


def _entity_records(compiled: list[LevelGeometry]) -> np.ndarray:
    def joined(field):
        return np.concatenate([getattr(c, field) for c in compiled])

    records = np.zeros(sum(len(c.entity_type) for c in compiled), PLACED_DTYPE)
    records["x"], records["y"] = joined("entity_xy").T
    records["x1"], records["y1"], records["x2"], records["y2"] = joined("entity_shape").T
    for name in ("type", "partner", "order", "mover", "edge"):
        records[name] = joined(f"entity_{name}")
    records["active"], records["state"], records["closed"] = joined("initial").T
    return records


def _search_paths(world: World, stage: np.ndarray, least_time: int) -> LevelPaths:
    levels = len(stage)
    nodes = np.empty((levels, paths.NUM_NODES), np.uint16)
    doors = world.level["switches_end"] - world.level["switches_first"]
    effects_first = np.concatenate([[0], np.cumsum(doors)]).astype(np.int64)
    effects = np.empty((effects_first[-1], paths.DOOR_WINDOW**2), np.uint16)
    distance = np.empty((levels, 2, paths.NUM_NODES), np.uint16)
    next_step = np.empty((levels, 2, paths.NUM_NODES), np.uint8)
    switch_to_exit = np.empty(levels, np.int64)
    length = np.empty(levels, np.float32)
    _compute_paths(world, stage, nodes, effects, effects_first, distance, next_step, switch_to_exit, length)
    limit = np.clip(TIME_LIMIT_BASE + TIME_LIMIT_PER_PX * length, least_time, MAX_TIME_LIMIT)
    return LevelPaths(
        nodes, effects, effects_first, distance, next_step, switch_to_exit, length, limit.astype(np.int32)
    )


@allocating_entry
def _compute_paths(world, stage, nodes, effects, effects_first, distance, next_step, switch_to_exit, length):
    """Fill the path fields of all levels for the initial state of the doors, and the length of each level's path.

    If a level has no path, it is prepared again with a higher leniency (``prepare_level``).
    """
    for level in range(len(length)):
        record = world.level[level]
        own = effects[effects_first[level] : effects_first[level + 1]]
        first, end = record["switches_first"], record["switches_end"]
        closed = np.empty(end - first, np.uint8)
        for k in range(first, end):
            closed[k - first] = world.entity[k]["closed"]
        opened = np.zeros(record["exits_end"] - record["exits_first"], np.uint8)
        for leniency in range(paths.MOST_LENIENT + 1):
            paths.prepare_level(world, level, stage[level], leniency, nodes[level], own)
            switch_to_exit[level] = paths.compute_fields(
                world, nodes[level], own, level, closed, opened, distance[level], next_step[level]
            )
            length[level] = paths.nearest_node(distance[level, 0], record["spawn_x"], record["spawn_y"])[0]
            if length[level] < paths.MAX_PATH:
                break
