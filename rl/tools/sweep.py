"""Hyperparameter sweeps with Optuna.  Each trial is a run of the main job, scored by its success on the dev levels.

    sweep = Sweep(read_space(["initial-lr=1e-4..1e-2:log"]), common=("--architectures", "vision_free"), seeds=(0, 1))
    study = run_trials(sweep, folder, script)     # script: scripts/train_and_compare.py; a second call continues the sweep
    print(report(study, sweep, folder))

Ranges and lists of values, in the form of --sweep:

    initial-lr=1e-4..1e-2:log       a range, uniform on a logarithmic scale
    ppo.gae_lambda=0.9..0.99        a field of the configuration instead of a flag
    minibatch-size=1024,2048,4096   a list of values

The folder contains study.db (Optuna), sweep.json (settings), trials/ (settings of each trial), runs/, logs/, results.json and
best.toml.  Test levels are never played.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nppsim.errors import ConfigError
from nppsim.io.files import locked, table, write_json, write_text
from nppsim.io.reading import read_object
from nppsim.io.signals import child_process
from nppsim.settings import Setting
from rl.config import ExperimentConfig
from rl.config.command_line import options, options_of, resolve
from rl.config.files import find_setting, read_text, toml_value
from rl.evaluation.results import HISTORY_FILE, History, ResultsError, read_history

if TYPE_CHECKING:
    import optuna

STUDY, PLAN, BEST = "study.db", "sweep.json", "best.toml"
# Flags that the sweep sets for each trial.
RESERVED = options_of(
    "experiment-name", "output-dir", "seeds", "resume-from", "config", "skip-final-eval", "record-eval-videos"
)
POLL_SECONDS = 1.0  # time between checks of a running trial
STOP_SECONDS = 300.0  # time in which a trial must end after SIGTERM or Ctrl-C
STARTING_TRIALS = 4  # number of first trials, which are drawn at random and never pruned
FAILURES = 3  # number of consecutive failed trials that ends the sweep
STEPS = 10_000  # steps of the pruner reserved for each seed; exceeds the number of evaluations of a seed
Log = Callable[[str], None]
_FORM = "give NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=A,B,C"


# ---------------------------------------------------------------------------------------------------------------------
# Search space


@dataclass(frozen=True)
class Dimension:
    """One setting to sweep.

    name: flag without its leading dashes, or dotted field of the configuration.
    setting: default, type and limits of the setting.
    values: (lowest, highest) number of a range, or the texts to choose from.
    is_range: True for a range.
    log: draw uniformly on a logarithmic scale.
    """

    name: str
    setting: Setting
    values: tuple[Any, ...]
    is_range: bool = False
    log: bool = False

    def __str__(self) -> str:
        if self.is_range:
            return f"{self.name}={self.values[0]}..{self.values[1]}{':log' if self.log else ''}"
        return f"{self.name}={','.join(self.values)}"

    def draw(self, trial: "optuna.Trial") -> Any:
        """Draw a value for a trial: a number, or one of the texts."""
        if not self.is_range:
            return trial.suggest_categorical(self.name, self.values)
        draw = trial.suggest_int if self.setting.kind is int else trial.suggest_float
        return draw(self.name, *self.values, log=self.log)

    def toml(self, value: Any) -> str:
        """Return a drawn value as TOML; ConfigError for an invalid text."""
        if self.is_range:
            return repr(value)
        text = ",".join(value.split()) if self.setting.many else value
        return toml_value(read_text(self.setting, text, f"--sweep {self.name} {value}"))


Space = tuple[Dimension, ...]


def read_space(texts: Sequence[str]) -> Space:
    """Parse the texts of ``--sweep``; raise ConfigError if a text cannot be parsed."""
    space = tuple(map(_dimension, texts))
    if not space:
        raise ConfigError("nothing to sweep; give --sweep NAME=VALUES")
    swept = [(dimension.setting.name, dimension.setting.flag) for dimension in space]
    if doubled := [text for i, text in enumerate(texts) if swept[i] in swept[:i]]:
        raise ConfigError("sweeps a setting twice; give each once", "--sweep", doubled[0])
    return space


def _dimension(text: str) -> Dimension:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise ConfigError(_FORM, "--sweep", text)
    name = name.lstrip("-")
    part, _, field = name.rpartition(".")
    _, setting = find_setting(part, field, f"--sweep {text}")
    low, dots, rest = value.partition("..")
    if not dots:
        choices = tuple(choice.strip() for choice in value.split(","))
        if len(set(choices)) != len(choices):
            raise ConfigError("names a value twice", "--sweep", text)
        return Dimension(name, setting, choices)
    high, colon, scale = rest.partition(":")
    if setting.kind not in (int, float) or setting.many or (colon and scale != "log"):
        raise ConfigError(f"is not a valid range; {_FORM}", "--sweep", text)
    try:
        ends = setting.read(low), setting.read(high)
    except ValueError as error:
        raise ConfigError(f"{error}; {_FORM}", "--sweep", text) from error
    if None in ends or not ends[0] < ends[1] or (colon and ends[0] <= 0):
        raise ConfigError(f"give two numbers, the lower one first{', above 0' if colon else ''}", "--sweep", text)
    return Dimension(name, setting, ends, is_range=True, log=bool(colon))


def toml_text(space: Space, values: Mapping[str, Any]) -> str:
    """Return the drawn settings of a trial as text of a ``--config`` file.  values: name -> drawn value."""
    lines: list[str] = []
    tables: dict[str, list[str]] = {}
    for dimension in space:
        part, _, name = dimension.name.rpartition(".")
        (tables.setdefault(part, []) if part else lines).append(f"{name} = {dimension.toml(values[dimension.name])}")
    for part, rows in tables.items():
        lines += [f"[{part}]", *rows]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Trials


@dataclass(frozen=True)
class Sweep:
    """Settings of a sweep.

    space: settings to draw.
    common: flags of scripts/train_and_compare.py for all trials.
    seeds: each trial trains once per seed.
    trials: total number of trials.
    pruning: end trials that are worse than the median of earlier trials at the same step.
    """

    space: Space
    common: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    trials: int = 20
    pruning: bool = True

    def check(self, folder: Path) -> None:
        """Raise ConfigError for invalid flags, and for invalid values at the ends of ranges."""
        for dimension in self.space:
            if not RESERVED.isdisjoint(options(dimension.setting)):
                raise ConfigError(f"{dimension.name} is set for each trial by the sweep; leave it out", "--sweep")
        for flag in self.common:
            if flag.split("=")[0] in RESERVED:
                raise ConfigError("is set for each trial by the sweep; leave it out", flag)
            if flag.split("=")[0] in options(*(dimension.setting for dimension in self.space)):
                raise ConfigError("is swept; leave it out of the flags for every trial", flag)
        config = self.resolved({dimension.name: dimension.values[0] for dimension in self.space}, folder)
        for dimension in self.space:
            for value in dimension.values[1:]:
                self.resolved({other.name: other.values[0] for other in self.space} | {dimension.name: value}, folder)
        if len(config.architectures) != 1 or len(config.conditions) != 1:
            numbers = f"{len(config.architectures)} architectures and {len(config.conditions)} conditions"
            advice = "give one of --architectures, and no --test-pretraining"
            raise ConfigError(f"a trial would train {numbers}; {advice}")
        if not config.evaluation.in_training:
            advice = "trials are scored by evaluations during training; give a number above 0"
            raise ConfigError(advice, "--eval-freq", 0)

    def resolved(self, values: Mapping[str, Any], folder: Path) -> ExperimentConfig:
        """Return the configuration of a trial; ConfigError for invalid values.  values: name of a swept setting -> value."""
        file = folder / "trials" / "check.toml"
        write_text(file, toml_text(self.space, values))
        try:
            return resolve(self.flags("check", file, folder))
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"{file}:", "--sweep")) from error
        finally:
            file.unlink()

    def flags(self, name: str, settings: Path, folder: Path) -> list[str]:
        """Return the flags of scripts/train_and_compare.py for a trial.

        name: name of the trial.
        settings: TOML file with the drawn settings of the trial.
        folder: folder of the sweep.
        """
        own = ["--experiment-name", name, "--seeds", *map(str, self.seeds), "--output-dir", str(folder / "runs")]
        return [*self.common, "--skip-final-eval", "--config", str(settings), *own]


def run_trials(sweep: Sweep, folder: Path, script: Path, log: Log = print) -> "optuna.Study":
    """Run the remaining trials, one process after the other; return the study.

    Raises ConfigError if ``folder`` contains another sweep; ResultsError after FAILURES consecutive failed trials, or if all
    trials have failed.  After Ctrl-C, a KeyboardInterrupt is raised when the running trial has written its checkpoint.
    """
    import optuna

    (folder / "trials").mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    sweep.check(folder)
    with locked(folder):
        _write_or_check_plan(sweep, folder)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = _study(sweep, folder)
        _retry_interrupted(study)
        failures = 0
        advice = f"see {folder / 'logs'}, fix the problem, and repeat with more --trials, as failed ones count"
        while len(ended_trials(study)) < sweep.trials:
            failures = 0 if _Trial(sweep, study.ask(), folder, log).run(script, study) else failures + 1
            write_results(study, sweep, folder)
            if failures == FAILURES:
                raise ResultsError(f"the last {FAILURES} trials have failed; {advice}")
        if all("failed" in trial.user_attrs for trial in ended_trials(study)):
            raise ResultsError(f"no trial has succeeded; {advice}")
    return study


def _write_or_check_plan(sweep: Sweep, folder: Path) -> None:
    """Write the settings of a new sweep; of a resumed one, check that they equal the stored settings.

    The number of trials and pruning may differ.
    """
    wanted = {
        "space": [str(dimension) for dimension in sweep.space],
        "common": list(sweep.common),
        "seeds": list(sweep.seeds),
    }
    file = folder / PLAN
    if not file.exists():
        write_json(file, wanted)
        return
    stored = read_object(file, ConfigError, "restore it, or begin again in another folder")
    if stored != wanted:
        different = [name for name in wanted if stored.get(name) != wanted[name]]
        advice = f"was begun with other {' and '.join(different)} ({PLAN}); choose another folder"
        raise ConfigError(advice, "--out", folder)


def _study(sweep: Sweep, folder: Path) -> "optuna.Study":
    import optuna
    from sqlalchemy import URL

    url = URL.create("sqlite", database=str((folder / STUDY).absolute()))  # escapes characters such as "?"
    storage = optuna.storages.RDBStorage(url.render_as_string())
    studies = optuna.study.get_all_study_names(storage)
    done = len(optuna.load_study(study_name=studies[0], storage=storage).trials) if studies else 0
    # A resumed sweep needs another seed, or the sampler would repeat its first draws.
    sampler = optuna.samplers.TPESampler(n_startup_trials=STARTING_TRIALS, seed=done)
    median = optuna.pruners.MedianPruner(n_startup_trials=STARTING_TRIALS)
    return optuna.create_study(
        storage=storage,
        sampler=sampler,
        pruner=median if sweep.pruning else optuna.pruners.NopPruner(),
        study_name="sweep",
        direction="maximize",
        load_if_exists=True,
    )


def _retry_interrupted(study: "optuna.Study") -> None:
    """Enqueue interrupted trials again; each then resumes the run in its folder."""
    from optuna.trial import TrialState

    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.enqueue_trial(trial.params, user_attrs={"continues": trial.user_attrs.get("continues", trial.number)})
        study.tell(trial.number, state=TrialState.FAIL)


def ended_trials(study: "optuna.Study") -> "list[optuna.trial.FrozenTrial]":
    """Return the trials that have ended: complete, pruned and failed ones, but not interrupted ones."""
    from optuna.trial import TrialState

    done = (TrialState.COMPLETE, TrialState.PRUNED)
    return [trial for trial in study.trials if trial.state in done or "failed" in trial.user_attrs]


class _Trial:
    """One trial in a separate process."""

    def __init__(self, sweep: Sweep, trial: "optuna.Trial", folder: Path, log: Log):
        self.sweep, self.trial, self.folder, self.log = sweep, trial, folder, log
        self.values = {dimension.name: dimension.draw(trial) for dimension in sweep.space}
        self.name = f"trial_{trial.user_attrs.get('continues', trial.number):04d}"
        self.reported: set[int] = set()

    def run(self, script: Path, study: "optuna.Study") -> bool:
        """Run the trial and report its result to the study; return False if the run failed."""
        from optuna.trial import TrialState

        began = time.monotonic()
        settings = self.folder / "trials" / f"{self.name}.toml"
        write_text(settings, toml_text(self.sweep.space, self.values))
        log_file = self.folder / "logs" / f"{self.name}_{datetime.now():%Y%m%d_%H%M%S}.log"
        values = ", ".join(f"{name} {_short(value)}" for name, value in self.values.items())
        self.log(f"{self.name}: {values}; output in {log_file}")
        earlier = self.run_folder()
        flags = ["--resume-from", str(earlier)] if earlier else self.sweep.flags(self.name, settings, self.folder)
        status, pruned = self._watch([sys.executable, "-u", str(script), *flags], log_file)
        self.trial.set_user_attr("minutes", (time.monotonic() - began) / 60)
        success = self.success()
        self.trial.set_user_attr("success", success)
        if folder := self.run_folder():
            self.trial.set_user_attr("folder", str(folder))
        if pruned:
            study.tell(self.trial, state=TrialState.PRUNED)
            self.log(f"{self.name}: pruned at {_percent(success)}")
        elif status or len(success) < len(self.sweep.seeds):
            last = log_file.read_text(encoding="utf-8").strip().splitlines()[-1:] or ["no output"]
            self.trial.set_user_attr("failed", f"status {status}: {last[0]}")
            study.tell(self.trial, state=TrialState.FAIL)
            self.log(f"{self.name}: ended with status {status}: {last[0]}")
            return False
        else:
            study.tell(self.trial, sum(success) / len(success))
            self.log(f"{self.name}: {_percent(success)} of the dev levels")
        return True

    def run_folder(self) -> Path | None:
        """Return the folder of the trial's newest run if it can be resumed, or None."""
        runs = sorted((self.folder / "runs").glob(f"{self.name}_*/config.json"))
        return runs[-1].parent if runs else None

    def histories(self) -> list[History]:
        """Return the dev evaluations of each seed that has any, in the order of the seeds."""
        folder = self.run_folder()
        files = sorted(folder.rglob(HISTORY_FILE), key=lambda file: file.stat().st_ctime) if folder else []
        by_seed = {file.parent.name: file.parent for file in files}
        if len(self.sweep.seeds) > 1:
            paths = [by_seed[name] for seed in self.sweep.seeds if (name := f"seed_{seed}") in by_seed]
        else:
            paths = list(by_seed.values())
        return [history for path in paths if (history := read_history(path))]

    @cached_property
    def config(self) -> ExperimentConfig:
        """Configuration of the trial."""
        return self.sweep.resolved(self.values, self.folder)

    def success(self) -> list[float]:
        """Return, for each seed with evaluations, the dev success of the policy that would be delivered now."""
        return [self._delivered(history) for history in self.histories()]

    def _delivered(self, history: History) -> float:
        return float(history.delivered(self.config.evaluation.retention_guard).mean())

    def evaluations(self) -> Iterator[tuple[int, float]]:
        """Yield (step, success) of each evaluation for the pruner; success is the mean over this seed and earlier ones.

        Within a seed, a step is the number of evaluations that were due, which is comparable between trials with different
        batch sizes.
        """
        before: list[float] = []
        for number, history in enumerate(self.histories()):
            ppo = self.config.ppo
            period, _ = self.config.evaluation.periods(ppo.total_timesteps, ppo.time_budget_minutes)
            for i, now in enumerate(history.success.mean(axis=1).tolist()):
                step = int(history.decisions[i]) // period if period else i
                yield number * STEPS + step, (sum(before) + now) / (len(before) + 1)
            before.append(self._delivered(history))

    def _watch(self, command: list[str], log_file: Path) -> tuple[int, bool]:
        """Run the command, and terminate it if the pruner decides to; return (exit status, True if pruned)."""
        pruned = False
        with child_process(command, log_file, STOP_SECONDS) as process:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                if process.poll() is None and self._report_evaluations():
                    pruned = True
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_SECONDS)
                    break
        if not pruned:
            self._report_evaluations()  # reports the last evaluations to the pruner
        return process.returncode, pruned

    def _report_evaluations(self) -> bool:
        """Report new evaluations to the pruner; return True if it would prune the trial after any of them."""
        prune = False
        for step, value in self.evaluations():
            if step not in self.reported:
                self.reported.add(step)
                self.trial.report(value, step)
                prune = self.trial.should_prune() or prune
        return prune


def write_results(study: "optuna.Study", sweep: Sweep, folder: Path) -> None:
    """Write results.json (all trials) and best.toml (settings of the best trial)."""
    rows = [
        {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "settings": trial.params,
            **{name: trial.user_attrs.get(name) for name in ("success", "minutes", "folder", "failed")},
        }
        for trial in ended_trials(study)
    ]
    write_json(folder / "results.json", {"seeds": list(sweep.seeds), "trials": rows})
    if best := _ranked(study):
        write_text(folder / BEST, f"# trial {best[0].number} of a sweep\n{toml_text(sweep.space, best[0].params)}")


def _ranked(study: "optuna.Study") -> "list[optuna.trial.FrozenTrial]":
    """Return complete trials, sorted by dev success, best first."""
    from optuna.trial import TrialState

    complete = study.get_trials(states=(TrialState.COMPLETE,))
    return sorted(complete, key=lambda trial: -(trial.value or 0.0))


def report(study: "optuna.Study", sweep: Sweep, folder: Path) -> str:
    """Return a table of trials, best first, and the command to train with the best settings."""
    ranked = _ranked(study)
    unranked = [trial for trial in ended_trials(study) if trial not in ranked]
    names = [dimension.name for dimension in sweep.space]
    rows = [
        (
            trial.number,
            *(_short(trial.params.get(name, "")) for name in names),
            _percent(trial.user_attrs.get("success", [])),
            trial.state.name.lower(),
            f"{trial.user_attrs.get('minutes', 0.0):.1f}",
        )
        for trial in [*ranked, *unranked]
    ]
    lines = [table(("trial", *names, "success on dev levels", "state", "minutes"), rows)]
    if ranked:
        common, best = shlex.join(sweep.common), shlex.quote(str(folder / BEST))
        lines += [
            "",
            f"best: trial {ranked[0].number}. Its success is biased upwards, as it was selected on the dev levels. Train "
            "with its settings, and evaluate once on the test levels:",
            f"python scripts/train_and_compare.py {common} --config {best} --experiment-name NAME --seeds SEED ...",
        ]
    return "\n".join(lines)


def _percent(shares: list[float]) -> str:
    """Format the mean of shares in percent, with the share of each seed if there are several; "–" without shares."""
    if not shares:
        return "–"
    each = f" ({', '.join(f'{share:.1%}' for share in shares)})" if len(shares) > 1 else ""
    return f"{sum(shares) / len(shares):.1%}{each}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
