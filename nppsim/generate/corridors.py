"""Generator "corridors": horizontal corridors joined by shafts that lead down, or up by wall jumps."""

from collections.abc import Sequence

import numpy as np

from nppsim.generate.sketch import SIDES, Rng, Span, Tile, add_lining, draw, furnish, level_rng, place
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

MAX_TRIES = 5000  # maximum number of attempts to draw a chain that fits the stage
BOARD = (120, 240)  # rows and columns of the array in which chains are drawn
CENTRE = (60, 120)  # row and column where a chain begins


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
    """Generate a chain of corridors: spawn in the first one, exit near the end of the last one, switch on the path.

    pieces: number of corridors, at least 2.
    length, height: size of each corridor in tiles; length at least 3.
    shaft: width of the shafts in tiles.
    drop, climb: rows between the floors of two corridors, down or up; shafts lead up only if ``climb`` is not (0, 0).
    mines, sides: number of mines, and the sides on which they lie (see ``add_lining``).
    Raises ValueError if no chain of these sizes fits the stage.
    """
    rng = level_rng("corridors", seed)
    for _ in range(MAX_TRIES):
        owner = np.zeros(BOARD, dtype=np.int16)  # number of the piece (corridor or shaft) at a tile, 0 for solid tiles
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
    """Draw a chain into ``owner``; return the floor tiles along the path, or [] if two pieces overlap."""
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
        if rng.random() < 0.5:  # continue in the same direction
            column = outer + direction
        else:  # turn back
            column, direction = inner - direction, -direction
    return path


def _carve(owner: np.ndarray, number: int, x0: int, x1: int, top: int, bottom: int) -> bool:
    """Assign a rectangle (both ends included) to a piece; return False if it overlaps another one."""
    left, right = min(x0, x1), max(x0, x1)
    if top < 1 or left < 1 or bottom >= BOARD[0] - 1 or right >= BOARD[1] - 1:
        return False
    area = owner[top : bottom + 1, left : right + 1]
    if area.any():
        return False
    area[:] = number
    return True


def _pieces_touch(owner: np.ndarray) -> bool:
    """Return True if two pieces touch although neither follows the other in the chain."""
    for a, b in ((owner[1:], owner[:-1]), (owner[:, 1:], owner[:, :-1])):
        if np.any((a > 0) & (b > 0) & (abs(a - b) > 1)):
            return True
    return False
