"""Levels as text, for reading, comparing and editing by hand; docs/file_formats.md specifies the format.

    nppsim level 1
    title: Over the gap
    tiles:
    ##########################################      23 rows of 42 characters, see TILE_CHARACTERS
    ...
    records:
    ninja 3.5 12                                    type, x and y; in tiles from the stage's corner, multiples of 0.25
    exit-door 30 12
    exit-switch 20 12
    thwump 15 9 2                                   then orientation 0..7 and mode, if they are not 0

Reading a written level restores it exactly, including invalid values.
"""

import json
import re
from fractions import Fraction
from typing import Any

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.format import COUNTED, MODE, ORIENTATION, STEPS_PER_TILE, TYPE, LevelError, X, Y
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import NUM_TILE_SHAPES

FIRST_LINE = "nppsim level 1"
TILE_CHARACTERS = ".#23456789abcdefghijklmnopqrstuvwxyzAB"  # the character of tile id 0, 1, ...
_ODD_TILE = "?"  # character of a tile id without geometry; a line "tile ROW COLUMN ID" below the tiles contains the id
_NAMES = tuple(name.replace(" ", "-") for name in kinds.ENTITY_NAMES)
_TYPES = {name: kind for kind, name in enumerate(_NAMES)}
_COUNTS = {"exit_count": kinds.EXIT, "ball_count": kinds.DEATH_BALL}


def serialize(tiles: np.ndarray, records: np.ndarray, title: str, **counts: int) -> str:
    """Return the fields of a ``Level`` as text, which ``parse`` reads back unchanged.

    counts: ``exit_count`` and ``ball_count``, written where they differ from the number of records.
    """
    lines = [FIRST_LINE]
    if title:
        plain = title.isprintable() and title == title.strip() and title[0] != '"'
        lines.append(f"title: {title if plain else json.dumps(title)}")
    types = records[:, TYPE]
    lines += [
        f"{field}: {counts[field]}" for field, kind in _COUNTS.items() if counts[field] != int((types == kind).sum())
    ]
    lines.append("tiles:")
    for row in tiles.tolist():
        lines.append("".join(TILE_CHARACTERS[t] if t < NUM_TILE_SHAPES else _ODD_TILE for t in row))
    for row, column in np.argwhere(tiles >= NUM_TILE_SHAPES).tolist():
        lines.append(f"tile {row} {column} {tiles[row, column]}")
    lines.append("records:")
    for record in records.tolist():
        optional = [record[ORIENTATION], record[MODE]]
        while optional and optional[-1] == 0:
            optional.pop()
        kind = record[TYPE]
        name = _NAMES[kind] if kind < len(_NAMES) else str(kind)
        lines.append(" ".join([name, _tiles(record[X]), _tiles(record[Y]), *map(str, optional)]))
    return "\n".join(lines) + "\n"


def parse(text: str, name: str = "") -> dict[str, Any]:
    """Read the fields of a ``Level`` from text; ``name`` appears in messages.  Raises LevelError with the line number."""
    reader = _Reader(text, name or "level")
    title, counts = "", {}
    if reader.next() != FIRST_LINE:
        raise reader.error(f"expected {FIRST_LINE!r}")
    while (line := reader.next()) != "tiles:":
        field, colon, value = line.partition(":")
        if field == "title" and colon:
            title = _title(reader, value.strip())
        elif field in _COUNTS and value.strip().isdecimal():
            counts[field] = _whole(value.strip())
        else:
            raise reader.error("expected 'title: ...' or 'tiles:'")
    tiles = np.zeros((ROWS, COLUMNS), np.uint8)
    for row in range(ROWS):
        tiles[row] = _row(reader)
    while (line := reader.next()) != "records:":
        match = re.fullmatch(r"tile (\d+) (\d+) (\d+)", line)
        if match is None:
            raise reader.error("expected 'tile ROW COLUMN ID' or 'records:'")
        row, column, tile = map(_whole, match.groups())
        if row >= ROWS or column >= COLUMNS or tile > 255:
            raise reader.error(f"expected a row below {ROWS}, a column below {COLUMNS} and an id below 256")
        tiles[row, column] = tile
    records = []
    while not reader.ended():
        reader.next()
        records.append(_record(reader))
    if not records:
        raise reader.error("there are no records; the first must be the ninja's spawn: ninja X Y")
    return dict.fromkeys(_COUNTS, COUNTED) | counts | {"tiles": tiles, "records": np.array(records), "title": title}


class _Reader:
    """Iterator over the lines of a text, without empty lines and comments (lines that begin with "#!").

    Adds line numbers to messages.
    """

    def __init__(self, text: str, name: str):
        numbered = enumerate(text.splitlines(), start=1)
        self._lines = [(number, line.rstrip()) for number, line in numbered if line.strip() and line[:2] != "#!"]
        self._at, self.name, self.line = 0, name, ""

    def ended(self) -> bool:
        return self._at >= len(self._lines)

    def next(self) -> str:
        if self.ended():
            raise LevelError(f"{self.name}: the text ends after {self.line!r}; it needs 'tiles:' and 'records:'")
        self.line = self._lines[self._at][1]
        self._at += 1
        return self.line

    def error(self, message: str) -> LevelError:
        number = self._lines[self._at - 1][0] if self._at else 1
        return LevelError(f"{self.name}: line {number} is {self.line!r}: {message}")


def _title(reader: _Reader, value: str) -> str:
    """Parse a title: plain text or, for special characters, a JSON string."""
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError as error:
        raise reader.error(f"the title begins with a quotation mark, but is not a JSON string ({error})") from error


def _row(reader: _Reader) -> list[int]:
    line = reader.next()
    if len(line) != COLUMNS:
        raise reader.error(f"a row of tiles has {COLUMNS} characters, this one {len(line)}")
    if wrong := set(line) - {*TILE_CHARACTERS, _ODD_TILE}:
        raise reader.error(f"{min(wrong)!r} is not a tile; tiles are {TILE_CHARACTERS} (docs/file_formats.md)")
    return [NUM_TILE_SHAPES if c == _ODD_TILE else TILE_CHARACTERS.index(c) for c in line]


def _record(reader: _Reader) -> list[int]:
    """Parse the current line to [type, x, y, orientation, mode]."""
    kind, *numbers = reader.line.split()
    if kind not in _TYPES and _whole(kind) > 255:
        raise reader.error(f"{kind!r} is not a type; types are {', '.join(_NAMES)}, or a number below 256")
    if not 2 <= len(numbers) <= 4:
        raise reader.error("expected TYPE X Y, then an orientation and a mode if they are not 0")
    x, y = (_steps(reader, number) for number in numbers[:2])
    optional = [_whole(number) for number in numbers[2:]]
    if max(optional, default=0) > 255:
        raise reader.error("orientation and mode are whole numbers below 256")
    return [_TYPES[kind] if kind in _TYPES else int(kind), x, y, *optional, *[0] * (2 - len(optional))]


def _whole(text: str) -> int:
    """Parse an integer; return a value above every limit if the text is not an integer or is too long."""
    return int(text) if text.isdecimal() and len(text) < 10 else 1 << 31


def _tiles(steps: int) -> str:
    """Format a coordinate byte in tiles, e.g. "3.5"."""
    return f"{steps / STEPS_PER_TILE:g}"


def _steps(reader: _Reader, number: str) -> int:
    """Parse a coordinate in tiles; return its byte."""
    steps = Fraction(number) * STEPS_PER_TILE if re.fullmatch(r"\d{1,3}(\.\d{1,2})?", number) else Fraction(1, 2)
    if steps.denominator != 1 or steps > 255:
        raise reader.error(f"{number} is not a coordinate; give tiles as a multiple of 0.25, at most 63.75")
    return int(steps)
