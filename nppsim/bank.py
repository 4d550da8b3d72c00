"""LevelBank: many levels in one set of arrays, so that switching levels is switching an index."""

from collections import namedtuple
from collections.abc import Sequence

import numpy as np
from numba import njit

from nppsim import paths
from nppsim.geometry import NUM_CELLS, compile_level
from nppsim.level import EXIT, EXIT_SWITCH, LOCKED_DOOR, REGULAR_DOOR, TOGGLE_MINE, TRAP_DOOR, Level
from nppsim.observe.layout import MAX_PATH

TIME_LIMIT_BASE, TIME_LIMIT_PER_PX, MAX_TIME_LIMIT = 300, 2.0, 6000  # frames; frames per px of path

# What the kernels read of a bank.  L levels; E, S, I: entities, segments, registered entities of all levels together.
World = namedtuple(
    "World",
    "spawn "  # float64[L, 2] px
    "stage "  # uint8[L, 44, 25] tile ids, x first
    "segments segment_first cell_start near "  # int16[S, 4], int64[L + 1], int32[L, 1101], uint8[L, 1100]
    "entity_first entity_type entity_xy entity_partner entity_cell entity_initial "  # int64[L + 1], then one row an entity
    "door_rect "  # float64[E, 4]
    "entity_cell_start entity_items items_first "  # int32[L, 1101], int16[I], int64[L + 1]
    "exits_first exits_end doors_first doors_end switches_first switches_end "  # int64[L]: rows of types 3-4, 5, 6-8
    "toggle_mines "  # uint8[L]: the level has mines of type 21
    "nodes distance hop switch_to_exit",  # uint8[L, 4539], uint16[L, 2, 4539], uint8[L, 2, 4539], int64[L]; see paths
)


class LevelBank:
    """Compiled levels.

    levels: the levels, in order; a level's index is its place here.  world: the kernels' arrays (``World``).
    max_entities: the largest number of entities of any level.
    path_length: float32[L], px from spawn over the switch to the exit; MAX_PATH where there is no way (``reachable``).
    time_limit: int32[L], frames after which an episode is truncated.
    Raises LevelError for a level with an entity that is not built yet, ValueError for an empty list.
    """

    def __init__(self, levels: Sequence[Level]):
        self.levels = list(levels)
        if not self.levels:
            raise ValueError("a bank needs at least one level")
        compiled = [compile_level(level) for level in self.levels]
        self.compiled = compiled
        self.max_entities = max(1, *(len(c.entity_type) for c in compiled))
        entity_first = _offsets([len(c.entity_type) for c in compiled])

        def joined(field):
            return np.ascontiguousarray(np.concatenate([getattr(c, field) for c in compiled]))

        def stacked(field):
            return np.ascontiguousarray(np.stack([getattr(c, field) for c in compiled]))

        def rows_of(kinds):
            first = [np.searchsorted(_sort_key(c.entity_type), kinds[0], "left") for c in compiled]
            end = [np.searchsorted(_sort_key(c.entity_type), kinds[-1], "right") for c in compiled]
            return entity_first[:-1] + first, entity_first[:-1] + end

        exits_first, exits_end = rows_of((EXIT,))
        doors_first, doors_end = rows_of((REGULAR_DOOR,))
        switches_first, switches_end = rows_of((LOCKED_DOOR, TRAP_DOOR))
        self.world = World(
            spawn=np.array([c.spawn for c in compiled]),
            stage=stacked("stage"),
            segments=joined("segments"),
            segment_first=_offsets([len(c.segments) for c in compiled]),
            cell_start=stacked("cell_start"),
            near=stacked("near"),
            entity_first=entity_first,
            entity_type=joined("entity_type"),
            entity_xy=joined("entity_xy"),
            entity_partner=joined("entity_partner"),
            entity_cell=joined("entity_cell"),
            entity_initial=joined("initial"),
            door_rect=joined("door_rect"),
            entity_cell_start=stacked("entity_cell_start"),
            entity_items=joined("entity_items"),
            items_first=_offsets([len(c.entity_items) for c in compiled]),
            exits_first=exits_first,
            exits_end=exits_end,
            doors_first=doors_first,
            doors_end=doors_end,
            switches_first=switches_first,
            switches_end=switches_end,
            toggle_mines=np.array([np.any(c.entity_type == TOGGLE_MINE) for c in compiled], np.uint8),
            nodes=np.empty((len(compiled), paths.NUM_NODES), np.uint8),
            distance=np.empty((len(compiled), 2, paths.NUM_NODES), np.uint16),
            hop=np.empty((len(compiled), 2, paths.NUM_NODES), np.uint8),
            switch_to_exit=np.empty(len(compiled), np.int64),
        )
        self.path_length = np.empty(len(compiled), np.float32)
        _compute_paths(self.world, self.path_length)
        self.reachable = self.path_length < MAX_PATH
        limit = TIME_LIMIT_BASE + TIME_LIMIT_PER_PX * self.path_length
        self.time_limit = np.minimum(limit, MAX_TIME_LIMIT).astype(np.int32)

    def __len__(self) -> int:
        return len(self.levels)


@njit(cache=True, nogil=True, error_model="numpy")
def _compute_paths(world, path_length):
    """Path fields of all levels for the doors as they are at the start, and the length of each level's way."""
    for level in range(len(path_length)):
        paths.static_nodes(world, level, world.nodes[level])
        first, end = world.switches_first[level], world.switches_end[level]
        closed = np.empty(end - first, np.uint8)
        for k in range(first, end):
            closed[k - first] = world.entity_initial[k, 2]
        distance, hop = world.distance[level], world.hop[level]
        world.switch_to_exit[level] = paths.compute_fields(world, world.nodes[level], level, closed, distance, hop)
        path_length[level] = paths.nearest_node(distance[0], world.spawn[level, 0], world.spawn[level, 1])[0]


def _sort_key(types: np.ndarray) -> np.ndarray:
    """Types with the exit switches counted as exits, which they are listed among: ascending."""
    return np.where(types == EXIT_SWITCH, EXIT, types)


def _offsets(lengths: Sequence[int]) -> np.ndarray:
    """int64[n + 1]: where each part begins when they are joined, and the end."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


assert NUM_CELLS < 2**15  # cell numbers are int16
