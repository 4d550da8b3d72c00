"""The main job: one training per architecture, condition and seed, then one report.

    run(resolve(argv))        # writes <output>/<name>_<time>/ (docs/file_formats.md), prints the table, returns the folder

With ``resume_from``, ``run`` resumes the experiment in that folder: finished trainings stay unchanged, an interrupted
training continues, and the other trainings begin.
"""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import hardware
from nppsim.errors import ConfigError
from nppsim.io.files import locked, new_folder, write_text
from nppsim.observe.stacking import ADVICE
from nppsim.report.pages import check_packages
from rl.config import ExperimentConfig
from rl.config.resume import changes, check_levels, resumed_config, stored_config, stored_metadata
from rl.curriculum import make_sampler
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess
from rl.experiment.data import Data, Log, audit_rewards, load_data, load_demonstrations
from rl.experiment.distill import load_teacher
from rl.experiment.initial_agent import first_network, load_initial_agent
from rl.experiment.log_file import LogFile
from rl.experiment.plan import planner
from rl.experiment.record import (
    SUMMARY,
    ExperimentRecord,
    RunRecord,
    circumstances,
    is_extended,
    read_run,
    reopen,
    summary,
    versions,
    write_experiment,
)
from rl.experiment.setup import TrainingSetup, make_setups
from rl.experiment.stages import run_stages
from rl.experiment.viewer import viewed
from rl.policy.architectures import get_architecture
from rl.ppo.logs import OnMetrics
from rl.ppo.variants.hierarchical import check_stage
from rl.ppo.variants.recurrent import segment_length
from rl.upload import Uploader


def run(
    config: ExperimentConfig,
    log: Log = print,
    ranks: SingleProcess = SINGLE_PROCESS,
    on_metrics: OnMetrics | None = None,
) -> Path:
    """Run or resume an experiment; return its folder.

    log: receives messages, which are also written to log.txt.
    ranks: processes that train together, of which this is the first; the others call ``follow``.
    on_metrics: receives (decisions, metrics by tag) after each update of PPO, for one training after another.
    Raises UserErrors for invalid input before training.  A KeyboardInterrupt names the flag that resumes the experiment.
    """
    check_packages()
    if config.hardware.processes != ranks.size:
        advice = f"this run has {ranks.size}; start several with scripts/train_and_compare.py or torchrun"
        raise ConfigError(f"{advice} (docs/long_runs.md)", "num_processes", config.hardware.processes)
    now, folder = datetime.now(), config.resume_from
    with LogFile(log) as log_file:
        if folder is not None:
            config = resumed_config(config)
            if not config.resume_override and (folder / SUMMARY).is_file():
                log_file(f"{folder}: is finished; nothing was changed")
                log_file((folder / SUMMARY).read_text(encoding="utf-8").rstrip())
                return folder
        machine, data = hardware.detect(), load_data(config, log_file)
        check_sizes(config, data, machine.times(ranks.machines))
        record = begin_record(config, now, machine, data, log_file)
        folder = folder or new_folder(config.output_dir / f"{config.experiment_name}_{now:%Y%m%d_%H%M%S}")
        uploader = Uploader(config.upload, folder.resolve().name) if config.upload.bucket else None
        with locked(folder) as check:
            (folder / SUMMARY).unlink(missing_ok=True)
            write_experiment(record, folder)
            log_file.open(folder, check)
            log_file(f"experiment folder: {folder}")
            warn_about_networks(config, log_file)
            setups = make_setups(
                record.config, data, machine, folder, uploader, log_file, config.previous_checkpoint, ranks
            )
            try:
                with viewed(folder, log_file) if config.visualize_training else nullcontext():
                    for setup in setups:
                        record = record.with_run(train_or_load(replace(setup, on_metrics=on_metrics), config))
                        write_experiment(record, folder)
            except KeyboardInterrupt as interruption:
                raise KeyboardInterrupt(*interruption.args, f"resume with --resume-from {folder}") from None
            if uploader:
                uploader.sync(folder)
            write_text(folder / SUMMARY, summary(record, folder) + "\n")
            log_file(summary(record, folder))
            if uploader:
                uploader.sync(folder)  # uploads the summary last, as it marks the copy as complete
    return folder


def dry_run(config: ExperimentConfig, log: Log = print) -> None:
    """Check everything that can be checked before training, including demonstrations, without writing files."""
    check_packages()
    if config.resume_from is not None:
        config = resumed_config(config)
    machine, data = hardware.detect(), load_data(config, log)
    plans = check_sizes(config, data, machine)
    begin_record(config, datetime.now(), machine, data, log)
    with TemporaryDirectory() as cache:
        elsewhere = replace(config, output_dir=Path(cache))
        for name, plan in plans.items():
            log(f"\n{name}\n{plan}")
            if "with_pretrain" in config.conditions:
                load_demonstrations(elsewhere, data, get_architecture(name).observations, config.seeds[0], log)
    log(
        f"dry run: {len(data.train)} training, {len(data.dev)} dev and {len(data.test)} test levels; nothing was written"
    )


def check_sizes(config: ExperimentConfig, data: Data, machine: hardware.Machine) -> dict[str, hardware.Plan]:
    """Return network -> hardware plan.

    Raises UserErrors if an agent (--teacher, --init-from), stages of the curriculum, plan, segment lengths or gradient
    accumulation do not fit.
    """
    check_stage(config.hierarchy.from_stage, make_sampler(data.train_categories, config.curriculum, seed=0))
    if config.teacher.file is not None and config.resume_from is None:
        load_teacher(config.teacher.file, config.frame_skip)
    plans = {}
    for name in config.networks:
        network = get_architecture(name)
        if config.init_from is not None and config.resume_from is None:
            load_initial_agent(config.init_from, first_network(config, network), config.frame_skip)
        plan = plans[name] = planner(network, config.plan_request, machine)()
        if config.resume_from is not None:
            continue  # training uses the stored plan
        if config.ppo.gradient_accumulation > (most := plan.batch_size // plan.minibatch_size):
            advice = f"a pass over a rollout of {name} has {most} minibatches; give at most that"
            raise ConfigError(advice, "--gradient-accumulation", config.ppo.gradient_accumulation)
        if network.memory:
            segment_length(config.ppo.settled(plan), plan.of_each(config.hardware.processes))
    return plans


def warn_about_networks(config: ExperimentConfig, log: Log) -> None:
    """Log known weaknesses of the networks, and flags that override others."""
    if not config.ppo.schedules and config.ppo.anneal_learning_rate and "ppo.anneal_learning_rate" in config.sources:
        log("warning: --no-schedules overrides --enable-lr-annealing: the learning rate stays constant")
    networks = [get_architecture(name) for name in config.networks]
    if stacked := [network.name for network in networks if network.stacking]:
        log(f"warning: {', '.join(stacked)}: {ADVICE}")
    if subtasks := [network.name for network in networks if network.subtasks]:
        log(f"warning: {', '.join(subtasks)}: subtasks did not improve success in our tests (docs/architectures.md)")


def train_or_load(setup: TrainingSetup, config: ExperimentConfig) -> RunRecord:
    """Run or resume one training, or load its record if the training is finished."""
    if is_extended(setup.folder, config.ppo):
        setup.log(f"{setup.title}: PPO was finished and continues; the test levels are played at its end")
        reopen(setup.folder)
    done = read_run(setup.folder, [level for level, _ in setup.data.test])
    if done is None:
        return run_stages(setup).record
    setup.log(f"{setup.title}: is finished" + (" and stays unchanged" if config.resume_override else ""))
    return replace(done, label=setup.label, title=setup.title)  # depend on the number of seeds, which may change


def begin_record(
    config: ExperimentConfig, now: datetime, machine: hardware.Machine, data: Data, log: Log
) -> ExperimentRecord:
    """Return the record of a new experiment, or the stored record of the experiment to resume; both without trainings.

    Raises ConfigError if the levels differ from those of the experiment to resume.
    """
    audit = audit_rewards(config, data, log)
    settings = replace(
        config, resume_from=None, resume_override=(), previous_checkpoint=False, visualize_training=False, debug=False
    )
    record = ExperimentRecord(
        settings, now, machine.name, versions(), data.fingerprints, audit, circumstances=circumstances()
    )
    folder = config.resume_from
    if folder is None:
        return record
    stored = stored_metadata(folder)
    check_levels(stored, data.fingerprints, folder)
    entry = {
        "at": now.isoformat(timespec="seconds"),
        "overrides": changes(stored_config(folder), settings),
        "machine": record.machine,
        "versions": record.versions,
        **record.circumstances,
    }
    other = [name for name in ("machine", "versions") if stored[name] != entry[name]]
    if other:
        log(f"the run began with other {' and '.join(other)} (config.json); results may differ in their last bits")
    return replace(
        record,
        created=datetime.fromisoformat(stored["created"]),
        machine=stored["machine"],
        versions=stored["versions"],
        circumstances={name: stored[name] for name in record.circumstances},
        resumed=(*stored["resumed"], entry),
    )
