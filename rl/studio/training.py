"""An experiment in training, as its files tell it now: learning curves, stages, the newest checkpoint, the end of its log.

    read_experiment(folder)["runs"][0]["checkpoint"]["path"]        # what the studio lets play

Plain values, as JSON has them; the fields stand in docs/studio.md.  Only stored files are read, and none is locked: the
training goes on as if nobody looked.
"""

from pathlib import Path
from typing import Any

import numpy as np

from nppsim.reading import read_json
from rl.experiment.curves import CHARTS, STAGE, Chart, shown_line, stage_names, stages
from rl.experiment.kept import CLONE
from rl.experiment.run import SUMMARY
from rl.forensics.runs import RUN_FILE, Run, find_runs
from rl.judge.results import ResultsError
from rl.train.checkpoints import Checkpoints

POINTS = 400  # of a line: more than a chart has px would be seen by nobody
LOG_LINES = 40
_LOG_BYTES = 20_000  # of the end of log.txt, which may be long


def read_experiment(folder: Path) -> dict[str, Any]:
    """The experiment of a folder.  Raises ResultsError for one that holds none, or whose files are damaged."""
    if not (folder / "config.json").is_file():
        raise ResultsError(f"{folder}: no config.json there; give the folder of an experiment")
    begun = any(folder.rglob(RUN_FILE))
    log = folder / "log.txt"
    written = max(
        (path.stat().st_mtime for path in (log, *folder.rglob("progress.csv")) if path.is_file()), default=None
    )
    return {
        "name": folder.resolve().name,
        "finished": (folder / SUMMARY).is_file(),
        "written": written,
        "log": _end_of(log) if log.is_file() else [],
        "runs": [_run(run) for run in find_runs(folder)] if begun else [],
    }


def _run(run: Run) -> dict[str, Any]:
    scalars = run.scalars
    came = stages(scalars)
    return {
        "label": run.label,
        "seed": run.seed,
        "decisions": max((int(line.steps[-1]) for tag, line in scalars.items() if tag.startswith("time/")), default=0),
        "total": _total(run),
        "finished": (run.folder / "finished.json").is_file(),
        "stage": came[-1].name if came else None,
        "stages": [{"begin": stage.begin, "name": stage.name} for stage in came],
        "charts": [_chart(chart, run) for chart in CHARTS if any(tag in scalars for tag in chart.tags)],
        "checkpoint": _newest(run.folder),
    }


def _total(run: Run) -> int | None:
    """Decisions that were asked for; None where the folder does not tell."""
    path = run.folder / RUN_FILE
    settings = read_json(path, ResultsError, "use another run").get("settings", {}) if path.is_file() else {}
    value = settings.get("ppo.total_timesteps", {}).get("value")
    return int(value) if isinstance(value, int | float) else None


def _chart(chart: Chart, run: Run) -> dict[str, Any]:
    lines = []
    for tag in chart.tags:
        if tag not in run.scalars:
            continue
        steps, values, mean = shown_line(chart, run.scalars[tag])
        kept = np.unique(np.linspace(0, max(len(steps) - 1, 0), min(POINTS, len(steps))).astype(int))
        lines.append(
            {
                "tag": tag,
                "steps": steps[kept].tolist(),
                "values": _numbers(values[kept]),
                "mean": None if mean is None else _numbers(mean[kept]),
            }
        )
    return {
        "title": chart.title,
        "unit": chart.unit,
        "levels": stage_names(run.scalars) if chart.tags == (STAGE,) else None,
        "lines": lines,
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    """JSON knows no NaN: a value that is none leaves a gap."""
    return [round(value, 6) if np.isfinite(value) else None for value in values.tolist()]


def _newest(folder: Path) -> dict[str, Any] | None:
    """The newest weights: of PPO, or before there are any the clone; None while there are none."""
    clone = folder / CLONE
    made = Checkpoints(folder / "checkpoints", keep=1).made() or ([clone] if clone.is_file() else [])
    if not made:
        return None
    path = made[-1]
    return {"path": str(path), "name": path.stem, "written": path.stat().st_mtime}


def _end_of(log: Path) -> list[str]:
    with open(log, "rb") as file:
        file.seek(max(log.stat().st_size - _LOG_BYTES, 0))
        return file.read().decode("utf-8", errors="replace").splitlines()[-LOG_LINES:]
