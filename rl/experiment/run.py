"""The main job: one training per architecture, condition and seed, then one report.

    run(resolve(argv))        # writes <output>/<name>_<time>/ (docs/file_formats.md), prints the table, returns the folder

With ``resume_from``, ``run`` resumes the experiment in that folder: finished trainings stay unchanged, an interrupted
training continues, and the other trainings begin.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback

import hardware
from nppsim.errors import ConfigError
from nppsim.io.files import locked, new_folder, write_text
from nppsim.io.reading import read_json
from nppsim.measure.intervals import wilson
from nppsim.observe.stacking import ADVICE
from nppsim.report.pages import check_packages
from rl.config import ExperimentConfig
from rl.config.files import config_from_dict
from rl.config.resume import CONFIG, FINISHED_FILE, changes, check_levels, other_levels, stored_metadata
from rl.curriculum import make_sampler
from rl.distributed.ranks import SINGLE_PROCESS, RanksError, SingleProcess
from rl.experiment.data import Data, audit_rewards, check_demonstrations, load_data
from rl.experiment.distill import load_teacher
from rl.experiment.plan import planner
from rl.experiment.record import (
    AGENT,
    RESULTS,
    SUMMARY,
    ExperimentRecord,
    ResumeError,
    RunRecord,
    is_extended,
    provenance,
    read_run,
    reopen,
    summary,
    versions,
    write_experiment,
)
from rl.experiment.setup import TrainingSetup, check_initial_agent, folder_of, load_initial_agent, make_setups
from rl.experiment.stages import run_stages
from rl.experiment.viewer import studio_process
from rl.log import ExperimentLog, Log, warn
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.ppo.logs import OnMetrics
from rl.ppo.variants.hierarchical import check_stage
from rl.ppo.variants.recurrent import segment_length
from rl.upload import Uploader

FEW_EPISODES = 10  # a warning is logged if the final evaluation has fewer episodes per category


def run(
    config: ExperimentConfig,
    log: Log = print,
    ranks: SingleProcess = SINGLE_PROCESS,
    on_metrics: OnMetrics | None = None,
    callbacks: Sequence[BaseCallback] = (),
) -> Path:
    """Run or resume an experiment; return its folder.

    log, on_metrics, callbacks: as in ``train``; messages are also written to log.txt.
    ranks: processes that train together; all call this function, and rank 0 writes the files and messages.
    Raises UserErrors for invalid input before training.  A KeyboardInterrupt names the flag that resumes the experiment.
    """
    check_packages()
    check_processes(config, ranks)
    if ranks.rank:
        return run_trainings(config, ranks)
    now, folder = datetime.now(), config.resume_from
    with ExperimentLog(log) as log_file:
        if folder is not None and not config.resume_override and (folder / SUMMARY).is_file():
            check_finished(config, folder)
            log_summary(folder, log_file, f"{folder}: is finished; nothing was changed")
            ranks.broadcast((None, folder, {}))
            return folder
        machine, data = hardware.detect(), load_data(config, log_file)
        initial = initial_agent(config)
        check_sizes(config, data, machine.times(ranks.machines), initial)
        record = begin_record(config, now, machine, data, log_file)
        folder = folder or new_folder(config.output_dir / f"{config.experiment_name}_{now:%Y%m%d_%H%M%S}")
        uploader = Uploader(config.upload, folder.resolve().name) if config.upload.bucket else None
        with locked(folder) as check:
            (folder / SUMMARY).unlink(missing_ok=True)
            write_experiment(record, folder)
            log_file.open(folder, check)
            log_start(config, data, folder, log_file)
            ranks.broadcast((record.config, folder, data.fingerprints))
            setups = make_setups(
                record.config,
                data,
                machine,
                folder,
                log_file,
                uploader,
                previous_checkpoint=config.previous_checkpoint,
                ranks=ranks,
                on_metrics=on_metrics,
                callbacks=callbacks,
                initial=initial,
                resumed=record.resumed,
            )
            try:
                with studio_process(folder, log_file) if config.visualize_training else nullcontext():
                    for setup in setups:
                        record = record.with_run(train_or_load(setup))
                        write_experiment(record, folder)
            except KeyboardInterrupt as interruption:
                raise KeyboardInterrupt(*interruption.args, f"resume with --resume-from {folder}") from None
            write_summary(record, folder, uploader)
            log_summary(folder, log_file)
    return folder


def check_processes(config: ExperimentConfig, ranks: SingleProcess) -> None:
    """Raise ConfigError unless as many processes were started as the configuration demands."""
    if config.hardware.processes != ranks.size:
        advice = f"this run has {ranks.size}; start several with scripts/train_and_compare.py or torchrun"
        raise ConfigError(f"{advice} (docs/long_runs.md)", "num_processes", config.hardware.processes)


def write_summary(record: ExperimentRecord, folder: Path, uploader: Uploader | None) -> None:
    """Write and upload the summary after all other files, because it marks the experiment as finished."""
    if uploader:
        uploader.sync(folder)
    write_text(folder / SUMMARY, summary(record) + "\n")
    if uploader:
        uploader.sync(folder)


def log_summary(folder: Path, log: Log, title: str = "") -> None:
    """Log the summary of a finished experiment, after ``title``, and the path of its report."""
    if title:
        log(title)
    log((folder / SUMMARY).read_text(encoding="utf-8").rstrip())
    log(f"report: {folder / 'report.html'}")


def run_trainings(config: ExperimentConfig, ranks: SingleProcess) -> Path:
    """Take part in the trainings of an experiment in a process other than rank 0; return the experiment's folder.

    Raises RanksError if this process has other levels than rank 0.
    """
    data = load_data(config, _discard)
    current, folder, fingerprints = ranks.broadcast(None)
    if current is None:  # the experiment is finished
        return Path(folder)
    if other := other_levels(fingerprints, data.fingerprints):
        raise RanksError(
            f"{ranks.name}: its {' and '.join(other)} levels differ from those of process 0; give all machines the same "
            "datasets"
        )
    for setup in make_setups(current, data, hardware.detect(), folder, _discard, ranks=ranks):
        is_finished = ranks.broadcast(None)
        if not is_finished:
            run_stages(setup)
    return Path(folder)


def _discard(message: str) -> None:
    """Ignore a message, which rank 0 logs."""


def check_finished(config: ExperimentConfig, folder: Path) -> None:
    """Raise ResumeError or CheckpointError if results or agents of an experiment with a summary are missing or damaged."""
    trainings = [
        folder_of(config, folder, name, condition, seed)
        for name in config.networks
        for condition in config.conditions
        for seed in config.seeds
    ]
    wanted = [folder / RESULTS, *(training / name for training in trainings for name in (FINISHED_FILE, AGENT))]
    if missing := [path.relative_to(folder).as_posix() for path in wanted if not path.is_file()]:
        advice = f"restore them, or remove {SUMMARY} to make them again from the checkpoints"
        raise ResumeError(f"{folder}: {SUMMARY} marks it as finished, but {', '.join(missing)} are missing; {advice}")
    for path in wanted:
        if path.name == AGENT:
            checkpoint.load(path)
        else:
            read_json(
                path, ResumeError, f"restore it, or remove it and {SUMMARY} to make it again from the checkpoints"
            )


def dry_run(config: ExperimentConfig, log: Log = print) -> None:
    """Check everything that can be checked before training, including demonstrations, without writing files."""
    check_packages()
    machine, data = hardware.detect(), load_data(config, log)
    plans = check_sizes(config, data, machine, initial_agent(config))
    begin_record(config, datetime.now(), machine, data, log)
    for name, plan in plans.items():
        log(f"\n{name}\n{plan}")
    if "with_pretrain" in config.conditions:
        networks = [get_architecture(name).observations for name in config.networks]
        check_demonstrations(config, data, max(networks, key=len), log)
    log(
        f"dry run: {len(data.train)} training, {len(data.dev)} dev and {len(data.test)} test levels; nothing was written"
    )


def initial_agent(config: ExperimentConfig) -> NppPolicy | None:
    """Load the agent of --init-from; None without the flag, and in a resumed experiment, whose trainings have a copy."""
    if config.init_from is None or config.resume_from is not None:
        return None
    return load_initial_agent(config.init_from, config.frame_skip)


def check_sizes(
    config: ExperimentConfig, data: Data, machine: hardware.Machine, initial: NppPolicy | None
) -> dict[str, hardware.Plan]:
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
        if initial is not None:
            check_initial_agent(initial, config, network)
        plan = plans[name] = planner(network, config.plan_request, machine)()
        if config.resume_from is not None:
            continue  # training uses the stored plan
        if config.ppo.gradient_accumulation > (most := plan.batch_size // plan.minibatch_size):
            advice = f"a pass over a rollout of {name} has {most} minibatches; give at most that"
            raise ConfigError(advice, "--gradient-accumulation", config.ppo.gradient_accumulation)
        if network.memory:
            segment_length(config.ppo.settled(plan), plan.per_process(config.hardware.processes))
    return plans


def log_start(config: ExperimentConfig, data: Data, folder: Path, log: Log) -> None:
    """Log the experiment's folder and the warnings about its settings."""
    log(f"experiment folder: {folder}")
    warn_about_networks(config, log)
    warn_about_episodes(config, data, log)


def warn_about_networks(config: ExperimentConfig, log: Log) -> None:
    """Log known weaknesses of the networks, and flags that override others."""
    if not config.ppo.schedules and config.ppo.anneal_learning_rate and "ppo.anneal_learning_rate" in config.sources:
        warn(log, "--no-schedules overrides --enable-lr-annealing: the learning rate stays constant")
    networks = [get_architecture(name) for name in config.networks]
    if stacked := [network.name for network in networks if network.stacking]:
        warn(log, f"{', '.join(stacked)}: {ADVICE}")
    if subtasks := [network.name for network in networks if network.subtasks]:
        warn(log, f"{', '.join(subtasks)}: subtasks did not improve success in our tests (docs/architectures.md)")


def warn_about_episodes(config: ExperimentConfig, data: Data, log: Log) -> None:
    """Log a warning if the final evaluation has too few episodes per category for useful intervals."""
    categories, evaluation = len({category for _, category in data.test}), config.evaluation
    episodes = evaluation.episodes_per_category(categories)
    if episodes < FEW_EPISODES and not evaluation.skip_final_eval:
        low, high = wilson(episodes // 2, episodes)
        warn(
            log,
            f"--num-eval-episodes {evaluation.num_eval_episodes}: {episodes} on different levels of each of "
            f"{categories} categories; 95 % intervals of a category are up to {100 * (high - low):.0f} points wide; give at "
            f"least {FEW_EPISODES * categories}",
        )


def train_or_load(setup: TrainingSetup) -> RunRecord:
    """Run or resume one training, or load its record if the training is finished."""
    if is_extended(setup.folder, setup.config.ppo):
        setup.log(f"{setup.title}: PPO was finished and continues; the test levels are played at its end")
        reopen(setup.folder)
    done = None
    if (setup.folder / AGENT).is_file():
        done = read_run(setup.folder, [level for level, _ in setup.data.test])
    setup.ranks.broadcast(done is not None)
    if done is None:
        return run_stages(setup).record
    setup.log(f"{setup.title}: is finished and stays unchanged")
    return replace(done, label=setup.label, title=setup.title)  # depend on the number of seeds, which may change


def begin_record(
    config: ExperimentConfig, now: datetime, machine: hardware.Machine, data: Data, log: Log
) -> ExperimentRecord:
    """Return a new record, or the stored one of the experiment to resume, without the results of trainings.

    Raises ConfigError if the levels differ from those of the experiment to resume.
    """
    audit = audit_rewards(config, data, log)
    settings = replace(
        config, resume_from=None, resume_override=(), previous_checkpoint=False, visualize_training=False, debug=False
    )
    record = ExperimentRecord(
        settings, now, machine.name, versions(), data.fingerprints, audit, provenance=provenance()
    )
    folder = config.resume_from
    if folder is None:
        return record
    stored = stored_metadata(folder)
    check_levels(stored, data.fingerprints, folder)
    before = config_from_dict(stored, str(folder / CONFIG))
    entry = {
        "at": now.isoformat(timespec="seconds"),
        "overrides": changes(before, settings),
        "machine": record.machine,
        "versions": record.versions,
        **record.provenance,
    }
    other = [name for name in ("machine", "versions") if stored[name] != entry[name]]
    if other:
        log(f"the run began with other {' and '.join(other)} (config.json); results may differ in their last bits")
    return replace(
        record,
        created=datetime.fromisoformat(stored["created"]),
        machine=stored["machine"],
        versions=stored["versions"],
        provenance={name: stored[name] for name in record.provenance},
        resumed=(*stored["resumed"], entry),
    )
