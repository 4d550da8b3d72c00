"""Metrics of PPO (tags of Stable-Baselines3, and ``sim/``, ``reward/``, ``actions/``), written to CSV and TensorBoard.

    log = ScalarLog(folder)                  # new run: deletes files of an earlier attempt
    log = ScalarLog(folder, **written)       # resumed run: truncates the files to their state at the checkpoint
    Logger(str(folder), log.outputs)
    log.written                              # number of rows and events, for the next checkpoint

A resumed run has neither duplicates nor gaps, whenever it was interrupted.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import KVWriter, filter_excluded_keys

from nppsim import reward
from nppsim.actions import ACTION_TAGS, NUM_ACTIONS
from nppsim.errors import needed
from nppsim.io.files import append_text, naming, write_bytes, write_text
from nppsim.io.reading import read_bytes
from nppsim.physics.outcomes import WON
from rl.events import WRITTEN, EventsError, EventWriter, own_event_files, reading_events
from rl.ppo.losses import Losses, LossWeights


def rollout_metrics(episodes: np.ndarray, actions: torch.Tensor) -> dict[str, float]:
    """Return metrics of a rollout by tag.

    episodes: EPISODE_DTYPE[k], records of the episodes that ended.
    actions: int64[T * N].
    """
    metrics: dict[str, float] = {
        "sim/episodes": len(episodes),
        "sim/distinct_levels": len(np.unique(episodes["level"])),
    }
    if len(episodes):
        metrics["sim/wins"] = int((episodes["outcome"] == WON).sum())
        terms = episodes["terms"].mean(axis=0).tolist()
        metrics |= {f"reward/{name}": value for name, value in zip(reward.TERMS, terms, strict=True)}
        metrics["reward/return"] = float(episodes["ret"].mean())
    counts = torch.bincount(actions, minlength=NUM_ACTIONS).cpu().numpy()
    shares = zip(ACTION_TAGS, counts / counts.sum(), strict=True)
    return metrics | {f"actions/frequency/{name}": share for name, share in shares}


def update_metrics(losses: Sequence[Losses[float]], norms: Sequence[float], weights: LossWeights) -> dict[str, float]:
    """Return mean losses and coefficients of an update.

    losses, norms: losses of each optimiser step, and norm of its gradients before clipping; empty without a step.
    """
    metrics: dict[str, float] = {}
    if losses:
        metrics |= zip(losses[0]._fields, np.mean(losses, axis=0).tolist(), strict=True)
        metrics["grad_norm"] = float(np.mean(norms))
    for name in ("ent_coef", "bc_kl_coef", "clip_range", "clip_range_vf"):
        if (coefficient := getattr(weights, name)) is not None:
            metrics[name] = coefficient
    return metrics


TABLE = "progress.csv"
MAX_TABLE_BYTES = 1 << 28  # largest size of a table; usual tables have up to 5 MB
_REMEDY = "restore it from a copy of the run"
BOARD = "tensorboard"
IMITATION = "bc/"  # prefix of the tags of imitation, whose steps are epochs
DISTILLATION = "bc/teacher/"  # prefix of the tags of distillation, whose steps are updates
SETTINGS = ("configuration", "_hparams_/")  # prefixes of the tags with the settings of a run
RESULTS = ("rollout/success_rate", "eval/all_success")  # metrics that TensorBoard shows with the hyperparameters
GROUPS = ("time", "rollout", "eval", "overview", "train", "reward", "sim", "actions")  # tag prefixes in column order
ALL = 1 << 62


class ScalarLog:
    """CSV table and TensorBoard events of PPO.  Events of imitation in the same folder are not changed.

    folder: folder of the run.
    rows, events: numbers of rows of the table and of PPO's events to resume from; later rows and events are deleted.
    outputs: output formats for the Logger of Stable-Baselines3.
    Raises EventsError if the files contain fewer rows or events than these numbers.
    """

    def __init__(self, folder: Path, rows: int = 0, events: int = 0):
        cut_events(folder / BOARD, events)
        self.table = GrowingTable(folder / TABLE, rows)
        self.events = ScalarOutput(folder / BOARD, events)
        self.outputs: list[KVWriter] = [self.events, self.table]

    @property
    def written(self) -> dict[str, int]:
        """Arguments of ``ScalarLog`` that resume from the current state."""
        return {"rows": self.table.rows, "events": self.events.count}

    def sync(self) -> None:
        """Flush the files to disk: after a power failure, they must not be older than the checkpoint."""
        for path in (self.table.path, *own_event_files(self.events.folder)):
            if path.exists():
                with naming(path), open(path, "rb") as file:
                    os.fsync(file.fileno())


class ScalarOutput(KVWriter):
    """Output of a Logger to a TensorBoard event file, flushed after each row; errors are those of ``EventWriter``.

    count: number of events so far, including those of earlier files.
    """

    def __init__(self, folder: str | os.PathLike, count: int = 0):
        self.folder = Path(folder)
        self.count = count
        self._writer = EventWriter(folder)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write one row.  Raises TypeError or ValueError for values that are not numbers."""
        values = filter_excluded_keys(key_values, key_excluded, "tensorboard")
        for tag, value in sorted(values.items()):
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()
        self.count += len(values)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


OnMetrics = Callable[[int, dict[str, float]], None]  # arguments: number of decisions, metrics by tag


class FunctionOutput(KVWriter):
    """Output of a Logger to a function, which gets the rows of the table when they are written."""

    def __init__(self, on_metrics: OnMetrics):
        self.on_metrics = on_metrics

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Call the function with one row."""
        self.on_metrics(step, {tag: float(key_values[tag]) for tag in sorted(key_values)})

    def close(self) -> None:
        """Do nothing, as the function belongs to the caller."""


class GrowingTable(KVWriter):
    """CSV file with a row per ``dump`` and a column per tag, ordered by GROUPS and tag.

    rows: number of rows to resume from; later rows are deleted.
    Raises EventsError if the file contains fewer rows than this number.
    """

    def __init__(self, path: Path, rows: int = 0):
        self.path = path
        self.rows = rows
        self._columns: list[str] = []
        if rows:
            self._columns, stored = self._read()
            self._rewrite(stored)
        else:
            path.unlink(missing_ok=True)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Add a row."""
        values = filter_excluded_keys(key_values, key_excluded, "csv")
        if values.keys() - set(self._columns):
            before, stored = self._columns, self._read()[1] if self.rows else []
            self._columns = sorted({*before, *values}, key=_sort_key)
            order = [before.index(name) if name in before else -1 for name in self._columns]
            self._rewrite([row[at] if at >= 0 else "" for at in order] for row in stored)
        row = [getattr(value, "item", lambda value=value: value)() for value in map(values.get, self._columns)]
        append_text(self.path, _lines([row]))
        self.rows += 1

    def close(self) -> None:
        """Do nothing, as the file is open only during ``write``."""

    def _read(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and the first ``self.rows`` rows."""
        lines = read_table(self.path) if self.path.exists() else []
        if len(lines) <= self.rows:
            found = max(len(lines) - 1, 0)
            raise EventsError(f"{self.path}: has {found} rows, expected {self.rows}; {_REMEDY}")
        return lines[0], lines[1 : self.rows + 1]

    def _rewrite(self, rows: Iterable[list[str]]) -> None:
        write_bytes(self.path, _lines([self._columns, *rows]).encode())


def read_table(path: Path) -> list[list[str]]:
    """Read the complete rows of a table; the first row has the column names.  Raises EventsError for a damaged file."""
    data = read_bytes(path, EventsError, MAX_TABLE_BYTES, _REMEDY)
    try:
        return list(csv.reader(io.StringIO(data[: data.rfind(b"\n") + 1].decode())))  # the last row may be incomplete
    except (UnicodeDecodeError, csv.Error) as error:
        raise EventsError(f"{path}: damaged ({error}); {_REMEDY}") from error


def _sort_key(column: str) -> tuple[int, str]:
    group = column.partition("/")[0]
    return (GROUPS.index(group) if group in GROUPS else len(GROUPS)), column


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_settings(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the settings of a run as events, a table (TEXT) and hyperparameters (HPARAMS), unless there are events already.

    settings: dotted name of each setting -> {"value": ..., "source": ...}.
    """
    if own_event_files(folder):
        return
    summary = needed("torch.utils.tensorboard.summary", "train")
    rows = [f"| {name} | {_cell(one['value'])} | {one['source']} |" for name, one in settings.items()]
    table = "\n".join(["| setting | value | from |", "|---|---|---|", *rows])
    plain = {name: one["value"] for name, one in settings.items()}
    numbers = {name: value if isinstance(value, bool | int | float) else str(value) for name, value in plain.items()}
    with EventWriter(folder) as writer:
        for part in (summary.text("configuration", table), *summary.hparams(numbers, dict.fromkeys(RESULTS, 0.0))[:2]):
            writer.add_summary(part, 0)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")


def cut_events(folder: Path, events: int, epochs: int = ALL, distillation: int = ALL) -> None:
    """Merge event files into one, without the events after a checkpoint.

    events: number of PPO's events that remain.
    epochs, distillation: last step of imitation and of distillation whose events remain; -1 for no step.
    Events of settings remain.  Event files of other programs are not changed.
    Raises EventsError if the files contain fewer than ``events`` events of PPO.
    """
    files = own_event_files(folder)
    head, records, count, seen = b"", [], 0, set()
    for record, event in _records(files):
        if not event.summary.value:
            head = head or record  # the first record contains the version of the format
        elif (tag := event.summary.value[0].tag).startswith((IMITATION, *SETTINGS)):
            last = distillation if tag.startswith(DISTILLATION) else epochs if tag.startswith(IMITATION) else ALL
            if event.step <= last and (tag, event.step) not in seen:
                records.append(record)
                seen.add((tag, event.step))
        elif count < events:
            records.append(record)
            count += 1
    if count < events:
        raise EventsError(f"{folder}: has {count} events, expected {events}; {_REMEDY}")
    # If the process ends below, the later files still have the same events as the first.  The next call is not misled:
    # it counts
    # PPO's events of the first file only, and recognises those of imitation by tag and step.
    if records:
        _write_records(files[0], [head, *records])
    for file in files[1:] if records else files:
        file.unlink()
    if files:
        write_text(folder / WRITTEN, f"{files[0].name}\n")


def _records(files: Iterable[Path]) -> Iterable[tuple[bytes, Any]]:
    """Yield (bytes, event) of all complete records."""
    loader = needed("tensorboard.backend.event_processing.event_file_loader", "train")
    event = needed("tensorboard.compat.proto.event_pb2", "train").Event
    for file in files:
        with reading_events(file):
            for record in loader.RawEventFileLoader(str(file)).Load():
                yield record, event.FromString(record)


def _write_records(path: Path, records: Iterable[bytes]) -> None:
    content = io.BytesIO()
    writer = needed("tensorboard.summary.writer.record_writer", "train").RecordWriter(content)
    for record in records:
        writer.write(record)
    write_bytes(path, content.getvalue())
