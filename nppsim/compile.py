"""Compile a level to flat arrays: collision segments by cell, and entities in type order.

Source: docs/physics.md, sections 2.3, 2.4, 3.5, 3.6 and 7.4.  Section numbers refer to that page.
"""

import math
from collections import namedtuple
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nppsim._numba.decorators import allocating, allocating_entry, inlined, kernel
from nppsim.levels import kinds, tiles
from nppsim.levels.format import MODE, ORIENTATION, POSITION_UNIT, TYPE, X, Y
from nppsim.levels.level import Level
from nppsim.levels.stage import (
    CELLS_X,
    CELLS_Y,
    HALF_CELL,
    HALF_CELLS_X,
    HALF_CELLS_Y,
    LINES_X,
    LINES_Y,
    NUM_CELLS,
    TILE,
)
from nppsim.physics import shapes
from nppsim.physics.evil_ninjas import FOLLOW_FRAMES, TRAIL_SLACK
from nppsim.physics.grid import DOOR_EDGE, GRID_SIZE, HORIZONTAL_EDGES, SOLID_EDGE
from nppsim.physics.shapes import SEGMENT_DTYPE
from nppsim.physics.state import (
    ITEM_ENTITY,
    ITEM_REACH,
    ITEM_X,
    ITEM_Y,
    MOVER_DTYPE,
    NEAR_ITEMS,
    NEAR_ONE_WAYS,
    NEAR_SEGMENTS,
    UNREGISTERED,
)

MOST_SEGMENTS = 13  # maximum number of tile segments in a cell: twelve half-edges and a diagonal or arc

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
        ("edge", "i2"),  # doors: twice the number of the cell, plus 1 if horizontal; else -1
        ("active", "u1"), ("state", "u1"), ("closed", "u1"),
    ],
    align=True,
)  # fmt: skip
# Constant arrays of the physics kernels.  Their number is small, because each array of a tuple costs nanoseconds at
# every call that Numba does not inline: an empty call took 145 ns with 27 arrays, 41 ns with 9.
#
# level: LEVEL_DTYPE[L].
# entity: PLACED_DTYPE[E], by level and in type order, with each exit switch directly after its exit.
# mover: MOVER_DTYPE[M], initial records of the moving entities and exits.
# segments: SEGMENT_DTYPE[S], by cell; see ``physics.shapes``.
# cell_start: int32[L, 1101], index of each cell's first segment, and the number of segments.
# near: uint8[L, 1100], contents of the 3 x 3 block of cells around each cell: a sum of NEAR_SEGMENTS, NEAR_ITEMS and
#     NEAR_ONE_WAYS of ``physics.state``.
# entity_cell_start: int32[L, 1101], first row of each cell in ``entity_items``, and the number of rows.
# entity_items: int16[I, 4], entities that stay in their cell, by cell and then in file order; columns ITEM_ENTITY, ITEM_X,
#     ITEM_Y and ITEM_REACH of ``physics.state``.
# grid: uint8[G, GRID_SIZE], half-cell edges (``physics.grid``) of the levels that need them.
World = namedtuple("World", "level entity mover segments cell_start near entity_cell_start entity_items grid")

# Cosine and sine of the eight orientations, which are 45 degrees apart.
_DIAGONAL = np.sqrt(2.0) / 2.0
_COS = np.array([1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL, 0.0, _DIAGONAL])
_SIN = np.array([0.0, _DIAGONAL, 1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL])
_BEAM = np.array([math.pi * eighths / 4 for eighths in (0, 1, 2, 3, 4, -3, -2, -1)])  # rad, of each orientation
_DOOR_SHAPES = np.array(
    [shapes.SHAPE_OF[shapes.DOOR_LINE, 0, TILE], shapes.SHAPE_OF[shapes.DOOR_LINE, TILE, 0]], np.uint16
)

# ITEM_REACH by type, px: upper limit of the distance between the centres of an entity and a ninja that touches it.
_TOUCH_DISTANCE = np.zeros(len(kinds.ENTITY_NAMES), np.int16)
for _kind, _distance in {
    kinds.MINE: 15,
    kinds.TOGGLE_MINE: 15,
    kinds.GOLD: 17,
    kinds.EXIT_SWITCH: 17,
    kinds.REGULAR_DOOR: 21,
    kinds.LOCKED_DOOR: 16,
    kinds.TRAP_DOOR: 16,
    kinds.LAUNCH_PAD: 17,
    kinds.ONE_WAY: 24,
}.items():
    _TOUCH_DISTANCE[_kind] = _distance


def _flags(group: Iterable[int]) -> np.ndarray:
    """bool[256]: True for the entity types of a group."""
    return np.isin(np.arange(256), list(group))


# bool[2, 256]: True for types whose records create entities, without and with ``kinds.COMPLETIONS``.
_CREATING = np.stack([_flags(set(kinds.CREATING) - set(kinds.COMPLETIONS)), _flags(kinds.CREATING)])
_MOVERS, _DOORS, _ON_THE_GRID = _flags(kinds.MOVERS), _flags(kinds.DOORS), _flags(kinds.ON_THE_GRID)
_BLOCKS, _DRONES, _CLOSED_AT_FIRST = _flags(kinds.BLOCKS), _flags(kinds.DRONES), _flags(kinds.CLOSED_AT_FIRST)
_WITH_SWITCH = _flags(kinds.SWITCH_OF_DOOR)
# Exits are registered in a cell when they open, rockets when they are launched; lasers and other shooters never are.
_UNREGISTERED_AT_FIRST = _flags((kinds.EXIT, kinds.LASER, *kinds.TURRETS, *kinds.SHOOTING_DRONES))


class LevelGeometry(NamedTuple):
    """One compiled level.

    stage: uint8[44, 25], tile ids with the border, x first; see ``stage_of``.
    world: World of this level alone.  A bank sets ``rules`` of its level record, and places the lasers.
    """

    stage: np.ndarray
    world: World

    @property
    def entity_type(self) -> np.ndarray:
        """int16[E], types of the entities."""
        return self.world.entity["type"]

    @property
    def entity_number(self) -> np.ndarray:
        """int16[E], index of each entity within its type."""
        kind = self.entity_type
        return np.array([np.count_nonzero(kind[:i] == kind[i]) for i in range(len(kind))], np.int16)

    @property
    def entity_xy(self) -> np.ndarray:
        """float64[E, 2], position in px; for doors with a switch, the position of the switch."""
        return np.stack([self.world.entity["x"], self.world.entity["y"]], axis=1)

    @property
    def entity_mover(self) -> np.ndarray:
        """int16[E], index of the entity's record among the movers, else -1."""
        return self.world.entity["mover"]


# -------------------------------------------------------------------------------------------- tiles (sections 3.5, 3.6)
def stage_of(level: Level) -> np.ndarray:
    """uint8[44, 25]: the level's tiles with a border of full tiles, x first; ids without geometry become open."""
    stage = np.full((CELLS_X, CELLS_Y), tiles.SOLID, np.uint8)
    stage[1:-1, 1:-1] = np.where(level.tiles < tiles.NUM_TILE_SHAPES, level.tiles, tiles.OPEN).T
    return stage


@inlined
def _append(segments, n, x, y, shape):
    """Write a tile's segment at index n; return n + 1."""
    segments[n]["x"], segments[n]["y"] = x, y
    segments[n]["shape"], segments[n]["entity"] = shape, -1
    return n + 1


@kernel
def _sum_faces(stage, horizontal, vertical):
    """Add up the signs of all half-edges, so that adjacent faces of two tiles cancel."""
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            for k in range(6):
                horizontal[2 * cx + k % 2, 2 * cy + k // 2] += tiles.HORIZONTAL_SIGNS[tile, k]
                vertical[2 * cx + k // 2, 2 * cy + k % 2] += tiles.VERTICAL_SIGNS[tile, k]


@allocating
def _tile_segments(stage, doors, door_cells, segments, cell_start):
    """Fill the segments of one level, cell by cell; return their number.

    stage: uint8[44, 25], tile ids with the solid border, x first.
    doors: SEGMENT_DTYPE[n], segments of doors in file order.
    door_cells: int32[n], cell of each door.
    segments: SEGMENT_DTYPE[m], output; m must be large enough.
    cell_start: int32[1101], output, see ``World``.
    """
    horizontal = np.zeros((HALF_CELLS_X, LINES_Y), np.int8)
    vertical = np.zeros((LINES_X, HALF_CELLS_Y), np.int8)
    horizontal[:, 0], horizontal[:, -1] = 1, -1
    vertical[0, :], vertical[-1, :] = 1, -1
    _sum_faces(stage, horizontal, vertical)
    n = np.int64(0)  # typed, because Numba would compile ``_append`` again for a literal
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            cell_start[cx * CELLS_Y + cy] = n
            slant = shapes.OF_TILE[stage[cx, cy]]
            if slant[2] >= 0:
                n = _append(segments, n, TILE * cx + slant[0], TILE * cy + slant[1], slant[2])
            # An edge belongs to the cell on its solid side.  On the border of two cells, its sign shows the solid side.
            for i in range(2 * cx, 2 * cx + 2):
                for row in range(3):
                    j = 2 * cy + row
                    sign = horizontal[i, j]
                    if sign > 0 and row > 0:
                        n = _append(segments, n, HALF_CELL * i, HALF_CELL * j, shapes.RIGHT)
                    elif sign < 0 and row < 2:
                        n = _append(segments, n, HALF_CELL * (i + 1), HALF_CELL * j, shapes.LEFT)
            for column in range(3):
                i = 2 * cx + column
                for j in range(2 * cy, 2 * cy + 2):
                    sign = vertical[i, j]
                    if sign > 0 and column > 0:
                        n = _append(segments, n, HALF_CELL * i, HALF_CELL * (j + 1), shapes.UP)
                    elif sign < 0 and column < 2:
                        n = _append(segments, n, HALF_CELL * i, HALF_CELL * j, shapes.DOWN)
            for k in range(len(doors)):
                if door_cells[k] == cx * CELLS_Y + cy:
                    segments[n] = doors[k]
                    n += 1
    cell_start[NUM_CELLS] = n
    return n


@kernel
def _mark_near(near, cell, flag):
    """Add a flag to the 3 x 3 block of cells around a cell."""
    cx, cy = cell // CELLS_Y, cell % CELLS_Y
    for x in range(max(cx - 1, 0), min(cx + 2, CELLS_X)):
        for y in range(max(cy - 1, 0), min(cy + 2, CELLS_Y)):
            near[x * CELLS_Y + y] |= flag


@inlined
def _merged(before, code):
    """Combine the codes of two tiles for their common edge: two non-zero codes cancel."""
    if code == 0:
        return before
    return 0 if before else code


@inlined
def _vertical(i, j):
    """Index of the vertical edge V(i, j) of ``physics.grid``."""
    return LINES_Y * i + j


@inlined
def _horizontal(i, j):
    """Index of the horizontal edge H(i, j)."""
    return HORIZONTAL_EDGES + LINES_X * j + i


@kernel
def _half_cell_grid(stage, grid):
    """Fill the half-cell grid of a level (section 3.6) without its doors.  grid: uint8[GRID_SIZE], zeros."""
    for j in range(LINES_Y):
        grid[_vertical(0, j)] = grid[_vertical(LINES_X - 1, j)] = 1
    for i in range(LINES_X):
        grid[_horizontal(i, 0)] = grid[_horizontal(i, LINES_Y - 1)] = 1
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            for k in range(6):
                edge = _horizontal(2 * cx + k % 2, 2 * cy + k // 2)
                grid[edge] = _merged(grid[edge], tiles.HORIZONTAL_CODES[tile, k])
                edge = _vertical(2 * cx + k // 2, 2 * cy + k % 2)
                grid[edge] = _merged(grid[edge], tiles.VERTICAL_CODES[tile, k])
    for i in range(LINES_X):
        grid[_vertical(i, LINES_Y - 1)] = SOLID_EDGE
    for j in range(LINES_Y):
        grid[_horizontal(LINES_X - 1, j)] = SOLID_EDGE


# ----------------------------------------------------------------------------------------- entities (sections 2.3, 2.4)
@inlined
def _cell_of(x, y):
    """Number of the grid cell of a point in pixels, clamped to the stage."""
    cx = min(max(int(math.floor(x / TILE)), 0), CELLS_X - 1)
    cy = min(max(int(math.floor(y / TILE)), 0), CELLS_Y - 1)
    return cx * CELLS_Y + cy


@kernel
def _place(placed, records, at, kind, order):
    """Fill the record of an entity at the position of record ``at``; inactive and at the origin if there is none."""
    placed["type"], placed["order"] = kind, order
    placed["partner"], placed["mover"], placed["edge"] = -1, -1, -1
    placed["x1"], placed["y1"], placed["x2"], placed["y2"] = 0.0, 0.0, 0.0, 0.0
    placed["x"], placed["y"], placed["active"] = 0.0, 0.0, 0
    if at < len(records):
        placed["x"], placed["y"] = (
            float(POSITION_UNIT * int(records[at, X])),
            float(POSITION_UNIT * int(records[at, Y])),
        )
        placed["active"] = 1
    placed["state"], placed["closed"] = kind == kinds.TOGGLE_MINE, _CLOSED_AT_FIRST[kind]


@kernel
def _place_door(placed, record, segment, index):
    """Fill line and edge of a door, and its segment; return its cell.  Section 7.4."""
    x, y, angle = (
        float(POSITION_UNIT * int(record[X])),
        float(POSITION_UNIT * int(record[Y])),
        int(record[ORIENTATION]) % 8,
    )
    cell = _cell_of(x - HALF_CELL * _COS[angle], y - HALF_CELL * _SIN[angle])
    horizontal = 0 if angle == 0 or angle == 4 else 1
    dx, dy = HALF_CELL * horizontal, HALF_CELL * (1 - horizontal)
    placed["x1"], placed["y1"], placed["x2"], placed["y2"] = x - dx, y - dy, x + dx, y + dy
    placed["edge"] = 2 * cell + horizontal
    segment["x"], segment["y"] = int(x) - dx, int(y) - dy
    segment["shape"], segment["entity"] = _DOOR_SHAPES[horizontal], index
    return cell


@kernel
def _fill_mover(mover, placed, record, index):
    """Fill the initial record of a mover; index: of the entity."""
    kind, orientation, mode = int(record[TYPE]), int(record[ORIENTATION]), int(record[MODE])
    mover["x"], mover["y"], mover["target_x"], mover["target_y"] = placed["x"], placed["y"], placed["x"], placed["y"]
    mover["vx"], mover["vy"], mover["beam"] = 0.0, 0.0, 0.0
    mover["order"], mover["entity"], mover["type"] = placed["order"], index, kind
    cell = _cell_of(placed["x"], placed["y"])
    mover["cell_x"], mover["cell_y"] = cell // CELLS_Y, cell % CELLS_Y
    if _UNREGISTERED_AT_FIRST[kind]:
        mover["cell_x"], mover["cell_y"] = UNREGISTERED, UNREGISTERED
    mover["mode"], mover["state"], mover["direction"], mover["timer"] = 0, 0, 0, 0
    mover["push_x"], mover["push_y"], mover["flag"] = 0, 0, 0
    if _DRONES[kind]:
        mover["direction"], mover["mode"] = orientation // 2 % 4, mode % 4
    elif kind == kinds.THWUMP:
        mover["direction"] = 1 if orientation == 0 or orientation == 2 else -1
        mover["mode"] = orientation == 0 or orientation == 4
    elif kind == kinds.LASER:
        mover["direction"] = -1 if mode == 1 else 1
        mover["beam"] = _BEAM[orientation]


@kernel
def _fill_level(level, records, ball_count, first, movers):
    """Fill the record of a level.  first: int64[30], index of the first entity of each type; an exit switch is an exit."""
    count, evil = first[-1], first[kinds.EVIL_NINJA + 1] - first[kinds.EVIL_NINJA]
    exits = (first[kinds.EXIT + 1] - first[kinds.EXIT]) // 2
    boosts = first[kinds.BOOST_PAD + 1] - first[kinds.BOOST_PAD]
    level["spawn_x"] = float(POSITION_UNIT * int(records[0, X]))
    level["spawn_y"] = float(POSITION_UNIT * int(records[0, Y]))
    level["segment_first"], level["items_first"], level["grid"] = 0, 0, 0
    level["entity_first"], level["entity_end"] = 0, count
    level["mover_first"], level["mover_end"] = 0, movers
    level["exits_first"], level["exits_end"] = first[kinds.EXIT], first[kinds.EXIT + 1]
    level["doors_first"], level["doors_end"] = first[kinds.REGULAR_DOOR], first[kinds.REGULAR_DOOR + 1]
    level["switches_first"], level["switches_end"] = first[kinds.LOCKED_DOOR], first[kinds.TRAP_DOOR + 1]
    level["boosts_first"], level["boosts_end"] = first[kinds.BOOST_PAD], first[kinds.BOOST_PAD + 1]
    level["toggles_first"], level["toggles_end"] = first[kinds.TOGGLE_MINE], first[kinds.TOGGLE_MINE + 1]
    level["first_moving"], level["moves"] = exits, movers > exits or boosts > 0
    level["registrations"], level["ball_count"], level["rules"] = count, ball_count, 0
    level["toggle_mines"] = first[kinds.TOGGLE_MINE + 1] > first[kinds.TOGGLE_MINE]
    level["pads"] = first[kinds.LAUNCH_PAD + 1] > first[kinds.LAUNCH_PAD]
    level["one_ways"] = first[kinds.ONE_WAY + 1] > first[kinds.ONE_WAY]
    level["blocks"] = 0
    for kind in range(len(first) - 1):
        if _BLOCKS[kind] and first[kind + 1] > first[kind]:
            level["blocks"] = 1
    level["trail"] = evil * FOLLOW_FRAMES + TRAIL_SLACK if evil else 0


@kernel
def _create_entities(records, exit_count, completions, created, world, in_order, record_of, doors, door_cells):
    """Create the entities in the order of the file; return the numbers of entities and of doors.

    created: int64[types], index of the first entity of each type; increased for each entity that is created.
    in_order, record_of: outputs int64[2 n], index of each entity in the order of the file, and the record of each entity.
    doors, door_cells: outputs, segments and cells of the doors.
    """
    entity, order, num_doors = world.entity, np.int64(0), 0
    for i in range(len(records)):
        kind = int(records[i, TYPE])
        if not _CREATING[completions, kind]:
            continue
        index, angle = created[kind], int(records[i, ORIENTATION]) % 8
        _place(entity[index], records, i + 1 if _WITH_SWITCH[kind] else i, kind, order)
        in_order[order], record_of[index] = index, i
        order += 1
        created[kind] += 1
        if _DOORS[kind]:
            door_cells[num_doors] = _place_door(entity[index], records[i], doors[num_doors], index)
            num_doors += 1
        elif kind == kinds.LAUNCH_PAD or kind == kinds.ONE_WAY:
            entity[index]["x1"], entity[index]["y1"] = _COS[angle], _SIN[angle]
        elif kind == kinds.EXIT:
            _place(entity[index + 1], records, i + exit_count, kinds.EXIT_SWITCH, order)
            entity[index]["partner"], entity[index + 1]["partner"] = index + 1, index
            in_order[order], record_of[index + 1] = index + 1, i
            order += 1
            created[kind] += 1
    return order, num_doors


@kernel
def _place_movers_and_items(records, entities, in_order, record_of, used, world):
    """Fill movers in the order of the types, and items by cell, within a cell in the order of the file.

    used: int64[NUM_CELLS], zeros.  Returns the number of movers, and 1 if an entity needs the grid.
    """
    entity, near, items, movers, uses_grid = world.entity, world.near[0], world.entity_cell_start[0], 0, 0
    for index in range(entities):
        kind = int(entity[index]["type"])
        if _MOVERS[kind]:
            entity[index]["mover"] = movers
            _fill_mover(world.mover[movers], entity[index], records[record_of[index]], index)
            movers += 1
        elif kind != kinds.BOOST_PAD:
            items[_cell_of(entity[index]["x"], entity[index]["y"]) + 1] += 1
        uses_grid |= 1 if _ON_THE_GRID[kind] else 0
    for cell in range(NUM_CELLS):
        items[cell + 1] += items[cell]
    for k in range(entities):
        placed = entity[in_order[k]]
        kind = int(placed["type"])
        if _MOVERS[kind] or kind == kinds.BOOST_PAD:
            continue
        cell = _cell_of(placed["x"], placed["y"])
        row = world.entity_items[items[cell] + used[cell]]
        row[ITEM_ENTITY], row[ITEM_REACH] = in_order[k], _TOUCH_DISTANCE[kind]
        row[ITEM_X], row[ITEM_Y] = int(placed["x"]), int(placed["y"])
        used[cell] += 1
        _mark_near(near, cell, NEAR_ITEMS)
        if kind == kinds.ONE_WAY:
            _mark_near(near, cell, NEAR_ONE_WAYS)
    return movers, uses_grid


@kernel
def _mark_door_edges(entity, entities, grid):
    for index in range(entities):
        edge = int(entity[index]["edge"])
        if edge >= 0:
            i, j = 2 * (edge // 2 // CELLS_Y), 2 * (edge // 2 % CELLS_Y)
            for half in range(2):
                grid[_horizontal(i + half, j + 2) if edge & 1 else _vertical(i + 2, j + half)] |= DOOR_EDGE


@allocating_entry
def _compile(stage, records, exit_count, ball_count, completions, world):
    """Fill the arrays of a level; return its numbers of entities, movers, items and segments, and 1 if it needs the grid.

    stage: uint8[44, 25], see ``stage_of``.
    records: uint8[n, 5], as in ``Level.records``; exit_count, ball_count: as in ``Level``.
    completions: 1: also create the types ``kinds.COMPLETIONS``; 0: leave them out.
    world: output, World of one level, zeros, with 2 n entities, n movers, 2 n items and 1100 * MOST_SEGMENTS + n segments.
    """
    first = np.zeros(len(kinds.ENTITY_NAMES) + 1, np.int64)  # index of the first entity of each type
    for i in range(len(records)):
        kind = int(records[i, TYPE])
        if _CREATING[completions, kind]:
            first[kind + 1] += 2 if kind == kinds.EXIT else 1
    for kind in range(len(kinds.ENTITY_NAMES)):
        first[kind + 1] += first[kind]
    in_order, record_of = np.empty(2 * len(records), np.int64), np.empty(2 * len(records), np.int64)
    doors, door_cells = np.empty(len(records), SEGMENT_DTYPE), np.empty(len(records), np.int32)
    entities, num_doors = _create_entities(
        records, exit_count, completions, first[:-1].copy(), world, in_order, record_of, doors, door_cells
    )
    used = np.zeros(NUM_CELLS, np.int64)
    movers, uses_grid = _place_movers_and_items(records, entities, in_order, record_of, used, world)
    segments = world.cell_start[0]
    num_segments = _tile_segments(stage, doors[:num_doors], door_cells, world.segments, segments)
    for cell in range(NUM_CELLS):
        if segments[cell + 1] > segments[cell]:
            _mark_near(world.near[0], cell, NEAR_SEGMENTS)
    if uses_grid:
        _half_cell_grid(stage, world.grid[0])
        _mark_door_edges(world.entity, entities, world.grid[0])
    _fill_level(world.level[0], records, ball_count, first, movers)
    return entities, movers, world.entity_cell_start[0][NUM_CELLS], num_segments, uses_grid


def compile_level(level: Level, completions: bool = True) -> LevelGeometry:
    """Compile one level.  completions: also create the entities that the reference simulator leaves out."""
    stage, most = stage_of(level), len(level.records)
    world = World(
        level=np.zeros(1, LEVEL_DTYPE),
        entity=np.zeros(2 * most, PLACED_DTYPE),
        mover=np.zeros(most, MOVER_DTYPE),
        segments=np.zeros(NUM_CELLS * MOST_SEGMENTS + most, SEGMENT_DTYPE),
        cell_start=np.zeros((1, NUM_CELLS + 1), np.int32),
        near=np.zeros((1, NUM_CELLS), np.uint8),
        entity_cell_start=np.zeros((1, NUM_CELLS + 1), np.int32),
        entity_items=np.zeros((2 * most, 4), np.int16),
        grid=np.zeros((1, GRID_SIZE), np.uint8),
    )
    records = level.records.copy()  # a read-only array would compile the kernel again
    used = _compile(stage, records, level.exit_count, level.ball_count, int(completions), world)
    entities, movers, items, segments, uses_grid = used
    return LevelGeometry(
        stage,
        world._replace(
            entity=world.entity[:entities].copy(),
            mover=world.mover[:movers].copy(),
            segments=world.segments[:segments].copy(),
            entity_items=world.entity_items[:items].copy(),
            grid=world.grid[:uses_grid],
        ),
    )
