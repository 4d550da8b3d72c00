"""Reference bands: what a configuration usually reaches at fixed step counts, and how fast; a run outside it alarms.

    write_json(path, make_reference(runs))       # several seeds of one label
    report = hold_against(run, load_reference(path))
    report.alarms, report.text()

Format of the file: ``docs/file_formats.md``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.files import table
from nppsim.reading import mismatch, read_json
from rl.doctor.compare import seconds_per_decision
from rl.doctor.runs import PLACES, Run
from rl.evaluation.results import ResultsError
from rl.events import Scalars

FORMAT, VERSION = "npp-reference", 1
POINTS = 5  # step counts, evenly spaced up to the end of the shortest run
SPEED_TOLERANCE = 0.1  # share by which a run may be slower than the slowest one of the reference
# Half widths of a 99 % interval for one more value, in standard deviations of n values: Student's t with n - 1 degrees.
_STUDENT = {2: 63.66, 3: 9.92, 4: 5.84, 5: 4.60, 6: 4.03, 7: 3.71, 8: 3.50, 9: 3.36, 10: 3.25}


@dataclass(frozen=True)
class Watched:
    """A scalar that is held against a band.

    least: half width of the band at least, however alike the seeds are.
    worse: side of the band that alarms, "below" or "above"; the other one is only told.
    """

    tag: str
    least: float
    worse: str


WATCHED = (
    Watched("eval/all_success", 0.05, "below"),
    Watched("rollout/success_rate", 0.05, "below"),
    Watched("rollout/ep_rew_mean", 0.05, "below"),
    Watched("train/explained_variance", 0.1, "below"),
    Watched("bc/validation_loss", 0.05, "above"),
    Watched("bc/validation_accuracy", 0.03, "below"),
)


@dataclass(frozen=True)
class Held:
    """One value of a run against its band: verdict is "in", "worse", "better" or "not reached"."""

    tag: str
    at: int
    value: float | None
    low: float
    high: float
    verdict: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Of a table for people."""
        value, low, high = ("–" if x is None else f"{x:.4g}" for x in (self.value, self.low, self.high))
        return self.tag, f"{self.at:,}", value, low, high, self.verdict


@dataclass(frozen=True)
class ReferenceReport:
    """A run held against a reference.

    rows: its values.
    notes: what could not be held against it, and settings in which it differs.
    """

    name: str
    rows: list[Held]
    notes: list[str]

    @property
    def alarms(self) -> list[Held]:
        """The values on the wrong side of their band."""
        return [row for row in self.rows if row.verdict == "worse"]

    @property
    def missing(self) -> list[Held]:
        """The values that the run has not reached: with any, it is not within the reference."""
        return [row for row in self.rows if row.verdict == "not reached"]

    def text(self) -> str:
        """For people."""
        cells = [row.cells for row in self.rows]
        lines = [table(("metric", "at", "value", "from", "to", "verdict"), cells, "lrrrrl")]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, self._verdict])

    @property
    def _verdict(self) -> str:
        if self.alarms:
            worse = ", ".join(dict.fromkeys(row.tag for row in self.alarms))
            return f"ALARM: {self.name} is worse than its reference in {worse}"
        if self.missing:
            return f"NOT DECIDED: {len(self.missing)} of {len(self.rows)} values were not reached; train for longer"
        return "within the reference"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"alarms": [asdict(row) for row in self.alarms], "missing": len(self.missing)}


def make_reference(runs: Sequence[Run]) -> dict[str, Any]:
    """The reference that these runs, seeds of one label, make.  Raises ResultsError for fewer than two, or others."""
    if len(runs) < 2 or len({run.label for run in runs}) > 1:
        told = ", ".join(f"{run.label} seed {run.seed}" for run in runs)
        raise ResultsError(f"{told}: a reference is made of two or more seeds of one label (three or more are better)")
    metrics = {}
    for watched in WATCHED:
        series = [run.scalars[watched.tag] for run in runs if watched.tag in run.scalars]
        if len(series) == len(runs):
            metrics[watched.tag] = [_band(series, at, watched.least) for at in _fixed_steps(series)]
    if not metrics:
        raise ResultsError(f"{runs[0].folder}: no scalar that is watched was logged; train for longer")
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
    """Steps that all runs have reached; the first value counts from where the last one begins."""
    first, last = max(int(s.steps[0]) for s in series), min(int(s.steps[-1]) for s in series)
    return (
        sorted({round(first + (last - first) * k / POINTS) for k in range(1, POINTS + 1)}) if last > first else [last]
    )


def _band(series: Sequence[Scalars], at: int, least: float) -> dict[str, float]:
    values = np.array([_value(scalars, at) for scalars in series])
    half = _STUDENT.get(len(values), 3.0) * float(values.std(ddof=1)) * math.sqrt(1 + 1 / len(values))
    mean = float(values.mean())
    return {"at": at, "mean": mean, "low": mean - max(half, least), "high": mean + max(half, least)}


def _value(scalars: Scalars, at: int) -> float:
    return float(np.interp(at, scalars.steps, scalars.values))


def load_reference(path: Path) -> dict[str, Any]:
    """A reference file.  Raises ResultsError for anything else."""
    data = read_json(path, ResultsError, "make one with --write-reference")
    band = {"low": float, "high": float}
    wrong = mismatch(data, {"format": str, "version": int, "metrics": {...: [{"at": int} | band]}})
    if not wrong and "seconds_per_million_decisions" in data:
        wrong = mismatch(data["seconds_per_million_decisions"], {...: band}, "seconds_per_million_decisions")
    if not wrong and (data["format"], data["version"]) != (FORMAT, VERSION):
        wrong = f"format {data['format']!r}, version {data['version']!r}"
    if wrong:
        raise ResultsError(f"{path}: no reference of version {VERSION} ({wrong}); make one with --write-reference")
    return data


def hold_against(run: Run, reference: Mapping[str, Any]) -> ReferenceReport:
    """Hold a run against a reference.  Raises ResultsError where it has reached none of the step counts."""
    rows = [
        _held(run, tag, int(band["at"]), float(band["low"]), float(band["high"]))
        for tag, bands in reference["metrics"].items()
        for band in bands
    ]
    if all(row.verdict == "not reached" for row in rows):
        raise ResultsError(f"{run.folder}: has reached none of the reference's step counts; train for longer")
    notes = _other_settings(run, reference)
    speed = reference.get("seconds_per_million_decisions", {})
    cost = seconds_per_decision(run.scalars)
    if run.machine_key not in speed:
        known = "; ".join(speed) or "none"
        notes.append(f"speed is not held against it: measured on {run.machine_key}, the reference knows {known}")
    elif len(cost):
        known = speed[run.machine_key]
        value, high = 1e6 * float(cost.sum(axis=1).mean()), float(known["high"]) * (1 + SPEED_TOLERANCE)
        verdict = "worse" if value > high else "in" if value >= known["low"] else "better"
        rows.append(Held("seconds per million decisions", 1_000_000, value, float(known["low"]), high, verdict))
    return ReferenceReport(f"{run.label}, seed {run.seed}", rows, notes)


def _held(run: Run, tag: str, at: int, low: float, high: float) -> Held:
    scalars = run.scalars.get(tag)
    if scalars is None:
        return Held(tag, at, None, low, high, "worse")  # a metric that has gone missing is an alarm, too
    if at > scalars.steps[-1]:
        return Held(tag, at, None, low, high, "not reached")
    value = _value(scalars, at)
    if low <= value <= high:
        return Held(tag, at, value, low, high, "in")
    side = "below" if not value >= low else "above"  # NaN is below
    worse = {watched.tag: watched.worse for watched in WATCHED}.get(tag, side)
    return Held(tag, at, value, low, high, "worse" if side == worse or math.isnan(value) else "better")


def _settings(run: Run) -> dict[str, str]:
    """What a reference is made with, but for the seed, and where files are."""
    return {name: fact.value for name, fact in run.facts["settings"].items() if name not in (*PLACES, "seed")}


def _other_settings(run: Run, reference: Mapping[str, Any]) -> list[str]:
    """What the reference was made with, and the run was not; a default that has changed shows here."""
    theirs, mine = reference.get("settings", {}), _settings(run)
    return [
        f"setting {name}: {theirs.get(name, 'not known')} in the reference, {mine.get(name, 'not known')} here"
        for name in dict.fromkeys((*theirs, *mine))
        if theirs.get(name) != mine.get(name)
    ]
