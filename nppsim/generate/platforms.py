"""Family "platforms": a high hall with platforms that wind their way up, over a mined or a plain ground."""

import numpy as np

from nppsim.generate.islands import floor_of_mines
from nppsim.generate.sketch import OPEN, SOLID, STEPS, Sketch, Span, draw, generator, nudge, place, spot
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS

CLEARANCE = 3  # rows between a platform and one above it, at least
TOP = 3  # rows above the highest platform, at least
TRIES = 30


def platforms(
    seed: int,
    *,
    width: Span,
    height: Span,
    count: Span,
    gap: Span = (1, 4),
    rise: Span = (-1, 2),
    length: Span = (2, 5),
    under: float = 0.0,
    deadly: float = 0.5,
    climb: float = 0.5,
) -> Level:
    """A hall; each platform is one jump away from the one before.  One goal is on the last platform.

    width, height: tiles.  count: platforms, fewer where they do not fit.  gap, rise, length: tiles from one platform to
    the next, up (at most 3) or down, and along it.  under: chance of a mine under a platform.  deadly: share of halls
    whose ground is covered with mines.  climb: share in which the spawn is at the beginning of the way up; in the
    others the way leads down.
    """
    rng = generator("platforms", seed)
    columns, rows = min(draw(rng, width), COLUMNS), min(draw(rng, height), ROWS)
    tiles = np.full((rows, columns), OPEN, dtype=np.uint8)
    row, direction = rows - 3, 1  # row of the platform itself
    long = draw(rng, length)
    left = draw(rng, (0, columns // 3))
    chain = [(left, long, row)]
    tiles[row, left : left + long] = SOLID
    for _ in range(draw(rng, count) - 1):
        for _ in range(TRIES):
            last_left, last_long, last_row = chain[-1]
            long, away, up = draw(rng, length), draw(rng, gap), draw(rng, rise)
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
    if rng.random() >= climb:
        chain.reverse()
    on = [[(left + i, row - 1) for i in range(long)] for left, long, row in chain]
    spawn = on[0][draw(rng, (0, len(on[0]) - 1))]
    far = on[-1][draw(rng, (0, len(on[-1]) - 1))]
    others = [tile for tops in on for tile in tops if tile not in (spawn, far)]
    other = others[draw(rng, (0, len(others) - 1))]
    switch, door = (other, far) if rng.random() < 0.6 else (far, other)
    mines = floor_of_mines(tiles) if rng.random() < deadly else []
    for left, long, row in chain:
        if rng.random() < under:
            mines.append((kinds.MINE, STEPS * (left + draw(rng, (0, long - 1))) + 2, STEPS * (row + 1) + 1))
    return place(Sketch(tiles, spot(*spawn), nudge(rng, spot(*switch)), spot(*door), entities=mines), rng)
