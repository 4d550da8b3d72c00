"""What an experiment was and what came of it: one record, and the files that are views of it.

    record = ExperimentRecord(config, created=datetime.now(), ...)
    record = record.with_run(run)      # a RunRecord per job
    write(record, folder)

writes config.json, results.json, experiment.json with report.html, and for each run eval_results.json and test_levels.csv:
what stands in two files is in the record once.  ``docs/file_formats.md`` describes them.
"""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

from bc.train import BCResult
from hardware import Plan
from nppsim import reward
from nppsim.errors import redact
from nppsim.files import write_json
from nppsim.measure.machine import environment, git_state, machine
from rl.config import ExperimentConfig
from rl.doctor.checks_run import Item, checklist, checklist_table
from rl.doctor.doctor import read_findings, report_rows
from rl.evaluation.comparison import LEVELS_FILE, Comparison, compare, comparison_table, write_levels
from rl.evaluation.results import EpisodeRecord, LevelWins, Stats, aggregate, format_table
from rl.evaluation.video import Film
from rl.experiment.report import METHODS, write_report
from rl.policy.weight_map import TransferReport

LIBRARIES = ("numpy", "numba", "torch", "stable-baselines3", "gymnasium", "h5py", "tensorboard")


@dataclass(frozen=True)
class RunRecord:
    """What one job did.

    architecture: its name.
    pretrained: whether imitation came before PPO.
    label: the architecture, with the condition where an experiment has several.
    title: the same, with the seed where there are several.
    folder: of this run.
    played: method ("random", "bc", "ppo") -> the final evaluation's episodes; none where it was not run.
    cloning, transfer: of the imitation; None without.
    speed: as from ``speed_of``; share: of the time of rollouts and updates, by phase.
    plan: sizes, and where each comes from.
    films: what was recorded.
    events: what happened during training.
    wall_time_s: of all of it.
    curriculum: strategy, counts and success by category, events with their reasons.
    settings: dotted name -> {"value", "source"}.
    """

    architecture: str
    pretrained: bool
    label: str
    title: str
    seed: int
    folder: Path
    played: Mapping[str, Sequence[EpisodeRecord]]
    cloning: BCResult | None
    transfer: TransferReport | None
    speed: dict
    plan: Plan
    films: Sequence[Film]
    events: Sequence[dict]
    wall_time_s: float
    curriculum: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)

    @property
    def delivered(self) -> str:
        """Which policy the dev levels chose, and why, in words; "" where they did not."""
        return next((event["delivered"] for event in self.events if "delivered" in event), "")

    @cached_property
    def results(self) -> dict[str, dict[str, Stats] | None]:
        """Method -> statistics per category on the test levels; None: not run."""
        return {method: aggregate(episodes) if episodes else None for method, episodes in self.played.items()}

    @cached_property
    def wins(self) -> dict[str, LevelWins]:
        """Method -> how often each test level was won, for the methods that were run."""
        return {method: LevelWins.count(episodes) for method, episodes in self.played.items() if episodes}

    @cached_property
    def checklist(self) -> list[Item]:
        """Whether it learned as a sound run does, from its curves."""
        return checklist(self.folder)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """PPO against what came before it, level by level."""
        return _against_baselines(self.title, [self])


@dataclass(frozen=True)
class ExperimentRecord:
    """What an experiment was, and its finished runs.

    machine: in words.
    versions: of Python, the libraries and the sources.
    fingerprints: dataset -> digest of its levels.
    audit: arithmetic of the rewards, per category.
    circumstances: of the process, for config.json: host, environment, command.
    resumed: of each time that it was gone on with: "at", "overrides" (name -> [before, after]), and "machine" and
        "versions" where they were others.
    """

    config: ExperimentConfig
    created: datetime
    machine: str
    versions: dict[str, str]
    fingerprints: dict[str, str]
    audit: Sequence[reward.AuditRow]
    runs: tuple[RunRecord, ...] = ()
    circumstances: dict = field(default_factory=dict)
    resumed: Sequence[dict] = ()

    def with_run(self, run: RunRecord) -> "ExperimentRecord":
        """The record with one more run."""
        return replace(self, runs=(*self.runs, run))

    @property
    def groups(self) -> dict[str, list[RunRecord]]:
        """Label -> its runs, one for each seed."""
        groups: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            groups.setdefault(run.label, []).append(run)
        return groups

    @property
    def all_seeds(self) -> dict[str, dict[str, dict[str, Stats] | None]]:
        """Label -> results over all of its seeds, for those with several."""
        return {
            label: {
                method: aggregate(*(run.played[method] for run in runs)) if runs[0].played[method] else None
                for method in runs[0].played
            }
            for label, runs in self.groups.items()
            if len(runs) > 1
        }

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Architectures against each other under the same condition, conditions against each other; and where there are
        several seeds, PPO against what came before it, over all of them."""
        several = {label: runs for label, runs in self.groups.items() if len(runs) > 1}
        found = [one for label, runs in several.items() for one in _against_baselines(label, runs)]
        for first, second in combinations(self.groups.values(), 2):
            if (first[0].architecture == second[0].architecture) != (first[0].pretrained == second[0].pretrained):
                found += _between(first, second)
        return found


def _against_baselines(name: str, runs: Sequence[RunRecord]) -> list[Comparison]:
    """PPO against imitation alone and against random play, over some seeds of one label."""
    return [
        compare(f"{name} {METHODS['ppo']}", METHODS[method], _over(runs, "ppo"), _over(runs, method))
        for method in ("bc", "random")
        if all({"ppo", method} <= run.wins.keys() for run in runs)
    ]


def _between(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> list[Comparison]:
    """After PPO, over the seeds that both have finished."""
    sides = [{run.seed: run for run in runs if "ppo" in run.wins} for runs in (first, second)]
    seeds = [seed for seed in sides[0] if seed in sides[1]]
    if not seeds:
        return []
    a, b = (_over([side[seed] for seed in seeds], "ppo") for side in sides)
    return [compare(first[0].label, second[0].label, a, b)]


def _over(runs: Sequence[RunRecord], method: str) -> LevelWins:
    return LevelWins.count(*(run.played[method] for run in runs))


def versions() -> dict[str, str]:
    """Versions of Python and the libraries; commit of the sources where they are a git checkout."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()} | git_state()


def circumstances() -> dict[str, object]:
    """What a result may depend on beside settings, data and versions; secrets are redacted.

    host: processor, cores, system: the key under which figures of speed are compared.
    environment: variables that change what is computed.
    command: as the process was begun.
    """
    return {
        "host": machine(),
        "environment": environment(),
        "command": [redact(argument) for argument in sys.argv],
    }


def write(record: ExperimentRecord, folder: Path) -> None:
    """Write every file that is a view of the record, and count again what they tell; before the first run ends, there is only
    config.json."""
    write_json(folder / "config.json", config_view(record))
    if record.runs:
        for run in record.runs:
            write_json(run.folder / "eval_results.json", run.results)
            if run.wins:
                write_levels(run.folder / LEVELS_FILE, run.wins)
        write_json(folder / "results.json", results_view(record))
        write_json(folder / "experiment.json", report_view(record))
        write_report(report_view(record), folder / "report.html")


def config_view(record: ExperimentRecord) -> dict:
    """config.json: the resolved configuration, and what else a run depends on."""
    begun = {"created": record.created.isoformat(timespec="seconds"), "resumed": list(record.resumed)}
    return record.config.to_dict() | {"data": record.fingerprints} | begun | _place(record) | record.circumstances


def results_view(record: ExperimentRecord) -> dict:
    """results.json: success per architecture, seed, suite and category, and who finishes more than whom."""
    architectures: dict[str, dict[str, dict]] = {
        label: {"seeds": {str(run.seed): _results_entry(run) for run in runs}} for label, runs in record.groups.items()
    }
    for label, results in record.all_seeds.items():
        architectures[label]["all_seeds"] = _suites(results)
    comparisons = [comparison.to_dict() for comparison in record.comparisons]
    facts = {"architectures": architectures, "comparisons": comparisons, "config": record.config.to_dict()}
    return facts | _place(record)


def _results_entry(run: RunRecord) -> dict:
    comparisons = [comparison.to_dict() for comparison in run.comparisons]
    items = [item.to_dict() for item in run.checklist]
    times = {"speed": run.speed, "wall_time_s": run.wall_time_s, "curriculum": run.curriculum}
    return _suites(run.results) | times | {"comparisons": comparisons, "checklist": items}


def _suites(results: Mapping[str, dict[str, Stats] | None]) -> dict:
    return {
        "suites": {"test": results["ppo"] or {}},
        "baselines": {"random": results["random"], "bc": results["bc"]},
    }


def report_view(record: ExperimentRecord) -> dict:
    """experiment.json, and what report.html is drawn from; see ``rl.experiment.report``."""
    audit = [asdict(row) for row in record.audit]
    return {
        "name": record.config.experiment_name,
        "created": f"{record.created:%Y-%m-%d %H:%M}",
        "config": record.config.to_dict(),
        "architectures": {run.title: _report_entry(run) | {"audit": audit} for run in record.runs},
        "all_seeds": {f"{label}, all seeds": results for label, results in record.all_seeds.items()},
        "comparisons": [comparison.to_dict() for comparison in record.comparisons],
    } | _place(record)


def _report_entry(run: RunRecord) -> dict:
    return {
        "results": run.results,
        "delivered": run.delivered,
        "checklist": [item.to_dict() for item in run.checklist],
        "doctor": report_rows(read_findings(run.folder / "doctor.json")),
        "comparisons": [comparison.to_dict() for comparison in run.comparisons],
        "bc": run.cloning and run.cloning.as_dict(),
        "transfer": run.transfer and asdict(run.transfer),
        "speed": run.speed,
        "plan": run.plan.to_dict(),
        "wall_time_s": run.wall_time_s,
        "paths": {
            "tensorboard": str(run.folder / "tensorboard"),
            "run": str(run.folder),
            "films": [asdict(film) for film in run.films],
        },
        "events": run.events,
        "settings": run.settings,
    }


def _place(record: ExperimentRecord) -> dict:
    return {"machine": record.machine, "versions": record.versions}


def summary(record: ExperimentRecord, folder: Path) -> str:
    """The end of the main job in words: a table per run, who finishes more than whom, and where films and report are."""
    parts = []
    for run in record.runs:
        claims = "".join(f"{comparison.sentence}\n" for comparison in run.comparisons)
        claims += f"delivered: {run.delivered}\n" if run.delivered else ""
        claims += f"films: {len(run.films)} below {run.folder / 'videos'}\n" if run.films else ""
        parts.append(f"\n{run.title}, test levels\n{_table(run.results)}\n{claims}".rstrip())
        parts.append(f"\nchecklist\n{checklist_table(run.checklist)}")
    parts += [f"\n{label}, all seeds, test levels\n{_table(results)}" for label, results in record.all_seeds.items()]
    if record.comparisons:
        parts.append(f"\ncomparisons on the same test levels\n{comparison_table(record.comparisons)}")
    return "\n".join([*parts, f"report: {folder / 'report.html'}"])


def _table(results: Mapping[str, dict[str, Stats] | None]) -> str:
    if not any(results.values()):
        return "not played: --skip-final-eval"
    return format_table({METHODS[method]: stats for method, stats in results.items()})
