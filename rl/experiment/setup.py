"""Inputs of the trainings of an experiment: one per architecture, condition (with or without imitation) and seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hardware
from rl.checks.doctor import Doctor
from rl.config import ExperimentConfig
from rl.config.resume import RUN_FILE
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess
from rl.experiment.data import Data, Log, Suites
from rl.experiment.record import read_stored
from rl.policy.architectures import Architecture, get_architecture
from rl.ppo.logs import OnMetrics
from rl.upload import Uploader


@dataclass(frozen=True)
class TrainingSetup:
    """One training and its inputs.

    config, data, suites, machine, uploader, log: shared by all trainings of an experiment.
    pretrained: True if imitation precedes PPO.
    label: the architecture, and the condition if the experiment has several.
    title: the label, and the seed if there are several.
    root, folder: folders of the experiment and of this training.
    doctor: runs checks during the training, and writes their results to ``doctor.json``.
    previous_checkpoint: resume from the second newest checkpoint instead of the newest.
    ranks: processes that train together, of which this is the first.
    on_metrics: function that receives PPO's metrics, or None.
    """

    config: ExperimentConfig
    data: Data
    suites: Suites
    machine: hardware.Machine
    uploader: Uploader | None
    log: Log
    architecture: Architecture
    pretrained: bool
    seed: int
    label: str
    title: str
    root: Path
    folder: Path
    doctor: Doctor
    previous_checkpoint: bool = False
    ranks: SingleProcess = SINGLE_PROCESS
    on_metrics: OnMetrics | None = None


def make_setups(
    config: ExperimentConfig,
    data: Data,
    machine: hardware.Machine,
    root: Path,
    uploader: Uploader | None,
    log: Log,
    previous_checkpoint: bool = False,
    ranks: SingleProcess = SINGLE_PROCESS,
) -> Iterator[TrainingSetup]:
    """Yield the inputs of a training for every architecture, condition and seed."""
    suites = Suites(config, data)
    for name in config.networks:
        for condition in config.conditions:
            label = f"{name}, {condition}" if len(config.conditions) > 1 else name
            for seed in config.seeds:
                folder = folder_of(config, root, name, condition, seed)
                yield TrainingSetup(
                    config=config,
                    data=data,
                    suites=suites,
                    machine=machine,
                    uploader=uploader,
                    log=log,
                    architecture=get_architecture(name),
                    pretrained=condition == "with_pretrain",
                    seed=seed,
                    label=label,
                    title=f"{label}, seed {seed}" if len(config.seeds) > 1 else label,
                    root=root,
                    folder=folder,
                    doctor=Doctor(log, folder / "doctor.json", only=("data",)),
                    previous_checkpoint=previous_checkpoint,
                    ranks=ranks,
                )


def folder_of(config: ExperimentConfig, root: Path, name: str, condition: str, seed: int) -> Path:
    """Return the folder of a training: the folder in which it began, or that of a new training.

    The two differ if seeds or conditions were added when the experiment was resumed.
    """
    parent = root / name / condition if len(config.conditions) > 1 else root / name
    usual = parent / f"seed_{seed}" if len(config.seeds) > 1 else parent
    folders = [folder / last for folder in (root / name, root / name / condition) for last in ("", f"seed_{seed}")]
    wanted = {"seed": seed, "pretrained": condition == "with_pretrain"}
    return next((one for one in folders if wanted.items() <= read_stored(one / RUN_FILE).items()), usual)
