"""TensorBoard event files: write scalars, read them, and check that expected tags are on disk."""

import io
import itertools
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nppsim.errors import UserError, needed
from nppsim.io.files import append_text

_EVENT_FILES = "events.out.tfevents*"
WRITTEN = "written.txt"  # text file beside event files; lists those that EventWriter wrote


class EventsError(UserError, RuntimeError):
    """Missing, duplicate or incomplete event files."""


_NUMBERS = itertools.count()  # a number for each writer of this process, which makes file names unique


class EventWriter:
    """Writer of scalars and other summaries into a new event file.

    folder: folder of the event file, created if it is missing; its file WRITTEN lists the event file.
    ``flush`` writes in the calling thread; TensorBoard's own writer has a thread, whose errors come late or never.
    Raises OSError if events cannot be written; the file then ends with the last complete flush.  Raises EventsError if the
    file was removed while the writer was open.
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
        """Add a scalar, which is on disk after the next ``flush``."""
        self.add_summary(self._summary(value=[self._summary.Value(tag=tag, simple_value=float(value))]), step)

    def add_summary(self, summary: Any, step: int) -> None:
        """Add TensorBoard's protocol buffer ``Summary``."""
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
                f"{self.path}: was removed while the run was writing to it; resume from the newest checkpoint, or train "
                "again"
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
    """History of one tag.  steps: int64[n].  values: float64[n]."""

    steps: np.ndarray
    values: np.ndarray


def event_files(folder: str | os.PathLike) -> list[Path]:
    """Return the event files in ``folder`` without its sub-folders, the oldest first."""
    return sorted(Path(folder).glob(_EVENT_FILES))


def own_event_files(folder: str | os.PathLike) -> list[Path]:
    """Return the event files in ``folder`` that EventWriter has made; all files if there is no WRITTEN."""
    record = Path(folder) / WRITTEN
    names = record.read_text(encoding="utf-8", errors="replace").split("\n") if record.is_file() else None
    return [file for file in event_files(folder) if names is None or file.name in names]


def event_folders(folder: str | os.PathLike) -> list[Path]:
    """Return all folders with event files, at or below ``folder``, sorted."""
    return sorted({file.parent for file in Path(folder).rglob(_EVENT_FILES)})


@contextmanager
def reading_events(path: Path) -> Iterator[None]:
    """Raise EventsError for damaged event files that are read inside the block.  path: file or folder, for the message."""
    try:
        yield
    except (needed("google.protobuf.message", "train").DecodeError, ValueError, TypeError) as error:
        raise EventsError(f"{path}: no events of TensorBoard, or damaged ({error}): restore a copy") from error


def read_scalars(folder: str | os.PathLike) -> dict[str, Scalars]:
    """Read all scalars of the one folder with event files, at or below ``folder``: tag -> Scalars, ordered by step.

    The files of a resumed run are in one folder and are read as one history.
    Raises EventsError if no folder has event files, or if several have: TensorBoard would show their curves as two runs.
    """
    event_accumulator = needed("tensorboard.backend.event_processing.event_accumulator", "train")
    folders = event_folders(folder)
    if not folders:
        raise EventsError(
            f"{folder}: no TensorBoard event files here or in sub-folders; check that the logger writes to this folder"
        )
    if len(folders) > 1:
        found = ", ".join(str(f.relative_to(folder)) for f in folders)
        raise EventsError(f"{folder}: {len(folders)} folders with event files ({found}); a run must have exactly one")
    accumulator = event_accumulator.EventAccumulator(str(folders[0]), size_guidance={"scalars": 0})
    with reading_events(folders[0]):
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
    """Check that each tag has at least one value on disk; return all scalars.

    folder: TensorBoard folder of a run.
    Raises EventsError if tags are missing, or as ``read_scalars``.
    """
    scalars = read_scalars(folder)
    missing = sorted(set(tags) - set(scalars))
    if missing:
        raise EventsError(
            f"{folder}: {len(missing)} required tags are not on disk: {', '.join(missing)}; found {len(scalars)}: "
            f"{', '.join(sorted(scalars)) or 'none'}.  Check that the logger was not replaced"
        )
    return scalars
