"""A/B comparison of trainings: two sets of flags with the same seeds, compared in speed and learning.

    common = ("--architectures", "vision_free")
    settings = ABSettings(a=("--frame-skip", "4"), b=("--frame-skip", "2"), common=common, seeds=(1, 2, 3))
    run_all(settings, folder, script)  # script: scripts/train_and_compare.py; finished runs are not repeated
    comparison = compare_arms(settings, folder)
    comparison.write(folder)           # comparison.json, comparison.txt

``a`` is the baseline.  Runs of the arms A and B alternate (A B, B A, A B, ...), so that changes of the machine's speed
affect both arms.  ``rl.tools.compare`` compares the runs.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from nppsim.errors import ConfigError
from nppsim.io.files import locked, write_json, write_text
from nppsim.io.reading import read_json
from nppsim.io.signals import child_process
from nppsim.measure import machine, timing
from nppsim.parallel.cluster import project_digest
from rl.config import ExperimentConfig
from rl.config.command_line import options_of, resolve
from rl.evaluation.comparison import LEVELS_FILE, Comparison, compare, comparison_table, read_levels
from rl.evaluation.results import ResultsError
from rl.experiment.record import SUMMARY
from rl.tools.compare import RunsComparison, Tolerance, compare_runs
from rl.training.runs import StoredRun, find_runs

PLAN = "plan.json"
RESERVED = options_of("experiment-name", "output-dir", "seeds", "resume-from")  # flags that the comparison sets
_NO_TEST = "--skip-final-eval"
_ACTION_FLAGS = ", --eval-seed, --deterministic-eval and --exploration-patience"
STOP_SECONDS = 120  # time in which a run must write its checkpoint and exit after Ctrl-C


@dataclass(frozen=True)
class ABSettings:
    """Settings of a comparison.

    a, b: flags of arm A only, and of arm B only.
    common: flags of both arms.
    seeds: each arm trains once per seed.
    test: also evaluate on the test levels, whose results must not be used to choose between the arms.
    share, speed_up: share of A's training time (0 to 1) in the part that B speeds up, and by which factor; or None.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    common: tuple[str, ...]
    seeds: tuple[int, ...]
    test: bool = False
    share: float | None = None
    speed_up: float | None = None

    @property
    def expected(self) -> float | None:
        """Expected speed-up of the whole training by Amdahl's law, or None."""
        if self.share is None or self.speed_up is None:
            return None
        return timing.amdahl(self.share, self.speed_up)

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
                if not self.test and flag.split("=")[0] in options_of("record-eval-videos"):
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
                f"--train-dataset), --eval-episodes-per-category{_ACTION_FLAGS}"
            )
        if self.test and any(config.evaluation.skip_final_eval for config in configs.values()):
            raise ConfigError("contradicts --test; leave out one of them", _NO_TEST)
        if self.test and len({_test_episodes(config) for config in configs.values()}) > 1:
            raise ConfigError(
                "A and B would be evaluated on different test episodes; give both the same --test-dataset or "
                f"--single-level, --num-eval-episodes{_ACTION_FLAGS}"
            )
        return configs


def _dev_episodes(config: ExperimentConfig) -> tuple[object, ...]:
    """Return the settings that determine the dev episodes."""
    evaluation = config.evaluation
    levels = (config.dev_dataset,) if config.dev_dataset else (config.train_dataset, config.single_level)
    return (*levels, evaluation.periodic_episodes_per_category, *_action_settings(config))


def _test_episodes(config: ExperimentConfig) -> tuple[object, ...]:
    """Return the settings that determine the test episodes."""
    return (config.test_dataset, config.single_level, config.evaluation.num_eval_episodes, *_action_settings(config))


def _action_settings(config: ExperimentConfig) -> tuple[object, ...]:
    """Return the settings that determine the actions in an evaluation."""
    evaluation = config.evaluation
    return evaluation.seed, evaluation.deterministic, evaluation.exploration_patience


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
        _write_or_check_plan(settings, folder)
        (folder / "logs").mkdir(exist_ok=True)
        for seed, pair in zip(settings.seeds, timing.abba(len(settings.seeds)), strict=True):
            for arm in pair:
                if done := finished(folder, arm, seed):
                    log(f"{arm}_seed{seed}: already finished in {done}")
                else:
                    _train(settings, folder, script, arm, seed, log)


def _train(settings: ABSettings, folder: Path, script: Path, arm: str, seed: int, log: Callable[[str], None]) -> None:
    name = f"{arm}_seed{seed}"
    log_file = folder / "logs" / f"{name}_{datetime.now():%Y%m%d_%H%M%S}.log"
    log(f"{name}: running, output in {log_file}")
    status = _run_process([sys.executable, "-u", str(script), *settings.flags(arm, seed, folder)], log_file)
    if status or not finished(folder, arm, seed):
        last = log_file.read_text(encoding="utf-8").strip().splitlines()[-1:] or ["no output"]
        raise ResultsError(f"{name}: ended with status {status}: {last[0]}; see {log_file}, fix the problem and repeat")


def _write_or_check_plan(settings: ABSettings, folder: Path) -> None:
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
    if different := machine.differences(record, _read_plan(file)):
        advice = f"was begun with other settings: {'; '.join(different)}. Choose another folder"
        raise ConfigError(advice, "--out", folder)


def _read_plan(file: Path) -> dict:
    """Load plan.json, as written by ``_write_or_check_plan``; ResultsError if the file is damaged."""
    remedy = "restore it, or begin again in another folder"
    stored: dict = read_json(file, ResultsError, remedy, shape={...: {}})
    return stored


def _run_process(command: list[str], log_file: Path) -> int:
    """Run a command with output to a file; return its exit status.  After Ctrl-C the command has STOP_SECONDS to exit."""
    with child_process(command, log_file, STOP_SECONDS) as process:
        return process.wait()


def finished(folder: Path, arm: str, seed: int) -> Path | None:
    """Return the folder of the newest finished run of an arm and seed, or None."""
    runs = sorted(runs_folder(folder).glob(f"{arm}_seed{seed}_*/{SUMMARY}"))
    return runs[-1].parent if runs else None


@dataclass(frozen=True)
class ABComparison:
    """Result of a comparison.

    found: learning and speed of B against A.
    test: success on the test levels of B against A; None without a final evaluation.
    """

    settings: ABSettings
    found: RunsComparison
    test: Comparison | None

    def text(self) -> str:
        """Return the comparison as text: flags, tables, and Amdahl's law if a part is given."""
        settings = self.settings
        lines = [
            f"A: {' '.join(settings.a) or '(nothing)'}",
            f"B: {' '.join(settings.b) or '(nothing)'}",
            f"both: {' '.join(settings.common)}; seeds {' '.join(map(str, settings.seeds))}",
            "",
            self.found.text(),
        ]
        if self.test is not None:
            lines += ["", "test levels", comparison_table([self.test])]
        if settings.expected is not None:
            measured = f"{1 / self.found.speed[0].ratio.value:.3f}" if self.found.speed else "unknown"
            part = f"{settings.share:.0%} of the time is {settings.speed_up:g} times as fast"
            lines += ["", f"Amdahl: expected speed-up {settings.expected:.3f}, as {part}; measured {measured}"]
        return "\n".join(lines)

    def write(self, folder: Path) -> list[Path]:
        """Write comparison.json and comparison.txt; return the files."""
        files = [folder / "comparison.json", folder / "comparison.txt"]
        values = _read_plan(folder / PLAN)
        values |= {
            "plan": asdict(self.settings),
            "comparison": self.found.to_dict(),
            "expected": self.settings.expected,
        }
        values["test"] = self.test and self.test.to_dict()
        write_json(files[0], values)
        write_text(files[1], self.text() + "\n")
        return files


def compare_arms(settings: ABSettings, folder: Path) -> ABComparison:
    """Compare the finished runs.  Raises ResultsError if a run is missing."""
    a, b = ([_training(folder, arm, seed) for seed in settings.seeds] for arm in ("a", "b"))
    (found,) = compare_runs(a, b, Tolerance())
    test = None
    if settings.test:
        test = compare("B", "A", *(read_levels([run.folder / LEVELS_FILE for run in side], "ppo") for side in (b, a)))
    return ABComparison(settings, found, test)


def _training(folder: Path, arm: str, seed: int) -> StoredRun:
    run = finished(folder, arm, seed)
    if run is None:
        raise ResultsError(f"{folder}: no finished run {arm}_seed{seed}; run the comparison again to make it")
    (training,) = find_runs(run)
    return training
