"""Generator "platforms": a high hall with a chain of platforms from bottom to top, sometimes with mines on its ground."""

import numpy as np

from nppsim.generate.islands import floor_of_mines
from nppsim.generate.sketch import Rng, Span, draw, furnish, level_rng, pick, place
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

DISTANCE = (1, 4)  # horizontal tiles between a platform and the next one, lowest and highest
LENGTH = (2, 5)  # number of columns of a platform, lowest and highest
CLIMB = 0.5  # probability that the spawn is at the lower end; otherwise it is at the upper end
CLEARANCE = 3  # minimum number of rows between a platform and one above it
TOP = 3  # minimum number of rows above the highest platform
TRIES = 30  # maximum number of attempts to place the next platform

Platform = tuple[int, int, int]  # left column, columns, row


def platforms(
    seed: int,
    *,
    width: Span,
    height: Span,
    count: Span,
    rise: Span = (-1, 2),
    under: float = 0.0,
    deadly: float = 0.5,
) -> Level:
    """Generate a hall; each platform is one jump away from the previous one.  One goal is on the last platform.

    width, height: tiles.
    count: number of platforms; fewer if they do not fit.
    rise: tiles from a platform to the next one, up (positive, at most 3) or down.
    under: probability of a mine under each platform.
    deadly: probability that mines cover the ground.
    """
    rng = level_rng("platforms", seed)
    columns, rows = min(draw(rng, width), COLUMNS), min(draw(rng, height), ROWS)
    tiles = np.full((rows, columns), OPEN, dtype=np.uint8)
    chain = _chain(rng, tiles, count, rise)
    if rng.random() >= CLIMB:
        chain.reverse()
    grounds = [[(left + i, row - 1) for i in range(long)] for left, long, row in chain]
    spawn, far = pick(rng, grounds[0]), pick(rng, grounds[-1])
    other = pick(rng, [tile for ground in grounds for tile in ground if tile not in (spawn, far)])
    switch, door = (other, far) if rng.random() < 0.6 else (far, other)
    mines = floor_of_mines(tiles) if rng.random() < deadly else []
    for left, long, row in chain:
        if rng.random() < under:
            x = STEPS_PER_TILE * (left + draw(rng, (0, long - 1))) + 2
            mines.append((kinds.MINE, x, STEPS_PER_TILE * (row + 1) + 1))
    sketch = furnish(rng, tiles, spawn, switch, door)
    sketch.entities += mines
    return place(sketch, rng)


def _chain(rng: Rng, tiles: np.ndarray, count: Span, rise: Span) -> list[Platform]:
    """Draw platforms into ``tiles``, each one jump away from the previous one."""
    rows, columns = tiles.shape
    row, direction = rows - 3, 1
    long = draw(rng, LENGTH)
    left = draw(rng, (0, columns // 3))
    chain = [(left, long, row)]
    tiles[row, left : left + long] = SOLID
    for _ in range(draw(rng, count) - 1):
        for _ in range(TRIES):
            last_left, last_long, last_row = chain[-1]
            long, away, up = draw(rng, LENGTH), draw(rng, DISTANCE), draw(rng, rise)
            if rng.random() < 0.15:
                direction = -direction
            left = last_left + last_long + away if direction > 0 else last_left - away - long
            row = min(last_row - up, rows - 3)
            if left < 0 or left + long > columns:
                direction = -direction
                continue
            around = tiles[max(0, row - CLEARANCE) : row + CLEARANCE + 1, left : left + long]
            if row >= TOP and not (around == SOLID).any():
                tiles[row, left : left + long] = SOLID
                chain.append((left, long, row))
                break
    return chain
