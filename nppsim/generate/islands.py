"""Family "islands": standing places in a row over a pit full of mines."""

import numpy as np

from nppsim.generate.sketch import OPEN, SOLID, Sketch, Span, draw, generator, nudge, place, spot
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS

HEADROOM = 4  # tiles above the highest island, at least


def islands(
    seed: int,
    *,
    width: Span,
    height: Span,
    island: Span = (2, 5),
    gap: Span = (2, 5),
    step: Span = (-3, 2),
    mines: float = 0.0,
) -> Level:
    """Islands from one side to the other; the spawn on the first, the exit or its switch on the last.

    width, height: tiles.  island: columns of each.  gap: columns between two.  step: tiles from one to the next, up
    (at most 3) or down.  mines: chance that an island of 4 and more columns has a mine on its ground.
    """
    rng = generator("islands", seed)
    columns, rows = min(draw(rng, width), COLUMNS), min(draw(rng, height), ROWS)
    tiles = np.full((rows, columns), OPEN, dtype=np.uint8)
    tops: list[list[tuple[int, int]]] = []  # open tiles (column, row) on each island
    top, column, mined = draw(rng, (HEADROOM, rows - 3)), 0, []
    while column < columns - 1:
        long = min(draw(rng, island), columns - column)
        thick = draw(rng, (1, max(1, min(3, rows - 3 - top))))
        tiles[top : top + thick, column : column + long] = SOLID
        if rng.random() < 0.25:  # a pillar from the ground of the pit
            tiles[top:, column : column + long] = SOLID
        tops.append([(column + i, top - 1) for i in range(long)])
        column += long + draw(rng, gap)
        top = int(np.clip(top - draw(rng, step), HEADROOM, rows - 3))
    spawn = tops[0][draw(rng, (0, len(tops[0]) - 1))]
    far = tops[-1][draw(rng, (0, len(tops[-1]) - 1))]
    others = [tile for top in tops[1:] for tile in top if tile != far] or [t for t in tops[0] if t != spawn]
    other = others[draw(rng, (0, len(others) - 1))]
    switch, door = (other, far) if rng.random() < 0.6 else (far, other)
    for top in tops:
        column, row = top[len(top) // 2]
        if len(top) >= 4 and rng.random() < mines and all(abs(column - c) > 1 for c, r in (spawn, switch, door)):
            mined.append((kinds.MINE, 4 * column + 2, 4 * row + 3))
    mined += floor_of_mines(tiles)
    return place(Sketch(tiles, spot(*spawn), nudge(rng, spot(*switch)), spot(*door), entities=mined), rng)


def floor_of_mines(tiles: np.ndarray) -> list[tuple[int, int, int]]:
    """A mine on the ground of every open column of the lowest row."""
    row = len(tiles) - 1
    return [(kinds.MINE, 4 * column + 2, 4 * row + 3) for column in np.flatnonzero(tiles[row] == OPEN).tolist()]
