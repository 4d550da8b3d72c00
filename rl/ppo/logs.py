"""Metrics of PPO (tags of Stable-Baselines3, and ``sim/``, ``reward/``, ``actions/``), written to CSV and TensorBoard.

    log = ScalarLog(folder)                              # new run: deletes an existing table
    log = ScalarLog(folder, rows=8, purge_step=4097)     # resumed run: continues from the state at the checkpoint
    Logger(str(folder), log.outputs)
    log.written                                          # number of rows, for the next checkpoint

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
from stable_baselines3.common.logger import KVWriter, TensorBoardOutputFormat, filter_excluded_keys

from nppsim import reward
from nppsim.actions import ACTION_TAGS, NUM_ACTIONS
from nppsim.errors import import_optional
from nppsim.io.files import append_text, naming, write_bytes
from nppsim.io.reading import read_bytes
from nppsim.physics.outcomes import WON
from rl.events import EventsError, event_files, open_events
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


CSV_FILE = "progress.csv"
MAX_CSV_BYTES = 1 << 28  # largest size of a table; usual tables have up to 5 MB
_REMEDY = "restore it from a copy of the run"
TENSORBOARD_FOLDER = "tensorboard"
RESULTS = ("rollout/success_rate", "eval/all_success")  # metrics of the HPARAMS tab of TensorBoard
GROUPS = ("time", "rollout", "eval", "overview", "train", "reward", "sim", "actions")  # tag prefixes in column order


class ScalarLog:
    """Logger outputs of one run: CSV table and TensorBoard events.

    folder: folder of the run.
    rows: number of rows of the table to resume from; later rows are deleted.
    purge_step: TensorBoard ignores events of earlier files from this step on.
    outputs: output formats for the Logger of Stable-Baselines3.
    Raises EventsError if the table has fewer rows.
    """

    def __init__(self, folder: Path, rows: int = 0, purge_step: int | None = None):
        self.table = CSVOutput(folder / CSV_FILE, rows)
        self.events = TensorBoardOutput(folder / TENSORBOARD_FOLDER, purge_step)
        self.outputs: list[KVWriter] = [self.events, self.table]

    @property
    def written(self) -> dict[str, int]:
        """Number of rows, for the next checkpoint."""
        return {"rows": self.table.rows}

    def sync(self) -> None:
        """Flush the files to disk: after a power failure, they must not be older than the checkpoint."""
        for path in (self.table.path, *event_files(self.events.folder)):
            if path.exists():
                with naming(path), open(path, "rb") as file:
                    os.fsync(file.fileno())


class TensorBoardOutput(TensorBoardOutputFormat):
    """Output of a Logger to a new TensorBoard event file, flushed after each row.  purge_step: as in ``open_events``."""

    def __init__(self, folder: Path, purge_step: int | None = None):
        self.folder = folder
        self.writer = open_events(folder, purge_step)
        self._is_closed = False

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write one row.  Raises OSError, with the folder's name, if it cannot be written."""
        with naming(self.folder):
            super().write(key_values, key_excluded, step)


OnMetrics = Callable[[int, dict[str, float]], None]  # arguments: number of decisions, metrics by tag


class FunctionOutput(KVWriter):
    """Output of a Logger to a function, which is called once per step, when the first row of a later step is written.

    The last step of a training has two rows: the second has the metrics of the last update and evaluation.
    """

    def __init__(self, on_metrics: OnMetrics):
        self.on_metrics = on_metrics
        self._step: int | None = None
        self._metrics: dict[str, float] = {}

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Add the metrics of one row to those of its step."""
        if step != self._step:
            self.close()
        self._step = step
        self._metrics |= {tag: float(key_values[tag]) for tag in sorted(key_values)}

    def close(self) -> None:
        """Call the function with the metrics of the last step."""
        if self._step is not None:
            self.on_metrics(self._step, self._metrics)
        self._step, self._metrics = None, {}


class CSVOutput(KVWriter):
    """CSV file with a row per ``dump`` and a column per tag, ordered by GROUPS and tag.

    Unlike ``CSVOutputFormat`` of Stable-Baselines3, it resumes an existing file and sorts columns.
    rows: number of rows to resume from; later rows are deleted.
    Raises EventsError if the file contains fewer rows.
    """

    def __init__(self, path: Path, rows: int = 0):
        self.path = path
        self.rows = rows
        self._columns: list[str] = []
        if rows:
            stored = self._read()
            self._columns = list(stored[0])
            self._rewrite(stored)
        else:
            path.unlink(missing_ok=True)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Add a row."""
        values = filter_excluded_keys(key_values, key_excluded, "csv")
        row = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        if new := row.keys() - set(self._columns):
            stored = self._read() if self.rows else []
            self._columns = sorted({*self._columns, *new}, key=_sort_key)
            self._rewrite(stored)
        append_text(self.path, self._text([row]))
        self.rows += 1

    def close(self) -> None:
        """Do nothing, as the file is open only during ``write``."""

    def _read(self) -> list[dict[str, str]]:
        """Return the first ``self.rows`` rows."""
        stored = read_table(self.path) if self.path.exists() else []
        if len(stored) < self.rows:
            raise EventsError(f"{self.path}: has {len(stored)} rows, expected {self.rows}; {_REMEDY}")
        return stored[: self.rows]

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        header = dict(zip(self._columns, self._columns, strict=True))
        write_bytes(self.path, self._text([header, *rows]).encode())

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(rows)
        return text.getvalue()


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of a table, column -> text; "" if a row has no value.  Raises EventsError if it is damaged."""
    data = read_bytes(path, EventsError, MAX_CSV_BYTES, _REMEDY)
    try:
        text = data[: data.rfind(b"\n") + 1].decode()  # the last row may be incomplete
        rows = list(csv.DictReader(io.StringIO(text), restval="", strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise EventsError(f"{path}: damaged ({error}); {_REMEDY}") from error
    if any(None in row for row in rows):
        raise EventsError(f"{path}: damaged (a row has more values than columns); {_REMEDY}")
    return rows


def _sort_key(column: str) -> tuple[int, str]:
    group = column.partition("/")[0]
    return (GROUPS.index(group) if group in GROUPS else len(GROUPS)), column


def write_settings(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the settings of a run as a table (TEXT) and hyperparameters (HPARAMS), unless there are events already.

    settings: dotted name of each setting -> {"value": ..., "source": ...}.
    """
    if event_files(folder):
        return
    hparams = import_optional("torch.utils.tensorboard.summary", "train").hparams
    rows = [f"| {name} | {_cell(entry['value'])} | {entry['source']} |" for name, entry in settings.items()]
    plain = {name: entry["value"] for name, entry in settings.items()}
    numbers = {name: value if isinstance(value, bool | int | float) else str(value) for name, value in plain.items()}
    with open_events(folder) as writer:
        writer.add_text("configuration", "\n".join(["| setting | value | from |", "|---|---|---|", *rows]))
        assert writer.file_writer is not None
        for summary in hparams(numbers, dict.fromkeys(RESULTS, 0.0))[:2]:  # add_hparams would begin another run
            writer.file_writer.add_summary(summary, 0)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")
