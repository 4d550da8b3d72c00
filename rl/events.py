"""Scalars read back from TensorBoard event files, and the proof that a run writes what it promises."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppsim.errors import UserError, needed

_EVENT_FILES = "events.out.tfevents*"


class EventsError(UserError, RuntimeError):
    """Event files that are missing, doubled or incomplete; the message names the folder and what is wrong."""


class Scalars(NamedTuple):
    """One tag's history.  steps: int64[n].  values: float64[n]."""

    steps: np.ndarray
    values: np.ndarray


def event_folders(folder: str | os.PathLike) -> list[Path]:
    """Every folder at or below ``folder`` that holds event files, sorted."""
    return sorted({file.parent for file in Path(folder).rglob(_EVENT_FILES)})


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
