"""Level graphs for graph networks: arrays of the graph identified by a ``graph_state``.

    graph = graph_of(sim.obs["graph_state"][0])      # features float32[N, 45], neighbours int32[N, 16], ...

A graph depends only on a level and the state of its doors, exits and mines, so thousands of decisions share one graph.
Its nodes are the reachable cells (24 px) and all entities except gold.  Each node lists its neighbours, the sources of its
messages.  Every position in this list (SLOTS) has a fixed meaning, so a network layer reads all neighbours from
one array.
The path fields have a lattice point every 12 px.  A cell covers the nine points inside and on its border; one node per
cell instead of one per point means three quarters fewer nodes.  ``docs/observations.md`` describes the features.
"""

import functools
import threading
import weakref
from dataclasses import dataclass

import numpy as np

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.compile import World
from nppsim.errors import UserError
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, NUM_CELLS, STAGE_HEIGHT, STAGE_WIDTH, TILE
from nppsim.levels.tiles import NUM_TILE_SHAPES, solid_mask
from nppsim.observe.graph_state import NUM_FLAGS, flags
from nppsim.physics.bodies import BLOCK_HALF, SHOVE_HALF, THWUMP_HALF
from nppsim.physics.entities import (
    ARMED,
    ARMED_RADIUS,
    DOOR_SWITCH_RADIUS,
    DORMANT_RADIUS,
    EXIT_RADIUS,
    EXIT_SWITCH_RADIUS,
    PAD_RADIUS,
    REGULAR_DOOR_RADIUS,
)
from nppsim.physics.evil_ninjas import EVIL_RADIUS
from nppsim.physics.movers import BALL_RADIUS, BOOST_RADIUS, GUARD_RADIUS, MINI_RADIUS, ZAP_RADIUS

NODE_TYPES = ("cell", "switch", "exit", "door_switch", "door", "mine", "hazard", "object")
CELL, SWITCH, EXIT, DOOR_SWITCH, DOOR, MINE, HAZARD, OBJECT = range(len(NODE_TYPES))
EDGE_TYPES = ("itself", "beside", "above", "below", "path_to_switch", "path_to_exit", "partner", "place")
# Edge types: "itself" to "below" give the position of the source relative to the node.  path_to_*: the source is the cell
# PATH_STEPS lattice points ahead on the path.  partner: the switch of an exit or door, or the exit or
# door of a switch.  place: for a cell, one of its first four entities; for an entity, its cell.
# DIRECTIONS: offset (x, y) in cells of the neighbours in slots 1 to 8.
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (-1, -1), (1, -1), (0, 1), (-1, 1), (1, 1))
SLOTS = ("itself", "beside", "beside", "above", "above", "above", "below", "below", "below") + (
    ("path_to_switch", "path_to_exit", "partner", "place", "place", "place", "place")
)
NUM_SLOTS = len(SLOTS)
PATH, PARTNER, PLACE = (SLOTS.index(name) for name in ("path_to_switch", "partner", "place"))
NONE = -1  # empty slot in ``neighbours``
PATH_STEPS = 8  # lattice points from a cell to the source of its path_to_* edges, about 100 px
NEXT_STEPS = 3  # lattice points over which the direction of a path is measured
PATH_UNIT, LONGEST_PATH = 600.0, 5.0  # unit of path length in px, and maximum path length in this unit

# Types of entities with a one-hot feature, in addition to the node type.
_ONE_HOT = {
    kinds.REGULAR_DOOR: "regular_door",
    kinds.TRAP_DOOR: "trap_door",
    kinds.ZAP_DRONE: "zap_drone",
    kinds.CHASER_DRONE: "chaser_drone",
    kinds.MINI_DRONE: "mini_drone",
    kinds.FLOOR_GUARD: "floor_guard",
    kinds.THWUMP: "thwump",
    kinds.SHOVE_THWUMP: "shove_thwump",
    kinds.LASER: "laser",
    kinds.DEATH_BALL: "death_ball",
    kinds.LAUNCH_PAD: "launch_pad",
    kinds.ONE_WAY: "one_way",
    kinds.BOUNCE_BLOCK: "bounce_block",
    kinds.BOOST_PAD: "boost_pad",
}
FEATURES = (
    *(f"type_{name}" for name in NODE_TYPES),
    *("x", "y"),
    *("switch_path", "switch_reached", "switch_dx", "switch_dy"),
    *("exit_path", "exit_reached", "exit_dx", "exit_dy"),
    *("solid_upper_left", "solid_upper_right", "solid_lower_left", "solid_lower_right"),
    *("solid_left", "solid_right", "solid_above", "solid_below", "mined"),
    *("on", "radius", "normal_x", "normal_y"),
    *_ONE_HOT.values(),
)
_COLUMN = {name: column for column, name in enumerate(FEATURES)}
_PATH_COLUMNS = [(_COLUMN["switch_path"], _COLUMN["switch_dx"]), (_COLUMN["exit_path"], _COLUMN["exit_dx"])]
_SOLID, _RADIUS_UNIT = _COLUMN["solid_upper_left"], 12.0  # first of nine columns with solid shares; unit of radii, px

_TYPE_OF_KIND = np.full(256, NONE)
_TYPE_OF_KIND[[kinds.EXIT_SWITCH, kinds.EXIT]] = SWITCH, EXIT
_TYPE_OF_KIND[list(kinds.SWITCH_OF_DOOR)] = DOOR_SWITCH
_TYPE_OF_KIND[list(kinds.HAZARDS)] = HAZARD
_TYPE_OF_KIND[list(kinds.MINES)] = MINE
_TYPE_OF_KIND[[kinds.LAUNCH_PAD, kinds.ONE_WAY, kinds.BOUNCE_BLOCK, kinds.BOOST_PAD]] = OBJECT
_RADIUS = np.zeros(256)
for _kind, _radius in {
    kinds.MINE: ARMED_RADIUS, kinds.TOGGLE_MINE: DORMANT_RADIUS, kinds.EXIT: EXIT_RADIUS,
    kinds.EXIT_SWITCH: EXIT_SWITCH_RADIUS, kinds.LOCKED_DOOR: DOOR_SWITCH_RADIUS, kinds.TRAP_DOOR: DOOR_SWITCH_RADIUS,
    kinds.REGULAR_DOOR: REGULAR_DOOR_RADIUS, kinds.LAUNCH_PAD: PAD_RADIUS, kinds.ZAP_DRONE: ZAP_RADIUS,
    kinds.CHASER_DRONE: ZAP_RADIUS,
    kinds.CHAINGUN_DRONE: ZAP_RADIUS, kinds.LASER_DRONE: ZAP_RADIUS,
    kinds.MINI_DRONE: MINI_RADIUS, kinds.FLOOR_GUARD: GUARD_RADIUS,
    kinds.BOUNCE_BLOCK: BLOCK_HALF, kinds.THWUMP: THWUMP_HALF, kinds.SHOVE_THWUMP: SHOVE_HALF,
    kinds.DEATH_BALL: BALL_RADIUS, kinds.EVIL_NINJA: EVIL_RADIUS, kinds.BOOST_PAD: BOOST_RADIUS,
}.items():  # fmt: skip
    _RADIUS[_kind] = _radius
# float32[38, 4]: solid share of the quarters of each tile: upper left, upper right, lower left, lower right.
_QUARTERS = np.stack(
    [solid_mask(tile, 8).reshape(2, 4, 2, 4).mean(axis=(1, 3)).reshape(4) for tile in range(NUM_TILE_SHAPES)]
).astype(np.float32)


class GraphError(UserError, LookupError):
    """The level of a ``graph_state`` is not loaded in this process."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Graph of N nodes: the cells by column and row, then the entities by type.

    features: float32[N, 45], see FEATURES; lengths are scaled to about 1.
    types: int8[N], indices into NODE_TYPES, ascending.
    neighbours: int32[N, 16], source node of each slot, or NONE.
    cell_node: int32[1100], node of cell (cx, cy) of the stage at index cx * 25 + cy; the nearest node for cells without one.
    """

    features: np.ndarray
    types: np.ndarray
    neighbours: np.ndarray
    cell_node: np.ndarray

    def __len__(self) -> int:
        return len(self.types)

    @functools.cached_property
    def edges_by_source(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of edges in the flattened ``neighbours``, sorted by source, int32[E]; edges per source, int32[N]."""
        used = np.flatnonzero(self.neighbours != NONE)
        sources = self.neighbours.reshape(-1)[used]
        counts = np.bincount(sources, minlength=len(self)).astype(np.int32)
        return used[np.argsort(sources, kind="stable")].astype(np.int32), counts

    @property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """(source, target) of each edge, int32[E, 2]; types of the edges, indices into EDGE_TYPES, int64[E]."""
        target, slot = np.nonzero(self.neighbours != NONE)
        types = np.array([EDGE_TYPES.index(name) for name in SLOTS])
        return np.stack([self.neighbours[target, slot], target.astype(np.int32)], axis=1), types[slot]


# ---------------------------------------------------------------------------------------------------------------- lookup
_banks: weakref.WeakSet[LevelBank] = weakref.WeakSet()  # banks whose graphs can be looked up
_building = threading.Lock()
CACHED_GRAPHS, CACHED_LEVELS = 8192, 1024  # maximum numbers of entries; about 50 KB per graph, 80 KB per level


def register_bank(bank: LevelBank) -> None:
    """Register the levels of a bank for ``graph_of``.  The bank is referenced weakly."""
    _banks.add(bank)


def graph_of(state: np.ndarray) -> Graph:
    """Return the graph of a ``graph_state`` int64[8]; raise GraphError if no registered bank contains its level."""
    return _graph_of(np.ascontiguousarray(state, np.int64).tobytes())


def state_at_start(bank: LevelBank, level: int) -> np.ndarray:
    """Return a level's ``graph_state`` int64[8] at the start of an episode.  bank: a registered bank with this level."""
    level_id = bank.level_ids[level]
    set_ = _level_of(int(level_id)).start[:NUM_FLAGS]
    bits = np.packbits(np.pad(set_, (0, NUM_FLAGS - len(set_))), bitorder="little")
    return np.concatenate([[level_id], bits.view("<i8")]).astype(np.int64)


@functools.lru_cache(CACHED_GRAPHS)
def _graph_of(state: bytes) -> Graph:
    words = np.frombuffer(state, np.int64)
    with _building:
        return _graph_for_state(_level_of(int(words[0])), words)


@functools.lru_cache(CACHED_LEVELS)
def _level_of(level_id: int) -> "_LevelGraph":
    for bank in list(_banks):
        rows = np.flatnonzero(bank.level_ids == level_id)
        if len(rows):
            return _prepare(bank, int(rows[0]))
    raise GraphError(
        f"graph_state names level {level_id:#x}, which no LevelBank of this process contains: keep the simulator or "
        "dataset that produced the observation"
    )


# -------------------------------------------------------------------------------------------------------------- a level
@dataclass(frozen=True, eq=False)
class _LevelGraph:
    """Data shared by all graphs of a level.

    world: the bank's entity tables.
    level: index in the bank.
    lattice, distance, next_step: see ``bank.LevelPaths``, for the initial state of the doors.
    number: int32[44, 25], node of each cell, or NONE.
    entity: int64[M], row of ``world.entity`` of each entity node.
    flagged: int64[F], row in ``world.entity`` of the entity that each flag of ``graph_state`` describes, ascending.
    start: bool[F], initial flags.
    graph: features and neighbours that do not depend on the flags.
    """

    world: World
    level: int
    lattice: tuple[np.ndarray, np.ndarray]
    distance: np.ndarray
    next_step: np.ndarray
    number: np.ndarray
    entity: np.ndarray
    flagged: np.ndarray
    start: np.ndarray
    graph: Graph


def _prepare(bank: LevelBank, level: int) -> _LevelGraph:
    world, fields = bank.world, bank.paths
    record = world.level[level]
    number = _cells(fields.nodes[level], fields.distance[level], record)
    cells = np.argwhere(number != NONE)
    cell_node = _nearest(number, cells)
    rows, types, xy = _entities(world, record)
    features = np.zeros((len(cells) + len(rows), len(FEATURES)), np.float32)
    all_types = np.concatenate([np.full(len(cells), CELL), types]).astype(np.int8)
    features[np.arange(len(features)), all_types] = 1
    centres = np.concatenate([cells * TILE + TILE / 2, xy])
    features[:, _COLUMN["x"]] = centres[:, 0] / (STAGE_WIDTH / 2) - 1
    features[:, _COLUMN["y"]] = centres[:, 1] / (STAGE_HEIGHT / 2) - 1
    _describe_cells(features, cells, bank.stage[level], fields.nodes[level])
    _describe_entities(features[len(cells) :], world.entity[rows], types)
    neighbours = np.full((len(features), NUM_SLOTS), NONE, np.int32)
    neighbours[:, 0] = np.arange(len(features))
    _place_entities(neighbours, number, cell_node, xy, len(cells))
    _join_partners(neighbours, world.entity, rows, types, int(record["entity_first"]), len(cells))
    flagged = np.concatenate(
        [np.arange(record[f"{name}_first"], record[f"{name}_end"]) for name in ("exits", "switches", "toggles")]
    )
    placed = world.entity[flagged]
    start = np.where(np.isin(placed["type"], kinds.MINES), placed["state"] == ARMED, placed["closed"] != 0)
    start |= (placed["type"] == kinds.EXIT_SWITCH) & (placed["active"] == 0)
    graph = Graph(features, all_types, neighbours, cell_node)
    nodes, effects = fields.lattice(level)
    lattice = nodes.copy(), effects.copy()  # copies, because the bank may be deleted
    distance, next_step = fields.distance[level].copy(), fields.next_step[level].copy()
    return _LevelGraph(world, level, lattice, distance, next_step, number, rows, flagged, start, graph)


def _points(values: np.ndarray) -> np.ndarray:
    """Gather the nine lattice points inside and on the border of each cell: [..., 4539] to [..., 44, 25, 9]."""
    grid = values.reshape(*values.shape[:-1], paths.NODES_X, paths.NODES_Y)
    parts = [grid[..., a : a + 2 * CELLS_X - 1 : 2, b : b + 2 * CELLS_Y - 1 : 2] for a in range(3) for b in range(3)]
    return np.stack(parts, axis=-1)


def _cells(nodes: np.ndarray, distance: np.ndarray, record: np.void) -> np.ndarray:
    """Number the cells that have a path (all free cells if none has) and the cell of the spawn: int32[44, 25]."""
    reached = np.asarray((distance < paths.WALL).any(axis=0))
    wanted = np.asarray(_points(reached if reached.any() else nodes & paths.FREE != 0).any(axis=-1))
    spawn = (int(record["spawn_x"] // TILE), int(record["spawn_y"] // TILE))
    wanted[min(max(spawn[0], 0), CELLS_X - 1), min(max(spawn[1], 0), CELLS_Y - 1)] = True
    return np.where(wanted, np.cumsum(wanted).reshape(wanted.shape) - 1, NONE).astype(np.int32)


def _nearest(number: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the node of each cell, or the nearest cell's node if it has none: int32[1100]."""
    across, down = (np.square(np.arange(size)[:, None] - cells[:, axis]) for axis, size in enumerate(number.shape))
    # Squared distances are at most 2,425; int16 halves the memory traffic, which limits the speed.
    away = across[:, None].astype(np.int16) + down.astype(np.int16)
    return away.argmin(axis=2).reshape(NUM_CELLS).astype(np.int32)


def _entities(world: World, record: np.void) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows in ``world.entity``, the types and the centres (px, [M, 2]) of the entity nodes, sorted by type.

    A door with a switch has two nodes: one for the door and one for the switch.
    """
    rows = np.arange(record["entity_first"], record["entity_end"])
    placed = world.entity[rows]
    types = _TYPE_OF_KIND[placed["type"]]
    doors = np.isin(placed["type"], kinds.DOORS)
    xy = np.stack([placed["x"], placed["y"]], axis=1)
    middle = np.stack([placed["x1"] + placed["x2"], placed["y1"] + placed["y2"]], axis=1) / 2
    own = types != NONE
    rows = np.concatenate([rows[own], rows[doors]])
    types = np.concatenate([types[own], np.full(doors.sum(), DOOR)])
    xy = np.concatenate([xy[own], middle[doors]])
    order = np.argsort(types, kind="stable")
    return rows[order], types[order], xy[order]


def _describe_cells(features: np.ndarray, cells: np.ndarray, stage: np.ndarray, nodes: np.ndarray) -> None:
    quarters = np.pad(_QUARTERS[stage], ((1, 1), (1, 1), (0, 0)), constant_values=1.0)
    x, y = cells.T + 1
    here = features[: len(cells), _SOLID : _SOLID + 9]
    here[:, :4] = quarters[x, y]
    here[:, 4] = quarters[x - 1, y][:, [1, 3]].mean(axis=1)
    here[:, 5] = quarters[x + 1, y][:, [0, 2]].mean(axis=1)
    here[:, 6] = quarters[x, y - 1][:, [2, 3]].mean(axis=1)
    here[:, 7] = quarters[x, y + 1][:, [0, 1]].mean(axis=1)
    mined = np.equal(nodes & (paths.FREE | paths.MINED), paths.FREE | paths.MINED)
    here[:, 8] = _points(mined)[tuple(cells.T)].mean(axis=1)


def _describe_entities(features: np.ndarray, placed: np.ndarray, types: np.ndarray) -> None:
    """Write the features of entities, with the initial value of ``on``."""
    features[:, _COLUMN["on"]] = 1
    features[:, _COLUMN["radius"]] = _RADIUS[placed["type"]] / _RADIUS_UNIT
    features[types == DOOR, _COLUMN["radius"]] = 1
    facing = np.isin(placed["type"], (kinds.LAUNCH_PAD, kinds.ONE_WAY))
    features[facing, _COLUMN["normal_x"]] = placed["x1"][facing]
    features[facing, _COLUMN["normal_y"]] = placed["y1"][facing]
    for kind, name in _ONE_HOT.items():
        features[placed["type"] == kind, _COLUMN[name]] = 1


def _place_entities(
    neighbours: np.ndarray, number: np.ndarray, cell_node: np.ndarray, xy: np.ndarray, cells: int
) -> None:
    """Connect each entity with its cell and the cells around it, and each cell with its first four entities."""
    column = np.clip(xy[:, 0] // TILE, 0, CELLS_X - 1).astype(int)
    row = np.clip(xy[:, 1] // TILE, 0, CELLS_Y - 1).astype(int)
    around = np.pad(number, 1, constant_values=NONE)
    for slot, (dx, dy) in enumerate(DIRECTIONS, start=1):
        neighbours[cells:, slot] = around[column + 1 + dx, row + 1 + dy]
    home = cell_node[column * CELLS_Y + row]
    neighbours[cells:, PLACE] = home
    order = np.argsort(home, kind="stable")
    rank = np.arange(len(home)) - np.searchsorted(home[order], home[order])
    first = rank < NUM_SLOTS - PLACE
    neighbours[home[order[first]], PLACE + rank[first]] = cells + order[first]


def _join_partners(
    neighbours: np.ndarray, entity: np.ndarray, rows: np.ndarray, types: np.ndarray, base: int, cells: int
) -> None:
    """Connect exits and doors with their switches."""
    node = {(int(t), int(row)): cells + m for m, (t, row) in enumerate(zip(types, rows, strict=True))}
    for (kind, row), here in node.items():
        partner = (SWITCH, base + int(entity[row]["partner"])) if kind == EXIT else (DOOR_SWITCH, row)
        if kind in (EXIT, DOOR) and partner in node:
            there = node[partner]
            neighbours[here, PARTNER], neighbours[there, PARTNER] = there, here


# -------------------------------------------------------------------------------------------------------------- a state
def _graph_for_state(level: _LevelGraph, state: np.ndarray) -> Graph:
    """Build the graph of a level for a ``graph_state`` int64[8]."""
    set_ = flags(state, level.start)
    distance, next_step = _path_fields(level, set_)
    plain = level.graph
    features, neighbours = plain.features.copy(), plain.neighbours.copy()
    cells = np.argwhere(level.number != NONE)
    _write_switch(features, level, set_, len(cells))
    _join_cells(neighbours, level.number, cells, np.not_equal(distance[0], paths.WALL))
    for phase in range(2):
        _add_paths(features, neighbours, plain.cell_node, cells, distance[phase], next_step[phase], phase)
    return Graph(features, plain.types, neighbours, plain.cell_node)


def _path_fields(level: _LevelGraph, set_: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the path fields for the flagged doors and exits: distance uint16[2, 4539] and next_step uint8[2, 4539]."""
    record = level.world.level[level.level]
    kind = level.world.entity[level.flagged]["type"]
    doors = np.isin(kind, list(kinds.SWITCH_OF_DOOR))
    opened = (set_ & (kind == kinds.EXIT))[: record["exits_end"] - record["exits_first"]]
    if (set_ == level.start)[doors].all() and (len(opened) <= 2 or not opened.any()):
        return level.distance, level.next_step
    distance, next_step = np.empty_like(level.distance), np.empty_like(level.next_step)
    closed = set_[doors].astype(np.uint8)
    paths.compute_fields(level.world, *level.lattice, level.level, closed, opened.astype(np.uint8), distance, next_step)
    return distance, next_step


def _write_switch(features: np.ndarray, level: _LevelGraph, set_: np.ndarray, cells: int) -> None:
    """Write feature ``on`` of flagged entities: exit open, switch not taken, door closed, door switch unused, mine armed."""
    flag = np.searchsorted(level.flagged, level.entity)
    flag = np.minimum(flag, max(len(level.flagged) - 1, 0))
    changes = level.flagged[flag] == level.entity if len(level.flagged) else np.zeros(len(flag), bool)
    types = level.graph.types[cells:]
    now, first = (np.where(changes, values[flag] if len(values) else False, True) for values in (set_, level.start))
    on = np.where(types == SWITCH, ~now, now)
    on = np.where(types == DOOR_SWITCH, now == first, on)
    part = features[cells:]
    part[changes, _COLUMN["on"]] = on[changes]
    mines = changes & (types == MINE)
    part[mines, _COLUMN["radius"]] = np.where(on[mines], ARMED_RADIUS, DORMANT_RADIUS) / _RADIUS_UNIT


def _join_cells(neighbours: np.ndarray, number: np.ndarray, cells: np.ndarray, free: np.ndarray) -> None:
    """Connect neighbouring cells that share a free lattice point."""
    points = _points(free).reshape(CELLS_X, CELLS_Y, 3, 3)
    around = np.pad(number, 1, constant_values=NONE)
    x, y = cells.T
    for slot, (dx, dy) in enumerate(DIRECTIONS, start=1):
        shared = points[x, y]
        shared = shared[:, [2 * (dx > 0)]] if dx else shared
        shared = shared[:, :, [2 * (dy > 0)]] if dy else shared
        joined = shared.any(axis=(1, 2))
        neighbours[: len(cells), slot] = np.where(joined, around[x + 1 + dx, y + 1 + dy], NONE)


def _add_paths(
    features: np.ndarray,
    neighbours: np.ndarray,
    cell_node: np.ndarray,
    cells: np.ndarray,
    distance: np.ndarray,
    next_step: np.ndarray,
    phase: int,
) -> None:
    """Write length and direction of each cell's path, and the edge from the cell PATH_STEPS points ahead on this path."""
    of_cells = _points(distance)[tuple(cells.T)]
    best = of_cells.argmin(axis=1)
    length = of_cells[np.arange(len(cells)), best]
    start = (2 * cells[:, 0] + best // 3) * paths.NODES_Y + 2 * cells[:, 1] + best % 3
    reached = length < paths.WALL
    first, direction = _PATH_COLUMNS[phase]
    here = features[: len(cells)]
    here[:, first] = np.where(reached, np.minimum(length * paths.UNIT / PATH_UNIT, LONGEST_PATH), 0)
    here[:, first + 1] = reached
    point = start.copy()
    for step in range(1, PATH_STEPS + 1):
        chosen = next_step[point]
        moves = reached & (chosen != paths.NO_STEP)
        chosen = np.where(moves, chosen, 0)
        point += np.where(moves, paths.STEP_X[chosen] * paths.NODES_Y + paths.STEP_Y[chosen], 0)
        if step == NEXT_STEPS:
            gone = point // paths.NODES_Y - start // paths.NODES_Y, point % paths.NODES_Y - start % paths.NODES_Y
            here[:, direction : direction + 2] = np.stack(gone, axis=1) / NEXT_STEPS
    column = np.minimum(point // paths.NODES_Y // 2, CELLS_X - 1)
    row = np.minimum(point % paths.NODES_Y // 2, CELLS_Y - 1)
    ahead = cell_node[column * CELLS_Y + row]
    neighbours[: len(cells), PATH + phase] = np.where(reached & (ahead != neighbours[: len(cells), 0]), ahead, NONE)
