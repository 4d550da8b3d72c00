"""Levels: an immutable, validated ``Level``, read from and written to the N++ map layout.

A level file is a header of 184 bytes, 23 x 42 tile ids, 40 little-endian uint16 record counts, and records of 5 bytes
(type, x, y, orientation, mode).  All validation happens here, so the simulator checks nothing.  Unreadable data raise
``LevelError``.  Unusual data are masked or left unchanged, and listed in ``Level.warnings``.

Source: docs/physics.md, sections 2 (layout, pairing, odd files) and 11.4 (mirror images).
"""

import copy
import functools
import hashlib
import importlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nppsim.errors import InputWarning
from nppsim.io.addresses import parse_address
from nppsim.io.files import write_bytes
from nppsim.io.reading import as_utf8
from nppsim.levels import kinds, text
from nppsim.levels.format import (
    BOTTOM_Y,
    COUNTED,
    COUNTS_OFFSET,
    MAX_RECORDS,
    MIRROR_X,
    MODE,
    NUM_COUNTS,
    ORIENTATION,
    POSITION_UNIT,
    RECORD_SIZE,
    RECORDS_OFFSET,
    STEPS_PER_TILE,
    TILES_OFFSET,
    TITLE,
    TYPE,
    LevelError,
    X,
    Y,
)
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import MIRRORED, NUM_TILE_SHAPES

_SIZE = slice(4, 8)  # the file's length, little-endian; tools other than the game write 0
_MAX_SHIFT = 16  # bytes; levels that the game's server returns to a level query lack the first 8 bytes
MAX_TITLE = 128  # characters
MAX_WARNINGS = 5  # maximum number of warnings that ``warning_lines`` lists
MAX_TEXT = 1 << 20  # bytes, maximum size of a level as text; MAX_RECORDS records need less
TEXT_SUFFIX, TEXT_BEGINS = ".level", b"nppsim level"

# Phrases of ``Level.support_notes`` for types in ``kinds.COMPLETIONS`` whose rules do not come from N v2.0, an earlier
# version of the game.
_BEHAVIOUR = {kinds.LASER: "behave partly by guess", kinds.EVIL_NINJA: "behave as community tools describe them"}
EXACT, MODELLED, UNSUPPORTED = SUPPORT = ("exact", "modelled", "unsupported")  # see ``Level.support``

# Readers of other files that contain a level, by suffix.  A reader returns None for a file of another format.  Modules
# that define such formats (nppsim.replays.replay, nppsim.levels.campaign) register their reader here.
container_readers: dict[str, Callable[[str | Path], "Level | None"]] = {}
_READER_MODULES = ("nppsim.levels.campaign", "nppsim.replays.replay_set")  # they import this module


@dataclass(frozen=True, eq=False)
class Level:
    """Immutable level.  Equality and hash depend on the content (``fingerprint``), not on the name.

    tiles: uint8[23, 42], tile ids, ``tiles[row, column]``; read-only.  Ids above 37 have no geometry.
    records: uint8[n, 5], n >= 1, rows (type, x, y, orientation, mode) in file order; read-only.  x and y count steps of
        6 px from the outer corner of the border.  Row 0 is the ninja's spawn; later rows of type 0 create nothing.
        Orientations are reduced modulo 8, modes of drones modulo 4.
    name: used in messages, e.g. the file path.
    exit_count: 0..255, number of exits that the file states.  An exit's switch is this many rows after the exit.
    ball_count: 0..255, number of death balls that the file states.  COUNTED (also for exit_count): count the records.
    title: at most 128 characters.  The header of a map file stores at most 128 bytes of UTF-8.
    id: id of a level from a campaign file, such as "S-C-12-03" (``nppsim.levels.ids``); "" for other levels.
    warnings: one sentence per kind of unusual data: the byte offset in the file, and how the simulator treats the data.

    Raises LevelError for wrong shapes, values that are not bytes, and data of another format.
    """

    tiles: np.ndarray
    records: np.ndarray
    name: str = ""
    exit_count: int = COUNTED
    ball_count: int = COUNTED
    title: str = ""
    id: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self):
        tiles = _byte_array(self.tiles, "tiles", self.name)
        records = _byte_array(self.records, "records", self.name)
        if tiles.shape != (ROWS, COLUMNS):
            raise LevelError(
                f"{self._label}: tiles have shape {tiles.shape}; expected ({ROWS}, {COLUMNS}): [row, column]"
            )
        if records.ndim != 2 or records.shape[1] != RECORD_SIZE or len(records) == 0:
            raise LevelError(
                f"{self._label}: records have shape {records.shape}; expected (n, {RECORD_SIZE}) with n >= 1: "
                "(type, x, y, orientation, mode), the ninja's spawn first"
            )
        if len(records) > MAX_RECORDS:
            raise LevelError(
                f"{self._label}: {len(records)} records; at most {MAX_RECORDS} can be used: is this an N++ map?"
            )
        if len(self.title) > MAX_TITLE or "\0" in self.title or not is_encodable(self.title):
            raise LevelError(
                f"{self._label}: title {self.title!r} cannot be stored; use at most {MAX_TITLE} characters, without NUL "
                "and lone surrogates"
            )
        warnings = list(self.warnings)
        _check_spawn(tiles, records, self._label, warnings)
        _mask_records(records, warnings)
        counts = {}
        for field, kind in (("exit_count", kinds.EXIT), ("ball_count", kinds.DEATH_BALL)):
            counts[field] = _settled_count(getattr(self, field), records, kind, self._label, warnings)
        _check_tiles(tiles, warnings)
        warnings += _left_out(records)
        _check_places(records, warnings)
        _check_switches(records, counts["exit_count"], warnings)
        tiles.setflags(write=False)
        records.setflags(write=False)
        for field, value in {"tiles": tiles, "records": records, "warnings": tuple(warnings), **counts}.items():
            object.__setattr__(self, field, value)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "") -> "Level":
        """Decode the N++ map layout; ``name`` appears in messages.  Raises LevelError if ``data`` is not a level."""
        needed = RECORDS_OFFSET + RECORD_SIZE
        if len(data) < needed:
            raise LevelError(
                f"{name or 'level'}: {len(data)} bytes; an N++ map has at least {needed} "
                f"({RECORDS_OFFSET} of header, tiles and counts, {RECORD_SIZE} for the spawn): it is cut off or not a map"
            )
        if problem := _misaligned(bytes(data)):
            raise LevelError(f"{name or 'level'}: {problem}")
        num_records, rest = divmod(len(data) - RECORDS_OFFSET, RECORD_SIZE)
        warnings: tuple[str, ...] = ()
        if rest:
            offset = len(data) - rest
            warnings = (f"byte {offset}: the last record has {rest} of {RECORD_SIZE} bytes; it is ignored",)
        body = np.frombuffer(bytes(data), dtype=np.uint8)
        records = body[RECORDS_OFFSET : RECORDS_OFFSET + num_records * RECORD_SIZE].reshape(-1, RECORD_SIZE)
        return cls(
            tiles=body[TILES_OFFSET:COUNTS_OFFSET].reshape(ROWS, COLUMNS),
            records=records,
            name=name,
            exit_count=int(body[COUNTS_OFFSET + 2 * kinds.EXIT]),
            ball_count=int(body[COUNTS_OFFSET + 2 * kinds.DEATH_BALL]),
            title=_title_of(bytes(data[TITLE])),
            warnings=warnings,
        )

    @classmethod
    def load(cls, path: str | Path) -> "Level":
        """Read a level from a file in the map layout, a text file (``nppsim.levels.text``), a replay or a campaign file.

        ``SET.h5#7`` is the level of replay 7 of a replay set, ``S.txt#12`` line 12 of a campaign file.  The path becomes
        the level's name.  Raises LevelError, or OSError if the file cannot be read.
        """
        for module in _READER_MODULES:
            importlib.import_module(module)
        reader = container_readers.get(container_suffix(path))
        if reader and (level := reader(path)):
            return level
        with open(path, "rb") as file:
            data = file.read(RECORDS_OFFSET + RECORD_SIZE * (MAX_RECORDS + 1))  # one more than the validation accepts
            if is_text(data):
                data += file.read(MAX_TEXT + 1 - len(data))
        if Path(path).suffix.lower() == TEXT_SUFFIX and not is_level(data):
            raise LevelError(
                f"{path}: does not begin with '{TEXT_BEGINS.decode()}', as a level in text form does; write that as its "
                "first line and save it as UTF-8, or give a file in the map layout another suffix"
            )
        if not is_level(data):
            for reader in set(container_readers.values()):  # a replay may have any suffix
                with suppress(LevelError):  # ``from_content`` below raises a better message
                    if level := reader(path):
                        return level
            if Path(path).suffix.lower() == ".txt":
                raise LevelError(
                    f"{path}: neither a level as text nor a campaign file (one line per level: $TITLE#HEX#)"
                )
        return cls.from_content(data, name=str(path))

    @classmethod
    def from_content(cls, data: bytes, name: str = "") -> "Level":
        """Decode the bytes of a file in the map layout or as text.  Raises LevelError."""
        if not is_text(data):
            return cls.from_bytes(data, name)
        if len(data) > MAX_TEXT:
            raise LevelError(f"{name or 'level'}: more than {MAX_TEXT:,} bytes of text; this is not a level")
        return cls.from_text(as_utf8(data).decode("utf-8", "replace"), name)

    @classmethod
    def from_text(cls, content: str, name: str = "") -> "Level":
        """Parse a level in text form; ``name`` appears in messages.  Raises LevelError with the line number."""
        return cls(name=name, **text.parse(content, name))

    @classmethod
    def build(
        cls,
        tiles: np.ndarray,
        spawn: tuple[int, int],
        *,
        exits: Iterable[tuple[tuple[int, int], tuple[int, int]]] = (),
        locked_doors: Iterable[tuple[tuple[int, int], tuple[int, int], int]] = (),
        trap_doors: Iterable[tuple[tuple[int, int], tuple[int, int], int]] = (),
        entities: Iterable[Sequence[int]] = (),
        title: str = "",
        name: str = "",
    ) -> "Level":
        """Build a level from its parts, with records in the order of N++, in which each door is paired with its switch.

        All positions are (x, y) bytes: steps of 6 px from the outer corner of the border.
        exits: (switch, door) positions.
        locked_doors, trap_doors: (switch, door, door orientation 0..7).
        entities: records of all other types, (type, x, y), (type, x, y, orientation) or (type, x, y, orientation, mode).
        """
        exits = list(exits)
        rows: list[tuple[int, ...]] = [(kinds.EXIT, *door) for _, door in exits]
        rows += [(kinds.EXIT_SWITCH, *switch) for switch, _ in exits]
        for kind, doors in ((kinds.LOCKED_DOOR, locked_doors), (kinds.TRAP_DOOR, trap_doors)):
            for pair in doors:
                if len(pair) != 3:
                    raise LevelError(
                        f"{name or 'level'}: {ENTITY_NAMES[kind]} {pair}; expected (switch, door, orientation 0..7)"
                    )
                switch, door, orientation = pair
                rows += [(kind, *door, orientation), (kinds.SWITCH_OF_DOOR[kind], *switch)]
        for entity in entities:
            if entity[0] in (kinds.NINJA, *kinds.PAIRED):
                raise LevelError(
                    f"{name or 'level'}: entity {tuple(entity)} is a {ENTITY_NAMES[entity[0]]}; "
                    "give it as spawn, exits, locked_doors or trap_doors, so that switch and door stay paired"
                )
            rows.append(tuple(entity))
        # A switch has the sort key of its door, so that the stable sort does not separate them.
        door_of_switch = {switch: door for door, switch in kinds.SWITCH_OF_DOOR.items()}
        rows.sort(key=lambda row: door_of_switch.get(row[0], row[0]))
        records = [tuple(row) + (0,) * (RECORD_SIZE - len(row)) for row in [(kinds.NINJA, *spawn), *rows]]
        return cls(tiles, np.array(records), name=name, title=title)

    def to_bytes(self) -> bytes:
        """Encode the level in the N++ map layout; decoding restores tiles, records, counts and title."""
        data = np.zeros(RECORDS_OFFSET + self.records.size, dtype=np.uint8)
        title = _title_bytes(self.title)
        data[TITLE.start : TITLE.start + len(title)] = np.frombuffer(title, dtype=np.uint8)
        data[TILES_OFFSET:COUNTS_OFFSET] = self.tiles.ravel()
        counts = np.bincount(self.records[:, TYPE], minlength=NUM_COUNTS)[:NUM_COUNTS].astype("<u2")
        counts[kinds.EXIT] = self.exit_count
        counts[kinds.DEATH_BALL] = self.ball_count
        data[COUNTS_OFFSET:RECORDS_OFFSET] = counts.view(np.uint8)
        data[RECORDS_OFFSET:] = self.records.ravel()
        return data.tobytes()

    def to_text(self) -> str:
        """Return the level as text (``nppsim.levels.text``); ``from_text`` reads it back unchanged."""
        return text.serialize(
            self.tiles, self.records, self.title, exit_count=self.exit_count, ball_count=self.ball_count
        )

    def save(self, path: str | Path) -> None:
        """Write the level in the N++ map layout, or as text (``nppsim.levels.text``) if the name ends in ``.level``.

        Warns (InputWarning) if the title does not fit the header of the map layout, or is not ASCII, as in the game.
        """
        if Path(path).suffix.lower() == TEXT_SUFFIX:
            write_bytes(path, self.to_text().encode())
        else:
            write_bytes(path, self.to_bytes())
            if not self.title.isascii():
                stored = _title_of(_title_bytes(self.title))
                loss = "" if stored == self.title else f"; only {stored!r} fits the header"
                advice = "the game may show other characters; .level and .txt files store all of it"
                message = f"{path}: the title {self.title!r} is not ASCII{loss}; {advice}"
                warnings.warn(InputWarning(message), stacklevel=2)

    def described(self, name: str, title: str, id: str) -> "Level":
        """Return the same level with another name, title (at most MAX_TITLE characters) and id."""
        level = copy.copy(self)
        level.__dict__.update(name=name, title=title, id=id)
        return level

    @property
    def spawn(self) -> tuple[float, float]:
        """Centre of the ninja at the start, (x, y) in px."""
        return float(POSITION_UNIT * int(self.records[0, X])), float(POSITION_UNIT * int(self.records[0, Y]))

    @property
    def caption(self) -> str:
        """Id and title of a level from a campaign file; the name of any other level."""
        return f"{self.id} {self.title.strip()}".strip() if self.id else self.name

    @cached_property
    def support(self) -> str:
        """Fidelity of the simulation of this level's entities: "exact", "modelled" or "unsupported".

        "exact": all rules were measured on recordings of the game.  "modelled": some rules come from other sources, see
        docs/physics.md.  "unsupported": an entity is left out, so the level differs from the game's.
        """
        types = set(self.records[1:, TYPE].tolist())
        if any(map(is_left_out, types)):
            return UNSUPPORTED
        return EXACT if types.isdisjoint(kinds.COMPLETIONS) else MODELLED

    @property
    def support_line(self) -> str:
        """``support`` and its reasons in one line, e.g. "modelled (rocket turrets behave as in N v2.0)"."""
        return f"{self.support} ({'; '.join(self.support_notes)})" if self.support_notes else self.support

    @cached_property
    def support_notes(self) -> tuple[str, ...]:
        """Reasons why ``support`` is not "exact", e.g. "rocket turrets behave as in N v2.0"."""
        types = set(self.records[1:, TYPE].tolist())
        sources: dict[str, list[str]] = {}
        for kind in kinds.COMPLETIONS:
            if kind in types:
                sources.setdefault(_BEHAVIOUR.get(kind, "behave as in N v2.0"), []).append(f"{ENTITY_NAMES[kind]}s")
        notes = [f"{' and '.join(names)} {behaviour}" for behaviour, names in sources.items()]
        return (*notes, *_left_out(self.records))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the data that the simulation reads: tiles, records, exit_count, ball_count."""
        return self._digest(self.tiles, self.records)

    @cached_property
    def mirrored_fingerprint(self) -> str:
        """``fingerprint`` of ``mirror(self)``, without the checks of a new level."""
        return self._digest(*_mirrored(self))

    def _digest(self, tiles: np.ndarray, records: np.ndarray) -> str:
        digest = hashlib.sha256(tiles.tobytes())
        digest.update(records.tobytes())
        digest.update(bytes((self.exit_count, self.ball_count)))
        return digest.hexdigest()

    @property
    def _label(self) -> str:
        return self.name or "level"

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Level) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __setstate__(self, state: dict) -> None:
        # Pickling between processes loses the read-only flag of arrays.
        self.__dict__.update(state)
        self.tiles.setflags(write=False)
        self.records.setflags(write=False)

    def __repr__(self) -> str:
        return f"Level({self._label!r}, {len(self.records)} records, fingerprint {self.fingerprint[:12]})"


def _title_of(header: bytes) -> str:
    """Decode the title in the header of a map file: UTF-8, or Windows-1252 if that is impossible."""
    title = header.split(b"\0", 1)[0]
    try:
        return title.decode()
    except UnicodeDecodeError:
        return title.decode("cp1252", "replace")


def _title_bytes(title: str) -> bytes:
    """Encode a title for the header of a map file; characters that do not fit are left out at its end."""
    return title.encode()[: TITLE.stop - TITLE.start].decode(errors="ignore").encode()


def is_encodable(text: str) -> bool:
    """Return True for a text without lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def container_suffix(path: str | Path) -> str:
    """Return the suffix of a file in lower case; for an address (``nppsim.io.addresses``), that of the usual container.

    It is ".h5" for ``SET.h5#7``, and ".txt" for ``S.txt#title`` and ``FOLDER#SI-A-00-00``, which refer to campaign files.
    """
    address = parse_address(path)
    return ".txt" if address.entry and address.suffix != ".h5" else address.suffix


def warning_lines(levels: Iterable[Level]) -> list[str]:
    """Return a line for each of the first MAX_WARNINGS warnings of the levels, and one line that counts the others."""
    warnings = [f"warning: {level.name}: {warning}" for level in levels for warning in level.warnings]
    more = len(warnings) - MAX_WARNINGS
    return warnings[:MAX_WARNINGS] + ([f"warning: and {more} more like these"] if more > 0 else [])


def left_out(unsupported: Sequence[Level], total: int) -> str:
    """Return a message about levels that are skipped as unsupported.  total: number of all levels."""
    return (
        f"{len(unsupported)} of {total} levels contain entities that the simulator leaves out, "
        f"such as {unsupported[0].name} (nppsim levels lists them); --allow-unsupported plays them without these entities"
    )


def is_text(data: bytes) -> bool:
    """Return True if these bytes are a level as text."""
    return as_utf8(data[:200]).startswith(TEXT_BEGINS)


def is_level(data: bytes) -> bool:
    """Return True if these bytes are a level, in the map layout (which begins with four zeros) or as text."""
    return is_text(data) or (data[:4] == bytes(4) and len(data) >= RECORDS_OFFSET + RECORD_SIZE)


def mirror(level: Level) -> Level:
    """Mirror a level horizontally; mirroring twice restores the level.

    The physics of both agree except for rounding and a few asymmetries (docs/physics.md, section 11.4).
    """
    tiles, records = _mirrored(level)
    return Level(tiles, records, level.name, level.exit_count, level.ball_count, level.title)


def _mirrored(level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Return tiles and records of the mirror image of a level."""
    records = level.records.copy()
    records[:, X] = MIRROR_X - records[:, X]  # bytes wrap around, so that this is reversible outside the stage too
    oriented = _is_among(kinds.ORIENTED)[records[:, TYPE]]
    turned = records[oriented, ORIENTATION].astype(int)
    records[oriented, ORIENTATION] = turned // 8 * 8 + (4 - turned) % 8
    drones = _is_among(kinds.DRONES)[records[:, TYPE]]
    records[drones, MODE] ^= 1
    return MIRRORED[level.tiles[:, ::-1]], records


def symmetric_fingerprint(level: Level) -> str:
    """Return the smaller of the fingerprints of a level and of its mirror image: the same string for both levels."""
    return min(level.fingerprint, level.mirrored_fingerprint)


def _misaligned(data: bytes) -> str:
    """Return why the bytes of a map file cannot be where the layout has them; "" if nothing indicates that."""
    for shift in range(1, _MAX_SHIFT + 1) if not _fits(data) else ():
        if _fits(bytes(shift) + data):
            return (
                f"a map without {shift} bytes of its header (the game's level query returns maps without the first 8); "
                f"put {shift} zero bytes before it"
            )
        if _fits(data[shift:]):
            return f"a map after {shift} bytes that do not belong to it; remove the first {shift} bytes"
    if any(data[: _SIZE.start]):
        return f"byte 0: begins with {data[: _SIZE.start]!r} instead of four zero bytes: this is not an N++ map"
    stated = int.from_bytes(data[_SIZE], "little")
    if stated not in (0, len(data)):
        return (
            f"byte {_SIZE.start}: a map of {stated} bytes is stated, there are {len(data)}; copy or download it again"
        )
    counts = np.frombuffer(data, "<u2", NUM_COUNTS, COUNTS_OFFSET)
    if counts.max() > MAX_RECORDS:
        kind = int(counts.argmax())
        return (
            f"byte {COUNTS_OFFSET + 2 * kind}: {counts[kind]} records of type {kind} are stated, at most {MAX_RECORDS} "
            "can be used: this is not an N++ map"
        )
    if missing := _missing_records(data, counts):
        return f"{missing} of the stated records are missing at its end: it was cut off, copy or download it again"
    return ""


def _missing_records(data: bytes, stated: np.ndarray) -> int:
    """Return how many records are missing at the end of a map file; 0 if the stated counts do not show that it was cut off.

    Records are in the order of their types, except that switches follow their doors.  Counts of exits and death balls are
    not compared, as the simulator uses the stated ones.
    """
    counts = _counts(data)
    differ = np.flatnonzero(counts != stated)
    if not len(differ):
        return 0
    differ = differ[~np.isin(differ, (kinds.EXIT, kinds.DEATH_BALL))]
    if not len(differ) or (counts > stated)[differ].any() or counts[differ[0] + 2 :].any():
        return 0
    return int(np.maximum(stated.astype(int) - counts, 0).sum())


def _counts(data: bytes) -> np.ndarray:
    """Return the number of records of each type in a map file: int64[NUM_COUNTS]."""
    whole = len(data) - (len(data) - RECORDS_OFFSET) % RECORD_SIZE
    types = np.frombuffer(data[:whole], np.uint8, offset=RECORDS_OFFSET)[TYPE::RECORD_SIZE]
    return np.bincount(types, minlength=NUM_COUNTS)[:NUM_COUNTS]


def _fits(data: bytes) -> bool:
    """Return True if a map file is undamaged as far as its records, its stated counts and its tiles show."""
    if len(data) < RECORDS_OFFSET + RECORD_SIZE or (len(data) - RECORDS_OFFSET) % RECORD_SIZE:
        return False
    counts, stated = _counts(data), np.frombuffer(data, "<u2", NUM_COUNTS, COUNTS_OFFSET)
    exits = np.where(np.arange(NUM_COUNTS) == kinds.EXIT, counts, 0)  # some tools state no other counts
    counted = np.array_equal(counts, stated) or (exits.any() and np.array_equal(exits, stated))
    tiles = np.frombuffer(data, np.uint8, COUNTS_OFFSET - TILES_OFFSET, TILES_OFFSET)
    return bool(counted and data[RECORDS_OFFSET] == kinds.NINJA and (tiles < NUM_TILE_SHAPES).all())


def _offset(record: int) -> int:
    """Return the byte offset of a record in the file."""
    return RECORDS_OFFSET + RECORD_SIZE * record


def _byte_array(values: npt.ArrayLike, what: str, name: str) -> np.ndarray:
    """Copy ``values`` as uint8; raise LevelError unless they are integers 0..255."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() > 255)):
        span = f"{array.min()}..{array.max()}" if array.size and array.dtype.kind in "iuf" else "no numbers"
        raise LevelError(f"{name or 'level'}: {what} of dtype {array.dtype} contain {span}; expected integers 0..255")
    return np.array(array, dtype=np.uint8, order="C")


def _check_spawn(tiles: np.ndarray, records: np.ndarray, label: str, warnings: list[str]) -> None:
    """Raise LevelError for a spawn that is empty or outside the stage; warn unless the first record is a spawn.

    A first record of another type together with invalid tile ids is an error.  The reference simulator uses the position
    of the first record without checking its type.  Replays of levels with such a damaged record exist.
    """
    kind, x, y = records[0, [TYPE, X, Y]].tolist()
    if x > MIRROR_X or y > BOTTOM_Y:
        raise LevelError(
            f"{label}: the spawn (byte {RECORDS_OFFSET}) is at ({POSITION_UNIT * x}, {POSITION_UNIT * y}) px, outside the "
            f"stage of {POSITION_UNIT * MIRROR_X} x {POSITION_UNIT * BOTTOM_Y} px: is this an N++ map?"
        )
    if not records[0].any():
        raise LevelError(f"{label}: the first record (byte {RECORDS_OFFSET}), the spawn, is empty: is this an N++ map?")
    if kind == kinds.NINJA:
        return
    problem = f"byte {RECORDS_OFFSET}: the first record has type {kind} instead of 0, the ninja's spawn"
    if (tiles >= NUM_TILE_SHAPES).any():
        raise LevelError(f"{label}: {problem}, and tile ids are above {NUM_TILE_SHAPES - 1}: this is not an N++ map")
    warnings.append(f"{problem}; its position is used, as in the reference simulator; the records are probably damaged")


@functools.cache
def _is_among(types: tuple[int, ...]) -> np.ndarray:
    """Return bool[256]: True for each of these types; faster than ``np.isin`` for the records of one level."""
    return np.isin(np.arange(256), types)


def _mask_records(records: np.ndarray, warnings: list[str]) -> None:
    """Reduce orientations modulo 8 and modes modulo 4, in place, with a warning for each changed value."""
    for column, types, modulus, what in (
        (ORIENTATION, kinds.ORIENTED, 8, "orientation"),
        (MODE, kinds.DRONES, 4, "mode"),
    ):
        masked = (_is_among(types) & ~_is_among(kinds.SHOOTING_DRONES))[records[:, TYPE]]
        for i in np.flatnonzero(masked & (records[:, column] >= modulus)).tolist():
            value = int(records[i, column])
            records[i, column] = value % modulus
            warnings.append(
                f"byte {_offset(i) + column}: {what} {value} of a {ENTITY_NAMES[records[i, TYPE]]}; "
                f"{value % modulus} is used (modulo {modulus})"
            )


def _settled_count(count: int, records: np.ndarray, kind: int, label: str, warnings: list[str]) -> int:
    """Return ``given``, or the number of records of type ``kind`` if ``given`` is COUNTED.

    Warns if the two numbers differ.
    """
    counted = int((records[:, TYPE] == kind).sum())
    if count == COUNTED:
        count = counted
    if not 0 <= count <= 255:
        raise LevelError(f"{label}: {count} {ENTITY_NAMES[kind]}s; the count must fit one byte (0..255)")
    if count != counted:
        warnings.append(
            f"byte {COUNTS_OFFSET + 2 * kind}: the stated number of {ENTITY_NAMES[kind]} records (type {kind}) is "
            f"{count}, the file contains {counted}; the stated number is used, as in the reference simulator"
        )
    return int(count)


def _check_tiles(tiles: np.ndarray, warnings: list[str]) -> None:
    invalid = np.argwhere(tiles >= NUM_TILE_SHAPES)
    if len(invalid):
        row, column = invalid[0]
        warnings.append(
            f"byte {TILES_OFFSET + COLUMNS * row + column}: tile id {tiles[row, column]} at column {column}, row {row} "
            f"(the first of {len(invalid)}); ids above {NUM_TILE_SHAPES - 1} have no geometry"
        )


def is_left_out(kind: int) -> bool:
    """Return True for types of records that are not simulated."""
    return kind in kinds.WITHOUT_EFFECT or kind >= len(ENTITY_NAMES)


def _left_out(records: np.ndarray) -> list[str]:
    """List the entities that are not simulated, e.g. "2 alternative death balls are left out"."""
    counts: Counter[str] = Counter()
    for kind, count in enumerate(np.bincount(records[1:, TYPE]).tolist()):
        if count and is_left_out(kind):
            counts[ENTITY_NAMES[kind] if kind < len(ENTITY_NAMES) else "unknown entity"] += count
    return [
        f"1 {name} is left out" if count == 1 else f"{count} {name.replace('entity', 'entitie')}s are left out"
        for name, count in counts.items()
    ]


def _check_places(records: np.ndarray, warnings: list[str]) -> None:
    """Warn about entities on the half-cell grid that stand in the border, once per type.

    The reference simulator fails when such an entity reads the grid beyond the right or lower edge of the stage.
    """
    x, y = records[:, X].astype(int), records[:, Y].astype(int)
    border = STEPS_PER_TILE
    in_border = (x < border) | (x > MIRROR_X - border) | (y < border) | (y > BOTTOM_Y - border)
    for kind in kinds.ON_THE_GRID if in_border.any() else ():
        affected = in_border & (records[:, TYPE] == kind)
        if affected.any():
            first = int(np.argmax(affected))
            warnings.append(
                f"byte {_offset(first)}: a {ENTITY_NAMES[kind]} (type {kind}; the first of {affected.sum()} such records) "
                f"stands in the border, at ({POSITION_UNIT * x[first]}, {POSITION_UNIT * y[first]}) px; "
                "the simulator treats everything outside the stage as solid for it"
            )


def _check_switches(records: np.ndarray, exit_count: int, warnings: list[str]) -> None:
    """Warn about doors whose switch record is missing or of another type."""
    doors = np.flatnonzero(_is_among((kinds.EXIT, *kinds.SWITCH_OF_DOOR))[records[:, TYPE]]).tolist()
    for i, kind in zip(doors, records[doors, TYPE].tolist(), strict=True):
        if kind == kinds.EXIT:
            partner, wanted = i + exit_count, kinds.EXIT_SWITCH
        else:
            partner, wanted = i + 1, kinds.SWITCH_OF_DOOR[kind]
        door = f"byte {_offset(i)}: the {ENTITY_NAMES[kind]}"
        if partner >= len(records):
            warnings.append(
                f"{door} has its switch record at byte {_offset(partner)}, beyond the end; the door has no switch"
            )
        elif records[partner, TYPE] != wanted:
            warnings.append(
                f"{door} has its switch record at byte {_offset(partner)}, which has type {records[partner, TYPE]} "
                f"instead of {wanted}; its position is used, as in the reference simulator"
            )
