"""Generator "maze": a maze on a grid of cells, with narrow or wide passages."""

import numpy as np

from nppsim.generate.sketch import Rng, Span, add_lining, draw, furnish, level_rng, pick, place
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

LOOPS = 0.1  # probability of an additional opening between two cells that are already connected


def maze(seed: int, *, width: Span, height: Span, cell: Span = (1, 1), mines: Span = (0, 0)) -> Level:
    """Generate a maze with walls of one tile; spawn, switch and exit are on floors.

    width, height: tiles, rounded up to full cells; at least 5 x 3.
    cell: width of the passages in tiles.
    mines: number of mines on floors, ceilings and walls (see ``add_lining``); none in passages of one tile.
    """
    rng = level_rng("maze", seed)
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
    sketch = furnish(rng, tiles, spawn, switch, door)
    add_lining(rng, sketch, mines)
    return place(sketch, rng)


def _carve_passages(rng: Rng, tiles: np.ndarray) -> None:
    """Open all cells (even rows and columns) and the walls of a spanning tree, by a random depth-first search."""
    rows, columns = tiles.shape
    path = [(draw(rng, (0, rows // 2)) * 2, draw(rng, (0, columns // 2)) * 2)]
    tiles[path[0]] = OPEN
    while path:
        row, column = path[-1]
        around = [(row + dr, column + dc) for dr, dc in ((0, 2), (0, -2), (2, 0), (-2, 0))]
        closed = [(r, c) for r, c in around if 0 <= r < rows and 0 <= c < columns and tiles[r, c] == SOLID]
        if not closed:
            path.pop()
            continue
        r, c = pick(rng, closed)
        tiles[(row + r) // 2, (column + c) // 2] = tiles[r, c] = OPEN
        path.append((r, c))
