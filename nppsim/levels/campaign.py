"""Campaign files of N++: text files with one level per line, as in the game's own folder (``S.txt``, ``SI.txt``, ...).

A line is ``$TITLE#HEX#``.  Text before "$" or after the last "#", and lines that begin with "#", ";" or "//", are ignored.
Files may be UTF-8, UTF-16 or UTF-32, or Windows-1252, and editors may have wrapped the digits.  HEX is the level as
hexadecimal digits, with the two digits of every byte swapped:

    offset 0      4 zero bytes
    offset 4      23 x 42 tile ids, row by row
    offset 970    for each type of ``RECORD_BYTES``: a big-endian uint16 count, then that many records
    end           4 zero bytes

A record consists of the bytes x, y [, orientation [, mode]].  In records of exits, locked doors and trap doors the last
two bytes are x and y of the switch.

    level = Level.load("S.txt#12")                  # or "S.txt#TITLE", "S.txt#S-C-00-02", "GAME_FOLDER#S-C-00-02"
    levels, problems = levels_from_bytes(data, "S.txt")      # problems: errors of damaged lines
    line = to_line(level)

Source: docs/physics.md, section 2.
"""

import codecs
import os
import re
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np

from nppsim.errors import CONTROL, InputWarning
from nppsim.io.addresses import parse_address
from nppsim.io.reading import as_utf8, read_bytes
from nppsim.levels import ids, kinds
from nppsim.levels.format import RECORD_SIZE, TYPE, LevelError, X, Y
from nppsim.levels.level import MAX_TITLE, Level, container_readers
from nppsim.levels.stage import COLUMNS, ROWS

SUFFIX = ".txt"
FORM = "$TITLE#HEX#"
MAX_CAMPAIGN_BYTES = 64 << 20  # maximum size of a file, some 20,000 levels; the game's largest has 2 MB

# Bytes per record of each type, in the order of the file.
RECORD_BYTES = {
    kinds.NINJA: 2,
    kinds.MINE: 2,
    kinds.GOLD: 2,
    kinds.EXIT: 4,
    kinds.REGULAR_DOOR: 3,
    kinds.LOCKED_DOOR: 5,
    kinds.TRAP_DOOR: 5,
    kinds.LAUNCH_PAD: 3,
    kinds.ONE_WAY: 3,
    kinds.CHAINGUN_DRONE: 4,
    kinds.LASER_DRONE: 4,
    kinds.ZAP_DRONE: 4,
    kinds.CHASER_DRONE: 4,
    kinds.FLOOR_GUARD: 2,
    kinds.BOUNCE_BLOCK: 2,
    kinds.ROCKET_TURRET: 2,
    kinds.GAUSS_TURRET: 2,
    kinds.THWUMP: 3,
    kinds.TOGGLE_MINE: 2,
    kinds.EVIL_NINJA: 2,
    kinds.LASER: 4,
    kinds.BOOST_PAD: 2,
    kinds.DEATH_BALL: 2,
    kinds.MINI_DRONE: 4,
    27: 2,
    kinds.SHOVE_THWUMP: 2,
}
_SWITCH_OF = {kinds.EXIT: kinds.EXIT_SWITCH, **kinds.SWITCH_OF_DOOR}
_TILES = slice(4, 4 + ROWS * COLUMNS)
_ZEROS = bytes(4)
_SWAPPED = bytes(byte >> 4 | (byte & 15) << 4 for byte in range(256))  # each byte with its two digits exchanged
_HEAD_BYTES = 1 << 16  # bytes in which a campaign file must have its first level
_BEGINNING = re.compile(rb"#[0-9a-fA-F]{16}")  # "#" and first digits of a level
_DIGITS = re.compile(rb"#(0{8}[0-9a-fA-F]{2000,})#")  # an undamaged level has at least 2,052 digits
_CUT = re.compile(rb"#[0-9a-fA-F]+\Z")  # end of a line without "#" after the digits
_REST = re.compile(rb"[0-9a-fA-F]+#?\Z")  # a line that continues digits
_COMMENTS = (b"#", b";", b"//")


def is_campaign(data: bytes) -> bool:
    """Return True if a file that begins with these bytes is a campaign file: one of its first lines begins a level."""
    for line in as_utf8(data[:_HEAD_BYTES]).splitlines() if b"$" in data[:_HEAD_BYTES] else ():
        if (match := _BEGINNING.search(line)) and b"$" in line[: match.start()]:
            return True
    return False


def is_campaign_file(path: str | Path) -> bool:
    """Return True if a path is a file with the content of a campaign file.  Raises OSError if it is unreadable."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return is_campaign(file.read(_HEAD_BYTES))


def levels_from_bytes(data: bytes, name: str) -> tuple[dict[int, Level], dict[int, LevelError]]:
    """Decode all lines of a campaign file called ``name``.

    Returns two dictionaries by line number: the levels, and the errors of damaged lines.  Line numbers start at 0
    (``S.txt#0`` is the first line) and include empty lines.
    """
    levels: dict[int, Level] = {}
    problems: dict[int, LevelError] = {}
    lines = _numbered(data)
    for number, line in lines.items():
        try:
            levels[number] = level_from_line(line, f"{name}#{number}", _id(Path(name), number, lines))
        except LevelError as problem:
            problems[number] = problem
    return levels, problems


def level_numbers(path: str | Path) -> list[int]:
    """Return the numbers of the non-empty lines of a campaign file.  Raises LevelError if there are none."""
    return list(_lines(path))


def locate(path: str | Path) -> tuple[Path, int] | None:
    """Return file and line number for ``FILE.txt#NUMBER``, ``FILE.txt#ID`` or ``FILE.txt#TITLE``; None for other paths.

    ``FOLDER#ID`` and ``FOLDER#TITLE`` search all campaign files of a folder.  An id may omit the tab (``SI.txt#A-00-00``).
    Raises LevelError if there is no such level, or if several levels match.
    """
    address = parse_address(path)
    item = address.entry
    if not item or address.suffix == ".h5":
        return None
    if os.path.isdir(address.path):
        files = [
            file for file in sorted(Path(address.path).iterdir()) if file.name[0] != "." and is_campaign_file(file)
        ]
    else:
        files = [Path(address.path)]
        number = int(item) if item.isdecimal() and len(item) < 10 else -1
        if number in _lines(files[0]):
            return files[0], number
        if not is_campaign_file(files[0]):
            raise LevelError(f"{path}: {files[0]} is not a campaign file; no line has the form {FORM}")
    for matches in (_has_id, _has_title, _has_title_in_any_case):
        places = [(file, number) for file in files for number in _lines(file) if matches(file, number, item)]
        if len(places) > 1:
            several = ", ".join(f"{file.name}#{number}" for file, number in places)
            raise LevelError(f"{path}: several levels match; give one of {several}")
        if places:
            return places[0]
    reasons = {ids.why_no_id(item, file.stem, next(reversed(_lines(file))) + 1): None for file in files}
    hint = "".join(f"; {reason}" for reason in reasons if reason)
    raise LevelError(f"{path}: no such level{hint}; give a number, an id or a title (nppsim levels lists them)")


def _id(file: Path, number: int, lines: dict[int, bytes]) -> str:
    return ids.level_id(file.stem, number, next(reversed(lines)) + 1)


def _has_id(file: Path, number: int, item: str) -> bool:
    level_id = _id(file, number, _lines(file)).casefold()
    return item.casefold() in (level_id, level_id.partition("-")[2])


def _has_title(file: Path, number: int, item: str) -> bool:
    return _title(_lines(file)[number]) == item


def _has_title_in_any_case(file: Path, number: int, item: str) -> bool:
    return _title(_lines(file)[number]).casefold() == item.casefold()


def load_level(path: str | Path) -> Level | None:
    """Read the level at a path (see ``locate``); a campaign file with a single level needs no number.

    Returns None for files of other formats.  Raises LevelError if the level is missing or damaged, or if the number is
    missing and the file has several levels.
    """
    line = locate(path)
    if line is None:
        if not is_campaign_file(path):
            return None
        numbers = level_numbers(path)
        if len(numbers) > 1:
            raise LevelError(
                f"{path}: a campaign file with {len(numbers)} levels; give one, such as {path}#{numbers[0]}"
            )
        line = Path(path), numbers[0]
    return _read_level(*line)


def _read_level(file: Path, number: int) -> Level:
    lines = _lines(file)
    return level_from_line(lines[number], f"{file}#{number}", _id(file, number, lines))


def level_from_line(line: bytes, name: str = "", level_id: str = "") -> Level:
    """Decode one line of a campaign file; ``name`` appears in messages.  Raises LevelError with the byte offset."""
    label = name or "campaign line"
    title, digits, offset = _parts(line, label)
    try:
        level = _level_of(_bytes_of(digits, offset))
    except LevelError as problem:
        raise LevelError(f"{label}: {problem}") from problem
    return level.described(name, title[:MAX_TITLE], level_id)


@lru_cache(maxsize=256)  # large files often repeat levels
def _level_of(data: bytes) -> Level:
    """Return the level of the decoded bytes of a line.  Raises LevelError without the name of the level."""
    records = _records_of(data)
    if len(records) == 0:
        raise LevelError("has no entities; expected at least the ninja's spawn")
    try:
        return Level(np.frombuffer(data[_TILES], np.uint8).reshape(ROWS, COLUMNS), records)
    except LevelError as problem:
        raise LevelError(str(problem).removeprefix("level: ")) from problem


def to_line(level: Level) -> str:
    """Encode the level as one line of a campaign file, without line break.

    Raises LevelError if decoding the line would not restore the level.  The format cannot store unknown types, doors
    without switches, orientations of types that have none, or records that are not in the game's order.
    """
    name = level.name or "level"
    data = bytearray(_ZEROS) + level.tiles.tobytes()
    for kind, size in RECORD_BYTES.items():
        rows = np.flatnonzero(level.records[:, TYPE] == kind)
        columns = list(range(X, X + size))
        fields = level.records[rows][:, columns[:-2] if kind in _SWITCH_OF else columns]
        if kind in _SWITCH_OF:
            switches = rows + (level.exit_count if kind == kinds.EXIT else 1)
            if (switches >= len(level.records)).any():
                raise LevelError(f"{name}: a {kinds.ENTITY_NAMES[kind]} has no switch; campaign files need one")
            fields = np.hstack([fields, level.records[switches][:, [X, Y]]])
        data += len(rows).to_bytes(2, "big") + fields.tobytes()
    data += _ZEROS
    title = CONTROL.sub("?", level.title)
    if title != level.title:
        message = (
            f"{name}: a campaign file cannot store the title {level.title!r}; '?' is written for control characters"
        )
        warnings.warn(InputWarning(message), stacklevel=2)
    line = f"${title}#{''.join(f'{byte & 15:x}{byte >> 4:x}' for byte in data)}#"
    if level_from_line(line.encode(), name) != level:
        raise LevelError(
            f"{name}: a campaign file cannot store it unchanged (because of the order of its records, or of types, "
            "orientations or switches that the format does not support); save it as .map or .level"
        )
    return line


def _lines(path: str | Path) -> dict[int, bytes]:
    """Return the non-empty lines of a campaign file by number.  Raises LevelError."""
    try:
        stat = os.stat(path)
    except OSError as problem:
        raise LevelError(f"{path}: cannot be read ({problem.strerror}); give a campaign file") from problem
    return _read_lines(Path(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)  # a level set opens the file again for each of its levels
def _read_lines(path: Path, _mtime_ns: int, _size: int) -> dict[int, bytes]:
    data = read_bytes(path, LevelError, MAX_CAMPAIGN_BYTES, "give a campaign file")
    lines = _numbered(data)
    if not lines:
        raise LevelError(f"{path}: has no levels; a campaign file has one level per line: {FORM}")
    return lines


def _numbered(data: bytes) -> dict[int, bytes]:
    """Return the lines that are neither empty nor comments, by number; wrapped lines are joined."""
    numbered: dict[int, bytes] = {}
    last, is_cut = -1, False
    for number, line in enumerate(map(_plain, as_utf8(data).splitlines())):
        if is_cut and _REST.match(line):
            numbered[last] += line
            is_cut = not line.endswith(b"#")
        elif line and not (line.startswith(_COMMENTS) and not _BEGINNING.search(line)):
            last, numbered[number] = number, line
            is_cut = _CUT.search(line) is not None
    return numbered


def _plain(line: bytes) -> bytes:
    """Return a line without space, quotation marks, NUL, Ctrl-Z and byte order marks around it."""
    return line.replace(codecs.BOM_UTF8, b"").replace("\xa0".encode(), b" ").strip(b" \t\v\f\0\x1a\"'`")


def _parts(line: bytes, label: str) -> tuple[str, bytes, int]:
    """Return title, digits and offset of the digits of a line.  Raises LevelError if it is not a level."""
    if runs_of_digits := list(_DIGITS.finditer(line)):
        begin, (end, stop) = line.find(b"$", 0, runs_of_digits[-1].start()), runs_of_digits[-1].span(1)
        if begin >= 0:
            return _text(line[begin + 1 : end - 1]), line[end:stop], end
    line = _plain(line)
    if not line.startswith(b"$"):
        raise LevelError(f"{label}: begins with {line[:20]!r}; expected {FORM}")
    if not line.endswith(b"#") or line.count(b"#") < 2:
        raise LevelError(f"{label}: ends at byte {len(line)} without a '#' after the digits: the line is cut off")
    head, _, digits = line[:-1].rpartition(b"#")
    return _text(head[1:]), digits, len(head) + 1


def _title(line: bytes) -> str:
    """Return the title of a line; "" for a damaged line."""
    try:
        return _parts(line, "")[0]
    except LevelError:
        return ""


def _text(title: bytes) -> str:
    """Decode a title; characters that cannot be printed become '?'."""
    try:
        text = title.decode()
    except UnicodeDecodeError:
        text = title.decode("cp1252", "replace")
    return CONTROL.sub("?", text)


def _bytes_of(digits: bytes, offset: int) -> bytes:
    """Decode hexadecimal digits that are swapped in pairs.  offset: position of ``digits`` in the line."""
    if len(digits) % 2:
        raise LevelError(
            f"byte {offset + len(digits)}: {len(digits)} digits, an odd number: the line is cut off or damaged"
        )
    try:
        return bytes.fromhex(digits.decode("ascii")).translate(_SWAPPED)
    except ValueError as problem:
        bad = next(i for i, c in enumerate(digits) if c not in b"0123456789abcdefABCDEF")
        digit = digits[bad : bad + 1]
        raise LevelError(f"byte {offset + bad}: {digit!r} is not a hexadecimal digit") from problem


def _records_of(data: bytes) -> np.ndarray:
    """Return the records in the order of the map layout, uint8[n, 5].  data: decoded bytes of one line."""

    def cut(what: str) -> LevelError:
        return LevelError(f"the level's data end at byte {len(data)}, within {what}: the line is cut off")

    if len(data) < _TILES.stop:
        raise cut("the tiles")
    if data[: _TILES.start] != _ZEROS:
        raise LevelError(f"the data begin with {data[:4].hex()} instead of 00000000: this is not a level")
    offset = _TILES.stop
    blocks = []
    for kind, size in RECORD_BYTES.items():
        name = kinds.ENTITY_NAMES[kind]
        if offset + 2 > len(data):
            raise cut(f"the number of records of type {kind} ({name})")
        count = int.from_bytes(data[offset : offset + 2], "big")
        offset += 2
        if offset + count * size > len(data):
            raise cut(f"the {count} records of type {kind} ({name})")
        if count:
            rows = np.frombuffer(data, np.uint8, count * size, offset).reshape(count, size)
            blocks.append(_in_map_layout(kind, rows))
        offset += count * size
    if data[offset:] != _ZEROS:
        raise LevelError(
            f"{len(data) - offset} bytes follow the records at byte {offset}, expected 4 zero bytes: "
            "the counts of the records are damaged"
        )
    return np.concatenate(blocks) if blocks else np.empty((0, RECORD_SIZE), np.uint8)


def _in_map_layout(kind: int, rows: np.ndarray) -> np.ndarray:
    """Convert records of one type, uint8[n, size], to uint8[m, 5]: (type, x, y, orientation, mode).

    The record of a door's switch directly follows that of the door.  The records of all exit switches follow those of
    all exits.
    """
    if kind not in _SWITCH_OF:
        return _with_type(kind, rows)
    doors, switches = _with_type(kind, rows[:, :-2]), _with_type(_SWITCH_OF[kind], rows[:, -2:])
    if kind == kinds.EXIT:
        return np.concatenate([doors, switches])
    return np.stack([doors, switches], axis=1).reshape(-1, RECORD_SIZE)


def _with_type(kind: int, fields: np.ndarray) -> np.ndarray:
    records = np.zeros((len(fields), RECORD_SIZE), np.uint8)
    records[:, TYPE] = kind
    records[:, 1 : 1 + fields.shape[1]] = fields
    return records


container_readers[SUFFIX] = load_level
