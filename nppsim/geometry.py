"""A level compiled to flat arrays: collision segments by cell, and entities in type order.

A segment is four int16 numbers (x, y, shape, entity): its first point (or the centre of its arc), a row of ``SHAPES``
that holds everything else, and the index of the door it belongs to (-1: tile).  All coordinates of a level are whole
numbers, so this loses nothing, and a cell's segments fit in one or two cache lines.

Source: physics specification, sections 2.3, 2.4, 3.5 and 7.4.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from nppsim import tiles
from nppsim.level import (
    ENTITY_NAMES,
    EXIT,
    EXIT_SWITCH,
    GOLD,
    LOCKED_DOOR,
    MINE,
    REGULAR_DOOR,
    TOGGLE_MINE,
    TRAP_DOOR,
    Level,
    LevelError,
)

CELLS_X, CELLS_Y = 44, 25
NUM_CELLS = CELLS_X * CELLS_Y  # cell (cx, cy) has number cx * CELLS_Y + cy
STAGE_WIDTH, STAGE_HEIGHT = 1056.0, 600.0

SUPPORTED_TYPES = (MINE, GOLD, EXIT, EXIT_SWITCH, REGULAR_DOOR, LOCKED_DOOR, TRAP_DOOR, TOGGLE_MINE)
_CREATES_NOTHING = {0, 4, 7, 9, 12, 13, 15, 18, 19, 22, 23, 27}
_DIAGONAL = np.sqrt(2.0) / 2.0

# Kinds of segments.
LINE, CONVEX_ARC, CONCAVE_ARC, DOOR_LINE = 0, 1, 2, 3
# Columns of a segment.
SEG_X, SEG_Y, SEG_SHAPE, SEG_ENTITY = 0, 1, 2, 3
# Columns of SHAPES: lines have direction (DX, DY), its squared length, length and unit vector; arcs have their quadrant
# in (DX, DY).  The last four are the bounding box relative to the first point.
KIND, DX, DY, LENGTH_SQUARED, LENGTH, UNIT_X, UNIT_Y, MIN_X, MAX_X, MIN_Y, MAX_Y = range(11)


def _shape_table():
    """SHAPES and the lookup (kind, dx, dy) -> row."""
    keys = [(LINE, dx, dy) for dx, dy in ((12, 0), (-12, 0), (0, 12), (0, -12))]
    keys += [(LINE, x2 - x1, y2 - y1) for (x1, y1), (x2, y2) in tiles.DIAGONALS.values()]
    keys += [(CONVEX_ARC if convex else CONCAVE_ARC, *quadrant) for _, quadrant, convex in tiles.ARCS.values()]
    keys += [(DOOR_LINE, 24, 0), (DOOR_LINE, 0, 24)]
    keys = list(dict.fromkeys(keys))
    table = np.zeros((len(keys), 11))
    for row, (kind, dx, dy) in zip(table, keys, strict=True):
        row[[KIND, DX, DY]] = kind, dx, dy
        reach_x, reach_y = dx, dy
        if kind in (CONVEX_ARC, CONCAVE_ARC):
            reach_x, reach_y = 24 * dx, 24 * dy
        else:
            row[LENGTH_SQUARED] = float(dx) * dx + float(dy) * dy
            row[LENGTH] = np.sqrt(row[LENGTH_SQUARED])
            row[[UNIT_X, UNIT_Y]] = dx / row[LENGTH], dy / row[LENGTH]
        row[[MIN_X, MAX_X]] = min(0, reach_x), max(0, reach_x)
        row[[MIN_Y, MAX_Y]] = min(0, reach_y), max(0, reach_y)
    return table, {key: i for i, key in enumerate(keys)}


SHAPES, _SHAPE_OF = _shape_table()
_RIGHT, _LEFT, _DOWN, _UP = (_SHAPE_OF[LINE, dx, dy] for dx, dy in ((12, 0), (-12, 0), (0, 12), (0, -12)))


def _diagonal_table():
    """int16[38, 3]: first point (or arc centre) and shape of each tile's diagonal or arc; shape -1: none."""
    table = np.full((tiles.NUM_SHAPED_TILES, 3), -1, np.int16)
    for tile, ((x1, y1), (x2, y2)) in tiles.DIAGONALS.items():
        table[tile] = x1, y1, _SHAPE_OF[LINE, x2 - x1, y2 - y1]
    for tile, ((x, y), quadrant, convex) in tiles.ARCS.items():
        table[tile] = x, y, _SHAPE_OF[CONVEX_ARC if convex else CONCAVE_ARC, *quadrant]
    return table


_DIAGONAL_OF_TILE = _diagonal_table()
_HORIZONTAL, _VERTICAL = tiles.HORIZONTAL_SIGNS, tiles.VERTICAL_SIGNS


@njit(cache=True, nogil=True, error_model="numpy")
def _tile_segments(stage, doors, door_cells, segments, cell_start):
    """Fill the segment list of one level, cell by cell; returns their number.

    stage: uint8[44, 25], tile ids with the solid border, x first.  doors: int16[n, 4], ready-made door segments in file
    order, door_cells: int32[n].  segments: int16[m, 4], m large enough.  cell_start: int32[1101], becomes the CSR index.
    """
    horizontal = np.zeros((88, 51), np.int8)
    vertical = np.zeros((89, 50), np.int8)
    horizontal[:, 0], horizontal[:, 50] = 1, -1
    vertical[0, :], vertical[88, :] = 1, -1
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            if tile == 0 or tile >= 38:
                continue
            for k in range(6):
                horizontal[2 * cx + k % 2, 2 * cy + k // 2] += _HORIZONTAL[tile, k]
                vertical[2 * cx + k // 2, 2 * cy + k % 2] += _VERTICAL[tile, k]
    n = 0
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            cell_start[cx * CELLS_Y + cy] = n
            tile = stage[cx, cy]
            if tile < 38 and _DIAGONAL_OF_TILE[tile, 2] >= 0:
                segments[n, SEG_X] = 24 * cx + _DIAGONAL_OF_TILE[tile, 0]
                segments[n, SEG_Y] = 24 * cy + _DIAGONAL_OF_TILE[tile, 1]
                segments[n, SEG_SHAPE] = _DIAGONAL_OF_TILE[tile, 2]
                segments[n, SEG_ENTITY] = -1
                n += 1
            # An edge belongs to the cell on its solid side: on a shared border its sign decides.
            for i in range(2 * cx, 2 * cx + 2):
                for row in range(3):
                    j = 2 * cy + row
                    sign = horizontal[i, j]
                    if sign == 0 or (row == 0 and sign > 0) or (row == 2 and sign < 0):
                        continue
                    segments[n, SEG_X] = 12 * i if sign > 0 else 12 * i + 12
                    segments[n, SEG_Y] = 12 * j
                    segments[n, SEG_SHAPE] = _RIGHT if sign > 0 else _LEFT
                    segments[n, SEG_ENTITY] = -1
                    n += 1
            for column in range(3):
                i = 2 * cx + column
                for j in range(2 * cy, 2 * cy + 2):
                    sign = vertical[i, j]
                    if sign == 0 or (column == 0 and sign > 0) or (column == 2 and sign < 0):
                        continue
                    segments[n, SEG_X] = 12 * i
                    segments[n, SEG_Y] = 12 * j + 12 if sign > 0 else 12 * j
                    segments[n, SEG_SHAPE] = _UP if sign > 0 else _DOWN
                    segments[n, SEG_ENTITY] = -1
                    n += 1
            for k in range(len(doors)):
                if door_cells[k] == cx * CELLS_Y + cy:
                    segments[n] = doors[k]
                    n += 1
    cell_start[NUM_CELLS] = n
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def cells_near_segments(cell_start):
    """uint8[1100]: 1 where the 3 x 3 block of cells around a cell holds a segment."""
    near = np.zeros(NUM_CELLS, np.uint8)
    for cell in range(NUM_CELLS):
        if cell_start[cell + 1] > cell_start[cell]:
            cx, cy = cell // CELLS_Y, cell % CELLS_Y
            for x in range(max(cx - 1, 0), min(cx + 2, CELLS_X)):
                for y in range(max(cy - 1, 0), min(cy + 2, CELLS_Y)):
                    near[x * CELLS_Y + y] = 1
    return near


def cell_of(x: float, y: float) -> int:
    """Number of the grid cell of a point in pixels, clamped to the stage."""
    cx = min(max(int(np.floor(x / 24)), 0), CELLS_X - 1)
    cy = min(max(int(np.floor(y / 24)), 0), CELLS_Y - 1)
    return cx * CELLS_Y + cy


@dataclass(frozen=True)
class LevelGeometry:
    """One level, compiled.  Entities are in type order, each exit switch directly after its exit.

    stage: uint8[44, 25], tile ids with the border, x first.  spawn: (x, y) px.
    segments: int16[S, 4]; cell_start: int32[1101]; near: uint8[1100], see above.
    entity_type, entity_number: int16[E], type and index within the type.  entity_xy: float64[E, 2], px (of doors 6 and 8:
        of their switch).  entity_partner: int16[E], switch of an exit door and door of an exit switch, else -1.
    entity_cell_start: int32[1101], entity_items: int16[...]: entities registered in each cell from the start, file order.
    entity_cell: int16[E].  door_rect: float64[E, 4], (x1, y1, x2, y2) of the segment of doors, else 0.
    initial: uint8[E, 4], the state of each entity at the start (see ``physics.state.ENTITY``).
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
    entity_cell_start: np.ndarray
    entity_items: np.ndarray
    entity_cell: np.ndarray
    door_rect: np.ndarray
    initial: np.ndarray


def stage_of(level: Level) -> np.ndarray:
    """uint8[44, 25]: the level's tiles inside the border of full tiles, x first."""
    stage = np.ones((CELLS_X, CELLS_Y), np.uint8)
    stage[1:-1, 1:-1] = level.tiles.T
    return stage


def _created_entities(level: Level) -> list[dict]:
    """Entities in file order; refuses types that are not built yet."""
    entities, counts = [], {}

    def create(kind, x, y, **more):
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        entities.append({"type": kind, "number": number, "x": 6.0 * x, "y": 6.0 * y, "active": 1, **more})

    records = level.records.astype(int)
    for i, (kind, x, y, orientation, _mode) in enumerate(records):
        if kind in _CREATES_NOTHING or kind >= len(ENTITY_NAMES):
            continue
        if kind not in SUPPORTED_TYPES:
            raise LevelError(
                f"{level.name or 'level'}: record {i} (byte {1230 + 5 * i}) is a {ENTITY_NAMES[kind]} (type {kind}), which "
                "this version of the simulator does not know yet; leave this level out"
            )
        if kind == EXIT:
            switch = i + level.exit_count
            found = switch < len(records)
            create(kind, x, y)
            create(EXIT_SWITCH, *(records[switch, 1:3] if found else (0, 0)), active=int(found))
        elif kind in (LOCKED_DOOR, TRAP_DOOR):
            found = i + 1 < len(records)
            switch_x, switch_y = records[i + 1, 1:3] if found else (0, 0)
            create(kind, switch_x, switch_y, active=int(found), door=(6.0 * x, 6.0 * y, orientation))
        elif kind == REGULAR_DOOR:
            create(kind, x, y, door=(6.0 * x, 6.0 * y, orientation))
        else:
            create(kind, x, y)
    return entities


def _door_segment(x: float, y: float, orientation: int):
    """Segment (int16[4], entity still -1), its cell, and (x1, y1, x2, y2) of a door; specification, section 7.4."""
    angle = orientation % 8
    a = (1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL, 0.0, _DIAGONAL)[angle]
    b = (0.0, _DIAGONAL, 1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL)[angle]
    cell = cell_of(x - 12 * a, y - 12 * b)
    if angle in (0, 4):
        return [x, y - 12, _SHAPE_OF[DOOR_LINE, 0, 24], -1], cell, (x, y - 12, x, y + 12)
    return [x - 12, y, _SHAPE_OF[DOOR_LINE, 24, 0], -1], cell, (x - 12, y, x + 12, y)


def compile_level(level: Level) -> LevelGeometry:
    """Compile one level.  Raises LevelError, naming the record, for entity types that are not built yet."""
    in_file_order = _created_entities(level)
    # Type order; an exit switch (4, i) directly follows its exit (3, i).
    order = sorted(
        range(len(in_file_order)),
        key=lambda i: (
            EXIT if in_file_order[i]["type"] == EXIT_SWITCH else in_file_order[i]["type"],
            in_file_order[i]["number"],
            in_file_order[i]["type"],
        ),
    )
    place = {old: new for new, old in enumerate(order)}
    entities = [in_file_order[i] for i in order]
    count = len(entities)
    door_rect = np.zeros((count, 4))
    door_segments, door_cells = [], []
    partner = np.full(count, -1, np.int16)
    initial = np.zeros((count, 4), np.uint8)
    for old, entity in enumerate(in_file_order):
        new, kind = place[old], entity["type"]
        if "door" in entity:
            segment, cell, door_rect[new] = _door_segment(*entity["door"])
            segment[SEG_ENTITY] = new
            door_segments.append(segment)
            door_cells.append(cell)
        if kind == EXIT:
            partner[new], partner[new + 1] = new + 1, new
        initial[new] = entity["active"], int(kind == TOGGLE_MINE), int(kind in (REGULAR_DOOR, LOCKED_DOOR)), 0
    cells = np.array([cell_of(e["x"], e["y"]) for e in entities], np.int16)
    registered = [place[i] for i, e in enumerate(in_file_order) if e["type"] != EXIT]
    registered.sort(key=lambda i: cells[i])  # stable: file order within a cell
    entity_cell_start = np.searchsorted(cells[registered], np.arange(NUM_CELLS + 1)).astype(np.int32)

    stage = stage_of(level)
    doors = np.array(door_segments, np.int16).reshape(-1, 4)
    segments = np.empty((NUM_CELLS * 13 + len(doors), 4), np.int16)
    cell_start = np.empty(NUM_CELLS + 1, np.int32)
    used = _tile_segments(stage, doors, np.array(door_cells, np.int32), segments, cell_start)
    return LevelGeometry(
        stage=stage,
        spawn=tuple(float(v) for v in level.spawn),
        segments=segments[:used].copy(),
        cell_start=cell_start,
        near=cells_near_segments(cell_start),
        entity_type=np.array([e["type"] for e in entities], np.int16),
        entity_number=np.array([e["number"] for e in entities], np.int16),
        entity_xy=np.array([(e["x"], e["y"]) for e in entities]).reshape(-1, 2),
        entity_partner=partner,
        entity_cell_start=entity_cell_start,
        entity_items=np.array(registered, np.int16),
        entity_cell=cells,
        door_rect=door_rect,
        initial=initial,
    )
