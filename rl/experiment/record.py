"""What an experiment was and what came of it: one record, and the files that are views of it.

    record = ExperimentRecord(config, created=datetime.now(), ...)
    record = record.with_run(run)      # a RunRecord per job
    write(record, folder)

writes config.json, results.json, experiment.json with report.html, and eval_results.json of each run: what stands in two
files is in the record once.  ``docs/file_formats.md`` describes them.
"""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from bc.train import BCResult
from hardware import Plan
from nppsim import reward
from nppsim.files import write_json
from nppsim.measure.machine import git_state
from rl.config import ExperimentConfig
from rl.experiment.report import METHODS, write_report
from rl.judge.results import Stats, format_table
from rl.judge.video import Film
from rl.policy.weight_map import TransferReport

LIBRARIES = ("numpy", "numba", "torch", "stable-baselines3", "gymnasium", "h5py", "tensorboard")


@dataclass(frozen=True)
class RunRecord:
    """What one job did.

    label: the architecture, with the condition where an experiment has several.
    title: the same, with the seed where there are several.
    folder: of this run.
    results: method ("random", "bc", "ppo") -> statistics per category on held-out levels; None: not run.
    cloning, transfer: of the imitation; None without.
    speed: decisions_per_s, and share: of the time of PPO, by phase.
    plan: sizes, and where each comes from.
    films: what was recorded.
    events: what happened during training.
    wall_time_s: of all of it.
    """

    label: str
    title: str
    seed: int
    folder: Path
    results: dict[str, dict[str, Stats] | None]
    cloning: BCResult | None
    transfer: TransferReport | None
    speed: dict
    plan: Plan
    films: Sequence[Film]
    events: Sequence[dict]
    wall_time_s: float


@dataclass(frozen=True)
class ExperimentRecord:
    """What an experiment was, and its finished runs.

    machine: in words.
    versions: of Python, the libraries and the sources.
    fingerprints: dataset -> digest of its levels.
    audit: arithmetic of the rewards, per category.
    """

    config: ExperimentConfig
    created: datetime
    machine: str
    versions: dict[str, str]
    fingerprints: dict[str, str]
    audit: Sequence[reward.AuditRow]
    runs: tuple[RunRecord, ...] = ()

    def with_run(self, run: RunRecord) -> "ExperimentRecord":
        """The record with one more run."""
        return replace(self, runs=(*self.runs, run))


def versions() -> dict[str, str]:
    """Versions of Python and the libraries; commit of the sources where they are a git checkout."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()} | git_state()


def write(record: ExperimentRecord, folder: Path) -> None:
    """Write every file that is a view of the record; before the first run ends, there is only config.json."""
    write_json(folder / "config.json", config_view(record))
    if record.runs:
        for run in record.runs:
            write_json(run.folder / "eval_results.json", run.results)
        write_json(folder / "results.json", results_view(record))
        write_json(folder / "experiment.json", report_view(record))
        write_report(report_view(record), folder / "report.html")


def config_view(record: ExperimentRecord) -> dict:
    """config.json: the resolved configuration, and what else a run depends on."""
    return record.config.to_dict() | {"data": record.fingerprints} | _place(record)


def results_view(record: ExperimentRecord) -> dict:
    """results.json: success per architecture, seed, suite and category."""
    architectures: dict[str, dict[str, dict]] = {}
    for run in record.runs:
        architectures.setdefault(run.label, {"seeds": {}})["seeds"][str(run.seed)] = {
            "suites": {"test": run.results["ppo"] or {}},
            "baselines": {"random": run.results["random"], "bc": run.results["bc"]},
            "speed": run.speed,
            "wall_time_s": run.wall_time_s,
        }
    return {"architectures": architectures, "config": record.config.to_dict()} | _place(record)


def report_view(record: ExperimentRecord) -> dict:
    """experiment.json, and what report.html is drawn from; see ``rl.experiment.report``."""
    audit = [asdict(row) for row in record.audit]
    return {
        "name": record.config.experiment_name,
        "created": f"{record.created:%Y-%m-%d %H:%M}",
        "config": record.config.to_dict(),
        "architectures": {run.title: _report_entry(run) | {"audit": audit} for run in record.runs},
    } | _place(record)


def _report_entry(run: RunRecord) -> dict:
    return {
        "results": run.results,
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
    }


def _place(record: ExperimentRecord) -> dict:
    return {"machine": record.machine, "versions": record.versions}


def summary(record: ExperimentRecord, folder: Path) -> str:
    """The end of the main job in words: a table per run, and where films and report are."""
    parts = []
    for run in record.runs:
        table = format_table({METHODS[method]: stats for method, stats in run.results.items()})
        parts.append(f"\n{run.title}, held-out levels\n{table}\nfilms: {len(run.films)} below {run.folder / 'videos'}")
    return "\n".join([*parts, f"report: {folder / 'report.html'}"])
