"""Inputs of the trainings of an experiment: one per architecture, condition (with or without imitation) and seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback

import hardware
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.io.files import write_bytes
from nppsim.observe import layout
from nppsim.settings import require
from rl.checks.doctor import Doctor
from rl.config import ExperimentConfig
from rl.config.resume import RUN_FILE
from rl.curriculum import make_sampler
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess
from rl.experiment.data import Data, Suites
from rl.experiment.record import read_stored
from rl.log import Log
from rl.policy import checkpoint
from rl.policy.architectures import Architecture, get_architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import WeightTransferError, transfer
from rl.ppo.logs import OnMetrics
from rl.ppo.vec_env import BatchVecEnv
from rl.upload import Uploader

INITIAL_AGENT = f"pretrain/initial{checkpoint.SUFFIX}"  # copy of the agent of --init-from, in the folder of a training


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
    callbacks: further callbacks of PPO.
    initial: policy of --init-from if the experiment begins, else None.
    resumed: entries of "resumed" in config.json.
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
    callbacks: Sequence[BaseCallback] = ()
    initial: NppPolicy | None = None
    resumed: Sequence[dict] = ()


def make_setups(
    config: ExperimentConfig,
    data: Data,
    machine: hardware.Machine,
    root: Path,
    log: Log,
    uploader: Uploader | None = None,
    **options: Any,
) -> Iterator[TrainingSetup]:
    """Yield the inputs of a training for every architecture, condition and seed.

    root: folder of the experiment.
    options: fields of ``TrainingSetup`` that have defaults.
    """
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
                    **options,
                )


def folder_of(config: ExperimentConfig, root: Path, name: str, condition: str, seed: int) -> Path:
    """Return the folder of a training: the folder in which it began, or that of a new training.

    The two differ if seeds or conditions were added when the experiment was resumed.
    """
    parent = root / name / condition if len(config.conditions) > 1 else root / name
    usual = parent / f"seed_{seed}" if len(config.seeds) > 1 else parent
    folders = [folder / last for folder in (root / name, root / name / condition) for last in ("", f"seed_{seed}")]
    wanted = {"seed": seed, "pretrained": condition == "with_pretrain"}
    return next(
        (candidate for candidate in folders if wanted.items() <= read_stored(candidate / RUN_FILE).items()), usual
    )


# ---------------------------------------------------------------------------------------------------------------------
# Environments


def make_env(
    config: ExperimentConfig,
    data: Data,
    architecture: Architecture,
    plan: hardware.Plan,
    seed: int,
    *,
    teacher: NppPolicy | None = None,
    num_envs: int | None = None,
) -> BatchVecEnv:
    """Make the environments of this process, with training levels drawn by the curriculum.

    plan: hardware plan of one process.
    seed: seed of the levels; PPO seeds them again, differently in each process.
    teacher: policy whose observations are added.
    num_envs: overrides the number of environments of the plan.
    Raises ConfigError if architecture and teacher observe different look-ahead.
    """
    keys, foresight = architecture.observations, architecture.foresight
    if teacher is not None:
        both = "foresight" in keys and "foresight" in teacher.observations
        advice = f"observes {teacher.foresight}, {architecture.name} observes {foresight}; give a teacher with the same"
        require(not both or teacher.foresight == foresight, advice, "--teacher", teacher.architecture)
        foresight = foresight if "foresight" in keys else teacher.foresight
        keys = layout.observation_keys({*keys, *teacher.observations})
    sim = BatchSimulator(
        data.bank,
        num_envs or plan.num_envs,
        frame_skip=config.frame_skip,
        observations=keys,
        stacking=architecture.stacking,
        foresight=foresight,
        reward=config.reward.weights,
        gamma=config.ppo.gamma,
        threads=plan.simulator_threads,
        profile=config.profiling.phases or None,
    )
    sampler = make_sampler(
        data.train_categories,
        config.curriculum,
        seed,
        difficulty=data.bank.path_length,
        generators=data.train_generators,
    )
    return BatchVecEnv(sim, sampler)


# ---------------------------------------------------------------------------------------------------------------------
# Initial weights (--init-from).  Imitation, or PPO in a run without imitation, starts from the agent's policy, value and
# normaliser weights.  The optimisers are new, PPO's critic has a warm-up, and the KL penalty refers to this agent.


def load_initial_agent(path: Path, frame_skip: int) -> NppPolicy:
    """Load an agent to train it further; CheckpointError for a damaged file, ConfigError for another frame skip."""
    policy, stored = checkpoint.load_policy(path)
    if stored["frame_skip"] != frame_skip:
        advice = f"acts every {stored['frame_skip']} frames, this run every {frame_skip}; give --frame-skip "
        raise ConfigError(f"{advice}{stored['frame_skip']} or another agent", "--init-from", path)
    return policy


def check_initial_agent(policy: NppPolicy, config: ExperimentConfig, architecture: Architecture) -> None:
    """Raise ConfigError if tensors of an agent do not fit the network that is trained first.

    An agent trained without subtasks fits the same architecture with subtasks; its high-level policy is then random.
    """
    first = architecture.imitated if "with_pretrain" in config.conditions else architecture
    with torch.random.fork_rng(devices=[]):  # building this network must not change the run's random numbers
        target = build_policy(first.name)
    try:
        transfer(policy.state_dict(), target, fresh=fresh_tensors(policy, first))
    except WeightTransferError as error:
        problem = f"an agent of {policy.architecture} does not fit {first.name} ({'; '.join(error.problems)})"
        advice = f"give --architectures {policy.architecture}, or another agent"
        raise ConfigError(f"{problem}; {advice}", "--init-from", config.init_from) from error


def fresh_tensors(policy: NppPolicy, architecture: Architecture) -> tuple[str, ...]:
    """Return name prefixes of the tensors of an architecture that the policy does not have: those of its subtasks."""
    return architecture.fresh if policy.architecture == architecture.imitated.name else ()


def initial_agent_of(setup: TrainingSetup) -> NppPolicy | None:
    """Return the agent of --init-from, None without the flag; store a copy, so that resuming does not need the original."""
    path, frame_skip = setup.config.init_from, setup.config.frame_skip
    if path is None:
        return None
    copy = setup.folder / INITIAL_AGENT
    policy = setup.initial
    if policy is None or copy.is_file():
        policy = load_initial_agent(copy if copy.is_file() else path, frame_skip)
        check_initial_agent(policy, setup.config, setup.architecture)
    if not copy.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(copy, path.read_bytes())
    return policy
