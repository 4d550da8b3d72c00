"""Family "maze": a maze on a grid of cells, with narrow or wide passages."""

import numpy as np

from nppsim.generate.sketch import OPEN, SOLID, Sketch, Span, draw, generator, line_with_mines, nudge, place, spot
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS

LOOPS = 0.1  # chance that a wall between two cells is broken although both were connected already


def maze(seed: int, *, width: Span, height: Span, cell: Span = (1, 1), mines: Span = (0, 0)) -> Level:
    """A maze on a grid of cells, walls one tile thick; spawn, switch and exit stand on floors.

    width, height: tiles, rounded up to full cells; at least 5 x 3.  cell: width of the passages in tiles.
    mines: how many, on floors, ceilings and walls, with room to pass them; none in passages of one tile.
    """
    rng = generator("maze", seed)
    wide = draw(rng, cell) if cell[1] > 1 else 1
    columns = min(draw(rng, width) // (wide + 1) + 1, (COLUMNS + 1) // (wide + 1))
    rows = min(draw(rng, height) // (wide + 1) + 1, (ROWS + 1) // (wide + 1))
    tiles = np.full((2 * rows - 1, 2 * columns - 1), SOLID, dtype=np.uint8)
    _carve_passages(rng, tiles)
    for row, column in np.argwhere(tiles == SOLID).tolist():
        if (row + column) % 2 and rng.random() < LOOPS:
            tiles[row, column] = OPEN
    if wide > 1:
        tiles = tiles.repeat([wide if i % 2 == 0 else 1 for i in range(len(tiles))], axis=0)
        tiles = tiles.repeat([wide if i % 2 == 0 else 1 for i in range(tiles.shape[1])], axis=1)
    below = np.vstack([tiles[1:], np.full((1, tiles.shape[1]), SOLID)])
    floors = [(column, row) for row, column in np.argwhere((tiles == OPEN) & (below == SOLID)).tolist()]
    spawn, switch, door = (floors[i] for i in rng.choice(len(floors), size=3, replace=False))
    sketch = Sketch(tiles, spot(*spawn), nudge(rng, spot(*switch)), spot(*door))
    if mines[1]:
        clear = (sketch.spawn, sketch.switch, sketch.door)
        sketch.entities += line_with_mines(rng, tiles, draw(rng, mines), clear)
    return place(sketch, rng)


def _carve_passages(rng: np.random.Generator, tiles: np.ndarray) -> None:
    """Open all cells (even rows and columns) and just enough walls to connect them: a random depth-first walk."""
    rows, columns = tiles.shape
    path = [(draw(rng, (0, rows // 2)) * 2, draw(rng, (0, columns // 2)) * 2)]
    tiles[path[0]] = OPEN
    while path:
        row, column = path[-1]
        steps = [
            (dr, dc)
            for dr, dc in ((0, 2), (0, -2), (2, 0), (-2, 0))
            if 0 <= row + dr < rows and 0 <= column + dc < columns
        ]
        steps = [(dr, dc) for dr, dc in steps if tiles[row + dr, column + dc] == SOLID]
        if not steps:
            path.pop()
            continue
        dr, dc = steps[rng.integers(len(steps))]
        tiles[row + dr // 2, column + dc // 2] = tiles[row + dr, column + dc] = OPEN
        path.append((row + dr, column + dc))
