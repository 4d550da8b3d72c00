"""Processes of a distributed training other than the first: they collect rollouts and compute gradients.

follow(config, ranks)             # in every process but the first, which calls ``rl.experiment.run``

These processes read the same levels as the first process, but have their own environments and random numbers.  They neither
write files nor evaluate policies.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

import hardware
from nppsim.errors import UserError
from nppsim.io.signals import deferred_signals
from nppsim.observe.statistics import ObservationStatistics
from rl.config import ExperimentConfig, PPOConfig
from rl.config.resume import other_levels
from rl.distributed.ranks import Ranks, RanksError
from rl.experiment.data import Data, load_data
from rl.experiment.setup import make_env
from rl.policy.architectures import get_architecture
from rl.ppo import make_ppo
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
