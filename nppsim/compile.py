"""A level compiled to flat arrays: collision segments by cell, and entities in type order.

A segment is four int16 numbers (x, y, shape, entity): its first point (or the centre of its arc), a row of ``SHAPES``
that holds everything else, and the index of the door it belongs to (-1: tile).  All coordinates of a level are whole
numbers, so this loses nothing, and a cell's segments fit in one or two cache lines.

Source: docs/physics.md, sections 2.3, 2.4, 3.5, 3.6 and 7.4; section numbers below are those of that page.
"""

from dataclasses import dataclass

import numpy as np

from nppsim._kernel import allocating, kernel
from nppsim.levels import kinds, tiles
from nppsim.levels.level import Level
from nppsim.physics.state import MOVER_DTYPE, UNREGISTERED

CELLS_X, CELLS_Y = 44, 25
NUM_CELLS = CELLS_X * CELLS_Y  # cell (cx, cy) has number cx * CELLS_Y + cy
STAGE_WIDTH, STAGE_HEIGHT = 1056.0, 600.0

_DIAGONAL = np.sqrt(2.0) / 2.0
_COS = (1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL, 0.0, _DIAGONAL)  # of the eight orientations
_SIN = (0.0, _DIAGONAL, 1.0, _DIAGONAL, 0.0, -_DIAGONAL, -1.0, -_DIAGONAL)

# Kinds of segments.
LINE, CONVEX_ARC, CONCAVE_ARC, DOOR_LINE = 0, 1, 2, 3
# Columns of an entity that stays in its cell, and more px than from its centre to a ninja's that it can touch, by type.
ITEM_ENTITY, ITEM_X, ITEM_Y, ITEM_REACH = 0, 1, 2, 3
_TOUCH_DISTANCE = {
    kinds.MINE: 15,
    kinds.TOGGLE_MINE: 15,
    kinds.GOLD: 17,
    kinds.EXIT_SWITCH: 17,
    kinds.REGULAR_DOOR: 21,
    kinds.LOCKED_DOOR: 16,
    kinds.TRAP_DOOR: 16,
}
_TOUCH_DISTANCE |= {kinds.LAUNCH_PAD: 17, kinds.ONE_WAY: 24}
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
_HORIZONTAL_CODES, _VERTICAL_CODES = tiles.HORIZONTAL_CODES, tiles.VERTICAL_CODES


@allocating
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


@allocating
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
    entity_order: int16[E], place in the file.  entity_mover: int16[E], index in ``movers``, else -1.
    entity_cell_start: int32[1101], entity_items: int16[I, 4]: entities that stay in one cell from the start, by cell, within
        one in file order; columns ITEM_ENTITY, ITEM_X, ITEM_Y (px) and ITEM_REACH, px farther than which nothing happens.
    entity_shape: float64[E, 4], (x1, y1, x2, y2) of the segment of doors, normal (x, y, 0, 0) of launch pads and one-ways.
    entity_edge: int16[E], which edges of the half-cell grid a door blocks (see ``DOOR_EDGE``), else -1.
    initial: uint8[E, 3], active, state and closed of each entity at the start (see ``physics.state.ENTITY``).
    movers: MOVER_DTYPE[M], the moving entities and exits at the start.
    grid: uint8[GRID_SIZE], half-cell edges (see ``half_cell_grid``), or empty if nothing moves on them.
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


def stage_of(level: Level) -> np.ndarray:
    """uint8[44, 25]: the level's tiles inside the border of full tiles, x first."""
    stage = np.ones((CELLS_X, CELLS_Y), np.uint8)
    stage[1:-1, 1:-1] = level.tiles.T
    return stage


# The half-cell grid as one vector: vertical edges V(i, j) at 51 i + j, i = 0..88, then horizontal ones H(i, j) at
# HORIZONTAL_EDGES + 89 j + i, j = 0..50.  Rows V(., 50) and columns H(88, .), which do not exist, are solid.
HORIZONTAL_EDGES = 89 * 51
GRID_SIZE = 2 * HORIZONTAL_EDGES
OPEN_EDGE, SLOPE_EDGE, SOLID_EDGE, DOOR_EDGE = 0, 1, 2, 4  # DOOR_EDGE is a bit: a door may block here too


def half_cell_grid(stage: np.ndarray, door_edges: list[int]) -> np.ndarray:
    """uint8[GRID_SIZE]: the edges on which drones, guards and thwumps move; section 3.6.

    stage: uint8[44, 25].  door_edges: twice the door's cell, plus 1 if the door is horizontal.
    """
    grid = np.zeros(GRID_SIZE, np.uint8)
    vertical, horizontal = grid[:HORIZONTAL_EDGES].reshape(89, 51), grid[HORIZONTAL_EDGES:].reshape(51, 89).T
    vertical[[0, 88]] = 1
    horizontal[:, [0, 50]] = 1
    _merge_edges(stage, vertical, horizontal)
    vertical[:, 50] = SOLID_EDGE
    horizontal[88] = SOLID_EDGE
    for edge in door_edges:
        cx, cy = divmod(edge >> 1, CELLS_Y)
        if edge & 1:
            horizontal[2 * cx : 2 * cx + 2, 2 * cy + 2] |= DOOR_EDGE
        else:
            vertical[2 * cx + 2, 2 * cy : 2 * cy + 2] |= DOOR_EDGE
    return grid


@kernel
def _merge_edges(stage, vertical, horizontal):
    """Of two codes that meet on an edge, one that stands against nothing stays; two wipe each other out."""
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            if tile == 0 or tile >= 38:
                continue
            for k in range(6):
                i, j = 2 * cx + k % 2, 2 * cy + k // 2
                code = _HORIZONTAL_CODES[tile, k]
                if code:
                    horizontal[i, j] = 0 if horizontal[i, j] else code
                i, j = 2 * cx + k // 2, 2 * cy + k % 2
                code = _VERTICAL_CODES[tile, k]
                if code:
                    vertical[i, j] = 0 if vertical[i, j] else code


def _created_entities(level: Level, completions: bool) -> list[dict]:
    """Entities in file order."""
    entities, counts = [], {}
    creating = set(kinds.CREATING) - (set() if completions else set(kinds.COMPLETIONS))

    def create(kind, x, y, **more):
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        entities.append({"type": kind, "number": number, "x": 6.0 * x, "y": 6.0 * y, "active": 1, **more})

    records = level.records.astype(int)
    for i, (kind, x, y, orientation, mode) in enumerate(records):
        if kind not in creating:
            continue
        if kind == kinds.EXIT:
            switch = i + level.exit_count
            found = switch < len(records)
            create(kind, x, y)
            create(kinds.EXIT_SWITCH, *(records[switch, 1:3] if found else (0, 0)), active=int(found))
        elif kind in (kinds.LOCKED_DOOR, kinds.TRAP_DOOR):
            found = i + 1 < len(records)
            switch_x, switch_y = records[i + 1, 1:3] if found else (0, 0)
            create(kind, switch_x, switch_y, active=int(found), door=(6.0 * x, 6.0 * y, orientation))
        elif kind == kinds.REGULAR_DOOR:
            create(kind, x, y, door=(6.0 * x, 6.0 * y, orientation))
        else:
            create(kind, x, y, orientation=orientation, mode=mode)
    return entities


def _door_segment(x: float, y: float, orientation: int):
    """Segment (int16[4], entity still -1), its cell, its grid edge and (x1, y1, x2, y2) of a door; section 7.4."""
    angle = orientation % 8
    cell = cell_of(x - 12 * _COS[angle], y - 12 * _SIN[angle])
    if angle in (0, 4):
        return [x, y - 12, _SHAPE_OF[DOOR_LINE, 0, 24], -1], cell, 2 * cell, (x, y - 12, x, y + 12)
    return [x - 12, y, _SHAPE_OF[DOOR_LINE, 24, 0], -1], cell, 2 * cell + 1, (x - 12, y, x + 12, y)


def _mover(entity: dict, place: int, order: int) -> tuple:
    """One MOVER record at the start."""
    kind, x, y = entity["type"], entity["x"], entity["y"]
    row = np.zeros(1, MOVER_DTYPE)[0]
    row["x"], row["y"], row["target_x"], row["target_y"] = x, y, x, y
    row["order"], row["entity"], row["type"] = order, place, kind
    row["cell_x"], row["cell_y"] = divmod(cell_of(x, y), CELLS_Y)
    if kind in (
        kinds.EXIT,
        kinds.LASER,
    ):  # an exit enters its cell when it opens; nothing ever looks for a laser in cells
        row["cell_x"] = row["cell_y"] = UNREGISTERED
    row["wish"] = -1
    orientation, mode = entity.get("orientation", 0), entity.get("mode", 0)
    if kind in kinds.DRONES:
        row["direction"], row["mode"] = orientation // 2, mode
    elif kind == kinds.THWUMP:
        row["direction"], row["mode"] = (1 if orientation in (0, 2) else -1), orientation in (0, 4)
    elif kind == kinds.LASER:
        row["direction"], row["angle"] = (-1 if mode == 1 else 1), np.arctan2(_SIN[orientation], _COS[orientation])
    return row


def _items(registered: list[int], entities: list[dict]) -> np.ndarray:
    """int16[I, 4] of the entities in the order of ``registered``; see LevelGeometry."""
    rows = [(k, entities[k]["x"], entities[k]["y"], _TOUCH_DISTANCE[entities[k]["type"]]) for k in registered]
    return np.array(rows, np.int16).reshape(-1, 4)


def compile_level(level: Level, completions: bool = True) -> LevelGeometry:
    """Compile one level.  completions: with chaser drones and lasers, which the reference simulator leaves out."""
    in_file_order = _created_entities(level, completions)
    # Type order; an exit switch (4, i) directly follows its exit (3, i).
    order = sorted(
        range(len(in_file_order)),
        key=lambda i: (
            kinds.EXIT if in_file_order[i]["type"] == kinds.EXIT_SWITCH else in_file_order[i]["type"],
            in_file_order[i]["number"],
            in_file_order[i]["type"],
        ),
    )
    place = {old: new for new, old in enumerate(order)}
    entities = [in_file_order[i] for i in order]
    count = len(entities)
    shape = np.zeros((count, 4))
    door_segments, door_cells, edge = [], [], np.full(count, -1, np.int16)
    partner, mover = np.full(count, -1, np.int16), np.full(count, -1, np.int16)
    initial = np.zeros((count, 3), np.uint8)
    for old, entity in enumerate(in_file_order):
        new, kind = place[old], entity["type"]
        if "door" in entity:
            segment, cell, edge[new], shape[new] = _door_segment(*entity["door"])
            segment[SEG_ENTITY] = new
            door_segments.append(segment)
            door_cells.append(cell)
        elif kind in (kinds.LAUNCH_PAD, kinds.ONE_WAY):
            shape[new, :2] = _COS[entity["orientation"]], _SIN[entity["orientation"]]
        if kind == kinds.EXIT:
            partner[new], partner[new + 1] = new + 1, new
        initial[new] = (
            entity["active"],
            int(kind == kinds.TOGGLE_MINE),
            int(kind in (kinds.REGULAR_DOOR, kinds.LOCKED_DOOR)),
        )
    moving = [new for new in range(count) if entities[new]["type"] in kinds.MOVERS]
    mover[moving] = np.arange(len(moving))
    movers = np.array([_mover(entities[new], new, order[new]) for new in moving], MOVER_DTYPE)
    cells = np.array([cell_of(e["x"], e["y"]) for e in entities], np.int16)
    registered = [place[i] for i, e in enumerate(in_file_order) if e["type"] not in (*kinds.MOVERS, kinds.BOOST_PAD)]
    registered.sort(key=lambda i: cells[i])  # stable: file order within a cell
    entity_cell_start = np.searchsorted(cells[registered], np.arange(NUM_CELLS + 1)).astype(np.int32)

    stage = stage_of(level)
    doors = np.array(door_segments, np.int16).reshape(-1, 4)
    segments = np.empty((NUM_CELLS * 13 + len(doors), 4), np.int16)
    cell_start = np.empty(NUM_CELLS + 1, np.int32)
    used = _tile_segments(stage, doors, np.array(door_cells, np.int32), segments, cell_start)
    uses_grid = any(e["type"] in kinds.ON_THE_GRID for e in entities)
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
        entity_order=np.array(order, np.int16),
        entity_mover=mover,
        entity_cell_start=entity_cell_start,
        entity_items=_items(registered, entities),
        entity_shape=shape,
        entity_edge=edge,
        initial=initial,
        movers=movers,
        grid=half_cell_grid(stage, edge[edge >= 0].tolist()) if uses_grid else np.zeros(0, np.uint8),
    )
