"""Generator "mine_maze": a corridor with columns of mines; the ninja passes each column through a gap."""

from itertools import pairwise

from nppsim.generate.cave import Cave, add_bumps, level_ground, order_of_goals
from nppsim.generate.horizontal import BUMPS
from nppsim.generate.sketch import Span, draw, level_rng, place, spot
from nppsim.levels import kinds
from nppsim.levels.level import Level

BUMP_COUNT = (0, 3)  # bumps on the ground
BLOCK = (0, 4)  # depth of the ceiling in half-tiles, in each section between columns of mines
GAP = 2  # minimum height in tiles of the gap in every column
HIGHEST_GAP = 2  # maximum height in tiles of the gap above the ground; a jump rises 3.2


def mine_maze(seed: int, *, width: Span, height: Span, spacing: Span, mines: Span) -> Level:
    """Generate a corridor with spawn, switch and exit in any order between columns of mines.

    width, height: tiles; height at least 4.
    spacing: distance in tiles from one column of mines to the next, at least 3.
    mines: number of mines per column; fewer where the gap needs the room.
    """
    rng = level_rng("mine_maze", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    mined, column = [], draw(rng, (2, 4))
    while column < columns - 2:
        mined.append(column)
        column += draw(rng, spacing)
    ground, ceiling = level_ground(columns), level_ground(columns)
    add_bumps(rng, ground, BUMPS, draw(rng, BUMP_COUNT))
    if rows >= 5:
        edges = [0, *mined, columns]
        for left, right in pairwise(edges):
            ceiling[left + 1 : right] = min(draw(rng, BLOCK), 2 * (rows - 4))
    cave = Cave(ground, ceiling, rows)
    flat = [c for c in cave.flat() if c not in mined]
    sketch = cave.sketch(rng, *order_of_goals(rng, flat, apart=columns // 3))
    for column in mined:
        gap = draw(rng, (0, min(HIGHEST_GAP, rows - GAP)))
        free = [row for row in range(rows) if not gap <= row < gap + GAP and 2 * row >= ground[column].max()]
        for row in rng.permutation(free)[: draw(rng, mines)].tolist():
            sketch.entities.append((kinds.MINE, *spot(column, rows - 1 - row)))
    return place(sketch, rng)
