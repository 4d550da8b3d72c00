"""Generator "vertical": a shaft with ledges at both ends, to fall down or to climb by wall jumps."""

import numpy as np

from nppsim.generate.sketch import Position, Rng, Span, Tile, add_lining, draw, furnish, level_rng, pick, place
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level
from nppsim.levels.tiles import OPEN, SOLID

LEDGE = (0, 3)  # columns of a ledge
MARGIN = 5  # columns left and right of the shaft, as room for ledges
PLATFORM_SPACING = 3  # rows from one platform to the next, within reach of a jump


def vertical(
    seed: int,
    *,
    width: Span,
    height: Span,
    climb: bool,
    niches: float = 0.0,
    platforms: bool = False,
    mines: Span = (0, 0),
    lined: Span = (0, 0),
) -> Level:
    """Generate a shaft with a ledge at its bottom and at its top; spawn at one end, at least one goal at the other end.

    width, height: size of the shaft in tiles; height at least 3, or 5 with mines.
    climb: place the spawn at the bottom instead of the top.
    niches: probability per row and side that the wall recedes by a tile.
    platforms: add platforms on alternating sides, in shafts of 3 or more columns.
    mines: number of mines on the walls, in shafts of 3 or more columns.
    lined: number of mines on all walls and floors, in shafts of 2 or more columns (see ``add_lining``).
    """
    rng = level_rng("vertical", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    tiles = np.full((rows, columns + 2 * MARGIN), SOLID, dtype=np.uint8)
    shaft = range(MARGIN, MARGIN + columns)
    tiles[:, shaft.start : shaft.stop] = OPEN
    for row in range(1, rows - 1):
        for column in (shaft.start - 1, shaft.stop):
            if rng.random() < niches:
                tiles[row, column] = OPEN
    bottom = _ledge(rng, tiles, shaft, rows - 1, draw(rng, LEDGE))
    top = _ledge(rng, tiles, shaft, draw(rng, (0, min(1, rows - 3))), draw(rng, LEDGE))  # solid tiles between ledges
    if platforms and columns >= 3:
        _add_platforms(rng, tiles, shaft)

    start, end = (bottom, top) if climb else (top, bottom)
    on_the_way = []
    if rows >= 4 and (climb or columns <= 2):  # in a wider shaft, a falling ninja may miss a goal
        hanging = [(column, draw(rng, (2, rows - 2))) for column in shaft]
        on_the_way = [(column, row) for column, row in hanging if tiles[row, column] == OPEN]
    centre = [(shaft[columns // 2], row) for row in range(rows - 1, 0, -1)]
    spawn, goal = pick(rng, start), pick(rng, end)
    free = [tile for tile in (*end, *on_the_way) if tile not in (spawn, goal)]
    other = pick(rng, free or [tile for tile in centre if tile not in (spawn, goal)][:1])
    # If the goal at the far end is the switch, the ninja has to return to the exit.
    switch, door = (other, goal) if not climb or rng.random() < 0.7 else (goal, other)
    mined = _wall_mines(rng, tiles, shaft, draw(rng, mines)) if columns >= 3 else []
    sketch = furnish(rng, tiles, spawn, switch, door)
    sketch.entities += [(kinds.MINE, *position) for position in mined]
    sketch = sketch.cropped()
    add_lining(rng, sketch, lined)
    return place(sketch, rng)


def _ledge(rng: Rng, tiles: np.ndarray, shaft: range, row: int, length: int) -> list[Tile]:
    """Carve a ledge of ``length`` columns to one side of the shaft; return its tiles, nearest first.

    If ``length`` is 0, returns the tiles of the shaft in this row.
    """
    if length == 0:
        return [(column, row) for column in shaft]
    if rng.random() < 0.5:
        columns = range(shaft.start - 1, shaft.start - 1 - length, -1)
    else:
        columns = range(shaft.stop, shaft.stop + length)
    for column in columns:
        tiles[row, column] = OPEN
        if row + 1 < len(tiles):
            tiles[row + 1, column] = SOLID  # close a niche below the ledge
    return [(column, row) for column in columns]


def _wall_mines(rng: Rng, tiles: np.ndarray, shaft: range, count: int) -> list[Position]:
    """Return positions of up to ``count`` mines on the walls, away from both ends."""
    mined = []
    for _ in range(count):
        row = draw(rng, (2, len(tiles) - 3))
        column, wall, x = (shaft.start, -1, 1) if rng.random() < 0.5 else (shaft.stop - 1, 1, 3)
        if tiles[row, column] == OPEN and tiles[row, column + wall] == SOLID:
            mined.append((STEPS_PER_TILE * column + x, STEPS_PER_TILE * row + 2))
    return mined


def _add_platforms(rng: Rng, tiles: np.ndarray, shaft: range) -> None:
    """Add platforms on alternating sides of the shaft."""
    at_left = rng.random() < 0.5
    for row in range(len(tiles) - 1 - PLATFORM_SPACING, 2, -PLATFORM_SPACING):
        length = draw(rng, (1, max(1, len(shaft) - 2)))
        first = shaft.start if at_left else shaft.stop - length
        tiles[row, first : first + length] = SOLID
        at_left = not at_left
