"""TensorBoard event files: write and read scalars, check that expected ones are on disk."""

import io
import itertools
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nppsim.errors import UserError, needed
from nppsim.files import append_text

_EVENT_FILES = "events.out.tfevents*"
WRITTEN = "written.txt"  # beside event files: names of those that EventWriter has made
_MAX_EVENT = 64 << 20  # bytes; the longest, with the settings of a run, have some thousand


class EventsError(UserError, RuntimeError):
    """Missing, duplicate or incomplete event files."""


_NUMBERS = itertools.count()  # of this process's writers, so that no two name their file alike


class EventWriter:
    """Writes scalars and other summaries into a new event file of ``folder``, which is made if it is missing.

    The file's name is added to WRITTEN.

    ``flush`` writes all of them together, in the calling thread: where TensorBoard's own writer has a thread, whose errors
    come late or never.  Raises OSError with the file's name for what cannot be written (the file then ends with the last
    flush that could), and EventsError where the file has been removed meanwhile.
    """

    def __init__(self, folder: str | os.PathLike):
        self._event = needed("tensorboard.compat.proto.event_pb2", "train").Event
        self._summary = needed("tensorboard.compat.proto.summary_pb2", "train").Summary
        record_writer = needed("tensorboard.summary.writer.record_writer", "train")
        if os.fsdecode(folder).encode(errors="replace").decode() != os.fsdecode(folder):
            raise EventsError(f"{folder}: TensorBoard reads no folder whose name is not UTF-8; choose another name")
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self.path = Path(folder) / f"{_EVENT_FILES[:-1]}.{name}"
        append_text(Path(folder) / WRITTEN, f"{self.path.name}\n")
        self._pending = io.BytesIO()
        self._records = record_writer.RecordWriter(self._pending)
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115  # closed by close()
        self._records.write(self._event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        self.flush()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add a scalar; it is on disk after the next ``flush``."""
        self.add_summary(self._summary(value=[self._summary.Value(tag=tag, simple_value=float(value))]), step)

    def add_summary(self, summary: Any, step: int) -> None:
        """Add a protocol buffer ``Summary`` of TensorBoard."""
        self._records.write(self._event(wall_time=time.time(), step=step, summary=summary).SerializeToString())

    def flush(self) -> None:
        """Write pending events."""
        whole, rest = self._file.tell(), memoryview(self._pending.getvalue())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._file.seek(whole)
            self._file.truncate()
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._pending.seek(0)
        self._pending.truncate()
        if not self.path.exists():
            raise EventsError(
                f"{self.path}: was removed while the run was writing to it; go on from the last checkpoint that is left, "
                "or train again"
            )

    def close(self) -> None:
        """Write pending events and close the file."""
        with self._file:
            self.flush()

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Scalars(NamedTuple):
    """One tag's history.  steps: int64[n].  values: float64[n]."""

    steps: np.ndarray
    values: np.ndarray


def event_files(folder: str | os.PathLike) -> list[Path]:
    """The event files in ``folder`` itself, oldest first: their names begin with the time."""
    return sorted(Path(folder).glob(_EVENT_FILES))


def own_event_files(folder: str | os.PathLike) -> list[Path]:
    """The event files in ``folder`` that EventWriter has made; all where no names are recorded, as in earlier versions."""
    record = Path(folder) / WRITTEN
    names = record.read_text(encoding="utf-8", errors="replace").split("\n") if record.is_file() else None
    return [file for file in event_files(folder) if names is None or file.name in names]


def event_folders(folder: str | os.PathLike) -> list[Path]:
    """Every folder at or below ``folder`` that holds event files, sorted."""
    return sorted({file.parent for file in Path(folder).rglob(_EVENT_FILES)})


@contextmanager
def reading_events(files: Sequence[Path]) -> Iterator[None]:
    """Raise EventsError for damaged event files, before TensorBoard allocates memory for a wrong length."""
    for file in files:
        _check_lengths(file)
    try:
        yield
    except (needed("google.protobuf.message", "train").DecodeError, ValueError, TypeError) as error:
        raise EventsError(f"{files[0]}: no events of TensorBoard, or damaged ({error}): bring it back") from error


def _check_lengths(file: Path) -> None:
    """Raise EventsError for a huge event length: TensorBoard would allocate it before reading."""
    checksum = needed("tensorboard.compat.tensorflow_stub.pywrap_tensorflow", "train").masked_crc32c
    with open(file, "rb") as records:
        while len(header := records.read(12)) == 12:  # length in 8 bytes, its checksum
            length = int.from_bytes(header[:8], "little")
            if length > _MAX_EVENT:
                if checksum(header[:8]) != int.from_bytes(header[8:], "little"):
                    return  # damaged: TensorBoard reads no further either
                raise EventsError(f"{file}: damaged (an event of {length:,} bytes): bring it back")
            records.seek(length + 4, os.SEEK_CUR)


def read_scalars(folder: str | os.PathLike) -> dict[str, Scalars]:
    """All scalars of the one event tree at or below ``folder``: tag -> Scalars, ordered by step.

    Several files in one folder (a resumed run) are read as one.  Raises EventsError if there is no event file, or if
    more than one folder has some: two writers would hide each other's curves.
    """
    event_accumulator = needed("tensorboard.backend.event_processing.event_accumulator", "train")
    folders = event_folders(folder)
    if not folders:
        raise EventsError(
            f"{folder}: no TensorBoard event files here or below; was the logger attached to this folder?"
        )
    if len(folders) > 1:
        found = ", ".join(str(f.relative_to(folder)) for f in folders)
        raise EventsError(f"{folder}: {len(folders)} event trees ({found}); one run must have exactly one writer")
    accumulator = event_accumulator.EventAccumulator(str(folders[0]), size_guidance={"scalars": 0})
    with reading_events(event_files(folders[0])):
        accumulator.Reload()
    scalars = {}
    for tag in accumulator.Tags()["scalars"]:
        events = accumulator.Scalars(tag)
        steps = np.array([e.step for e in events], dtype=np.int64)
        order = np.argsort(steps, kind="stable")
        values = np.array([e.value for e in events], dtype=np.float64)
        scalars[tag] = Scalars(steps[order], values[order])
    return scalars


def require_tags(folder: str | os.PathLike, tags: Iterable[str]) -> dict[str, Scalars]:
    """Check that each tag has at least one value on disk; for use right after the first update.

    folder: the run's TensorBoard folder, as named in its log.  Returns everything read.  Raises EventsError with the
    missing tags, or if there is not exactly one event tree.
    """
    scalars = read_scalars(folder)
    missing = sorted(set(tags) - set(scalars))
    if missing:
        raise EventsError(
            f"{folder}: {len(missing)} tags that must be on disk are not: {', '.join(missing)}; "
            f"found {len(scalars)}: {', '.join(sorted(scalars)) or 'none'}.  Was the logger replaced or not dumped?"
        )
    return scalars
