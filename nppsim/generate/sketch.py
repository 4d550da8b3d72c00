"""Sketches, the common intermediate form of the generators: open space with spawn, switch and exit.

A sketch has its own coordinates: tiles (column, row) and positions in steps of 6 px (a quarter tile), both from its
top-left corner.  ``place`` converts it to a level: at a random position, surrounded by solid tiles, and mirrored with
probability 1/2.

The generators rely on the following properties of the ninja, which were measured in the simulator.  Its diameter is 20 px,
so it passes gaps of one tile.  A jump from the ground rises 3.2 tiles if jump stays pressed, 1.2 tiles if it is pressed
for one frame.  A running jump covers up to 14 tiles.  A fall from rest onto flat ground is survived from up to 11 tiles.
Shafts with a width of 1 to 4 tiles can be climbed by wall jumps.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level, mirror
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

Span = Sequence[int]  # (lowest, highest), both included
Tile = tuple[int, int]  # (column, row)
Position = tuple[int, int]  # (x, y) in steps of 6 px
Placed = tuple[int, ...]  # an entity: (type, x, y[, orientation[, mode]])
Rng = np.random.Generator
Item = TypeVar("Item")

# Orientations of entities.
RIGHT = 0
LEFT = 4
DOWN = 2
UP = 6
UP_RIGHT = 7
UPRIGHT = RIGHT  # a door across a corridor
FLAT = DOWN  # a door across a shaft

GOLD_SHARE = 0.08  # probability that a level contains gold
MAX_GOLD = 4  # maximum number of pieces of gold per level
SIDES = ("floor", "ceiling", "left", "right")
_TO_SIDE = {"floor": (0, 1), "ceiling": (0, -1), "left": (-1, 0), "right": (1, 0)}


@dataclass
class Sketch:
    """Part of a level under construction.

    tiles: uint8[rows, columns].
    spawn, switch, door: positions of the ninja, the exit switch and the exit.
    locked_doors, trap_doors: (position of the switch, position of the door, orientation).
    entities: entities of types without a switch.
    """

    tiles: np.ndarray
    spawn: Position
    switch: Position
    door: Position
    locked_doors: list[tuple[Position, Position, int]] = field(default_factory=list)
    trap_doors: list[tuple[Position, Position, int]] = field(default_factory=list)
    entities: list[Placed] = field(default_factory=list)

    def moved(self, tiles: np.ndarray, right: int, down: int) -> "Sketch":
        """Return a sketch with these tiles and the contents of this one, shifted by ``right`` and ``down`` tiles."""

        def at(position: Sequence[int]) -> Position:
            return position[0] + STEPS_PER_TILE * right, position[1] + STEPS_PER_TILE * down

        return Sketch(
            tiles,
            at(self.spawn),
            at(self.switch),
            at(self.door),
            [(at(switch), at(door), orientation) for switch, door, orientation in self.locked_doors],
            [(at(switch), at(door), orientation) for switch, door, orientation in self.trap_doors],
            [(kind, *at((x, y)), *more) for kind, x, y, *more in self.entities],
        )

    def cropped(self) -> "Sketch":
        """Return the sketch without the solid rows and columns around its open part."""
        rows, columns = np.nonzero(self.tiles != SOLID)
        top, left = int(rows.min()), int(columns.min())
        return self.moved(self.tiles[top : rows.max() + 1, left : columns.max() + 1], -left, -top)


def level_rng(generator: str, seed: int) -> Rng:
    """Return the random generator of one level.  Generators have different streams for the same seed."""
    return np.random.default_rng([zlib.crc32(generator.encode()), seed])


def draw(rng: Rng, span: Span) -> int:
    """Draw an integer from a span, both ends included."""
    return int(rng.integers(span[0], span[1] + 1))


def pick(rng: Rng, items: Sequence[Item]) -> Item:
    """Draw one of the items, all equally likely."""
    return items[int(rng.integers(len(items)))]


def spot(column: int, row: int) -> Position:
    """Return the position in the middle of a tile; a ninja that spawns there is 2 px above the tile's floor."""
    return STEPS_PER_TILE * column + 2, STEPS_PER_TILE * row + 2


def nudge(rng: Rng, position: Position) -> Position:
    """Move a position by up to 6 px left, right and up; a ninja that passes the tile still touches an entity there."""
    return position[0] + draw(rng, (-1, 1)), position[1] - draw(rng, (0, 1))


def furnish(rng: Rng, tiles: np.ndarray, spawn: Tile, switch: Tile, door: Tile) -> Sketch:
    """Return a sketch with spawn, switch and exit door in these tiles."""
    return Sketch(tiles, spot(*spawn), nudge(rng, spot(*switch)), spot(*door))


def place(sketch: Sketch, rng: Rng) -> Level:
    """Return a level with the sketch at a random position in solid tiles, mirrored with probability 1/2."""
    rows, columns = sketch.tiles.shape
    left, top = draw(rng, (0, COLUMNS - columns)), draw(rng, (0, ROWS - rows))
    tiles = np.full((ROWS, COLUMNS), SOLID, dtype=np.uint8)
    tiles[top : top + rows, left : left + columns] = sketch.tiles
    gold: list[Placed] = []
    if rng.random() < GOLD_SHARE:
        open_tiles = np.argwhere(sketch.tiles == OPEN)
        for row, column in rng.permutation(open_tiles)[: draw(rng, (1, MAX_GOLD))].tolist():
            gold.append((kinds.GOLD, *spot(column, row)))
    placed = replace(sketch, entities=sketch.entities + gold).moved(tiles, left + 1, top + 1)  # the border is one tile
    level = Level.build(
        tiles,
        placed.spawn,
        exits=[(placed.switch, placed.door)],
        locked_doors=placed.locked_doors,
        trap_doors=placed.trap_doors,
        entities=placed.entities,
    )
    return mirror(level) if rng.random() < 0.5 else level


def line_with_mines(
    rng: Rng,
    tiles: np.ndarray,
    count: int,
    keep_clear: Sequence[Position],
    sides: Sequence[str] = SIDES,
) -> list[Placed]:
    """Place up to ``count`` mines on the faces of solid tiles, with room for the ninja to pass.

    tiles: uint8[rows, columns]; everything outside counts as solid.
    keep_clear: positions with no mine within two tiles.
    sides: sides of open tiles on which mines may lie: "floor", "ceiling", "left", "right".
    The two tiles in front of a mine, and of both neighbouring faces, are open.  Mines are three or more tiles apart.
    """
    walled = np.pad(tiles, 2, constant_values=SOLID)
    rows, columns = tiles.shape
    places = []
    for side in sides:
        dx, dy = _TO_SIDE[side]

        def shifted(right: int, down: int) -> np.ndarray:
            return walled[2 + down : 2 + down + rows, 2 + right : 2 + right + columns]

        fits = shifted(dx, dy) == SOLID
        for along in (-1, 0, 1):
            for away in (0, 1):  # (dy, dx) is the direction along the surface
                fits &= shifted(along * dy - away * dx, along * dx - away * dy) == OPEN
        places += [(column, row, dx, dy) for row, column in np.argwhere(fits).tolist()]
    avoided = [(x / STEPS_PER_TILE, y / STEPS_PER_TILE) for x, y in keep_clear]
    mines: list[Placed] = []
    for i in rng.permutation(len(places)).tolist():
        if len(mines) == count:
            break
        column, row, dx, dy = places[i]
        if all(max(abs(column + 0.5 - x), abs(row + 0.5 - y)) > 2.5 for x, y in avoided):
            avoided.append((column + 0.5, row + 0.5))
            x, y = spot(column, row)
            mines.append((kinds.MINE, x + dx, y + dy))
    return mines


def add_lining(rng: Rng, sketch: Sketch, mines: Span, sides: Sequence[str] = SIDES) -> None:
    """Add mines to the walls of a sketch, away from spawn, switch and exit; do nothing if the span ends at 0."""
    if mines[1]:
        clear = (sketch.spawn, sketch.switch, sketch.door)
        sketch.entities += line_with_mines(rng, sketch.tiles, draw(rng, mines), clear, sides)
