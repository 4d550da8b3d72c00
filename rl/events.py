"""TensorBoard event files: write them, read scalars, and check that expected tags are on disk."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nppsim.errors import UserError, import_optional

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_EVENT_FILES = "events.out.tfevents*"


class EventsError(UserError, RuntimeError):
    """Missing, duplicate or incomplete event files."""


def open_events(folder: str | os.PathLike, purge_step: int | None = None) -> "SummaryWriter":
    """Return a writer of a new event file.

    folder: folder of the event file, created if it is missing.
    purge_step: readers ignore events in earlier files from this step on.
    """
    name = os.fsdecode(folder)
    if name.encode(errors="replace").decode() != name:
        raise EventsError(f"{name}: TensorBoard reads no folder whose name is not UTF-8; choose another name")
    writer: SummaryWriter = import_optional("torch.utils.tensorboard", "train").SummaryWriter(
        name, purge_step=purge_step
    )
    return writer


class Scalars(NamedTuple):
    """History of one tag.  steps: int64[n].  values: float64[n]."""

    steps: np.ndarray
    values: np.ndarray


def event_files(folder: str | os.PathLike) -> list[Path]:
    """Return the event files in ``folder`` without its sub-folders, the oldest first."""
    return sorted(Path(folder).glob(_EVENT_FILES))


def event_folders(folder: str | os.PathLike) -> list[Path]:
    """Return all folders with event files, at or below ``folder``, sorted."""
    return sorted({file.parent for file in Path(folder).rglob(_EVENT_FILES)})


def read_scalars(folder: str | os.PathLike) -> dict[str, Scalars]:
    """Read all scalars of the one folder with event files, at or below ``folder``: tag -> Scalars, ordered by step.

    The files of a resumed run are in one folder and are read as one history; repeated events count once.
    Raises EventsError if no folder has event files, or if several have: TensorBoard would show their curves as two runs.
    """
    event_accumulator = import_optional("tensorboard.backend.event_processing.event_accumulator", "train")
    folders = event_folders(folder)
    if not folders:
        raise EventsError(
            f"{folder}: no TensorBoard event files here or in sub-folders; check that the logger writes to this folder"
        )
    if len(folders) > 1:
        names = ", ".join(str(f.relative_to(folder)) for f in folders)
        raise EventsError(f"{folder}: {len(folders)} folders with event files ({names}); a run must have exactly one")
    accumulator = event_accumulator.EventAccumulator(str(folders[0]), size_guidance={"scalars": 0})
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of each resume
    try:
        accumulator.Reload()
    except (import_optional("google.protobuf.message", "train").DecodeError, ValueError, TypeError) as error:
        raise EventsError(f"{folders[0]}: no events of TensorBoard, or damaged ({error}): restore a copy") from error
    scalars = {}
    for tag in accumulator.Tags()["scalars"]:
        events = accumulator.Scalars(tag)
        if not events:  # all were purged
            continue
        steps = np.array([e.step for e in events], dtype=np.int64)
        values = np.array([e.value for e in events], dtype=np.float64)
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        repeated = np.append(False, (np.diff(steps) == 0) & (np.diff(values) == 0))
        scalars[tag] = Scalars(steps[~repeated], values[~repeated])
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
