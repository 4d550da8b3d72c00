"""Reference bands: ranges of metrics at fixed step counts, and of speed, computed from several seeds of one configuration.

    write_json(path, make_reference(runs))       # several seeds of one label
    report = check_run(run, load_reference(path))
    report.alarms, report.text()                 # values on the wrong side of their bands; table

Format of the file: ``docs/file_formats.md``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.io.files import table
from nppsim.io.reading import mismatch, read_json
from rl.evaluation.results import ResultsError
from rl.events import Scalars
from rl.tools.compare import seconds_per_decision
from rl.training.runs import PATH_SETTINGS, StoredRun

FORMAT, VERSION = "npp-reference", 1
POINTS = 5  # number of step counts, evenly spaced up to the end of the shortest run
SPEED_TOLERANCE = 0.1  # fraction by which a run may be slower than the slowest run of the reference
# Quantiles of Student's t with n - 1 degrees of freedom for a 99 % prediction interval, by the number of values n.
_T_QUANTILES = dict(enumerate((63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17, 3.11, 3.05, 3.01), start=2))
# Tag -> (smallest half width of its band, side of the band on which values are alarms).
TAGS = {
    "eval/all_success": (0.05, "below"),
    "rollout/success_rate": (0.05, "below"),
    "rollout/ep_rew_mean": (0.05, "below"),
    "train/explained_variance": (0.1, "below"),
    "bc/validation_loss": (0.05, "above"),
    "bc/validation_accuracy": (0.03, "below"),
}


@dataclass(frozen=True)
class BandRow:
    """Comparison of one metric of a run, at a step count, or of its speed with a reference band.

    at: step count of the metric; 1,000,000 for the speed.
    verdict: "in", "worse", "better" or "not reached".
    """

    tag: str
    at: int
    value: float | None
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class ReferenceReport:
    """Comparisons of the metrics of a run with their reference bands.

    notes: omitted comparisons, and settings that differ.
    """

    name: str
    rows: list[BandRow]
    notes: list[str]

    @property
    def alarms(self) -> list[BandRow]:
        """Values on the wrong side of their band."""
        return [row for row in self.rows if row.verdict == "worse"]

    @property
    def missing(self) -> list[BandRow]:
        """Values at step counts that the run has not reached.  If there are any, the result is undecided."""
        return [row for row in self.rows if row.verdict == "not reached"]

    def text(self) -> str:
        """Format table, notes and verdict."""
        cells = []
        for row in self.rows:
            numbers = ("–" if x is None else f"{x:.4g}" for x in (row.value, row.low, row.high))
            cells.append((row.tag, f"{row.at:,}", *numbers, row.verdict))
        verdict = "within the reference"
        if self.alarms:
            tags = ", ".join(dict.fromkeys(row.tag for row in self.alarms))
            verdict = f"ALARM: {self.name} is worse than its reference in {tags}"
        elif self.missing:
            verdict = f"NOT DECIDED: {len(self.missing)} of {len(self.rows)} values were not reached; train for longer"
        lines = [table(("metric", "at", "value", "from", "to", "verdict"), cells, "lrrrrl")]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes), verdict])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"alarms": [asdict(row) for row in self.alarms], "missing": len(self.missing)}


def make_reference(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Compute reference bands.  Raises ResultsError for fewer than two runs, and for runs of several labels."""
    if len(runs) < 2 or len({run.label for run in runs}) > 1:
        names = ", ".join(f"{run.label} seed {run.seed}" for run in runs)
        raise ResultsError(f"{names}: a reference needs two or more seeds of one label; three or more are better")
    metrics = {}
    for tag, (min_half_width, _) in TAGS.items():
        series = [run.scalars[tag] for run in runs if tag in run.scalars]
        if len(series) == len(runs) and all(np.isfinite(scalars.values).any() for scalars in series):
            metrics[tag] = [_band(series, at, min_half_width) for at in _fixed_steps(series)]
    if not metrics:
        raise ResultsError(f"{runs[0].folder}: none of {', '.join(TAGS)} was logged; train for longer")
    machines = {run.machine_key for run in runs}
    costs = [1e6 * float(c.sum(axis=1).mean()) for run in runs if len(c := seconds_per_decision(run.scalars))]
    speed = {}
    if len(machines) == 1 and costs:
        speed = {machines.pop(): {"mean": float(np.mean(costs)), "low": min(costs), "high": max(costs)}}
    return {
        "format": FORMAT,
        "version": VERSION,
        "label": runs[0].label,
        "seeds": [run.seed for run in runs],
        "settings": _settings(runs[0]),
        "metrics": metrics,
        "seconds_per_million_decisions": speed,
    }


def _fixed_steps(series: Sequence[Scalars]) -> list[int]:
    """Return up to POINTS step counts that all runs have reached."""
    first, last = max(int(s.steps[0]) for s in series), min(int(s.steps[-1]) for s in series)
    if last <= first:
        return [last]
    return sorted({round(first + (last - first) * k / POINTS) for k in range(1, POINTS + 1)})


def _band(series: Sequence[Scalars], at: int, min_half_width: float) -> dict[str, float]:
    values = np.array([_value(scalars, at) for scalars in series])
    half = _T_QUANTILES.get(len(values), 3.0) * float(values.std(ddof=1)) * math.sqrt(1 + 1 / len(values))
    mean = float(values.mean())
    return {"at": at, "mean": mean, "low": mean - max(half, min_half_width), "high": mean + max(half, min_half_width)}


def _value(scalars: Scalars, at: int) -> float:
    finite = np.isfinite(scalars.values)
    return float(np.interp(at, scalars.steps[finite], scalars.values[finite])) if finite.any() else math.nan


def load_reference(path: Path) -> dict[str, Any]:
    """Read a reference file.  Raises ResultsError if it is invalid."""
    data = read_json(path, ResultsError, "make one with --write-reference")
    band = {"low": float, "high": float}
    wrong = mismatch(data, {"format": str, "version": int, "label": str, "metrics": {...: [{"at": int} | band]}})
    if not wrong and "seconds_per_million_decisions" in data:
        wrong = mismatch(data["seconds_per_million_decisions"], {...: band}, "seconds_per_million_decisions")
    if not wrong and (data["format"], data["version"]) != (FORMAT, VERSION):
        wrong = f"format {data['format']!r}, version {data['version']!r}"
    if wrong:
        raise ResultsError(f"{path}: not a reference of version {VERSION} ({wrong}); make one with --write-reference")
    return data


def check_run(run: StoredRun, reference: Mapping[str, Any]) -> ReferenceReport:
    """Compare a run with a reference.  Raises ResultsError if it has not reached any of the step counts."""
    rows = [
        _row(run.scalars.get(tag), tag, int(band["at"]), float(band["low"]), float(band["high"]))
        for tag, bands in reference["metrics"].items()
        for band in bands
    ]
    if all(row.verdict == "not reached" for row in rows):
        raise ResultsError(f"{run.folder}: has not reached any step count of the reference; train for longer")
    theirs, mine = reference.get("settings", {}), _settings(run)
    pairs = {name: [metadata.get(name, "unknown") for metadata in (theirs, mine)] for name in (*theirs, *mine)}
    notes = [f"setting {name}: {old} in the reference, {new} here" for name, (old, new) in pairs.items() if old != new]
    speed = reference.get("seconds_per_million_decisions", {})
    cost = seconds_per_decision(run.scalars)
    if run.machine_key not in speed:
        machines = "; ".join(speed) or "none"
        notes.append(f"speed is not compared: the run is from {run.machine_key}, the reference from {machines}")
    elif len(cost):
        low, high = (float(speed[run.machine_key][name]) for name in ("low", "high"))
        value, high = 1e6 * float(cost.sum(axis=1).mean()), high * (1 + SPEED_TOLERANCE)
        verdict = "worse" if value > high else "in" if value >= low else "better"
        rows.append(BandRow("seconds per million decisions", 1_000_000, value, low, high, verdict))
    return ReferenceReport(f"{run.label}, seed {run.seed}", rows, notes)


def _row(scalars: Scalars | None, tag: str, at: int, low: float, high: float) -> BandRow:
    """Compare a metric with a band.

    A metric that was not logged has the verdict "worse".  Metrics of imitation, which may end early, are extrapolated.
    """
    if scalars is None:
        return BandRow(tag, at, None, low, high, "worse")
    if at > scalars.steps[-1] and not tag.startswith("bc/"):
        return BandRow(tag, at, None, low, high, "not reached")
    value = _value(scalars, at)
    side = "above" if value > high else "below"
    worse = math.isnan(value) or side == TAGS.get(tag, (0, side))[1]
    return BandRow(tag, at, value, low, high, "in" if low <= value <= high else "worse" if worse else "better")


def _settings(run: StoredRun) -> dict[str, str]:
    """Return the settings without seed and paths."""
    return {
        name: entry.value for name, entry in run.metadata["settings"].items() if name not in (*PATH_SETTINGS, "seed")
    }
