"""Generator "islands": a row of islands above a pit full of mines."""

import numpy as np

from nppsim.generate.sketch import Placed, Span, Tile, draw, furnish, level_rng, pick, place
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

STEP = (-3, 2)  # tiles from one island to the next, up (positive, at most 3) or down
HEADROOM = 4  # minimum number of tiles above an island


def islands(
    seed: int, *, width: Span, height: Span, island: Span = (2, 5), gap: Span = (2, 5), mines: float = 0.0
) -> Level:
    """Generate islands from one side to the other; spawn on the first one, exit or switch on the last one.

    width, height: tiles.
    island: columns of an island.
    gap: columns between two islands.
    mines: probability of a mine on an island with at least 4 columns.
    """
    rng = level_rng("islands", seed)
    columns, rows = min(draw(rng, width), COLUMNS), min(draw(rng, height), ROWS)
    tiles = np.full((rows, columns), OPEN, dtype=np.uint8)
    grounds: list[list[Tile]] = []  # open tiles on each island
    top, column = draw(rng, (HEADROOM, rows - 3)), 0
    while column < columns - 1:
        long = min(draw(rng, island), columns - column)
        thick = draw(rng, (1, max(1, min(3, rows - 3 - top))))
        tiles[top : top + thick, column : column + long] = SOLID
        if rng.random() < 0.25:  # a pillar from the bottom of the pit
            tiles[top:, column : column + long] = SOLID
        grounds.append([(column + i, top - 1) for i in range(long)])
        column += long + draw(rng, gap)
        top = int(np.clip(top - draw(rng, STEP), HEADROOM, rows - 3))
    spawn, far = pick(rng, grounds[0]), pick(rng, grounds[-1])
    others = [tile for ground in grounds[1:] for tile in ground if tile != far]
    other = pick(rng, others or [tile for tile in grounds[0] if tile != spawn])
    switch, door = (other, far) if rng.random() < 0.6 else (far, other)
    mined = []
    for ground in grounds:
        column, row = ground[len(ground) // 2]
        if len(ground) >= 4 and rng.random() < mines and all(abs(column - c) > 1 for c, _ in (spawn, switch, door)):
            mined.append(_on_floor(column, row))
    sketch = furnish(rng, tiles, spawn, switch, door)
    sketch.entities += mined + floor_of_mines(tiles)
    return place(sketch, rng)


def floor_of_mines(tiles: np.ndarray) -> list[Placed]:
    """Return a mine for every open tile of the lowest row."""
    row = len(tiles) - 1
    return [_on_floor(column, row) for column in np.flatnonzero(tiles[row] == OPEN).tolist()]


def _on_floor(column: int, row: int) -> Placed:
    """Return a mine on the floor of a tile."""
    return kinds.MINE, STEPS_PER_TILE * column + 2, STEPS_PER_TILE * row + 3
