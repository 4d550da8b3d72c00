"""Processes of a distributed training other than the first: they collect rollouts and compute gradients.

follow(config, ranks)             # in every process but the first, which calls ``rl.experiment.run``

These processes read the same levels as the first process, but have their own environments and random numbers.  They neither
write files nor evaluate policies.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

import hardware
from nppsim.batch import BatchSimulator
from nppsim.errors import UserError
from nppsim.io.signals import deferred_signals
from nppsim.observe.statistics import ObservationStatistics
from rl.config import ExperimentConfig, PPOConfig
from rl.config.resume import other_levels
from rl.curriculum import make_sampler
from rl.distributed.ranks import Ranks, RanksError, SingleProcess
from rl.experiment.data import Data, load_data
from rl.policy.architectures import Architecture, get_architecture
from rl.ppo import make_ppo
from rl.ppo.vec_env import BatchVecEnv
from rl.seeds import own_seed


@dataclass(frozen=True)
class Task:
    """One training, as sent by the first process to the others.

    settings: PPO settings, complete with values of the hardware plan.
    plan: hardware plan of one process.
    data: name of a dataset -> digest of the first process's levels.
    statistics: statistics of the policy's normaliser.
    weights: initial weights of the policy.
    reference: weights of the reference policy of the KL penalty, None without a penalty.
    runs: level fingerprint -> actions int8[n] of a demonstration, whose states serve as start states.
    """

    architecture: str
    settings: PPOConfig
    plan: hardware.Plan
    seed: int
    data: Mapping[str, str]
    statistics: ObservationStatistics
    weights: Mapping[str, torch.Tensor]
    reference: Mapping[str, torch.Tensor] | None
    runs: Mapping[str, np.ndarray]


def follow(config: ExperimentConfig, ranks: Ranks) -> None:
    """Take part in all trainings of an experiment; a RanksError names the process in which the error occurred."""
    try:
        data = load_data(config, lambda line: None)
        while (task := ranks.serve(None)) is not None:
            take_part(config, data, task, ranks)
    except RanksError as error:
        if ranks.stop.by:  # a signal has ended all processes
            raise KeyboardInterrupt(f"{ranks.name}, by {ranks.stop.by}") from error
        raise
    except UserError as error:
        raise RanksError(f"{ranks.name}: {error}") from error


def take_part(config: ExperimentConfig, data: Data, task: Task, ranks: Ranks) -> None:
    """Take part in one training; RanksError if this process has other levels than the first process."""
    if other_levels(task.data, data.fingerprints):
        raise RanksError(
            f"{ranks.name}: its levels differ from those of process 0; give all machines the same datasets"
        )
    plan = task.plan
    torch.set_num_threads(1)
    env = make_env(config, data, get_architecture(task.architecture), plan, task.seed, ranks)
    ppo = make_ppo(
        env,
        task.architecture,
        task.settings,
        plan,
        statistics=task.statistics,
        seed=own_seed(task.seed, ranks.rank),
        device=plan.device,
        ranks=ranks,
    )
    ppo.policy.load_state_dict(dict(task.weights))
    if task.reference is not None:
        reference = copy.deepcopy(ppo.policy)
        reference.load_state_dict(dict(task.reference))
        ppo.set_reference(reference)
    if env.sampler.starts is not None:
        env.sampler.starts.add(dict(task.runs))
    with deferred_signals(lambda name: None) as stop:
        ranks.stop = stop
        total = ranks.serve(ppo)
        if total is not None:
            ppo.learn(total - ppo.num_timesteps, reset_num_timesteps=False)
        ranks.serve(ppo)


def make_env(
    config: ExperimentConfig,
    data: Data,
    architecture: Architecture,
    plan: hardware.Plan,
    seed: int,
    ranks: SingleProcess,
    *,
    observations: Sequence[str] | None = None,
    num_envs: int | None = None,
) -> BatchVecEnv:
    """Make the environments of this process, with training levels drawn by the curriculum.

    plan: hardware plan of one process.
    observations: override the observations of the architecture.
    num_envs: overrides the number of environments of the plan.
    """
    sim = BatchSimulator(
        data.bank,
        num_envs or plan.num_envs,
        frame_skip=config.frame_skip,
        observations=observations or architecture.observations,
        stacking=architecture.stacking,
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
    if ranks.rank:
        sampler.seed(own_seed(seed, ranks.rank))
    return BatchVecEnv(sim, sampler)
