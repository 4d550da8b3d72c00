"""Players: policies together with the subtasks or recurrent states of a batch of environments.

    player = player_of(policy, num_envs)
    actions = player.act(obs, envs, deterministic=False, rng=rng)     # obs: observations [k, ...] of the environments envs
    player.begin(envs)                                                # at the start of their next episodes

With ``deterministic``, the most probable subtask is chosen; otherwise subtasks are sampled.
"""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl import plugins
from rl.policy.policy import NppPolicy, sample_actions
from rl.policy.recurrent import RECURRENT_STATE
from rl.policy.subtasks import SUBTASK, ActiveSubtasks


class Player:
    """Player of a policy without state.

    policy: any object with a method ``act`` as in NppPolicy.
    subtasks: int64[N, 2], the active subtasks; None without subtasks.
    states: float32[N, size], the recurrent states; None for a feed-forward policy.
    """

    subtasks: np.ndarray | None = None
    states: np.ndarray | None = None

    def __init__(self, policy: Any):
        self.policy = policy

    def begin(self, envs: np.ndarray) -> None:
        """Reset the state of these environments, int64[k], at the start of an episode."""

    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        """Return actions int64[k].  obs: raw observations [k, ...] of the environments ``envs``, int64[k]."""
        actions: np.ndarray = self.policy.act(obs, deterministic=deterministic, rng=rng)
        return actions


class HierarchicalPlayer(Player):
    """Player of a hierarchical policy in N environments."""

    policy: NppPolicy

    def __init__(self, policy: NppPolicy, num_envs: int):
        super().__init__(policy)
        assert policy.high_level is not None
        self._subtasks = ActiveSubtasks(num_envs, policy.high_level.longest)
        self._begins = np.ones(num_envs, bool)
        self.subtasks = self._subtasks.now

    def begin(self, envs: np.ndarray) -> None:
        self._begins[envs] = True

    @torch.no_grad()
    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        over, _ = self._subtasks.step(obs, self._begins[envs], envs)
        if over.any():
            some = {key: values[over] for key, values in obs.items()}
            logits = self.policy.choose_subtasks(self.policy.to_tensors(some))[0].cpu()
            chosen = logits.argmax(dim=1) if deterministic else sample_actions(logits, rng)
            self._subtasks.start(envs[over], chosen.numpy(), some)
        self._begins[envs] = False
        observed = {**obs, SUBTASK: self._subtasks.now[envs]}
        return self.policy.act(observed, deterministic=deterministic, rng=rng)


class RecurrentPlayer(Player):
    """Player of a recurrent policy in N environments.

    states: float32[N, size], zero at the start of an episode.
    """

    policy: NppPolicy
    states: np.ndarray

    def __init__(self, policy: NppPolicy, num_envs: int):
        super().__init__(policy)
        assert policy.memory is not None
        self.states = np.zeros((num_envs, policy.memory.size), np.float32)

    def begin(self, envs: np.ndarray) -> None:
        self.states[envs] = 0

    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        observed = {**obs, RECURRENT_STATE: self.states[envs]}
        actions, self.states[envs] = self.policy.act_and_remember(observed, deterministic=deterministic, rng=rng)
        return actions


def player_of(policy: Any, num_envs: int) -> Player:
    """Return the player that fits a policy, for N environments at the start of their episodes."""
    if isinstance(policy, NppPolicy) and policy.high_level is not None:
        return HierarchicalPlayer(policy, num_envs)
    if isinstance(policy, NppPolicy) and policy.memory is not None:
        return RecurrentPlayer(policy, num_envs)
    return Player(policy)


# Policies for other processes


@dataclass(frozen=True)
class Shipped:
    """A pickled policy for other processes.

    plugins: plug-ins that a process must import before it unpickles the policy.
    """

    pickled: bytes
    plugins: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: Any, own: Iterable[str] = ()) -> "Shipped":
        """Pickle a policy.  own: plug-ins of the policy, whose files must have the same paths on all machines."""
        names = (str(Path(plugin).resolve()) if plugin.endswith(".py") else plugin for plugin in own)
        return cls(pickle.dumps(policy), tuple(names))

    def unpack(self) -> Any:
        """Return the policy, which each process unpickles once.  Raises ConfigError for a missing plug-in.

        The process then computes with one thread, as the results of a network may depend on the number of threads.
        """
        return _unpacked(self)


@lru_cache(maxsize=1)
def _unpacked(shipped: Shipped) -> Any:
    plugins.load(shipped.plugins)
    torch.set_num_threads(1)
    return pickle.loads(shipped.pickled)
