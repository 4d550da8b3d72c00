"""Generator "rooms": joined rooms and tunnels with blocks, slopes, and a mixture of entities as in official levels.

How often a type of entity occurs, and how many of it, follows half of the official levels of N++ (docs/lab/results.md).
Many of these levels cannot be finished, so generate them with a verifier (``make_level_set``).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from nppsim.generate.sketch import (
    DOWN,
    LEFT,
    RIGHT,
    UP,
    UPRIGHT,
    Placed,
    Rng,
    Sketch,
    Span,
    Tile,
    draw,
    level_rng,
    pick,
    place,
    spot,
)
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import CONCAVE, CONVEX, GENTLE_SLOPES, HALVES, OPEN, SLOPES, SOLID, STEEP_SLOPES

MIN_STANDING = 4  # standing places that are connected: spawn, exit switch, exit, switch of a door
CLEAR = 3  # tiles around the spawn without hazards
NICHE = 3  # tiles, length of a niche behind a locked door
ROW = (1, 10)  # mines in a row
SIDES = ((0, 1), (0, -1), (-1, 0), (1, 0))  # (dx, dy) to the floor, the ceiling, the left and the right wall
QUADRANTS = ((-1, -1), (1, -1), (1, 1), (-1, 1))  # (dx, dy) to the solid corner, in the order of the ids of slopes
TURNS = (RIGHT, DOWN, LEFT, UP)
MODES = (0, 1, 2, 3)


class Group(NamedTuple):
    """Entities of one type.

    share: probability that a level has them.
    number: span of how many; low numbers are more frequent.
    on_ground: True: on the ground; False: in any open tile.
    orientations, modes: values to draw from.
    """

    kind: int
    share: float
    number: Span
    on_ground: bool = False
    orientations: Sequence[int] = (0,)
    modes: Sequence[int] = (0,)


# Shares of the official levels with each type, rounded.
GROUPS = (
    Group(kinds.MINE, 0.78, (2, 90)),
    Group(kinds.TOGGLE_MINE, 0.47, (2, 32)),
    Group(kinds.ROCKET_TURRET, 0.30, (1, 2)),
    Group(kinds.ZAP_DRONE, 0.24, (1, 30), False, TURNS, MODES),
    Group(kinds.ONE_WAY, 0.18, (2, 22), False, TURNS),
    Group(kinds.BOUNCE_BLOCK, 0.17, (2, 18)),
    Group(kinds.FLOOR_GUARD, 0.14, (1, 4), True),
    Group(kinds.MINI_DRONE, 0.13, (2, 40), False, TURNS, MODES),
    Group(kinds.LAUNCH_PAD, 0.13, (1, 4), True, (UP,)),
    Group(kinds.LASER, 0.13, (1, 3), False, range(8), (0, 1)),
    Group(kinds.GAUSS_TURRET, 0.11, (1, 2)),
    Group(kinds.EVIL_NINJA, 0.09, (1, 24)),
    Group(kinds.DEATH_BALL, 0.07, (1, 4)),
    Group(kinds.THWUMP, 0.04, (1, 6), False, TURNS),
    Group(kinds.BOOST_PAD, 0.03, (1, 4)),
    Group(kinds.CHASER_DRONE, 0.03, (1, 4), False, TURNS, MODES),
    Group(kinds.LASER_DRONE, 0.02, (1, 2), False, TURNS, MODES),
    Group(kinds.CHAINGUN_DRONE, 0.02, (1, 2), False, TURNS, MODES),
    Group(kinds.SHOVE_THWUMP, 0.01, (2, 12)),
)


def rooms(
    seed: int,
    *,
    parts: Span,
    width: Span,
    height: Span,
    blocks: Span,
    corners: Span,
    doors: Span,
    traps: Span,
    symmetric: float,
) -> Level:
    """Generate joined rooms and tunnels.

    parts: number of rooms and tunnels.
    width, height: size of a room in tiles, 4 to 42 and 1 to 23.
    blocks: number of solid blocks in the rooms.
    corners: percentage of corners that become slopes or curves.
    doors: number of locked doors; each closes a niche with the switch of the next door, the exit switch or the exit.
    traps: number of trap doors.
    symmetric: probability that the tiles are symmetric.
    Raises ValueError for other sizes.
    """
    if not (width[0] >= MIN_STANDING and width[1] <= COLUMNS and height[0] >= 1 and height[1] <= ROWS):
        raise ValueError(
            f"width {width}, height {height}; give widths from {MIN_STANDING} to {COLUMNS}, heights from 1 to {ROWS}"
        )
    rng = level_rng("rooms", seed)
    board, spawn = _layout(rng, parts, width, height, blocks, symmetric)
    niches = [niche for _ in range(draw(rng, doors)) if (niche := _niche(rng, board, spawn))]
    ends = [niche[-1] for niche in niches]
    switch, door, first = _goals(rng, board, spawn, [tile for niche in niches for tile in niche])
    if ends and rng.random() < 0.7:
        door = ends[-1]
    elif ends:
        switch = ends[-1]
    sketch = Sketch(board, spot(*spawn), spot(*switch), spot(*door))
    for niche, place_of_switch in zip(niches, [first, *ends][: len(niches)], strict=True):
        x = STEPS_PER_TILE * max(niche[0][0], niche[1][0])
        sketch.locked_doors.append((spot(*place_of_switch), (x, spot(*niche[0])[1]), UPRIGHT))
    for _ in range(draw(rng, traps)):
        column, row = pick(rng, _standing(board))
        sketch.trap_doors.append(
            (spot(*pick(rng, _standing(board))), (STEPS_PER_TILE * column, spot(0, row)[1]), UPRIGHT)
        )
    used = {spawn, switch, door, first, *(tile for niche in niches for tile in niche)}
    cut = board.copy()
    _cut_corners(rng, cut, draw(rng, corners), used)
    away = _distances(cut, spawn)
    if all(away[row, column] >= 0 for column, row in used):
        board[:] = np.where(away < 0, SOLID, cut)
    sketch.entities = _entities(rng, board, spawn, used)
    return place(sketch.cropped(), rng)


def _layout(
    rng: Rng, parts: Span, width: Span, height: Span, blocks: Span, symmetric: float
) -> tuple[np.ndarray, Tile]:
    """Return the tiles that can be reached from the spawn, and the spawn."""
    board = np.full((ROWS, COLUMNS), SOLID, np.uint8)
    _carve(rng, board, draw(rng, parts), width, height)
    if rng.random() < symmetric:
        board = np.minimum(board, board[:, ::-1])
    for _ in range(draw(rng, blocks)):
        _add_block(rng, board)
    spawn = _spawn(rng, board)
    assert spawn is not None  # the first room has enough places, and blocks leave them
    board[_distances(board, spawn) < 0] = SOLID
    return board, spawn


def _carve(rng: Rng, board: np.ndarray, parts: int, width: Span, height: Span) -> None:
    """Open rectangles that overlap: rooms, and tunnels with a width of one to three tiles."""
    row, column = ROWS // 2, COLUMNS // 2
    for part in range(parts):
        high, wide = draw(rng, height), draw(rng, width)
        if part and rng.random() < 0.5:
            thick, long = pick(rng, (1, 2, 2, 3)), draw(rng, (4, 16))
            high, wide = (thick, long) if rng.random() < 0.5 else (long, thick)
        top = min(max(row - draw(rng, (0, high - 1)), 0), ROWS - high)
        left = min(max(column - draw(rng, (0, wide - 1)), 0), COLUMNS - wide)
        board[top : top + high, left : left + wide] = OPEN
        if rng.random() < 0.6:
            row, column = top + draw(rng, (0, high - 1)), left + draw(rng, (0, wide - 1))
        else:
            row, column = pick(rng, np.argwhere(board == OPEN).tolist())


def _add_block(rng: Rng, board: np.ndarray) -> None:
    """Fill a rectangle of the open space, sometimes with half tiles, which make thin platforms."""
    row, column = pick(rng, np.argwhere(board == OPEN).tolist())
    high, wide = draw(rng, (1, 3)), draw(rng, (1, 7))
    if rng.random() < 0.4:
        high, wide = wide, high
    area = board[row : row + high, column : column + wide]
    filled = np.where(area == OPEN, pick(rng, HALVES) if rng.random() < 0.15 else SOLID, area)
    changed = board.copy()
    changed[row : row + high, column : column + wide] = filled
    if _spawn(rng, changed) is not None:
        area[:] = filled


def _neighbours(values: np.ndarray, dx: int, dy: int, outside: int) -> np.ndarray:
    """Return for each tile the value of its neighbour at (dx, dy), at most one tile away."""
    rows, columns = values.shape
    return np.pad(values, 1, constant_values=outside)[1 + dy : 1 + dy + rows, 1 + dx : 1 + dx + columns]


def _standing(board: np.ndarray) -> list[Tile]:
    """Return the open tiles above a solid one."""
    above = (board == OPEN) & (_neighbours(board, 0, 1, SOLID) == SOLID)
    return [(column, row) for row, column in np.argwhere(above).tolist()]


def _spawn(rng: Rng, board: np.ndarray) -> Tile | None:
    """Draw a standing place from which enough others can be reached; None if there is none."""
    standing = _standing(board)
    for index in rng.permutation(len(standing)).tolist():
        away = _distances(board, standing[index])
        if sum(away[row, column] >= 0 for column, row in standing) >= MIN_STANDING:
            return standing[index]
    return None


def _distances(board: np.ndarray, start: Tile) -> np.ndarray:
    """Return the number of steps from a tile to each tile that is not solid, int[rows, columns]; -1: unreachable."""
    width = board.shape[1] + 2  # with a solid border
    free = np.pad(board != SOLID, 1).ravel().tolist()
    distances = [-1] * len(free)
    front = [(1 + start[1]) * width + 1 + start[0]]
    step = 0
    while front:
        for tile in front:
            distances[tile], free[tile] = step, False
        step += 1
        front = [
            *{other for tile in front for other in (tile - 1, tile + 1, tile - width, tile + width) if free[other]}
        ]
    return np.reshape(distances, (-1, width))[1:-1, 1:-1]


def _niche(rng: Rng, board: np.ndarray, spawn: Tile) -> list[Tile] | None:
    """Dig a dead end of NICHE tiles into a wall beside an open tile; return its tiles, the innermost last."""
    walled = np.pad(board, 1, constant_values=SOLID)
    places = []
    for column, row in _standing(board):
        for side in (-1, 1):
            inside = [column + side * step for step in range(1, NICHE + 2)]
            if min(inside) < 0 or max(inside) >= COLUMNS or (column, row) == spawn:
                continue
            if (walled[row : row + 3, [x + 1 for x in inside]] == SOLID).all():
                places.append([(x, row) for x in inside[:NICHE]])
    if not places:
        return None
    niche = pick(rng, places)
    for column, row in niche:
        board[row, column] = OPEN
    return niche


def _goals(rng: Rng, board: np.ndarray, spawn: Tile, niches: list[Tile]) -> tuple[Tile, Tile, Tile]:
    """Choose the tiles of exit switch, exit and the switch of the first locked door, in front of all doors."""
    free = [tile for tile in _standing(board) if tile not in niches and tile != spawn]
    chosen: list[Tile] = [spawn]
    for _ in range(3):
        away = _distances(board, chosen[-1])
        drawn = [pick(rng, free) for _ in range(draw(rng, (1, 12)))]
        chosen.append(max(drawn, key=lambda tile: away[tile[1], tile[0]]))
        free.remove(chosen[-1])
    return chosen[1], chosen[2], chosen[3]


def _cut_corners(rng: Rng, board: np.ndarray, percentage: int, used: Collection[Tile]) -> None:
    """Replace corners by slopes and curves, but not in or below the tiles ``used``."""
    solid = np.pad(board == SOLID, 1, constant_values=True)  # one row and column more on each side
    unchanged = {*used, *((column, row + 1) for column, row in used)}
    for row, column in np.argwhere(rng.random(board.shape) * 100 < percentage).tolist():
        for quadrant, (dx, dy) in enumerate(QUADRANTS):
            x, y = column + 1, row + 1
            walls = solid[y, x + dx], solid[y + dy, x], not solid[y, x - dx], not solid[y - dy, x]
            if not all(walls) or (column, row) in unchanged or board[row, column] not in (OPEN, SOLID):
                continue
            shape = rng.random()
            if solid[y, x]:
                board[row, column] = (SLOPES if shape < 0.85 else CONVEX)[quadrant]
            elif shape < 0.1:
                board[row, column] = (CONCAVE if shape < 0.06 else CONVEX)[quadrant]
            elif shape < 0.7:
                _fill_triangle(board, (column, row), quadrant, draw(rng, (1, 5)), unchanged)
            else:
                flat = shape < 0.85
                long = GENTLE_SLOPES if flat else STEEP_SLOPES
                second = (column - dx, row) if flat else (column, row - dy)
                beside = solid[y + dy, x - dx] if flat else solid[y - dy, x + dx]
                if beside and second not in unchanged and board[second[1], second[0]] == OPEN:
                    board[row, column], board[second[1], second[0]] = long[4 + quadrant], long[quadrant]


def _fill_triangle(board: np.ndarray, corner: Tile, quadrant: int, size: int, unchanged: Collection[Tile]) -> None:
    """Fill a corner with a slope of at most ``size`` tiles that leaves a tile of open space beside it."""
    dx, dy = QUADRANTS[quadrant]
    for length in range(size, 0, -1):
        tiles = [
            (corner[0] - i * dx, corner[1] - j * dy, i + j) for i in range(length + 1) for j in range(length + 1 - i)
        ]
        if all(
            0 <= x < COLUMNS and 0 <= y < ROWS and board[y, x] == OPEN and (x, y) not in unchanged for x, y, _ in tiles
        ):
            for x, y, away in tiles:
                if away < length:
                    board[y, x] = SLOPES[quadrant] if away == length - 1 else SOLID
            return


def _entities(rng: Rng, board: np.ndarray, spawn: Tile, used: Collection[Tile]) -> list[Placed]:
    """Draw groups of entities."""
    free = [
        (column, row)
        for row, column in np.argwhere(board == OPEN).tolist()
        if (column, row) not in used and max(abs(column - spawn[0]), abs(row - spawn[1])) > CLEAR
    ]
    ground = sorted({*free} & {*_standing(board)})
    entities: list[Placed] = []
    for group in GROUPS:
        low, high = group.number
        count = low + int((high + 1 - low) * rng.random() ** 2) if rng.random() < group.share else 0
        if group.kind in kinds.MINES:
            entities += _rows_of_mines(rng, board, free, group.kind, count)
            continue
        tiles = ground if group.on_ground else free
        for index in rng.permutation(len(tiles))[:count].tolist():
            x, y = spot(*tiles[index])
            down = 1 if group.on_ground else 0
            entities.append((group.kind, x, y + down, pick(rng, group.orientations), pick(rng, group.modes)))
    return entities


def _rows_of_mines(rng: Rng, board: np.ndarray, free: Sequence[Tile], kind: int, count: int) -> list[Placed]:
    """Place up to ``count`` mines in rows on walls, floors and ceilings, with two tiles in front that are not solid."""
    solid = np.pad(board == SOLID, 1, constant_values=True)
    faces = [
        (column, row, dx, dy)
        for column, row in free
        for dx, dy in SIDES
        if solid[row + 1 + dy, column + 1 + dx] and not solid[row + 1 - dy, column + 1 - dx]
    ]
    left = set(faces)
    mines: list[Placed] = []
    for index in rng.permutation(len(faces)).tolist():
        column, row, dx, dy = faces[index]
        for step in range(draw(rng, ROW)):
            face = column + step * abs(dy), row + step * abs(dx), dx, dy
            if face not in left or len(mines) >= count:
                break
            left.remove(face)
            x, y = spot(face[0], face[1])
            mines.append((kind, x + dx, y + dy))
    return mines
