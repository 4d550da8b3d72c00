"""A/B of training: two sets of flags, the same seeds, alternating runs, and one comparison of speed and learning.

    plan = ABSettings(a=("--frame-skip", "4"), b=("--frame-skip", "2"), common=("--skip-final-eval",), seeds=(1, 2, 3))
    run_all(plan, folder, script)   # scripts/train_and_compare.py; finished runs are kept, so calling it again resumes
    comparison = compare_arms(plan, folder)
    write(comparison, folder)       # comparison.json, comparison.txt, success.png, return.png

``a`` is the baseline.  Runs go A B, B A, A B, ..., one seed after the other, so that slow hours hit both.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from nppsim.files import table, write_json
from nppsim.measure import machine, timing
from nppsim.measure.timing import Estimate, bootstrap, mean_difference, mean_of_ratios
from nppsim.report.charts import band_chart
from rl.config import ConfigError, ExperimentConfig, resolve
from rl.events import Scalars, read_scalars
from rl.judge.results import ALL, ResultsError, load_results

PLAN = "plan.json"
RESERVED = ("--experiment-name", "--output-dir", "--seed", "--seeds", "--resume-from")  # the comparison sets these
CURVES = {"success": "rollout/success_rate", "return": "rollout/ep_rew_mean"}
GRID = 100  # points of a curve
LAST_SHARE = 0.1  # of training: what counts as its end
STOP_SECONDS = 120  # given to a run to write its checkpoint after Ctrl-C


@dataclass(frozen=True)
class ABSettings:
    """What is compared: extra flags of A and of B, the flags of both, the seeds."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    common: tuple[str, ...]
    seeds: tuple[int, ...]

    def flags(self, arm: str, seed: int, folder: Path) -> list[str]:
        """Flags of scripts/train_and_compare.py for one run; arm: "a" or "b"."""
        own = ["--experiment-name", f"{arm}_seed{seed}", "--seeds", str(seed), "--output-dir", str(runs_folder(folder))]
        return [*self.common, *getattr(self, arm), *own]

    def check(self, folder: Path) -> dict[str, ExperimentConfig]:
        """The configuration of both arms.  Raises ConfigError for flags that do not make one run each."""
        for name in ("common", "a", "b"):
            for flag in getattr(self, name):
                if flag.split("=")[0] in RESERVED:
                    raise ConfigError(f"{flag} is set for each run by the comparison; leave it out (seeds: --seeds)")
        if self.a == self.b:
            raise ConfigError("A and B have the same flags: there is nothing to compare; change --a or --b")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(f"seeds {' '.join(map(str, self.seeds))}: give at least one, and none of them twice")
        configs = {arm: resolve(self.flags(arm, self.seeds[0], folder)) for arm in ("a", "b")}
        for arm, config in configs.items():
            if len(config.architectures) != 1 or len(config.conditions) != 1:
                raise ConfigError(
                    f"{arm.upper()} trains {len(config.architectures)} architectures and {len(config.conditions)} "
                    "conditions; a comparison needs one run each: one --architectures, no --test-pretraining"
                )
        return configs


def runs_folder(folder: Path) -> Path:
    """Where the runs' own folders lie."""
    return folder / "runs"


def run_all(plan: ABSettings, folder: Path, script: Path, log: Callable[[str], None] = print) -> None:
    """Run what has not been finished yet, each as a process of its own whose output goes to ``<folder>/logs``.

    Raises ConfigError if ``folder`` holds another comparison, or runs of another machine, other versions or sources;
    ResultsError if a run fails; KeyboardInterrupt passes through, once the run has written its checkpoint.
    """
    plan.check(folder)
    _settle(plan, folder)
    (folder / "logs").mkdir(exist_ok=True)
    for seed, pair in zip(plan.seeds, timing.abba(len(plan.seeds)), strict=True):
        for arm in pair:
            name = f"{arm}_seed{seed}"
            if done := finished(folder, arm, seed):
                log(f"{name}: finished already, in {done}")
                continue
            log_file = folder / "logs" / f"{name}_{datetime.now():%Y%m%d_%H%M%S}.log"
            log(f"{name}: running, output in {log_file}")
            status = _run([sys.executable, "-u", str(script), *plan.flags(arm, seed, folder)], log_file)
            if status or not finished(folder, arm, seed):
                last = log_file.read_text(encoding="utf-8").strip().splitlines()[-1:] or ["no output"]
                raise ResultsError(
                    f"{name}: ended with status {status}: {last[0]}; see {log_file}, mend it, and repeat"
                )


def _settle(plan: ABSettings, folder: Path) -> None:
    """Write what is compared, or check that it is what was begun here; seeds may be added or left out."""
    record = {
        "plan": {name: list(getattr(plan, name)) for name in ("a", "b", "common")},
        "machine": machine.machine(),
        "versions": machine.versions(),
        "build": {"sources": _sources()},
    }
    file = folder / PLAN
    if not file.exists():
        if runs_folder(folder).exists():
            raise ConfigError(f"--out {folder} holds runs, but no {PLAN}; choose another folder")
        write_json(file, record)
        return
    different = machine.differences(record, json.loads(file.read_text(encoding="utf-8")))
    if different:
        raise ConfigError(f"--out {folder} was begun otherwise: {'; '.join(different)}. Choose another folder")


def _sources() -> str:
    """Digest (16 hex characters) of every Python file that a run is made of, committed or not."""
    root = Path(__file__).parents[1]
    files = sorted(file for package in ("nppsim", "bc", "hardware", "rl") for file in (root / package).rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str], log_file: Path) -> int:
    """Exit status of a command whose output goes to a file; at Ctrl-C it is given time to end by itself."""
    with open(log_file, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            return process.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the run, too
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def finished(folder: Path, arm: str, seed: int) -> Path | None:
    """The newest finished run of an arm and seed; a run is finished when its results.json names the seed."""
    for run in sorted(runs_folder(folder).glob(f"{arm}_seed{seed}_*"), reverse=True):
        if (run / "results.json").is_file() and _entry(run, seed) is not None:
            return run
    return None


def _entry(run: Path, seed: int) -> dict | None:
    """The entry of a seed in a run's results, which hold one architecture."""
    (architecture,) = load_results(run / "results.json")["architectures"].values()
    return architecture["seeds"].get(str(seed))


# ---------------------------------------------------------------------------------------------------------------------
# Comparison


@dataclass(frozen=True)
class ABRun:
    """One finished run.  frames_per_s: game frames, at most, since episodes end inside decisions.  share: of the time of
    training, by phase.  held_out: success of the final evaluation, None if there was none."""

    arm: str
    seed: int
    folder: str
    decisions_per_s: float
    frames_per_s: float
    share: dict[str, float]
    held_out: float | None


@dataclass(frozen=True)
class Band:
    """A learning curve of one arm: mean over seeds with 95 % bootstrap bounds, at the same decisions for both arms."""

    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Row:
    """One quantity: the mean of each arm, and how B relates to A over pairs of equal seed (a ratio or a difference)."""

    quantity: str
    a: float
    b: float
    relation: str  # "B / A" or "B - A"
    estimate: Estimate


@dataclass(frozen=True)
class ABComparison:
    """runs: all of them.  rows: what the table shows.  decisions: where the curves have values.  bands: curve -> arm ->
    Band.  expected: overall speed-up by Amdahl's law from ``share`` and ``speed_up``, or None."""

    plan: ABSettings
    runs: list[ABRun]
    rows: list[Row]
    decisions: list[float]
    bands: dict[str, dict[str, Band]]
    share: float | None = None
    speed_up: float | None = None
    expected: float | None = None


def compare_arms(
    plan: ABSettings, folder: Path, *, share: float | None = None, speed_up: float | None = None
) -> ABComparison:
    """Compare the finished runs.  share, speed_up: of the part that B changes, for the line of Amdahl's law.

    Raises ResultsError if a run is missing or has no learning curve.
    """
    runs, curves = [], []
    for arm in ("a", "b"):
        for seed in plan.seeds:
            found = finished(folder, arm, seed)
            if found is None:
                raise ResultsError(f"{folder}: no finished run {arm}_seed{seed}; run the comparison again to make it")
            runs.append(_read(arm, seed, found))
            curves.append(read_scalars(found))
    number = len(plan.seeds)

    def row(quantity, values, relation="B - A"):
        estimate = mean_of_ratios if relation == "B / A" else mean_difference
        a, b = values[:number], values[number:]
        return Row(quantity, float(np.mean(a)), float(np.mean(b)), relation, estimate(b, a))

    rows = [
        row(f"{unit}/s", [getattr(run, f"{unit}_per_s") for run in runs], "B / A") for unit in ("decisions", "frames")
    ]
    rows += [row(f"share of time: {phase}", [run.share.get(phase, 0.0) for run in runs]) for phase in runs[0].share]
    decisions, values = _on_one_grid(curves)
    last = max(round(LAST_SHARE * GRID), 1)
    for name, curve in values.items():
        rows.append(row(f"{name}, mean over training", curve.mean(axis=1)))
        rows.append(row(f"{name}, last {LAST_SHARE:.0%} of training", curve[:, -last:].mean(axis=1)))
    if all(run.held_out is not None for run in runs):
        rows.append(row("success on held-out levels", [run.held_out for run in runs]))
    bands = {name: {"A": _band(curve[:number]), "B": _band(curve[number:])} for name, curve in values.items()}
    expected = None if share is None else timing.amdahl(share, speed_up)
    return ABComparison(plan, runs, rows, decisions.tolist(), bands, share, speed_up, expected)


def _read(arm: str, seed: int, folder: Path) -> ABRun:
    entry = _entry(folder, seed)
    speed = entry["speed"]["decisions_per_s"]
    frame_skip = load_results(folder / "results.json")["config"]["frame_skip"]
    held_out = entry["suites"]["test"].get(ALL, {}).get("success")
    return ABRun(arm, seed, str(folder), speed, speed * frame_skip, entry["speed"]["share"], held_out)


def _on_one_grid(curves: Sequence[dict[str, Scalars]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Decisions float64[GRID] that all runs have reached, and each curve float64[runs, GRID] there, linear in between."""
    for scalars in curves:
        for tag in CURVES.values():
            if tag not in scalars:
                raise ResultsError(f"a run has no {tag}: no episode ended in it; give more --total-timesteps")
    needed = [scalars[tag] for scalars in curves for tag in CURVES.values()]
    first, end = max(s.steps[0] for s in needed), min(s.steps[-1] for s in needed)
    if first > end:
        raise ResultsError(
            f"one run began to log at {first} decisions, another ended at {end}; give more --total-timesteps"
        )
    grid = np.linspace(first, end, GRID)
    return grid, {
        name: np.array([np.interp(grid, scalars[tag].steps, scalars[tag].values) for scalars in curves])
        for name, tag in CURVES.items()
    }


def _band(curve: np.ndarray) -> Band:
    """curve: float64[seeds, GRID]."""
    points = [bootstrap(lambda values: values.mean(axis=1), column) for column in curve.T]
    mean = [point.value for point in points]
    if points[0].low is None:
        return Band(mean, mean, mean)
    return Band(mean, [point.low for point in points], [point.high for point in points])


def text(comparison: ABComparison) -> str:
    """The comparison as a table, with the line of Amdahl's law where it was asked for."""
    plan = comparison.plan
    header = ("quantity", "A", "B", "relation", "95 % over seeds")
    rows = [(r.quantity, _number(r.a), _number(r.b), r.relation, r.estimate) for r in comparison.rows]
    lines = [
        f"A: {' '.join(plan.a) or '(nothing)'}",
        f"B: {' '.join(plan.b) or '(nothing)'}",
        f"both: {' '.join(plan.common)}; seeds {' '.join(map(str, plan.seeds))}",
        "",
        table(header, rows),
    ]
    if comparison.expected is not None:
        lines += [
            "",
            f"Amdahl: {comparison.share:.0%} of the time made {comparison.speed_up:g} times as fast lets expect "
            f"{comparison.expected:.3f}; measured {comparison.rows[0].estimate}",
        ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def write(comparison: ABComparison, folder: Path) -> list[Path]:
    """Write comparison.json, comparison.txt and a picture of each curve; returns the files."""
    facts = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    write_json(folder / "comparison.json", facts | asdict(comparison))
    (folder / "comparison.txt").write_text(text(comparison) + "\n", encoding="utf-8")
    files = [folder / "comparison.json", folder / "comparison.txt"]
    for name, bands in comparison.bands.items():
        percent = 100.0 if name == "success" else 1.0
        lines = {
            arm: tuple(percent * np.array(values) for values in (band.mean, band.low, band.high))
            for arm, band in bands.items()
        }
        title = {"success": "Success in training", "return": "Return per episode"}[name]
        picture = band_chart(title, "%" if name == "success" else "", comparison.decisions, lines, "decisions")
        files.append(folder / f"{name}.png")
        files[-1].write_bytes(picture)
    return files
