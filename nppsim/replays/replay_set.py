"""Replay sets: many replays in one HDF5 file, which stores each level once.

    with ReplayWriter("play.h5") as writer:
        writer.append(replay, category="simple", source="human", device="pad")
    with ReplaySet("play.h5") as replays:
        replay, about = replays[0], replays.entry(0)
    replay = Replay.load("play.h5#0")

docs/file_formats.md specifies the layout.  A flush writes a copy of the file with the new replays at its end and replaces
the old file.  Therefore readers that have the old file open can continue, and a crash loses only replays that were not
flushed.
"""

import io
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from nppsim.errors import escaped
from nppsim.io import hdf5
from nppsim.io.addresses import parse_address
from nppsim.io.files import write_bytes
from nppsim.io.reading import parse_json
from nppsim.levels.level import Level, LevelError
from nppsim.replays.replay import MAX_BYTES, REPLAY_SET_SUFFIX, Replay, ReplayError, set_readers

FORMAT = "nppsim replays"
VERSION = 1
# Tables: name -> columns and their dtypes.  "end" is where each row ends in the table's packed column (``_PACKED``).
# Texts are stored as bytes: HDF5 stores strings of variable length in a heap, and hangs if this heap is damaged.
_TABLES = {
    "levels": {"data": "u1", "end": "i8", "fingerprint": "S64"},
    "replays": {"inputs": "u1", "end": "i8", "level": "i4", "success": "i1", "frame_skip": "i4"},
    "about": {"data": "u1", "end": "i8"},
}
_PACKED = ("data", "inputs")  # columns with the concatenated bytes of all rows; other columns have one value per row
_BLOCK_BYTES = 1 << 18  # bytes of a packed column that are read at once
_NO_BYTES = np.zeros(0, np.uint8)
_LIBRARY = ("v110", "v110")  # format of HDF5 1.10, which has checksums for all metadata


@dataclass(frozen=True)
class ReplayEntry:
    """Properties of a replay in a set.  metadata: JSON values that were passed to ``ReplayWriter.append``."""

    name: str
    category: str
    frames: int
    level_fingerprint: str
    success: bool | None
    frame_skip: int | None
    metadata: dict


class ReplayWriter:
    """Append replays to a file, which is created if it does not exist.

    Only one writer per file is allowed at a time.  The context manager flushes at its end, also after an exception.  A
    flush copies the whole file, so append many replays per flush.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._pending: list[tuple[Replay, bytes]] = []

    def append(self, replay: Replay, *, category: str = "", **metadata: object) -> None:
        """Add a replay; the next ``flush`` writes it.

        metadata: further properties, such as the source.  Raises ReplayError unless they are JSON values.
        Control characters in name and category are escaped.
        """
        where = f"{self.path}: {replay.name!r}"
        try:
            about = {"name": escaped(replay.name), "category": escaped(category), "metadata": metadata}
            packed = json.dumps(about, sort_keys=True, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ReplayError(f"{where}: the metadata are not JSON values: {error}; convert them") from error
        self._pending.append((replay, packed))

    def flush(self) -> None:
        """Write all appended replays; after an error the file is unchanged.

        Raises ReplayError if the file exists and is not a replay set.
        """
        if not self._pending:
            return
        copy = io.BytesIO()  # if HDF5 writes the file itself, a full disk crashes the process
        exists = self.path.exists()
        if exists:
            ReplaySet(self.path).close()  # raises ReplayError if the file is damaged
            copy.write(self.path.read_bytes())
        with h5py.File(copy, "r+" if exists else "w", libver=_LIBRARY) as file:
            if not exists:
                _create(file)
            self._append_to(file)
        data = copy.getvalue()
        try:
            write_bytes(self.path, data)
        finally:  # if the write was interrupted after replacing the file, the next flush must not repeat the replays
            if self.path.exists() and self.path.read_bytes() == data:
                self._pending.clear()

    def _append_to(self, file: h5py.File) -> None:
        rows = {text.decode(): row for row, text in enumerate(file["levels/fingerprint"][:])}
        replays = [replay for replay, _ in self._pending]
        new = {}
        for level in (replay.level for replay in replays):
            if level.fingerprint not in rows:
                rows[level.fingerprint] = len(rows)
                new[level.fingerprint] = level.to_bytes()
        _extend(file["levels"], "data", new.values(), {"fingerprint": np.array(list(new), "S64")})
        columns = {
            "level": [rows[replay.level.fingerprint] for replay in replays],
            "success": [-1 if replay.success is None else int(replay.success) for replay in replays],
            "frame_skip": [replay.frame_skip or 0 for replay in replays],
        }
        _extend(file["about"], "data", [text for _, text in self._pending], {})
        _extend(file["replays"], "inputs", [replay.inputs.tobytes() for replay in replays], columns)

    def __len__(self) -> int:
        """Number of replays waiting for the next flush."""
        return len(self._pending)

    def __enter__(self) -> "ReplayWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


class ReplaySet(Sequence[Replay]):
    """Read-only sequence of the replays of one file, in the order of writing.  ``replay_set[i]`` reads replay i.

    names, categories: one str per replay.  frames: int64[replays], length of each replay.
    The file stays open until ``close``.  Raises ReplayError if the file is missing, damaged or of another format, and on
    access to damaged inputs or levels.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self._file = hdf5.open_file(self.path)
        except hdf5.DAMAGE as error:
            raise ReplayError(f"{path}: cannot be opened as HDF5 ({hdf5.reason(error)}); check the path") from error
        try:
            self._open()
        except ReplayError:
            self.close()
            raise
        except hdf5.DAMAGE as error:
            self.close()
            raise self._damaged("the tables", error) from error

    def _open(self) -> None:
        stored = f"{FORMAT}, {_version(self._file)}" if "replays" in self._file else "another"
        if stored != f"{FORMAT}, {VERSION}":
            raise ReplayError(f"{self.path}: format {stored}, expected {FORMAT}, {VERSION}; is this a file of replays?")
        for table, columns in _TABLES.items():
            for name, dtype in columns.items():
                column = self._file[table][name]
                if column.dtype != dtype or column.ndim != 1:
                    raise ReplayError(
                        f"{self.path}: /{table}/{name} is {column.dtype}{list(column.shape)}, expected "
                        f"{np.dtype(dtype)}[n]; the file is damaged: copy it again"
                    )
            packed, end = (self._file[table][name] for name in list(columns)[:2])
            rows = {name: len(self._file[table][name]) for name in columns if name not in _PACKED}
            if len(set(rows.values())) != 1:
                raise ReplayError(f"{self.path}: columns of /{table} differ in length: {rows}; copy the file again")
            hdf5.check_ends(f"/{table}/end", end[:], len(packed))
        self._levels: dict[int, Level] = {}
        self._blocks: dict[str, tuple[int, np.ndarray]] = {}  # column -> position and content of the bytes read last
        self._level_end, self._end = self._file["levels/end"][:], self._file["replays/end"][:]
        self._success, self._frame_skip = self._file["replays/success"][:], self._file["replays/frame_skip"][:]
        self._level = self._file["replays/level"][:]
        if len(self._level) and not (self._level.min() >= 0 and self._level.max() < len(self._level_end)):
            raise ReplayError(f"{self.path}: /replays/level contains an index without a level; copy the file again")
        self._fingerprints = [text.decode() for text in self._file["levels/fingerprint"][:]]
        about = self._file["about/data"][:].tobytes()
        ends = self._file["about/end"][:].tolist()
        if len(ends) != len(self._level):
            raise ReplayError(f"{self.path}: {len(ends)} texts for {len(self._level)} replays; copy the file again")
        self._about = [self._text(about[start:end]) for start, end in itertools.pairwise([0, *ends])]
        self.names = tuple(about["name"] for about in self._about)
        self.categories = tuple(about["category"] for about in self._about)
        self.frames = np.diff(self._end, prepend=0)
        if self.frames.max(initial=0) > MAX_BYTES or np.diff(self._level_end, prepend=0).max(initial=0) > MAX_BYTES:
            raise ReplayError(f"{self.path}: a replay or level of more than {MAX_BYTES:,} bytes; copy the file again")

    def _text(self, packed: bytes) -> dict:
        """Decode name, category and metadata of a replay."""
        shape = {"name": str, "category": str, "metadata": {}}
        return parse_json(packed, f"{self.path}: /about", ReplayError, "the file is damaged: copy it again", shape)

    def __len__(self) -> int:
        return len(self._end)

    def entry(self, index: int) -> ReplayEntry:
        """Return the properties of replay ``index``.  Raises IndexError."""
        index = range(len(self))[index]
        success, frame_skip = int(self._success[index]), int(self._frame_skip[index])
        return ReplayEntry(
            self.names[index],
            self.categories[index],
            int(self.frames[index]),
            self._fingerprints[self._level[index]],
            None if success < 0 else bool(success),
            frame_skip or None,
            self._about[index]["metadata"],
        )

    def __getitem__(self, index: int) -> Replay:  # type: ignore[override]  # no slices: each replay is read from the file
        """Read replay ``index``; levels are cached.  Raises IndexError, ReplayError."""
        about = self.entry(index)
        index = range(len(self))[index]
        level = self._read_level(int(self._level[index]))
        try:
            inputs = self._packed("replays/inputs", self._end[index] - about.frames, self._end[index])
        except hdf5.DAMAGE as error:
            raise self._damaged(f"inputs of replay {index}", error) from error
        try:
            return Replay(level, inputs, about.success, about.name, about.frame_skip, level.warnings)
        except ReplayError as error:
            raise ReplayError(f"{self.path}: replay {index}: {error}") from error

    def _read_level(self, row: int) -> Level:
        if row not in self._levels:
            start = self._level_end[row - 1] if row else 0
            name = f"{self.path}, level {row}"
            try:
                level = Level.from_bytes(self._packed("levels/data", start, self._level_end[row]).tobytes(), name)
            except LevelError as error:
                raise ReplayError(f"{error} [/levels, row {row}]") from error
            except hdf5.DAMAGE as error:
                raise self._damaged(f"level {row}", error) from error
            if level.fingerprint != self._fingerprints[row]:
                raise ReplayError(f"{name}: the content does not match its fingerprint; copy the file again")
            self._levels[row] = level
        return self._levels[row]

    def _packed(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return bytes of a packed column; neighbouring rows are read together, as each access to HDF5 takes 0.4 ms."""
        first, block = self._blocks.get(name, (0, _NO_BYTES))
        if not first <= start <= stop <= first + len(block):
            first, block = start, self._file[name][start : max(stop, start + _BLOCK_BYTES)]
            self._blocks[name] = first, block
        return block[start - first : stop - first]

    def _damaged(self, what: str, error: Exception) -> ReplayError:
        return ReplayError(
            f"{self.path}: {what} cannot be read ({hdf5.reason(error)}); the file is damaged: copy it again"
        )

    def close(self) -> None:
        """Close the file."""
        hdf5.close(self._file)

    def __enter__(self) -> "ReplaySet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_one(address: str) -> Replay:
    """Read replay 7 for ``SET.h5#7``, or the only replay for ``SET.h5``.  Raises ReplayError."""
    file, number = parse_address(address)
    with ReplaySet(file) as replays:
        index = int(number) if number.isdecimal() and len(number) < 10 else len(replays) if number else 0
        if index >= len(replays) or not (number or len(replays) == 1):
            raise ReplayError(
                f"{address}: the set has {len(replays)} replays, numbered from {file}#0; give one of them"
            )
        return replays[index]


set_readers[REPLAY_SET_SUFFIX] = load_one


def _create(file: h5py.File) -> None:
    file.attrs["version"] = VERSION
    for table, columns in _TABLES.items():
        for name, dtype in columns.items():
            options = {"chunks": (1 << 16 if name in _PACKED else 1 << 10,), "fletcher32": True}
            file.create_dataset(f"{table}/{name}", (0,), dtype, maxshape=(None,), compression="gzip", **options)


def _version(file: h5py.File) -> object:
    """Return the version of the format, its dtype if it is not an integer, or None if there is none."""
    if "version" not in file.attrs:
        return None
    stored = file.attrs.get_id("version")
    return file.attrs["version"] if stored.shape == () and stored.dtype.kind in "iu" else stored.dtype


def _extend(
    table: h5py.Group, packed: str, blobs: Iterable[bytes], columns: Mapping[str, Sequence | np.ndarray]
) -> None:
    """Append rows to a table.

    packed: name of the packed column.  blobs: its bytes for each new row; their ends go to the column "end".
    columns: name of each other column -> values of the new rows.
    """
    blobs = list(blobs)
    if not blobs:
        return
    ends = len(table[packed]) + np.cumsum([len(blob) for blob in blobs])
    for name, values in {packed: np.frombuffer(b"".join(blobs), np.uint8), "end": ends, **columns}.items():
        column = table[name]
        start = len(column)
        column.resize(start + len(values), axis=0)
        column[start:] = values
