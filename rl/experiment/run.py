"""The main job: for each architecture, condition and seed, imitation -> PPO -> evaluation -> films, then one report.

    run(resolve(argv))        # writes <output>/<name>_<time>/, prints the table, returns the folder

With ``resume_from`` it goes on with such a folder: what is finished is left alone, what was interrupted goes on where it was,
the rest begins.  Layout of the folder: ``docs/file_formats.md``.  Everything that can be checked is checked before anything
is trained.
"""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import hardware
from nppsim.errors import ConfigError
from nppsim.files import new_folder, write_text
from nppsim.lock import locked
from nppsim.observe.stacking import ADVICE
from nppsim.report.pages import check_packages
from rl.config import ExperimentConfig
from rl.config.resume import changes, check_levels, resumed_config, stored_config, stored_facts
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess
from rl.experiment.data import Data, Log, audit_rewards, load_data
from rl.experiment.kept import is_extended, read_run, reopen
from rl.experiment.log_file import LogFile
from rl.experiment.record import ExperimentRecord, circumstances, summary, versions, write
from rl.experiment.stages import make_jobs, train_one
from rl.experiment.viewer import viewed
from rl.policy.architectures import get_architecture
from rl.upload import Uploader

SUMMARY = "summary.txt"  # the end of the experiment in words; written last, so that where it is, nothing is missing


def run(config: ExperimentConfig, log: Log = print, ranks: SingleProcess = SINGLE_PROCESS) -> Path:
    """Run an experiment, or what is left of it; returns its folder.  What is told goes to ``log`` and into its log.txt.

    ranks: the processes that train together, of which this is the first; the others ``follow``.
    Raises the named errors of the package for bad input, before training; KeyboardInterrupt says how to go on.
    """
    with LogFile(log) as kept:
        return _run(config, kept, ranks)


def _run(config: ExperimentConfig, log: LogFile, ranks: SingleProcess) -> Path:
    check_packages()
    if config.hardware.processes != ranks.size:
        raise ConfigError(
            f"{ranks.size} here: start such a run with scripts/train_and_compare.py or torchrun (docs/long_runs.md)",
            "num_processes",
            config.hardware.processes,
        )
    now, folder = datetime.now(), config.resume_from
    if folder is not None:
        config = resumed_config(config)
        if not config.resume_override and (folder / SUMMARY).is_file():
            log(f"{folder}: is finished; nothing was changed")
            log((folder / SUMMARY).read_text(encoding="utf-8").rstrip())
            return folder
    machine = hardware.detect()
    data = load_data(config, log)
    record = begin_record(config, now, machine, data, log)
    folder = folder or new_folder(config.output_dir / f"{config.experiment_name}_{now:%Y%m%d_%H%M%S}")
    uploader = Uploader(config.upload, folder.resolve().name) if config.upload.bucket else None
    with locked(folder) as check:
        (folder / SUMMARY).unlink(missing_ok=True)
        write(record, folder)
        log.open(folder, check)
        log(f"experiment folder: {folder}")
        if stacked := [name for name in record.config.networks if get_architecture(name).stacking]:
            log(f"warning: {', '.join(stacked)}: {ADVICE}")
        if subtasks := [name for name in record.config.networks if get_architecture(name).subtasks]:
            log(
                f"warning: {', '.join(subtasks)}: subtasks did not improve success where measured (docs/architectures.md)"
            )
        try:
            with viewed(folder, log) if config.visualize_training else nullcontext():
                for job in make_jobs(
                    record.config, data, machine, folder, uploader, log, config.previous_checkpoint, ranks
                ):
                    if is_extended(job.folder, config.ppo):
                        log(f"{job.title}: PPO was over, and goes on; the test levels will be played at its end")
                        reopen(job.folder)
                    done = read_run(job.folder, [level for level, _ in data.test])
                    if done is not None:
                        log(f"{job.title}: is finished" + (", and stays as it is" if config.resume_override else ""))
                        done = replace(done, label=job.label, title=job.title)  # as there may be more seeds now
                    record = record.with_run(done or train_one(job))
                    write(record, folder)
        except KeyboardInterrupt as interruption:
            raise KeyboardInterrupt(*interruption.args, f"go on with --resume-from {folder}") from None
        if uploader:
            uploader.sync(folder)
        write_text(folder / SUMMARY, summary(record, folder) + "\n")
        log(summary(record, folder))
        if uploader:
            uploader.sync(folder)  # the summary, which says that all else is there
    return folder


def begin_record(
    config: ExperimentConfig, now: datetime, machine: hardware.Machine, data: Data, log: Log
) -> ExperimentRecord:
    """The record of an experiment without runs: a new one, or of the folder to go on with, where that is written down.

    Raises ConfigError where its levels are others now.
    """
    audit = audit_rewards(config, data, log)
    settings = replace(
        config,
        resume_from=None,
        resume_override=(),
        previous_checkpoint=False,
        visualize_training=False,
        debug=False,
    )
    record = ExperimentRecord(
        settings, now, machine.name, versions(), data.fingerprints, audit, circumstances=circumstances()
    )
    folder = config.resume_from
    if folder is None:
        return record
    facts = stored_facts(folder)
    check_levels(facts, data.fingerprints, folder)
    entry = {
        "at": now.isoformat(timespec="seconds"),
        "overrides": changes(stored_config(folder), settings),
        "machine": record.machine,
        "versions": record.versions,
        **record.circumstances,
    }
    other = [name for name in ("machine", "versions") if facts[name] != entry[name]]
    if other:
        log(f"begun with other {' and '.join(other)} (config.json): what follows need not be the same bit for bit")
    return replace(
        record,
        created=datetime.fromisoformat(facts["created"]),
        machine=facts["machine"],
        versions=facts["versions"],
        circumstances={name: facts[name] for name in record.circumstances},
        resumed=(*facts["resumed"], entry),
    )
