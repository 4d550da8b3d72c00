"""The drawing board of the generators: a sketch of open space with spawn, switch and exit, and its way into a level.

A sketch has its own coordinates: tiles (column, row) and positions in steps of 6 px, four to a tile, both from its
top-left corner.  ``place`` puts it at a random place of the stage, mirrored half of the time; all around it is solid.

Caves, the sketches with a ground to walk on, are described by the heights of ground and ceiling in half-tiles, at the
left and at the right border of each column, so that slopes, half-tiles and cliffs come out of one table.

Facts about the ninja that the families build on (measured in the simulator): its diameter is 20 px, so it passes gaps
of one tile; a jump held from the ground rises 3.2 tiles, one pressed for a single frame 1.2; a running jump flies up to
14 tiles; a fall from rest onto flat ground is survived from up to 11 tiles; shafts of 1 to 4 tiles are climbed by wall
jumps.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.level import Level, mirror
from nppsim.levels.stage import COLUMNS, ROWS

OPEN, SOLID = 0, 1
STEPS = 4  # position steps per tile
GOLD_SHARE = 0.08  # share of the levels with a little gold
MAX_GOLD = 4
SIDES = ("floor", "ceiling", "left", "right")
_TO_SIDE = {"floor": (0, 1), "ceiling": (0, -1), "left": (-1, 0), "right": (1, 0)}
MIN_FLAT = 3  # columns: for spawn, switch and exit

Span = Sequence[int]  # (lowest, highest), both included

# Tile at the top of a column of ground: (parity of the lower end's height, right end minus left end) -> tile id.
_GROUND = {(0, 0): OPEN, (1, 0): 4, (0, 1): 20, (1, 1): 24, (0, -1): 21, (1, -1): 25, (0, 2): 8, (0, -2): 9}
_UPSIDE_DOWN = {OPEN: OPEN, 4: 2, 20: 19, 24: 23, 21: 18, 25: 22, 8: 7, 9: 6}


@dataclass
class Sketch:
    """A level in the making.

    tiles: uint8[rows, columns].  spawn, switch, door: positions (x, y), see above.
    locked_doors, trap_doors: (switch, door, orientation).  entities: (type, x, y), types without a switch.
    """

    tiles: np.ndarray
    spawn: tuple[int, int]
    switch: tuple[int, int]
    door: tuple[int, int]
    locked_doors: list = field(default_factory=list)
    trap_doors: list = field(default_factory=list)
    entities: list = field(default_factory=list)


def generator(family: str, seed: int) -> np.random.Generator:
    """The random stream of one level; families draw from different streams."""
    return np.random.default_rng([zlib.crc32(family.encode()), seed])


def draw(rng: np.random.Generator, span: Span) -> int:
    """A random whole number of a span, both ends included."""
    return int(rng.integers(span[0], span[1] + 1))


def spot(column: int, row: int) -> tuple[int, int]:
    """Position in the middle of a tile: a ninja put there drops by 2 px to the tile's floor."""
    return STEPS * column + 2, STEPS * row + 2


def nudge(rng: np.random.Generator, position: tuple[int, int]) -> tuple[int, int]:
    """The position moved by up to 6 px to the left, right or up: still touched by a ninja who passes its tile."""
    return position[0] + draw(rng, (-1, 1)), position[1] - draw(rng, (0, 1))


def place(sketch: Sketch, rng: np.random.Generator) -> Level:
    """The level: the sketch at a random place in solid rock, mirrored half of the time."""
    rows, columns = sketch.tiles.shape
    left, top = draw(rng, (0, COLUMNS - columns)), draw(rng, (0, ROWS - rows))
    tiles = np.full((ROWS, COLUMNS), SOLID, dtype=np.uint8)
    tiles[top : top + rows, left : left + columns] = sketch.tiles

    def on_stage(position):
        return position[0] + STEPS * (left + 1), position[1] + STEPS * (top + 1)  # the border is one tile

    entities = list(sketch.entities)
    if rng.random() < GOLD_SHARE:
        open_tiles = np.argwhere(sketch.tiles == OPEN)
        for row, column in rng.permutation(open_tiles)[: draw(rng, (1, MAX_GOLD))].tolist():
            entities.append((kinds.GOLD, *spot(column, row)))
    level = Level.build(
        tiles,
        on_stage(sketch.spawn),
        exits=[(on_stage(sketch.switch), on_stage(sketch.door))],
        locked_doors=[(on_stage(switch), on_stage(door), o) for switch, door, o in sketch.locked_doors],
        trap_doors=[(on_stage(switch), on_stage(door), o) for switch, door, o in sketch.trap_doors],
        entities=[(kind, *on_stage((x, y)), *rest) for kind, x, y, *rest in entities],
    )
    return mirror(level) if rng.random() < 0.5 else level


@dataclass(frozen=True)
class Cave:
    """Open space between a ground and a ceiling.

    ground: int[columns, 2], height of the ground above the sketch's lower edge, in half-tiles, at the left and right
        border of each column.  Within a column it changes by at most one tile; between columns it may jump (a cliff).
    ceiling: int[columns, 2], likewise, the depth of the ceiling below the sketch's upper edge.
    rows: height of the sketch in tiles.
    """

    ground: np.ndarray
    ceiling: np.ndarray
    rows: int

    @property
    def columns(self) -> int:
        return len(self.ground)

    def tiles(self) -> np.ndarray:
        """uint8[rows, columns]."""
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

    def standing(self, column: int, lift: int = 0) -> tuple[int, int]:
        """Position 12 px above the middle of a column's ground, and ``lift`` more steps up."""
        return STEPS * column + 2, STEPS * self.rows - int(self.ground[column].sum()) - 2 - lift

    def flat(self) -> list[int]:
        """Columns whose ground is level: good places for spawns and mines."""
        return np.flatnonzero(self.ground[:, 0] == self.ground[:, 1]).tolist()

    def mine(self, column: int) -> tuple[int, int, int]:
        """A mine that sticks to the ground of a column: the ninja must jump over it."""
        x, y = self.standing(column)
        return kinds.MINE, x, y + 1

    def sketch(self, rng: np.random.Generator, spawn: int, switch: int, door: int) -> Sketch:
        """The cave with spawn, switch and exit door standing in these columns."""
        return Sketch(
            self.tiles(), self.standing(spawn), nudge(rng, self.standing(switch)), nudge(rng, self.standing(door))
        )


def level_ground(columns: int, height: int = 0) -> np.ndarray:
    """int[columns, 2]: ground (or ceiling) of one height, in half-tiles."""
    return np.full((columns, 2), height, dtype=np.int64)


def sections(*parts: tuple[int, int]) -> np.ndarray:
    """int[columns, 2]: ground in level sections (columns, height in half-tiles), with cliffs between them."""
    return np.concatenate([level_ground(columns, height) for columns, height in parts])


def add_bumps(rng: np.random.Generator, ground: np.ndarray, bumps: Sequence, count: int) -> None:
    """Raise ``ground`` in place by up to ``count`` bumps, each apart from the others and from both ends.

    A bump is a list of (left, right) heights in half-tiles, one pair per column.  One for which there is no room, or
    which would leave fewer than ``MIN_FLAT`` columns untouched, is left out.
    """
    for _ in range(count):
        bump = np.array(bumps[rng.integers(len(bumps))])
        room = len(ground) - len(bump) - 1
        if room < 1:
            continue
        first = draw(rng, (1, room))
        untouched = np.count_nonzero(~ground.any(axis=1)) - len(bump)
        if untouched >= MIN_FLAT and not ground[first - 1 : first + len(bump) + 1].any():
            ground[first : first + len(bump)] = bump


def order_of_goals(rng: np.random.Generator, columns: Sequence[int], apart: int = 1) -> tuple[int, int, int]:
    """Columns of spawn, switch and exit door, in any order; spawn and switch at least ``apart`` columns from each other
    where there is room."""
    spawn = int(rng.choice(columns))
    others = [column for column in columns if column != spawn]
    far = [column for column in others if abs(column - spawn) >= apart]
    switch = int(rng.choice(far or others))
    door = int(rng.choice([column for column in others if column != switch]))
    return spawn, switch, door


def spread_mines(
    rng: np.random.Generator, cave: Cave, count: int, columns: Sequence[int], keep_clear: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Up to ``count`` mines on the ground of some of ``columns``, with two free columns beside each of them and around
    the columns to keep clear, so that there is ground to jump from and to land on."""
    taken, mines = list(keep_clear), []
    for column in rng.permutation(columns).tolist()[: 4 * count]:
        if len(mines) < count and all(abs(column - other) > 2 for other in taken):
            taken.append(column)
            mines.append(cave.mine(column))
    return mines


def line_with_mines(
    rng: np.random.Generator,
    tiles: np.ndarray,
    count: int,
    keep_clear: Sequence[tuple[int, int]],
    sides: Sequence[str] = SIDES,
) -> list[tuple[int, int, int]]:
    """Up to ``count`` mines that stick to full tiles; a ninja can pass each of them on the other side.

    tiles: uint8[rows, columns], with rock all around.  keep_clear: positions without a mine within two tiles of them.
    sides: of the open tiles, "floor", "ceiling", "left" and "right", on which mines may lie.
    Opposite a mine, and beside it, two tiles in a row are open; mines are three or more tiles apart.
    """
    walled = np.pad(tiles, 2, constant_values=SOLID)
    rows, columns = tiles.shape
    places = []
    for side in sides:
        dx, dy = _TO_SIDE[side]

        def shifted(right, down):
            return walled[2 + down : 2 + down + rows, 2 + right : 2 + right + columns]

        fits = shifted(dx, dy) == SOLID
        for along in (-1, 0, 1):
            for away in (0, 1):  # (dy, dx) is the direction along the surface
                fits &= shifted(along * dy - away * dx, along * dx - away * dy) == OPEN
        places += [(column, row, dx, dy) for row, column in np.argwhere(fits).tolist()]
    taken = [(x / STEPS, y / STEPS) for x, y in keep_clear]
    mines = []
    for i in rng.permutation(len(places)).tolist():
        if len(mines) == count:
            break
        column, row, dx, dy = places[i]
        if all(max(abs(column + 0.5 - x), abs(row + 0.5 - y)) > 2.5 for x, y in taken):
            taken.append((column + 0.5, row + 0.5))
            x, y = spot(column, row)
            mines.append((kinds.MINE, x + dx, y + dy))
    return mines


def crop(tiles: np.ndarray, *positions: tuple[int, int]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Cut a large drawing down to its open part; positions move along."""
    rows, columns = np.nonzero(tiles != SOLID)
    top, left = rows.min(), columns.min()
    cut = tiles[top : rows.max() + 1, left : columns.max() + 1]
    return cut, [(int(x - STEPS * left), int(y - STEPS * top)) for x, y in positions]


def _column_top(left: int, right: int) -> tuple[int, int]:
    """Full tiles of a column of ground, and the tile id on top of them (OPEN if they end level)."""
    low = min(left, right)
    return low // 2, _GROUND[low % 2, right - left]
