"""Compile a level to flat arrays: collision segments by cell, and entities in type order.

Source: docs/physics.md, sections 2.3, 2.4, 3.5, 3.6 and 7.4.  Section numbers refer to that page.
"""

import math
from dataclasses import dataclass

import numpy as np

from nppsim._numba.decorators import allocating_entry, entry, inlined, kernel
from nppsim.levels import kinds, tiles
from nppsim.levels.format import POSITION_UNIT
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
from nppsim.physics.grid import DOOR_EDGE, GRID_SIZE, HORIZONTAL_EDGES, SOLID_EDGE
from nppsim.physics.shapes import SEGMENT_DTYPE
from nppsim.physics.state import MOVER_DTYPE, NEAR_ITEMS, NEAR_ONE_WAYS, NEAR_SEGMENTS, UNREGISTERED

MOST_SEGMENTS = 13  # maximum number of tile segments in a cell: twelve half-edges and a diagonal or arc

# Cosine and sine of the eight orientations, which are 45 degrees apart.
_DIAGONAL = np.sqrt(2.0) / 2.0
_COS = (1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL, 0.0, _DIAGONAL)
_SIN = (0.0, _DIAGONAL, 1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL)
_BEAM = tuple(math.pi * eighths / 4 for eighths in (0, 1, 2, 3, 4, -3, -2, -1))  # rad, of each orientation

# ITEM_REACH by type, px: upper limit of the distance between the centres of an entity and a ninja that touches it.
_TOUCH_DISTANCE = {
    kinds.MINE: 15,
    kinds.TOGGLE_MINE: 15,
    kinds.GOLD: 17,
    kinds.EXIT_SWITCH: 17,
    kinds.REGULAR_DOOR: 21,
    kinds.LOCKED_DOOR: 16,
    kinds.TRAP_DOOR: 16,
    kinds.LAUNCH_PAD: 17,
    kinds.ONE_WAY: 24,
}


@dataclass(frozen=True)
class LevelGeometry:
    """One compiled level.  Entities are in type order, with each exit switch directly after its exit.

    stage: uint8[44, 25], tile ids with the border, x first; see ``stage_of``.
    spawn: (x, y), px.
    segments: SEGMENT_DTYPE[S], by cell; see ``physics.shapes``.
    cell_start: int32[1101], index of each cell's first segment, and the number of segments.
    near: uint8[1100], contents of the 3 x 3 block of cells around each cell: a sum of NEAR_SEGMENTS, NEAR_ITEMS and
        NEAR_ONE_WAYS of ``physics.state``.
    entity_type, entity_number: int16[E], type and index within the type.
    entity_xy: float64[E, 2], position in px; for doors with a switch, the position of the switch.
    entity_partner: int16[E], index of an exit's switch and of a switch's exit, else -1.
    entity_order: int16[E], position in the file.
    entity_mover: int16[E], index in ``movers``, else -1.
    entity_cell_start: int32[1101], first row of each cell in ``entity_items``, and the number of rows.
    entity_items: int16[I, 4], entities that stay in their cell, by cell and then in file order; columns ITEM_ENTITY, ITEM_X,
        ITEM_Y and ITEM_REACH of ``physics.state``.
    entity_shape: float64[E, 4], segment (x1, y1, x2, y2) of doors, normal (x, y, 0, 0) of launch pads and one-ways.
    entity_edge: int16[E], edges of the half-cell grid that a door blocks (see ``half_cell_grid``), else -1.
    initial: uint8[E, 3], initial ``active``, ``state`` and ``closed`` of each entity (``physics.state.ENTITY_DTYPE``).
    movers: MOVER_DTYPE[M], initial records of the moving entities and exits.
    grid: uint8[GRID_SIZE], see ``half_cell_grid``; empty if no entity needs it.
    """

    stage: np.ndarray
    spawn: tuple[float, float]
    segments: np.ndarray
    cell_start: np.ndarray
    near: np.ndarray
    entity_type: np.ndarray
    entity_number: np.ndarray
    entity_xy: np.ndarray
    entity_partner: np.ndarray
    entity_order: np.ndarray
    entity_mover: np.ndarray
    entity_cell_start: np.ndarray
    entity_items: np.ndarray
    entity_shape: np.ndarray
    entity_edge: np.ndarray
    initial: np.ndarray
    movers: np.ndarray
    grid: np.ndarray


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


@allocating_entry
def _tile_segments(stage, doors, door_cells, segments, cell_start):
    """Fill the segments of one level, cell by cell; return their number.

    stage: uint8[44, 25], tile ids with the solid border, x first.
    doors: SEGMENT_DTYPE[n], segments of doors in file order.
    door_cells: int32[n], cell of each door.
    segments: SEGMENT_DTYPE[m], output; m must be large enough.
    cell_start: int32[1101], output, see ``LevelGeometry``.
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


@allocating_entry
def cells_near(occupied):
    """uint8[1100]: 1 if any cell of the 3 x 3 block around a cell is occupied.  occupied: bool[1100]."""
    near = np.zeros(NUM_CELLS, np.uint8)
    for cell in range(NUM_CELLS):
        if occupied[cell]:
            cx, cy = cell // CELLS_Y, cell % CELLS_Y
            for x in range(max(cx - 1, 0), min(cx + 2, CELLS_X)):
                for y in range(max(cy - 1, 0), min(cy + 2, CELLS_Y)):
                    near[x * CELLS_Y + y] = 1
    return near


def half_cell_grid(stage: np.ndarray, door_edges: list[int]) -> np.ndarray:
    """uint8[GRID_SIZE]: the half-cell grid of a level (section 3.6), see ``physics.grid``.

    stage: uint8[44, 25], tile ids, x first.
    door_edges: for each door, twice the number of its cell, plus 1 if the door is horizontal.
    """
    grid = np.zeros(GRID_SIZE, np.uint8)
    vertical = grid[:HORIZONTAL_EDGES].reshape(LINES_X, LINES_Y)
    horizontal = grid[HORIZONTAL_EDGES:].reshape(LINES_Y, LINES_X).T
    vertical[[0, -1]] = 1
    horizontal[:, [0, -1]] = 1
    _merge_edges(stage, vertical, horizontal)
    vertical[:, -1] = SOLID_EDGE
    horizontal[-1] = SOLID_EDGE
    for edge in door_edges:
        cx, cy = divmod(edge >> 1, CELLS_Y)
        if edge & 1:
            horizontal[2 * cx : 2 * cx + 2, 2 * cy + 2] |= DOOR_EDGE
        else:
            vertical[2 * cx + 2, 2 * cy : 2 * cy + 2] |= DOOR_EDGE
    return grid


@inlined
def _merged(before, code):
    """Combine the codes of two tiles for their common edge: two non-zero codes cancel."""
    if code == 0:
        return before
    return 0 if before else code


@entry
def _merge_edges(stage, vertical, horizontal):
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            for k in range(6):
                i, j = 2 * cx + k % 2, 2 * cy + k // 2
                horizontal[i, j] = _merged(horizontal[i, j], tiles.HORIZONTAL_CODES[tile, k])
                i, j = 2 * cx + k // 2, 2 * cy + k % 2
                vertical[i, j] = _merged(vertical[i, j], tiles.VERTICAL_CODES[tile, k])


# ----------------------------------------------------------------------------------------- entities (sections 2.3, 2.4)
def cell_of(x: float, y: float) -> int:
    """Number of the grid cell of a point in pixels, clamped to the stage."""
    cx = min(max(math.floor(x / TILE), 0), CELLS_X - 1)
    cy = min(max(math.floor(y / TILE), 0), CELLS_Y - 1)
    return cx * CELLS_Y + cy


@dataclass
class _Entity:
    """An entity of the level at the start.

    kind, number: type, and index within the type.
    order: position in the file.
    x, y: position in px; for doors with a switch, the position of the switch.
    door_x, door_y: position of a door in px.
    orientation, mode: as in the level file.
    index: position in type order.
    """

    kind: int
    number: int
    order: int
    x: float
    y: float
    orientation: int
    mode: int
    active: bool = True
    door_x: float = 0.0
    door_y: float = 0.0
    index: int = -1

    @property
    def type_order(self) -> tuple[int, int, int]:
        """Sort key: an exit switch directly follows its exit."""
        return kinds.EXIT if self.kind == kinds.EXIT_SWITCH else self.kind, self.number, self.kind

    @property
    def cell(self) -> int:
        return cell_of(self.x, self.y)


def _created_entities(level: Level, completions: bool) -> list[_Entity]:
    entities: list[_Entity] = []
    counts = dict.fromkeys(range(len(kinds.ENTITY_NAMES)), 0)
    creating = set(kinds.CREATING) - (set() if completions else set(kinds.COMPLETIONS))
    records = level.records.tolist()

    def create(kind: int, at: int, orientation: int, mode: int) -> _Entity:
        """Create an entity at the position of record ``at``; inactive and at the origin if there is no such record."""
        x, y = records[at][1:3] if at < len(records) else (0, 0)
        position = float(POSITION_UNIT * x), float(POSITION_UNIT * y)
        entity = _Entity(kind, counts[kind], len(entities), *position, orientation, mode, at < len(records))
        counts[kind] += 1
        entities.append(entity)
        return entity

    for i, (kind, x, y, orientation, mode) in enumerate(records):
        if kind not in creating:
            continue
        entity = create(kind, i + (kind in kinds.SWITCH_OF_DOOR), orientation, mode)
        entity.door_x, entity.door_y = float(POSITION_UNIT * x), float(POSITION_UNIT * y)
        if kind == kinds.EXIT:
            create(kinds.EXIT_SWITCH, i + level.exit_count, orientation, mode)
    return entities


def _door(door: _Entity) -> tuple[tuple[int, int, int, int], int, int, tuple[float, float, float, float]]:
    """Return segment (SEGMENT_DTYPE fields), cell, ``entity_edge`` and line (x1, y1, x2, y2) of a door; section 7.4."""
    x, y, angle = door.door_x, door.door_y, door.orientation % 8
    cell = cell_of(x - HALF_CELL * _COS[angle], y - HALF_CELL * _SIN[angle])
    is_horizontal = angle not in (0, 4)
    dx, dy = (HALF_CELL, 0) if is_horizontal else (0, HALF_CELL)
    shape = shapes.SHAPE_OF[shapes.DOOR_LINE, 2 * dx, 2 * dy]
    line = (x - dx, y - dy, x + dx, y + dy)
    return (int(x - dx), int(y - dy), shape, door.index), cell, 2 * cell + is_horizontal, line


def _fill_mover(row: np.void, entity: _Entity) -> None:
    kind, orientation = entity.kind, entity.orientation
    row["x"], row["y"], row["target_x"], row["target_y"] = entity.x, entity.y, entity.x, entity.y
    row["order"], row["entity"], row["type"] = entity.order, entity.index, kind
    row["cell_x"], row["cell_y"] = divmod(entity.cell, CELLS_Y)
    # An exit is registered in a cell when it opens, a rocket when it is launched.  Lasers and other shooters never are.
    if kind in (kinds.EXIT, kinds.LASER, *kinds.TURRETS, *kinds.SHOOTING_DRONES):
        row["cell_x"] = row["cell_y"] = UNREGISTERED
    if kind in kinds.DRONES:
        row["direction"], row["mode"] = orientation // 2 % 4, entity.mode % 4
    elif kind == kinds.THWUMP:
        row["direction"], row["mode"] = (1 if orientation in (0, 2) else -1), orientation in (0, 4)
    elif kind == kinds.LASER:
        row["direction"] = -1 if entity.mode == 1 else 1
        row["beam"] = _BEAM[orientation]


def _items(created: list[_Entity]) -> tuple[np.ndarray, np.ndarray]:
    """Return ``entity_cell_start`` and ``entity_items`` of LevelGeometry."""
    staying = [e for e in created if e.kind not in (*kinds.MOVERS, kinds.BOOST_PAD)]
    staying.sort(key=lambda e: e.cell)  # stable: file order within a cell
    cells = np.array([e.cell for e in staying], np.int16)
    rows = [(e.index, e.x, e.y, _TOUCH_DISTANCE[e.kind]) for e in staying]
    cell_start = np.searchsorted(cells, np.arange(NUM_CELLS + 1)).astype(np.int32)
    return cell_start, np.array(rows, np.int16).reshape(-1, 4)


def compile_level(level: Level, completions: bool = True) -> LevelGeometry:
    """Compile one level.  completions: also create the entities that the reference simulator leaves out."""
    created = _created_entities(level, completions)
    entities = sorted(created, key=lambda e: e.type_order)
    count = len(entities)
    for i, entity in enumerate(entities):
        entity.index = i
    shape, edge = np.zeros((count, 4)), np.full(count, -1, np.int16)
    partner, mover = np.full(count, -1, np.int16), np.full(count, -1, np.int16)
    door_segments, door_cells = [], []
    for entity in created:
        i = entity.index
        if entity.kind in kinds.DOORS:
            segment, cell, edge[i], shape[i] = _door(entity)
            door_segments.append(segment)
            door_cells.append(cell)
        elif entity.kind in (kinds.LAUNCH_PAD, kinds.ONE_WAY):
            shape[i, :2] = _COS[entity.orientation], _SIN[entity.orientation]
        elif entity.kind == kinds.EXIT:
            partner[i], partner[i + 1] = i + 1, i
    moving = [entity for entity in entities if entity.kind in kinds.MOVERS]
    mover[[entity.index for entity in moving]] = np.arange(len(moving))
    movers = np.zeros(len(moving), MOVER_DTYPE)
    for row, entity in zip(movers, moving, strict=True):
        _fill_mover(row, entity)
    entity_cell_start, entity_items = _items(created)
    has_one_way = np.zeros(NUM_CELLS, bool)
    has_one_way[[entity.cell for entity in created if entity.kind == kinds.ONE_WAY]] = True

    stage = stage_of(level)
    doors = np.array(door_segments, SEGMENT_DTYPE)
    segments = np.empty(NUM_CELLS * MOST_SEGMENTS + len(doors), SEGMENT_DTYPE)
    cell_start = np.empty(NUM_CELLS + 1, np.int32)
    used = _tile_segments(stage, doors, np.array(door_cells, np.int32), segments, cell_start)
    uses_grid = any(entity.kind in kinds.ON_THE_GRID for entity in entities)
    initial = [(e.active, e.kind == kinds.TOGGLE_MINE, e.kind in kinds.CLOSED_AT_FIRST) for e in entities]
    return LevelGeometry(
        stage=stage,
        spawn=level.spawn,
        segments=segments[:used].copy(),
        cell_start=cell_start,
        near=NEAR_SEGMENTS * cells_near(np.diff(cell_start) > 0)
        | NEAR_ITEMS * cells_near(np.diff(entity_cell_start) > 0)
        | NEAR_ONE_WAYS * cells_near(has_one_way),
        entity_type=np.array([e.kind for e in entities], np.int16),
        entity_number=np.array([e.number for e in entities], np.int16),
        entity_xy=np.array([(e.x, e.y) for e in entities]).reshape(-1, 2),
        entity_partner=partner,
        entity_order=np.array([e.order for e in entities], np.int16),
        entity_mover=mover,
        entity_cell_start=entity_cell_start,
        entity_items=entity_items,
        entity_shape=shape,
        entity_edge=edge,
        initial=np.array(initial, np.uint8).reshape(-1, 3),
        movers=movers,
        grid=half_cell_grid(stage, edge[edge >= 0].tolist()) if uses_grid else np.zeros(0, np.uint8),
    )
