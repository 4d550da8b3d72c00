"""Family "corridors": horizontal pieces joined by vertical ones, zig-zagging down, or up by wall jumps."""

from collections.abc import Sequence

import numpy as np

from nppsim.generate.sketch import SIDES, Rng, Span, Tile, add_lining, draw, furnish, generator, place
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

MAX_TRIES = 5000  # to draw a chain that fits the stage
BOARD = (120, 240)  # rows and columns of the drawing board
CENTRE = (60, 120)  # row and column of it where a chain begins


def corridors(
    seed: int,
    *,
    pieces: Span,
    length: Span,
    height: Span = (1, 1),
    shaft: Span = (1, 1),
    drop: Span = (2, 5),
    climb: Span = (0, 0),
    mines: Span = (0, 0),
    sides: Sequence[str] = SIDES,
) -> Level:
    """A chain of corridors: the spawn in the first, the exit near the end of the last, the switch on the path.

    pieces: horizontal corridors, at least 2.
    length, height: columns (at least 3) and rows of each.
    shaft: columns of the vertical pieces.
    drop, climb: rows between the floors of two corridors, down or up; a piece leads up only if ``climb`` is not (0, 0).
    mines, sides: how many lie on which sides of the corridors (see ``add_lining``); none where it is one tile wide.
    Raises ValueError if the sizes are such that no chain fits the stage.
    """
    rng = generator("corridors", seed)
    for _ in range(MAX_TRIES):
        owner = np.zeros(BOARD, dtype=np.int16)  # number of the piece that owns a tile, 0 for rock
        path = _draw_chain(rng, owner, draw(rng, pieces), length, height, shaft, drop, climb)
        rows, columns = np.nonzero(owner)
        if path and np.ptp(rows) < ROWS and np.ptp(columns) < COLUMNS and not _pieces_touch(owner):
            break
    else:
        raise ValueError(f"no chain of corridors of pieces={pieces}, length={length}, drop={drop} fits the stage")
    ends = draw(rng, (0, 1)), draw(rng, (0, 1))
    spawn, door = path[ends[0]], path[-1 - ends[1]]
    switch = path[draw(rng, (ends[0] + 1, len(path) - 2 - ends[1]))]
    board = np.where(owner > 0, OPEN, SOLID).astype(np.uint8)
    sketch = furnish(rng, board, spawn, switch, door).cropped()
    add_lining(rng, sketch, mines, sides)
    return place(sketch, rng)


def _draw_chain(
    rng: Rng, owner: np.ndarray, pieces: int, length: Span, height: Span, shaft: Span, drop: Span, climb: Span
) -> list[Tile]:
    """Draw a chain into ``owner``; the floor tiles along the path, or nothing if a piece met another."""
    row, column = CENTRE
    direction, number = 1, 0
    path: list[Tile] = []
    for piece in range(pieces):
        columns, rows = draw(rng, length), draw(rng, height)
        number += 1
        if not _carve(owner, number, column, column + direction * (columns - 1), row - rows + 1, row):
            return []
        path += [(column + direction * i, row) for i in range(columns)]
        if piece == pieces - 1:
            return path
        wide = draw(rng, shaft)
        inner, outer = column + direction * columns, column + direction * (columns + wide - 1)
        upward = climb[1] > 0 and rng.random() < 0.5
        change = -draw(rng, climb) if upward else draw(rng, drop)
        next_row = row + change
        number += 1
        if not _carve(owner, number, inner, outer, min(row, next_row) - rows + 1, max(row, next_row)):
            return []
        row = next_row
        if rng.random() < 0.5:  # go on
            column = outer + direction
        else:  # turn back
            column, direction = inner - direction, -direction
    return path


def _carve(owner: np.ndarray, number: int, x0: int, x1: int, top: int, bottom: int) -> bool:
    """Give a rectangle (ends included) to a piece; False if some of it is taken."""
    left, right = min(x0, x1), max(x0, x1)
    if top < 1 or left < 1 or bottom >= BOARD[0] - 1 or right >= BOARD[1] - 1:
        return False
    area = owner[top : bottom + 1, left : right + 1]
    if area.any():
        return False
    area[:] = number
    return True


def _pieces_touch(owner: np.ndarray) -> bool:
    """Return True if pieces that do not follow each other touch (there must be rock between them)."""
    for a, b in ((owner[1:], owner[:-1]), (owner[:, 1:], owner[:, :-1])):
        if np.any((a > 0) & (b > 0) & (abs(a - b) > 1)):
            return True
    return False
