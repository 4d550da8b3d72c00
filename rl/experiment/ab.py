"""A/B comparison of trainings: two sets of flags with the same seeds, compared in speed and learning.

    settings = ABSettings(a=("--frame-skip", "4"), b=("--frame-skip", "2"), common=("--skip-final-eval",), seeds=(1, 2, 3))
    run_all(settings, folder, script)  # script: scripts/train_and_compare.py; finished runs are not repeated
    comparison = compare_arms(settings, folder)
    write(comparison, folder)          # comparison.json, comparison.txt, success.png, return.png

``a`` is the baseline.  Runs of the arms A and B alternate (A B, B A, A B, ...), so that changes of the machine's speed
affect both arms.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppsim.cluster import project_digest
from nppsim.errors import ConfigError
from nppsim.files import locked, table, write_bytes, write_json, write_text
from nppsim.measure import machine, timing
from nppsim.measure.intervals import Estimate, bootstrap, mean_difference, mean_of_ratios
from nppsim.reading import mismatch, read_json
from nppsim.report.charts import band_chart
from nppsim.signals import end_interrupted
from rl.config import ExperimentConfig
from rl.config.command_line import options_of, resolve
from rl.evaluation.comparison import LEVELS_FILE, compare, read_levels
from rl.evaluation.results import ALL, History, LevelWins, ResultsError, level_wins, load_results, read_history
from rl.events import Scalars, event_folders, read_scalars

PLAN = "plan.json"
RESERVED = options_of("experiment-name", "output-dir", "seeds", "resume-from")  # the comparison sets these
_NO_TEST = "--skip-final-eval"
GRID = 100  # number of points of a curve
LAST_SHARE = 0.1  # share of training that counts as its end
STOP_SECONDS = 120  # time in which a run must write its checkpoint and exit after Ctrl-C


class Curve(NamedTuple):
    """A learning curve to compare.  tag: name of the scalar in event files.  factor: converts the scalar to ``unit``."""

    tag: str
    title: str
    unit: str
    factor: float


CURVES = {
    "success": Curve("rollout/success_rate", "Success in training", "%", 100.0),
    "return": Curve("rollout/ep_rew_mean", "Return per episode", "", 1.0),
}


@dataclass(frozen=True)
class ABSettings:
    """Settings of a comparison.

    a, b: flags of arm A only, and of arm B only.
    common: flags of both arms.
    seeds: each arm trains once per seed.
    test: also evaluate on the test levels, whose results must not decide which arm is adopted.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    common: tuple[str, ...]
    seeds: tuple[int, ...]
    test: bool = False

    def flags(self, arm: str, seed: int, folder: Path) -> list[str]:
        """Return the flags of scripts/train_and_compare.py for one run.  arm: "a" or "b"."""
        own = ["--experiment-name", f"{arm}_seed{seed}", "--seeds", str(seed), "--output-dir", str(runs_folder(folder))]
        return [*self.common, *getattr(self, arm), *([] if self.test else [_NO_TEST]), *own]

    def check(self, folder: Path) -> dict[str, ExperimentConfig]:
        """Return arm -> configuration; ConfigError for flags that do not make exactly one run per arm."""
        for name in ("common", "a", "b"):
            for flag in getattr(self, name):
                if flag.split("=")[0] in RESERVED:
                    raise ConfigError("is set for each run by the comparison; leave it out (seeds: --seeds)", flag)
                if not self.test and flag in ("--record-eval-videos", "--record-videos"):
                    raise ConfigError("needs an evaluation on test levels; add --test, or leave it out", flag)
        if self.a == self.b:
            raise ConfigError("A and B have the same flags; change --a or --b")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError("give at least one, and each only once", "--seeds", self.seeds)
        configs = {arm: resolve(self.flags(arm, self.seeds[0], folder)) for arm in ("a", "b")}
        for arm, config in configs.items():
            if len(config.architectures) != 1 or len(config.conditions) != 1:
                numbers = f"{len(config.architectures)} architectures and {len(config.conditions)} conditions"
                advice = "a comparison needs one run each: give one of --architectures, and no --test-pretraining"
                raise ConfigError(f"{arm.upper()} trains {numbers}; {advice}")
        evaluated = all(config.evaluation.in_training for config in configs.values())
        if evaluated and len({_dev_episodes(config) for config in configs.values()}) > 1:
            raise ConfigError(
                "A and B would be evaluated on different dev episodes; give both the same --dev-dataset (default: levels of "
                "--train-dataset), --eval-episodes-per-category and --eval-seed"
            )
        return configs


def _dev_episodes(config: ExperimentConfig) -> tuple[object, ...]:
    """Return the settings that determine the dev episodes."""
    evaluation = config.evaluation
    levels = (config.dev_dataset,) if config.dev_dataset else (config.train_dataset, config.single_level)
    return (*levels, evaluation.periodic_episodes_per_category, evaluation.seed, evaluation.deterministic)


def runs_folder(folder: Path) -> Path:
    """Return the folder that contains the folders of all runs."""
    return folder / "runs"


def run_all(settings: ABSettings, folder: Path, script: Path, log: Callable[[str], None] = print) -> None:
    """Run the unfinished trainings, one process after the other, with output in ``<folder>/logs``.

    Raises ConfigError if ``folder`` contains a comparison with other settings, or from another machine, other versions or
    other sources; ResultsError if a run fails.  After Ctrl-C, a KeyboardInterrupt is raised when the run has ended.
    """
    settings.check(folder)
    with locked(folder):
        _settle(settings, folder)
        (folder / "logs").mkdir(exist_ok=True)
        for seed, pair in zip(settings.seeds, timing.abba(len(settings.seeds)), strict=True):
            for arm in pair:
                if done := finished(folder, arm, seed):
                    log(f"{arm}_seed{seed}: already finished in {done}")
                else:
                    _run_one(settings, folder, script, arm, seed, log)


def _run_one(settings: ABSettings, folder: Path, script: Path, arm: str, seed: int, log: Callable[[str], None]) -> None:
    name = f"{arm}_seed{seed}"
    log_file = folder / "logs" / f"{name}_{datetime.now():%Y%m%d_%H%M%S}.log"
    log(f"{name}: running, output in {log_file}")
    status = _run([sys.executable, "-u", str(script), *settings.flags(arm, seed, folder)], log_file)
    if status or not finished(folder, arm, seed):
        last = log_file.read_text(encoding="utf-8").strip().splitlines()[-1:] or ["no output"]
        raise ResultsError(f"{name}: ended with status {status}: {last[0]}; see {log_file}, fix the problem and repeat")


def _settle(settings: ABSettings, folder: Path) -> None:
    """Write the settings of a new comparison; of a resumed one, check that they equal the stored settings.

    Machine, versions and sources are also compared.  The seeds may differ.
    """
    record: dict[str, dict] = {
        "plan": {name: list(getattr(settings, name)) for name in ("a", "b", "common")} | {"test": settings.test},
        "machine": machine.machine(),
        "versions": machine.versions(),
        "build": {"sources": project_digest()},
    }
    file = folder / PLAN
    if not file.exists():
        if runs_folder(folder).exists():
            raise ConfigError(f"contains runs, but no {PLAN}; choose another folder", "--out", folder)
        write_json(file, record)
        return
    if different := machine.differences(record, _facts(file)):
        advice = f"was begun with other settings: {'; '.join(different)}. Choose another folder"
        raise ConfigError(advice, "--out", folder)


def _facts(file: Path) -> dict:
    """Load plan.json, the settings that ``_settle`` has written; ResultsError if the file is damaged."""
    facts: dict = read_json(file, ResultsError, "restore it, or begin again in another folder")
    if wrong := mismatch(facts, {...: {}}):
        raise ResultsError(f"{file}: is damaged: {wrong}; restore it, or begin again in another folder")
    return facts


def _run(command: list[str], log_file: Path) -> int:
    """Run a command with output to a file; return its exit status.  After Ctrl-C the command has STOP_SECONDS to exit."""
    with open(log_file, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            return process.wait()
        except KeyboardInterrupt as interruption:
            end_interrupted(process, interruption, STOP_SECONDS)
            raise


def finished(folder: Path, arm: str, seed: int) -> Path | None:
    """Return the folder of the newest finished run of an arm and seed, or None.

    A run is finished if its results.json contains the seed.
    """
    for run in sorted(runs_folder(folder).glob(f"{arm}_seed{seed}_*"), reverse=True):
        if (run / "results.json").is_file() and str(seed) in _entries(load_results(run / "results.json")):
            return run
    return None


def _entries(results: dict) -> dict[str, dict]:
    """Return seed -> its entry in results.json, of a run with a single architecture."""
    (architecture,) = results["architectures"].values()
    return architecture["seeds"]


@dataclass(frozen=True)
class ABRun:
    """One finished run.

    arm: "a" or "b".
    frames_per_s: decisions_per_s times the frame skip; an upper limit, since episodes may end within a decision.
    share: phase of training -> share of the training time.
    held_out: success in the final evaluation on test levels, None without a final evaluation.
    guarded: True if the best policy on the dev levels was delivered instead of the last policy.
    """

    arm: str
    seed: int
    folder: str
    decisions_per_s: float
    frames_per_s: float
    share: dict[str, float]
    held_out: float | None
    guarded: bool


@dataclass(frozen=True)
class ABBand:
    """A learning curve of one arm: mean over seeds and bounds of a 95 % bootstrap interval."""

    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class ABRow:
    """One compared quantity.

    a, b: means of the arms.
    relation: "B / A" or "B - A".
    estimate: mean of the relation over pairs of runs with equal seed, or over levels, with its 95 % interval.
    """

    quantity: str
    a: float
    b: float
    relation: str
    estimate: Estimate


@dataclass(frozen=True)
class ChangedPart:
    """The part of the training that B speeds up, for Amdahl's law.

    share: share of A's training time spent in this part, 0 to 1.
    speed_up: A's time in this part divided by B's.
    Raises TimingError for values out of range.
    """

    share: float
    speed_up: float

    def __post_init__(self) -> None:
        timing.amdahl(self.share, self.speed_up)

    @property
    def expected(self) -> float:
        """Expected speed-up of the whole training, by Amdahl's law."""
        return timing.amdahl(self.share, self.speed_up)


@dataclass(frozen=True)
class ABComparison:
    """Result of a comparison.

    decisions: x values of the curves.
    bands: name of a curve (key of CURVES) -> arm ("A" or "B") -> curve with its interval.
    part: part of the training that B speeds up, if given.
    """

    settings: ABSettings
    runs: list[ABRun]
    rows: list[ABRow]
    decisions: list[float]
    bands: dict[str, dict[str, ABBand]]
    part: ChangedPart | None = None

    def to_dict(self) -> dict:
        """Return the comparison as JSON values, for comparison.json."""
        values = asdict(self)
        part = values.pop("part") or {"share": None, "speed_up": None}
        return {"plan": values.pop("settings"), **values, **part, "expected": self.part and self.part.expected}


def compare_arms(settings: ABSettings, folder: Path, part: ChangedPart | None = None) -> ABComparison:
    """Compare the finished runs.  Raises ResultsError if a run is missing or has no learning curve."""
    runs = [_read(folder, arm, seed) for arm in ("a", "b") for seed in settings.seeds]
    decisions, curves = _on_one_grid([read_scalars(run.folder) for run in runs])
    bands = {name: dict(zip("AB", map(_band, np.split(curve, 2)), strict=True)) for name, curve in curves.items()}
    rows = _rows(runs, curves) + _on_dev_levels(runs) + (_on_test_levels(runs) if settings.test else [])
    return ABComparison(settings, runs, rows, decisions.tolist(), bands, part)


def _read(folder: Path, arm: str, seed: int) -> ABRun:
    run = finished(folder, arm, seed)
    if run is None:
        raise ResultsError(f"{folder}: no finished run {arm}_seed{seed}; run the comparison again to make it")
    results = load_results(run / "results.json")
    entry = _entries(results)[str(seed)]
    speed = entry["speed"]["decisions_per_s"]
    held_out = entry["suites"]["test"].get(ALL, {}).get("success")
    config = results["config"]
    guarded = config.get("evaluation", {}).get("retention_guard", True)
    return ABRun(arm, seed, str(run), speed, speed * config["frame_skip"], entry["speed"]["share"], held_out, guarded)


def _rows(runs: Sequence[ABRun], curves: Mapping[str, np.ndarray]) -> list[ABRow]:
    """Return the rows of speed, shares of training time and learning curves, paired by seed.

    curves: key of CURVES -> values float64[runs, GRID].
    """
    rows = [
        _row(f"{unit}/s", [getattr(run, f"{unit}_per_s") for run in runs], "B / A") for unit in ("decisions", "frames")
    ]
    rows += [_row(f"share of time: {phase}", [run.share.get(phase, 0.0) for run in runs]) for phase in runs[0].share]
    last = max(round(LAST_SHARE * GRID), 1)
    for name, curve in curves.items():
        rows.append(_row(f"{name}, mean over training", curve.mean(axis=1)))
        rows.append(_row(f"{name}, last {LAST_SHARE:.0%} of training", curve[:, -last:].mean(axis=1)))
    return rows


def _on_dev_levels(runs: Sequence[ABRun]) -> list[ABRow]:
    """Return the row of the delivered policies' success on dev levels, or [] if a run has no dev evaluations."""
    found: dict[str, list[tuple[History, np.ndarray]]] = {"a": [], "b": []}
    for run in runs:
        history = read_history(_job_folder(run))
        if history is None:
            return []
        found[run.arm].append((history, history.delivered(run.guarded)))
    wins = {arm: level_wins(*zip(*rows, strict=True)) for arm, rows in found.items()}
    return [_paired("success on dev levels", wins["b"], wins["a"])]


def _on_test_levels(runs: Sequence[ABRun]) -> list[ABRow]:
    """Return the row of success in the final evaluation, or [] if a run has no final evaluation."""
    if any(run.held_out is None for run in runs):
        return []
    wins = {
        arm: read_levels([_job_folder(run) / LEVELS_FILE for run in runs if run.arm == arm], "ppo")
        for arm in ("a", "b")
    }
    return [_paired("success on test levels", wins["b"], wins["a"])]


def _paired(quantity: str, b: LevelWins, a: LevelWins) -> ABRow:
    found = compare("B", "A", b, a).categories[ALL]
    low, high = found.ci95 or (None, None)
    return ABRow(quantity, found.second, found.first, "B - A", Estimate(found.difference, low, high))


def _job_folder(run: ABRun) -> Path:
    """Return the folder of the single training in a run."""
    found = next(iter(event_folders(run.folder)), None)
    return found.parent if found else Path(run.folder)


def _row(quantity: str, values: Sequence[float] | np.ndarray, relation: str = "B - A") -> ABRow:
    """Compare the arms in one quantity.  values: one value per run, first those of arm A, then those of B by equal seeds."""
    a, b = np.split(np.asarray(values, float), 2)
    estimate = mean_of_ratios(b, a) if relation == "B / A" else mean_difference(b, a)
    return ABRow(quantity, float(a.mean()), float(b.mean()), relation, estimate)


def _on_one_grid(runs: Sequence[dict[str, Scalars]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Interpolate all runs at the same decisions; return decisions float64[GRID] and curve -> values float64[runs, GRID]."""
    tags = {name: curve.tag for name, curve in CURVES.items()}
    for tag in tags.values():
        if not all(tag in scalars for scalars in runs):
            raise ResultsError(f"a run has no {tag}, as no episode ended; give more --total-timesteps")
    needed = [scalars[tag] for scalars in runs for tag in tags.values()]
    first, end = max(s.steps[0] for s in needed), min(s.steps[-1] for s in needed)
    if first > end:
        raise ResultsError(
            f"the curve of a run starts at {first} decisions, where another has ended ({end}); give more --total-timesteps"
        )
    grid = np.linspace(first, end, GRID)
    return grid, {
        name: np.array([np.interp(grid, scalars[tag].steps, scalars[tag].values) for scalars in runs])
        for name, tag in tags.items()
    }


def _band(curve: np.ndarray) -> ABBand:
    """Return mean and 95 % interval over seeds at each point.  curve: float64[seeds, GRID]."""
    points = [bootstrap(lambda values: values.mean(axis=1), column) for column in curve.T]
    mean = [point.value for point in points]
    low = [point.value if point.low is None else point.low for point in points]  # a single seed has no interval
    high = [point.value if point.high is None else point.high for point in points]
    return ABBand(mean, low, high)


def comparison_text(comparison: ABComparison) -> str:
    """Return the comparison as text: flags, table, and Amdahl's law if ``part`` was given."""
    settings, part = comparison.settings, comparison.part
    header = ("quantity", "A", "B", "relation", "95 % interval")
    rows = [(r.quantity, _number(r.a), _number(r.b), r.relation, r.estimate) for r in comparison.rows]
    lines = [
        f"A: {' '.join(settings.a) or '(nothing)'}",
        f"B: {' '.join(settings.b) or '(nothing)'}",
        f"both: {' '.join(settings.common)}; seeds {' '.join(map(str, settings.seeds))}",
        "",
        table(header, rows),
    ]
    if part is not None:
        lines += [
            "",
            f"Amdahl: expected speed-up {part.expected:.3f}, as {part.share:.0%} of the time is {part.speed_up:g} times as "
            f"fast; measured {comparison.rows[0].estimate}",
        ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def write(comparison: ABComparison, folder: Path) -> list[Path]:
    """Write comparison.json, comparison.txt and a picture of each curve; return the files."""
    facts = _facts(folder / PLAN)
    files = [folder / "comparison.json", folder / "comparison.txt"]
    write_json(files[0], facts | comparison.to_dict())
    write_text(files[1], comparison_text(comparison) + "\n")
    for name, bands in comparison.bands.items():
        curve = CURVES[name]
        lines = {
            arm: tuple(curve.factor * np.array(values) for values in (band.mean, band.low, band.high))
            for arm, band in bands.items()
        }
        files.append(folder / f"{name}.png")
        write_bytes(files[-1], band_chart(curve.title, curve.unit, comparison.decisions, lines, "decisions"))
    return files
