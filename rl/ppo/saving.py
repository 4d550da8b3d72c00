"""What is kept of PPO in training: all that it needs to go on, and a plain zip for Stable-Baselines3."""

import copy
import io
import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.errors import ConfigError
from nppsim.files import write_bytes
from rl.curriculum.statistics import as_json
from rl.ppo.ppo import BatchPPO

# Numbers of BatchPPO that a checkpoint keeps; then those that Stable-Baselines3 has, too.
NUMBERS = (
    "updates",
    "actor_updates",
    "critic_only",
    "steered_rate",
    "hold",
    "held_since",
    "seconds",
    "processor_seconds",
    "decisions_played",
)
THEIR_NUMBERS = ("num_timesteps", "_n_updates")


def save_plain(ppo: BatchPPO, path: str | Path) -> None:
    """Write a zip that ``stable_baselines3.PPO.load`` reads and can go on training with its own buffers."""
    names = (
        "explained_variance",
        "config",
        "in_force",
        "speed",
        "ended",
        "counted",
        "ending",
        "reserved",
        "spent_before",
        "_began",
        "rng",
    )
    archive = io.BytesIO()  # torch's writer ends in a traceback of its own where a disk is full
    ppo.save(archive, exclude=[*NUMBERS, *names, "rollout_buffer_class", "rollout_buffer_kwargs"])
    write_bytes(path, archive.getbuffer())


def process_state(ppo: BatchPPO) -> dict[str, Any]:
    """What each of several processes that train together has for itself."""
    return {
        **ppo.own_state(),
        "environments": ppo.batch_env.state(),
        "curriculum": as_json(ppo.sampler.state_dict()),
        "shuffling": json.dumps(ppo.rng.bit_generator.state),
        "sampling": ppo.sampling.get_state(),
        "torch": torch.get_rng_state(),
    }


def training_state(ppo: BatchPPO) -> dict[str, Any]:
    """Everything beside the weights that training needs to go on between two updates, bit for bit on a CPU.

    Tensors, arrays, numbers, texts and dictionaries.  Of several processes, the first writes it: "others" is what each of
    the others has for itself.
    """
    others = ppo.ranks.call_peers(process_state)
    assert ppo.ep_info_buffer is not None and ppo.ep_success_buffer is not None  # made by learn()
    return {
        "optimizer": ppo.policy.optimizer.state_dict(),
        **{name: getattr(ppo, name) for name in NUMBERS + THEIR_NUMBERS},
        "spent": ppo.spent,
        "speed": dict(ppo.speed),
        "episodes": [list(ppo.ep_info_buffer), list(ppo.ep_success_buffer)],
        "reference": None if ppo.reference is None else ppo.reference.state_dict(),
        **process_state(ppo),
        **({"others": others} if others else {}),
    }


def load_training_state(ppo: BatchPPO, policy_state: dict, training: dict) -> None:
    """Continue from a checkpoint's weights and ``training_state``, in all processes.

    ConfigError for one of other environments, or of another number of processes.
    """
    others = training.get("others", [])
    if not ppo.ranks.rank and len(others) + 1 != ppo.ranks.size:
        raise ConfigError(
            f"the run has {len(others) + 1} processes, here are {ppo.ranks.size}; go on with as many "
            f"(--num-processes {len(others) + 1})"
        )
    common = {name: value for name, value in training.items() if name != "others"}
    ppo.ranks.call_peers(_load_other, policy_state, common, others)
    ppo.restore(policy_state, training["optimizer"], training["actor_updates"])
    for name in NUMBERS + THEIR_NUMBERS:
        setattr(ppo, name, training[name])
    ppo.spent_before = training["spent"]
    ppo.held_since = min(ppo.held_since, ppo.progress)  # the schedule may have become longer
    ppo.speed.update(training["speed"])
    ppo._last_obs = ppo.batch_env.load(training["environments"])  # so that learn() does not reset them
    ppo._last_episode_starts = np.zeros(ppo.sim.num_envs, bool)
    infos, wins = training["episodes"]
    ppo.ep_info_buffer = deque(infos, maxlen=ppo._stats_window_size)
    ppo.ep_success_buffer = deque(wins, maxlen=ppo._stats_window_size)
    ppo.sampler.load_state_dict(json.loads(training["curriculum"]))
    ppo.enter_stage()
    ppo.rng.bit_generator.state = json.loads(training["shuffling"])
    ppo.sampling.set_state(training["sampling"])
    torch.set_rng_state(training["torch"])
    if training["reference"] is not None:
        ppo.reference = copy.deepcopy(ppo.policy).requires_grad_(False)
        ppo.reference.load_state_dict(training["reference"])
    ppo.load_own_state(training)


def _load_other(ppo: BatchPPO, policy_state: dict, training: dict, others: list[dict]) -> None:
    """Continue in one of the other processes."""
    load_training_state(ppo, policy_state, training | others[ppo.ranks.rank - 1])
