"""Files of an experiment's folder (docs/file_formats.md).

    record = ExperimentRecord(config, created=datetime.now(), ...)
    record = record.with_run(run)             # a RunRecord per training
    write_experiment(record, folder)

Files of a training: run.json, plan.json, pretrain/bc_policy.safetensors and distilled.safetensors (after distillation),
finished.json; then, with the files of the experiment, eval_results.json and test_levels.csv.
Files of an experiment: config.json, results.json, report.html, and last summary.txt.
"""

import base64
import math
import os
import platform
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hardware
from bc.train import BCResult
from nppsim import reward
from nppsim.errors import UserError, redact
from nppsim.io.files import write_json
from nppsim.io.reading import from_plain, inflate, mismatch, read_json, read_object
from nppsim.levels.level import Level
from nppsim.measure.machine import environment, git_state, machine
from nppsim.physics.outcomes import NAMES
from nppsim.replays.replay import MAX_BYTES
from rl.checks.check import read_results, report_rows
from rl.checks.checklist import ChecklistItem, checklist, checklist_table
from rl.config import ExperimentConfig, PPOConfig
from rl.config.files import dotted, known_settings
from rl.config.resume import FINISHED_FILE, RUN_FILE
from rl.evaluation.comparison import LEVELS_FILE, Comparison, compare, comparison_table, write_levels
from rl.evaluation.results import EpisodeRecord, LevelWins, Stats, by_category_and_support, format_table
from rl.evaluation.video import Film
from rl.experiment.report import METHODS, write_report
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.policy.weight_map import TransferReport
from rl.training.training_state import FINAL

PLAN_FILE = "plan.json"
BC_POLICY = f"pretrain/bc_policy{checkpoint.SUFFIX}"
DISTILLED_POLICY = f"pretrain/distilled{checkpoint.SUFFIX}"
AGENT = f"agent{checkpoint.SUFFIX}"  # resulting policy
RESULTS = "results.json"
SUMMARY = "summary.txt"  # written last, so it marks a complete experiment
LIBRARIES = ("numpy", "numba", "torch", "stable-baselines3", "gymnasium", "h5py", "tensorboard")
_MAX_FINISHED_BYTES = 1 << 30  # size limit of finished.json, which contains the inputs of up to a million episodes
_REMEDY = "restore the file, or remove it to compute its content again"
_SIZES = ("num_envs", "rollout_length", "minibatch_size", "epochs", "torch_threads", "simulator_threads")
_PLAN: dict = {"settings": {name: {} for name in (*_SIZES, "precision", "device")}}  # shape for ``mismatch``
_COUNTS = ("level_index", "decisions", "gold")
_EPISODE = {"inputs": str, **dict.fromkeys(_COUNTS, int)}
_LENGTH = ("ppo.total_timesteps", "ppo.time_budget_minutes")


class ResumeError(UserError, RuntimeError):
    """A run cannot be resumed, because a stored file is damaged or the hardware plan no longer applies."""


def read_stored(path: Path, shape: Mapping = {}) -> dict[str, Any]:
    """Return the object in a JSON file of a run, or {} without a file; ResumeError for a damaged file."""
    return read_object(path, ResumeError, _REMEDY, _MAX_FINISHED_BYTES, shape)


def _decoded(kind: Any, plain: object, path: Path) -> Any:
    try:
        return from_plain(kind, plain)
    except ValueError as error:  # PlainError, or a ValueError of the class's constructor
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ResumeError:
    return ResumeError(f"{path}: cannot be read ({error}); {_REMEDY}")


# ---------------------------------------------------------------------------------------------------------------------
# plan.json and run.json


def save_plan(folder: Path, plan: hardware.Plan, plan_request: hardware.PlanRequest) -> None:
    """Store the hardware plan of a run, and the request from which it was made."""
    write_json(folder / PLAN_FILE, {"request": asdict(plan_request), "plan": asdict(plan)})


def read_plan(folder: Path, plan_request: hardware.PlanRequest) -> hardware.Plan | None:
    """Return the stored hardware plan of a run, or None if the run has none yet.

    plan_request: current request; only its number of decisions and its evaluator may differ from the stored request.
    Raises ResumeError for other differences, and if the plan needs a GPU but this machine has none.
    """
    path = folder / PLAN_FILE
    stored = read_stored(path, {"request": {}, "plan": _PLAN})
    if not stored:
        return None
    changed = {name for name, value in asdict(plan_request).items() if stored["request"].get(name) != value}
    if fixed := sorted(changed - {"total_timesteps", "evaluator"}):
        raise ResumeError(
            f"{path}: the run began with another {' and '.join(fixed)}, which cannot change within a run; begin a new run"
        )
    plan: hardware.Plan = _decoded(hardware.Plan, stored["plan"], path)
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise ResumeError(f"{path}: the run uses a GPU and this machine has none; resume it on a machine with a GPU")
    return replace(plan, total_timesteps=plan_request.total_timesteps)


DEFAULT, GIVEN, PLANNED = "default", "command line", "hardware plan"  # sources of a setting
_PLAN_SOURCES = {"flag": GIVEN, "default": PLANNED}  # source in the hardware plan -> source in run.json
_PLAN_NAMES = {"precision": "mixed_precision"}  # name in the hardware plan -> name in the configuration


def settings_with_sources(
    config: ExperimentConfig, settings: PPOConfig, plan: hardware.Plan
) -> dict[str, dict[str, Any]]:
    """Return dotted name -> {"value", "source"} of every setting, and of the plan's values ("plan.NAME"), for run.json.

    settings: PPO settings, with values from the hardware plan instead of None.
    If no source was recorded, default values have the source "default", and others "command line".
    """
    entries, plain = {}, config.to_dict()
    for _, section, setting in known_settings():
        name = dotted(section, setting.name)
        part, values = (getattr(config, section), plain[section]) if section else (config, plain)
        source = DEFAULT if getattr(part, setting.name) == setting.default else GIVEN
        entries[name] = {"value": values[setting.name], "source": config.sources.get(name, source)}
    for name, chosen in plan.settings.items():
        if chosen.value is not None:
            source = _PLAN_SOURCES.get(chosen.source, chosen.source)
            if source == GIVEN:
                source = config.sources.get(f"hardware.{_PLAN_NAMES.get(name, name)}", GIVEN)
            entries[f"plan.{name}"] = {"value": chosen.value, "source": source}
    for name, planned in {"learning_rate": "learning_rate", "n_epochs": "epochs"}.items():
        if getattr(config.ppo, name) is None:  # left to the plan
            chosen = plan.settings[planned]
            source = DEFAULT if chosen.value is None else _PLAN_SOURCES.get(chosen.source, chosen.source)
            entries[f"ppo.{name}"] = {"value": getattr(settings, name), "source": source}
    return entries


# ---------------------------------------------------------------------------------------------------------------------
# The BC policy, before and after distillation


@dataclass(frozen=True)
class PretrainedPolicy:
    """A BC policy and the data of its training.

    result: result of imitation.
    probe: held-out observations, key -> [rows, ...], on which the BC policy is compared with PPO's initial policy.
    runs: level fingerprint -> actions int8[n] of the level's shortest demonstration.
    distillation_s: seconds of distillation, 0 without distillation.
    spent_before: seconds of imitation and distillation in earlier processes of a resumed run.
    """

    policy: NppPolicy
    result: BCResult
    probe: dict[str, np.ndarray]
    runs: dict[str, np.ndarray]
    distillation_s: float = 0.0
    spent_before: float = 0.0


def save_pretrained(
    folder: Path, pretrained: PretrainedPolicy, frame_skip: int, config: Mapping, name: str = BC_POLICY
) -> None:
    """Store a BC policy in a run's folder.  name: BC_POLICY or DISTILLED_POLICY."""
    training = {
        "result": pretrained.result.as_dict(),
        "probe": pretrained.probe,
        "runs": pretrained.runs,
        "distillation_s": pretrained.distillation_s,
    }
    checkpoint.save(folder / name, pretrained.policy, frame_skip=frame_skip, config=config, training=training)


def load_pretrained(folder: Path, device: str, frame_skip: int, name: str = BC_POLICY) -> PretrainedPolicy | None:
    """Load a stored BC policy, or return None if the file does not exist.

    name: BC_POLICY or DISTILLED_POLICY.
    Raises CheckpointError for a damaged file, or a policy with another frame skip.
    """
    path = folder / name
    if not path.is_file():
        return None
    try:
        policy, data = checkpoint.load_policy(path)
    except checkpoint.CheckpointError as error:
        raise checkpoint.CheckpointError(f"{error}; or remove it to train it again") from error
    checkpoint.check_frame_skip(path, data, frame_skip)
    made = data["training"]
    wrong = mismatch(made, {"result": {}, "probe": {}, "runs": {}, "distillation_s": float})
    if wrong or not all(isinstance(array, np.ndarray) for array in (*made["probe"].values(), *made["runs"].values())):
        raise checkpoint.CheckpointError(f"{path}: no record of its training ({wrong or 'no arrays'}); {_REMEDY}")
    result = _decoded(BCResult, made["result"], path)
    seconds = made["distillation_s"]
    before = result.wall_time_s + seconds
    return PretrainedPolicy(policy.to(device), result, made["probe"], made["runs"], seconds, spent_before=before)


# ---------------------------------------------------------------------------------------------------------------------
# One training: finished.json


@dataclass(frozen=True)
class RunRecord:
    """Result of one training.  Results of stages that have not run yet have their defaults.

    architecture, pretrained, label, title, seed, folder: as in ``TrainingSetup``.
    plan: hardware plan.
    played: method (one of METHODS) -> episodes of the final evaluation, [] if not evaluated.
    bc_result: result of imitation, None without imitation.
    transfer: result of the weight transfer to PPO's policy, None without initial weights.
    speed: content of "speed" in results.json.
    films: films of PPO's episodes in the final evaluation.
    events: evaluations, stage changes and other events, for the report.
    train_success: share of episodes that the resulting policy wins on training levels; None without --num-train-levels.
    wall_time_s: seconds of the training, including those in earlier processes of a resumed run.
    curriculum: summary of the level sampler: strategy, counts and success by category.
    settings: dotted name -> {"value", "source"} of all settings.
    """

    architecture: str
    pretrained: bool
    label: str
    title: str
    seed: int
    folder: Path
    plan: hardware.Plan
    played: Mapping[str, Sequence[EpisodeRecord]] = field(default_factory=dict)
    bc_result: BCResult | None = None
    transfer: TransferReport | None = None
    speed: dict = field(default_factory=dict)
    films: Sequence[Film] = ()
    events: Sequence[dict] = ()
    train_success: float | None = None
    wall_time_s: float = 0.0
    curriculum: dict = field(default_factory=dict)
    settings: dict[str, dict] = field(default_factory=dict)

    @property
    def delivered(self) -> str:
        """Description of the delivered policy, which was selected on the dev levels; "" without selection."""
        return next((event["delivered"] for event in self.events if "delivered" in event), "")

    @cached_property
    def results(self) -> dict[str, dict[str, Stats] | None]:
        """Method -> statistics per category on the test levels, None if the method was not evaluated."""
        return {
            method: by_category_and_support(episodes) if episodes else None for method, episodes in self.played.items()
        }

    @cached_property
    def wins(self) -> dict[str, LevelWins]:
        """Method -> wins on each test level; methods that were not evaluated are absent."""
        return {method: LevelWins.count(episodes) for method, episodes in self.played.items() if episodes}

    @cached_property
    def checklist(self) -> list[ChecklistItem]:
        """Criteria of successful training with the results of this training."""
        return checklist(self.folder)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Comparisons of PPO with the distilled policy, the BC policy and random play, paired by level."""
        return _against_baselines(self.title, [self])


def save_run(record: RunRecord) -> None:
    """Store the record of a finished training in finished.json."""
    plain = asdict(replace(record, played={}))
    del plain["folder"]
    episodes = {method: [_encode_episode(episode) for episode in played] for method, played in record.played.items()}
    write_json(record.folder / FINISHED_FILE, plain | {"played": episodes})


def read_run(folder: Path, levels: list[Level]) -> RunRecord | None:
    """Return the record of a finished training, or None if it is unfinished.

    levels: test levels in the order of the final evaluation.
    Raises ResumeError for a damaged file or changed levels.
    """
    path = folder / FINISHED_FILE
    plain = read_stored(path, {"plan": _PLAN, "played": {...: [_EPISODE]}})
    if not plain:
        return None
    try:
        played = {
            method: [_decode_episode(episode, levels) for episode in episodes]
            for method, episodes in plain["played"].items()
        }
        tests = [
            sorted((episode.level_index, episode.category) for episode in episodes)
            for episodes in played.values()
            if episodes
        ]
        if not played.keys() <= METHODS.keys() or any(test != tests[0] for test in tests):
            raise ValueError(f"methods must be {', '.join(METHODS)}, evaluated on the same levels")
        run: RunRecord = from_plain(RunRecord, plain | {"folder": folder, "played": played})
        return run
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _unreadable(path, error) from error


def _encode_episode(episode: EpisodeRecord) -> dict[str, Any]:
    left_out = ("level", "subtasks")  # only films use subtasks
    plain = {field.name: getattr(episode, field.name) for field in fields(episode) if field.name not in left_out}
    return plain | {
        "level": episode.level.fingerprint,
        "inputs": base64.b64encode(zlib.compress(episode.inputs.tobytes())).decode(),
    }


def _decode_episode(plain: Mapping[str, Any], levels: list[Level]) -> EpisodeRecord:
    if odd := [name for name in _COUNTS if not 0 <= plain[name] < 1 << 31]:
        raise ValueError(f"{odd[0]} of an episode is {plain[odd[0]]}")
    inputs = np.frombuffer(inflate(base64.b64decode(plain["inputs"]), MAX_BYTES), np.uint8)
    level = levels[plain["level_index"]]
    if plain["level"] != level.fingerprint:
        raise ValueError(f"level {plain['level_index']} has changed; restore the levels and their order")
    more = {"inputs": inputs, "level": level, "subtasks": None}
    episode: EpisodeRecord = from_plain(EpisodeRecord, {**plain, **more})
    if episode.outcome not in NAMES or episode.frames != len(inputs):
        raise ValueError(
            f"an episode has {len(inputs)} inputs, {episode.frames} frames and outcome {episode.outcome!r}"
        )
    return episode


def is_extended(folder: Path, ppo: PPOConfig) -> bool:
    """Return True if PPO is finished, but its limit of decisions or of minutes was raised and neither limit was lowered."""
    if not any(path.is_file() for path in _ends(folder)):
        return False
    shape = {"settings": {name: {"value": (float, None)} for name in _LENGTH}}
    begun = read_json(folder / RUN_FILE, ResumeError, "restore the file, or begin a new run", shape=shape)
    before = [begun["settings"][name]["value"] for name in _LENGTH]
    limits = [(math.inf if one is None else one) for one in (*before, ppo.total_timesteps, ppo.time_budget_minutes)]
    return limits[2:] != limits[:2] and limits[2] >= limits[0] and limits[3] >= limits[1]


def reopen(folder: Path) -> None:
    """Remove the files that mark PPO as finished, so that it resumes from its newest checkpoint."""
    for path in _ends(folder):
        path.unlink(missing_ok=True)


def _ends(folder: Path) -> tuple[Path, Path]:
    """Return the two files that mark PPO as finished."""
    return folder / FINISHED_FILE, folder / "checkpoints" / FINAL


# ---------------------------------------------------------------------------------------------------------------------
# The experiment: config.json, results.json, report.html, summary.txt


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment and its finished trainings, from which the experiment's files are made.

    machine: description of the hardware.
    versions: versions of Python, libraries and sources.
    fingerprints: dataset -> digest of its levels.
    audit: discounted returns of winning, time-out and dying, one row per category of levels.
    provenance: host, environment and command of the process.
    resumed: one entry per resume: "at", "overrides" (name -> [before, after]), "machine", "versions" and provenance.
    """

    config: ExperimentConfig
    created: datetime
    machine: str
    versions: dict[str, str]
    fingerprints: dict[str, str]
    audit: Sequence[reward.AuditRow]
    runs: tuple[RunRecord, ...] = ()
    provenance: dict = field(default_factory=dict)
    resumed: Sequence[dict] = ()

    def with_run(self, run: RunRecord) -> "ExperimentRecord":
        """Return the record with one more training."""
        return replace(self, runs=(*self.runs, run))

    @property
    def groups(self) -> dict[str, list[RunRecord]]:
        """Label (architecture and condition) -> trainings with this label, one per seed."""
        groups: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            groups.setdefault(run.label, []).append(run)
        return groups

    @property
    def all_seeds(self) -> dict[str, dict[str, dict[str, Stats] | None]]:
        """Label -> method -> statistics per category over all seeds, for labels with several seeds."""
        return {
            label: {
                method: by_category_and_support(*(run.played[method] for run in runs))
                if runs[0].played[method]
                else None
                for method in runs[0].played
            }
            for label, runs in self.groups.items()
            if len(runs) > 1
        }

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Comparisons over all seeds: between architectures, between conditions, and between methods.

        Two labels are compared if they differ in architecture or in condition, but not in both.  For labels with several
        seeds, PPO is compared with the policies before it and random play.
        """
        several = {label: runs for label, runs in self.groups.items() if len(runs) > 1}
        comparisons = [comparison for label, runs in several.items() for comparison in _against_baselines(label, runs)]
        for first, second in combinations(self.groups.values(), 2):
            if (first[0].architecture == second[0].architecture) != (first[0].pretrained == second[0].pretrained):
                comparisons += _between(first, second)
        return comparisons


def _against_baselines(name: str, runs: Sequence[RunRecord]) -> list[Comparison]:
    """Compare PPO with all other policies, over trainings of one label.  name: their label, or a title."""
    return [
        compare(f"{name} {METHODS['ppo']}", METHODS[method], _over(runs, "ppo"), _over(runs, method))
        for method in METHODS
        if method != "ppo" and all({"ppo", method} <= run.wins.keys() for run in runs)
    ]


def _between(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> list[Comparison]:
    """Compare the PPO policies of two labels over their common seeds; [] without a common seed."""
    sides = [{run.seed: run for run in runs if "ppo" in run.wins} for runs in (first, second)]
    seeds = [seed for seed in sides[0] if seed in sides[1]]
    if not seeds:
        return []
    a, b = (_over([side[seed] for seed in seeds], "ppo") for side in sides)
    return [compare(first[0].label, second[0].label, a, b)]


def _over(runs: Sequence[RunRecord], method: str) -> LevelWins:
    return LevelWins.count(*(run.played[method] for run in runs))


def versions() -> dict[str, str]:
    """Return the versions of Python and libraries, and the git state of the sources if they are a git checkout."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()} | git_state()


def provenance() -> dict[str, object]:
    """Return host, environment variables and command line of the process, without secrets."""
    command = [redact(argument) for argument in sys.argv]
    return {"host": machine(), "environment": environment(), "command": command}


def write_experiment(record: ExperimentRecord, folder: Path) -> None:
    """Write the experiment's files except summary.txt; before the first finished training, write only config.json."""
    write_json(folder / "config.json", config_view(record))
    if not record.runs:
        return
    for run in record.runs:
        write_json(run.folder / "eval_results.json", run.results)
        if run.wins:
            write_levels(run.folder / LEVELS_FILE, run.wins)
    results = results_view(record, folder)
    write_json(folder / RESULTS, results)
    write_report(results, folder / "report.html")


def config_view(record: ExperimentRecord) -> dict:
    """Return the content of config.json: configuration, data, versions, host, environment and command."""
    begun = {"created": record.created.isoformat(timespec="seconds"), "resumed": list(record.resumed)}
    settings = record.config.to_dict() | {"data": record.fingerprints}
    return settings | begun | {"machine": record.machine, "versions": record.versions} | record.provenance


def results_view(record: ExperimentRecord, folder: Path) -> dict:
    """Return the content of results.json, from which the report is made.

    folder: folder of the experiment; paths of runs are relative to it, and paths of films to the run.
    """
    architectures: dict[str, dict[str, dict]] = {
        label: {"seeds": {str(run.seed): _results_entry(run, folder) for run in runs}}
        for label, runs in record.groups.items()
    }
    for label, results in record.all_seeds.items():
        architectures[label]["all_seeds"] = _suites(results)
    return {
        "name": record.config.experiment_name,
        "created": f"{record.created:%Y-%m-%d %H:%M}",
        "architectures": architectures,
        "comparisons": [comparison.to_dict() for comparison in record.comparisons],
        "audit": [asdict(row) for row in record.audit],
        "config": record.config.to_dict(),
        "machine": record.machine,
        "versions": record.versions,
    }


def _results_entry(run: RunRecord, folder: Path) -> dict:
    return _suites(run.results) | {
        "title": run.title,
        "folder": Path(os.path.relpath(run.folder, folder)).as_posix(),
        "delivered": run.delivered,
        "comparisons": [comparison.to_dict() for comparison in run.comparisons],
        "checklist": [item.to_dict() for item in run.checklist],
        "doctor": report_rows(read_results(run.folder / "doctor.json")),
        "speed": run.speed,
        "train_success": run.train_success,
        "wall_time_s": run.wall_time_s,
        "curriculum": run.curriculum,
        "bc": run.bc_result and run.bc_result.as_dict(),
        "transfer": run.transfer and asdict(run.transfer),
        "plan": run.plan.to_dict(),
        "films": [asdict(film) for film in run.films],
        "events": run.events,
        "settings": run.settings,
    }


def _suites(results: Mapping[str, dict[str, Stats] | None]) -> dict:
    baselines = {method: results.get(method) for method in METHODS if method != "ppo"}
    return {"suites": {"test": results.get("ppo") or {}}, "baselines": baselines}


def summary(record: ExperimentRecord) -> str:
    """Return the text of summary.txt: tables, comparisons and number of films."""
    parts = []
    for run in record.runs:
        lines = [comparison.sentence for comparison in run.comparisons]
        lines += [f"delivered: {run.delivered}"] if run.delivered else []
        lines += [f"films: {len(run.films)} in {run.folder.name}/videos"] if run.films else []
        parts.append("\n".join([f"\n{run.title}, test levels\n{_table(run.results)}", *lines]))
        parts.append(f"\nchecklist\n{checklist_table(run.checklist)}")
    parts += [f"\n{label}, all seeds, test levels\n{_table(results)}" for label, results in record.all_seeds.items()]
    if record.comparisons:
        parts.append(f"\ncomparisons on the same test levels\n{comparison_table(record.comparisons)}")
    return "\n".join(parts)


def _table(results: Mapping[str, dict[str, Stats] | None]) -> str:
    if not any(results.values()):
        return "not evaluated: --skip-final-eval"
    return format_table({METHODS[method]: stats for method, stats in results.items() if stats})
