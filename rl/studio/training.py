"""Read the progress of an experiment from its files: learning curves, stages, newest checkpoint, last lines of the log.

    read_experiment(folder)["runs"][0]["checkpoint"]["path"]        # can be played in the studio

The result has plain JSON values; docs/lab/studio.md lists the fields.  No file is locked, so the training is not disturbed.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.io.reading import read_object
from rl.config.files import load_plugins
from rl.config.resume import RUN_FILE
from rl.evaluation.results import ResultsError
from rl.events import Scalars
from rl.experiment.record import BC_POLICY, SUMMARY
from rl.experiment.report import CHARTS, STAGE, Chart, shown_line, stage_names, stages
from rl.ppo.logs import CSV_FILE, read_table
from rl.training.runs import StoredRun, find_runs
from rl.training.training_state import CheckpointFolder

POINTS = 400  # maximum number of points per line of a chart, about the width of a chart in px
LOG_LINES = 40
_STEP = "time/total_timesteps"  # column of progress.csv for the x axis
_LOG_BYTES = 20_000  # bytes read from the end of log.txt


def read_experiment(folder: Path, trust_plugins: bool = False) -> dict[str, Any]:
    """Return the state of an experiment.

    trust_plugins: import the plug-ins of its training, which its networks may need.
    Raises ResultsError for a folder without an experiment and for damaged files, and ConfigError for a missing plug-in, or
    for any plug-in without ``trust_plugins``.
    """
    if not (folder / "config.json").is_file():
        raise ResultsError(f"{folder}: no config.json there; give the folder of an experiment")
    load_plugins(_object(folder / "config.json").get("plugins"), str(folder / "config.json"), trust_plugins)
    begun = any(folder.rglob(RUN_FILE))
    log = folder / "log.txt"
    written = max(
        (path.stat().st_mtime for path in (log, *folder.rglob("progress.csv")) if path.is_file()), default=None
    )
    return {
        "name": folder.resolve().name,
        "finished": (folder / SUMMARY).is_file(),
        "written": written,
        "log": _last_lines(log) if log.is_file() else [],
        "runs": [_run(run) for run in find_runs(folder)] if begun else [],
    }


def _run(run: StoredRun) -> dict[str, Any]:
    scalars = _scalars(run.folder / CSV_FILE)
    reached = stages(scalars)
    return {
        "label": run.label,
        "seed": run.seed,
        "decisions": int(scalars[_STEP].steps[-1]) if _STEP in scalars else 0,
        "total": _total(run),
        "finished": run.finished,
        "stage": reached[-1].name if reached else None,
        "stages": [{"begin": stage.begin, "name": stage.name} for stage in reached],
        "charts": [_chart(chart, scalars) for chart in CHARTS if chart.tag in scalars],
        "checkpoint": _newest_checkpoint(run.folder),
    }


def _total(run: StoredRun) -> int | None:
    """Return the configured number of PPO decisions of a training run, or None if it is unknown."""
    settings = _object(run.folder / RUN_FILE).get("settings", {})
    value = settings.get("ppo.total_timesteps", {}).get("value")
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _object(path: Path) -> dict[str, Any]:
    return read_object(path, ResultsError, "use another run")


def _scalars(table: Path) -> dict[str, Scalars]:
    """Return the history of each column of a run's progress.csv; {} if the file does not exist yet.

    The TensorBoard events contain the same values, but take a hundred times as long to read.
    """
    rows = read_table(table) if table.is_file() else []
    columns = list(rows[0]) if rows else []
    if _STEP not in columns:
        return {}
    try:
        cells = np.array([[float(cell or "nan") for cell in row.values()] for row in rows])
    except ValueError as error:
        raise ResultsError(f"{table}: no table of numbers ({error}); use another run") from error
    steps = np.maximum.accumulate(np.nan_to_num(cells[:, columns.index(_STEP)])).astype(
        np.int64
    )  # rows of evaluations have no step; they get that of the row before
    present = {tag: np.isfinite(cells[:, i]) for i, tag in enumerate(columns)}
    return {
        tag: Scalars(steps[present[tag]], cells[present[tag], i]) for i, tag in enumerate(columns) if present[tag].any()
    }


def _chart(chart: Chart, scalars: dict[str, Scalars]) -> dict[str, Any]:
    steps, values, mean = shown_line(chart, scalars[chart.tag])
    chosen = np.unique(np.linspace(0, max(len(steps) - 1, 0), min(POINTS, len(steps))).astype(int))
    line = {
        "tag": chart.tag,
        "steps": steps[chosen].tolist(),
        "values": _numbers(values[chosen]),
        "mean": None if mean is None else _numbers(mean[chosen]),
    }
    names = stage_names(scalars) if chart.tag == STAGE else None
    return {"title": chart.title, "unit": chart.unit, "levels": names, "lines": [line]}


def _numbers(values: np.ndarray) -> list[float | None]:
    """Round values; replace those that are not finite by None, since JSON has no NaN."""
    return [round(value, 6) if np.isfinite(value) else None for value in values.tolist()]


def _newest_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Describe the newest checkpoint of PPO, or the BC policy if there is none; None without both."""
    bc_policy = folder / BC_POLICY
    made = CheckpointFolder(folder / "checkpoints", keep=1).existing() or ([bc_policy] if bc_policy.is_file() else [])
    if not made:
        return None
    path = made[-1]
    return {"path": str(path), "name": path.stem, "written": path.stat().st_mtime}


def _last_lines(log: Path) -> list[str]:
    with open(log, "rb") as file:
        file.seek(max(log.stat().st_size - _LOG_BYTES, 0))
        return file.read().decode("utf-8", errors="replace").splitlines()[-LOG_LINES:]
