"""The main job in as many processes as it is to have: in this one, in ones that it starts, or as torchrun has started it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nppsim.errors import ConfigError
from rl.config import ExperimentConfig
from rl.config.command_line import resolve
from rl.config.resume import CONFIG, changes, stored_config
from rl.distributed.launch import check_gpus, launch
from rl.distributed.ranks import Ranks, Started, joined
from rl.experiment.follower import follow
from rl.experiment.run import SUMMARY, run


def start(argv: Sequence[str], program: str | Path) -> int:
    """Do what the command line asks for; returns the exit status.

    program: the script itself, which further processes run, too.
    """
    config, started = resolve(argv), Started.from_environment()
    if started is not None:
        config = as_started(config, started)
    settings = config.hardware
    if settings.distributed_backend and settings.processes == 1:
        raise ConfigError(
            "one process shares nothing; add --num-gpus or --num-processes, or leave it out", "--distributed-backend"
        )
    if started is None and settings.processes > 1:
        check_gpus(config)
        return launch(program, argv, settings.processes)
    device = "cpu" if settings.num_gpus == 0 else settings.device
    with joined(started, settings.distributed_backend, device) as ranks:
        if isinstance(ranks, Ranks) and ranks.rank:
            follow(config, ranks)
        else:
            run(config, ranks=ranks)
            ranks.release(None)
    return 0


def as_started(config: ExperimentConfig, started: Started) -> ExperimentConfig:
    """The configuration in a process that torchrun has started; ConfigError where it is for another number of processes.

    After a restart, it goes on with what the processes before left.
    """
    settings = config.hardware
    given = settings.processes > 1 or settings.num_processes is not None or config.resume_from is not None
    if given and settings.processes != started.size:
        raise ConfigError(
            f"torchrun has started {started.size}, and a run keeps the number of processes that it was begun with",
            "--num-processes",
            settings.processes,
        )
    if not given and started.size > 1:
        settings = replace(settings, num_processes=started.size)
        config = replace(config, hardware=settings, sources=config.sources | {"hardware.num_processes": "torchrun"})
    if not started.restarts or config.resume_from is not None:
        return config
    return replace(config, resume_from=unfinished(config))


def unfinished(config: ExperimentConfig) -> Path | None:
    """Folder of the newest experiment with this name and these settings that is not finished; None where there is none."""
    for folder in sorted(config.output_dir.glob(f"{config.experiment_name}_*"), reverse=True):
        begun = (folder / CONFIG).is_file() and not (folder / SUMMARY).exists()
        if begun and not changes(stored_config(folder), config):
            return folder
    return None
