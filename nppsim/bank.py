"""LevelBank: many levels in one set of arrays, so that switching levels changes only an index."""

import functools
import hashlib
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nppsim import paths
from nppsim._numba.decorators import allocating_entry
from nppsim.compile import LevelGeometry, World, compile_level
from nppsim.levels.level import Level
from nppsim.levels.level_set import Levels, read_levels
from nppsim.paths import MAX_PATH
from nppsim.physics.grid import GRID_SIZE
from nppsim.physics.lasers import place_lasers
from nppsim.physics.rules import DEFAULT_RULES, Rules
from nppsim.physics.state import ENTITY_DTYPE, allocate

TIME_LIMIT_BASE = 300  # frames, time limit of a level whose path has length 0
TIME_LIMIT_PER_PX = 2.0  # additional frames per px of path; a straight run at top speed takes 0.3 frames per px
MAX_TIME_LIMIT = 6000  # frames, maximum time limit of a level
GAME_TIME = 5400  # frames; the game gives the player 90 s

_ENTITY_RANGES = ("entity", "exits", "doors", "switches", "boosts", "toggles")  # fields of LEVEL_DTYPE: *_first, *_end
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

    levels: at least one, or paths of levels (``read_levels``); the index of a level is its position in this sequence.
    completions: also create the entities that the reference simulator leaves out (``kinds.COMPLETIONS``).
    known: geometry of levels that were compiled before with the same ``completions``.
    rules: variants of the rules that no recording of the game has decided.
    least_time: minimum of the time limits in frames, at most MAX_TIME_LIMIT.  Evaluation uses GAME_TIME; training ends
        hopeless episodes earlier.

    Attributes:
    entries: LevelEntry of each level: its file, category and generator.
    compiled: LevelGeometry of each level.
    world: arrays of the physics kernels.
    stage: uint8[L, 44, 25], tile ids, x first.
    max_entities, max_movers: the largest number of any level, at least 1.
    max_trail: the largest ``trail`` of any level, at least 1.
    paths: path fields, path lengths and time limits.  The first access computes them; playback does not need them.
    """

    def __init__(
        self,
        levels: Levels,
        completions: bool = True,
        known: Mapping[Level, LevelGeometry] = MappingProxyType({}),
        rules: Rules = DEFAULT_RULES,
        least_time: int = 0,
    ):
        sequence, self.entries = read_levels(levels)
        self.levels = list(sequence)
        self.completions, self.rules, self._least_time = completions, rules, least_time
        if not self.levels:
            raise ValueError("a bank needs at least one level")
        self.compiled = [known.get(level) or compile_level(level, completions) for level in self.levels]
        self.max_entities = max(1, *(len(c.entity_type) for c in self.compiled))
        self.max_movers = max(1, *(len(c.world.mover) for c in self.compiled))
        self.stage = np.stack([c.stage for c in self.compiled])
        self.world = _world(self.compiled, rules)
        self.max_trail = max(1, int(self.world.level["trail"].max()))
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


def _world(compiled: list[LevelGeometry], rules: Rules) -> World:
    parts = World(*zip(*(c.world for c in compiled), strict=True))
    world = World(*map(_joined, parts))
    records = world.level
    records["rules"] = rules.bits
    for part, fields in (
        (parts.segments, ["segment_first"]),
        (parts.entity_items, ["items_first"]),
        (parts.mover, ["mover_first", "mover_end"]),
        (parts.entity, [f"{name}_{end}" for name in _ENTITY_RANGES for end in ("first", "end")]),
        (parts.grid, ["grid"]),
    ):
        lengths = np.array([len(array) for array in part])
        before = np.cumsum(lengths) - lengths
        for field in fields:
            records[field] += before
    records["grid"] *= np.array([len(grid) for grid in parts.grid])  # 0 for levels without grid
    return world if len(world.grid) else world._replace(grid=np.zeros((1, GRID_SIZE), np.uint8))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate arrays; the padding of records is zero."""
    out = np.zeros((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    return np.concatenate(parts, out=out)


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
