"""Caves: sketches that consist of a ground to walk on and a ceiling.

Arrays contain the heights of ground and ceiling, in half-tiles, at the left and right border of each column.  These
heights can express slopes, half-tiles and cliffs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nppsim.generate.sketch import Placed, Position, Rng, Sketch, draw, nudge, pick
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE
from nppsim.levels.tiles import OPEN, SOLID

MIN_FLAT = 3  # minimum number of level columns, for spawn, switch and exit

# Tile at the top of a column of ground: (lower height modulo 2, right minus left height), half-tiles -> tile id.
_GROUND = {(0, 0): OPEN, (1, 0): 4, (0, 1): 20, (1, 1): 24, (0, -1): 21, (1, -1): 25, (0, 2): 8, (0, -2): 9}
_UPSIDE_DOWN = {OPEN: OPEN, 4: 2, 20: 19, 24: 23, 21: 18, 25: 22, 8: 7, 9: 6}


@dataclass(frozen=True)
class Cave:
    """Open space between a ground and a ceiling.

    ground: int[columns, 2], height of the ground above the sketch's lower edge, in half-tiles, at the left and right
        border of each column.  Within a column the height changes by at most one tile; between columns there may be
        cliffs.
    ceiling: int[columns, 2], depth of the ceiling below the sketch's upper edge, in the same form.
    rows: height of the sketch in tiles.
    """

    ground: np.ndarray
    ceiling: np.ndarray
    rows: int

    @property
    def columns(self) -> int:
        """Width of the sketch in tiles."""
        return len(self.ground)

    def tiles(self) -> np.ndarray:
        """Return the tile ids, uint8[rows, columns]."""
        tiles = np.full((self.rows, self.columns), OPEN, dtype=np.uint8)
        for column in range(self.columns):
            full, surface = _column_top(*self.ground[column].tolist())
            tiles[self.rows - full :, column] = SOLID
            if surface:
                tiles[self.rows - full - 1, column] = surface
            full, surface = _column_top(*self.ceiling[column].tolist())
            tiles[:full, column] = SOLID
            if surface:
                tiles[full, column] = _UPSIDE_DOWN[surface]
        return tiles

    def standing(self, column: int) -> Position:
        """Return the position 12 px above the middle of a column's ground."""
        return STEPS_PER_TILE * column + 2, STEPS_PER_TILE * self.rows - int(self.ground[column].sum()) - 2

    def flat(self) -> list[int]:
        """Return the columns with level ground, which are suitable for spawns and mines."""
        return np.flatnonzero(self.ground[:, 0] == self.ground[:, 1]).tolist()

    def mine(self, column: int) -> Placed:
        """Return a mine on the ground of a column; the ninja must jump over it."""
        x, y = self.standing(column)
        return kinds.MINE, x, y + 1

    def sketch(self, rng: Rng, spawn: int, switch: int, door: int) -> Sketch:
        """Make a sketch of the cave with spawn, switch and exit door in these columns."""
        return Sketch(
            self.tiles(), self.standing(spawn), nudge(rng, self.standing(switch)), nudge(rng, self.standing(door))
        )


def level_ground(columns: int, height: int = 0) -> np.ndarray:
    """Return ground (or ceiling) of constant height in half-tiles: int[columns, 2]."""
    return np.full((columns, 2), height, dtype=np.int64)


def sections(*parts: tuple[int, int]) -> np.ndarray:
    """Join level sections (columns, height in half-tiles) to a ground int[columns, 2], with cliffs between them."""
    return np.concatenate([level_ground(columns, height) for columns, height in parts])


def add_bumps(rng: Rng, ground: np.ndarray, bumps: Sequence, count: int) -> None:
    """Add up to ``count`` bumps to ``ground`` in place, not adjacent to each other or to the ends.

    bumps: the shapes; each is a list of (left, right) heights in half-tiles, one pair per column.
    Bumps that do not fit, or that would leave fewer than ``MIN_FLAT`` columns unchanged, are skipped.
    """
    for _ in range(count):
        bump = np.array(pick(rng, bumps))
        room = len(ground) - len(bump) - 1
        if room < 1:
            continue
        first = draw(rng, (1, room))
        untouched = np.count_nonzero(~ground.any(axis=1)) - len(bump)
        if untouched >= MIN_FLAT and not ground[first - 1 : first + len(bump) + 1].any():
            ground[first : first + len(bump)] = bump


def order_of_goals(rng: Rng, columns: Sequence[int], apart: int = 1) -> tuple[int, int, int]:
    """Draw the columns of spawn, switch and exit door; spawn and switch are ``apart`` columns apart if possible."""
    spawn = int(rng.choice(columns))
    others = [column for column in columns if column != spawn]
    far = [column for column in others if abs(column - spawn) >= apart]
    switch = int(rng.choice(far or others))
    door = int(rng.choice([column for column in others if column != switch]))
    return spawn, switch, door


def spread_mines(rng: Rng, cave: Cave, count: int, columns: Sequence[int], keep_clear: Sequence[int]) -> list[Placed]:
    """Place up to ``count`` mines on the ground of ``columns``.

    Mines are more than two columns from each other and from ``keep_clear``, as room for take-off and landing.
    """
    avoided = list(keep_clear)
    mines: list[Placed] = []
    for column in rng.permutation(columns).tolist()[: 4 * count]:
        if len(mines) < count and all(abs(column - other) > 2 for other in avoided):
            avoided.append(column)
            mines.append(cave.mine(column))
    return mines


def _column_top(left: int, right: int) -> tuple[int, int]:
    """Return the number of full tiles in a column of ground, and the id of the tile on top (OPEN if there is none)."""
    low = min(left, right)
    return low // 2, _GROUND[low % 2, right - left]
