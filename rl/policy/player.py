"""Players: policies with the state of their current episodes, for a batch of environments.

    player = player_of(policy, num_envs)
    actions = player.act(obs, envs, deterministic=False, rng=rng)     # obs: observations [k, ...] of the environments envs
    player.begin(envs)                                                # at the start of their next episodes

With ``deterministic``, the most probable subtask is chosen; otherwise subtasks are sampled.

Source of ``ExploringPlayer``: Dabney et al. 2021 (repeated exploratory actions).
"""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.observe import layout
from rl import plugins
from rl.policy.constants import BURST, MAX_REPEAT
from rl.policy.inference import death_penalty
from rl.policy.policy import NppPolicy, sample_actions
from rl.policy.recurrent import RECURRENT_STATE
from rl.policy.subtasks import SUBTASK, ActiveSubtasks

PATH, LOOK_AHEAD = "reachability_features", "foresight"
_PATH = layout.slots(layout.SPECS[PATH].components)
# State of an ``ExploringPlayer``: px, shortest path to the exit in this episode; decisions since the path last became
# shorter; the repeated action; decisions for which it is still repeated.
_EXPLORATION = {"shortest": "f8", "waiting": "i8", "action": "i8", "repeats": "i8"}


class Player:
    """Player of a policy without state.

    policy: any object with a method ``act`` as in NppPolicy.
    subtasks: int64[N, 2], the active subtasks; None without subtasks.
    episode_state: arrays [N, ...], the complete state of the player in each episode.
    phase: number of decisions of a phase of exploration, see ``exploration_failed``.
    """

    subtasks: np.ndarray | None = None
    episode_state: tuple[np.ndarray, ...] = ()
    phase = 2 * BURST

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

    def exploration_failed(self, obs: Mapping[str, np.ndarray], envs: np.ndarray) -> np.ndarray:
        """Return True where a phase of exploration has ended without a shorter path to the exit, bool[k].

        obs: observations [N, ...] of all environments, after the last actions.
        """
        return np.zeros(len(envs), bool)

    def backtrack(self, rng: torch.Generator | None, final: int = 0) -> dict[int, int]:
        """Return to earlier states of episodes, after a step of the simulator; see ``BacktrackingPlayer``.

        final: number of decisions of each episode that cannot be undone.
        The simulator has the observations of these states.  Returns environment -> number of undone decisions.
        """
        return {}


class HierarchicalPlayer(Player):
    """Player of a hierarchical policy in N environments."""

    policy: NppPolicy

    def __init__(self, policy: NppPolicy, num_envs: int):
        super().__init__(policy)
        assert policy.high_level is not None
        self._subtasks = ActiveSubtasks(num_envs, policy.high_level.max_decisions)
        self._begins = np.ones(num_envs, bool)
        self.subtasks = self._subtasks.active
        self.episode_state = (self._subtasks.active, self._subtasks.start_quantities, self._begins)

    def begin(self, envs: np.ndarray) -> None:
        self._begins[envs] = True

    @torch.no_grad()
    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        over, _ = self._subtasks.step(obs, self._begins[envs], envs)
        if over.any():
            selected = {key: values[over] for key, values in obs.items()}
            logits = self.policy.choose_subtasks(self.policy.to_tensors(selected))[0].cpu()
            chosen = logits.argmax(dim=1) if deterministic else sample_actions(logits, rng)
            self._subtasks.start(envs[over], chosen.numpy(), selected)
        self._begins[envs] = False
        observed = {**obs, SUBTASK: self._subtasks.active[envs]}
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
        self.episode_state = (self.states,)

    def begin(self, envs: np.ndarray) -> None:
        self.states[envs] = 0

    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        observed = {**obs, RECURRENT_STATE: self.states[envs]}
        actions, self.states[envs] = self.policy.act_with_states(observed, deterministic=deterministic, rng=rng)
        return actions


class ExploringPlayer(Player):
    """Player that explores in episodes without progress, where a policy may repeat itself until the time limit.

    After ``patience`` decisions without a new shortest path to the exit, it alternates BURST decisions of exploration and
    BURST decisions of the inner player, until the path gets shorter.  Exploration samples an action of the policy and
    repeats it for 1 to MAX_REPEAT decisions, or until look-ahead calls it deadly.

    inner: player whose policy observes ``reachability_features``.
    """

    def __init__(self, inner: Player, num_envs: int, patience: int):
        super().__init__(inner.policy)
        self.inner, self.patience = inner, patience
        self.subtasks = inner.subtasks
        own = np.zeros(num_envs, [*_EXPLORATION.items()])
        self._shortest, self._waiting, self._action, self._repeats = (own[name] for name in _EXPLORATION)
        self._shortest[:] = np.inf
        self.episode_state = (*inner.episode_state, own)

    def begin(self, envs: np.ndarray) -> None:
        self.inner.begin(envs)
        self._shortest[envs], self._waiting[envs], self._repeats[envs] = np.inf, 0, 0

    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        path, shortest = obs[PATH][:, _PATH.path_to_exit], self._shortest[envs]
        waiting = np.where(path < shortest, 0, self._waiting[envs] + 1)
        self._shortest[envs], self._waiting[envs] = np.minimum(path, shortest), waiting
        over = waiting - self.patience
        explores = (over >= 0) & (over // BURST % 2 == 0)
        actions = act_in_part(self.inner, obs, envs, explores, deterministic=deterministic, rng=rng)
        self._repeats[envs[~explores]] = 0
        if explores.any():
            deadly = self._deadly(obs, explores, envs)
            new = explores & ((self._repeats[envs] == 0) | deadly)
            lengths = torch.randint(1, MAX_REPEAT + 1, (len(envs),), generator=rng).numpy()
            self._action[envs[new]], self._repeats[envs[new]] = actions[new], lengths[new]
            actions[explores] = self._action[envs[explores]]
            self._repeats[envs[explores]] -= 1
        return actions

    def exploration_failed(self, obs: Mapping[str, np.ndarray], envs: np.ndarray) -> np.ndarray:
        """See ``Player``."""
        over = self._waiting[envs] - self.patience
        if over.max(initial=-1) < 0:
            return np.zeros(len(envs), bool)
        longer = obs[PATH][envs, _PATH.path_to_exit] >= self._shortest[envs]
        return (over >= 0) & (over % self.phase == self.phase - 1) & longer

    def _deadly(self, obs: Mapping[str, np.ndarray], explores: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """Return True where look-ahead calls the repeated action deadly, bool[k]; False without a shield."""
        deadly = np.zeros(len(envs), bool)
        if getattr(self.policy, "shielded", LOOK_AHEAD in self.policy.observations):
            penalty = death_penalty(obs[LOOK_AHEAD][explores])
            deadly[explores] = penalty[np.arange(len(penalty)), self._action[envs[explores]]] > 0
        return deadly


def act_in_part(
    player: Player,
    obs: Mapping[str, np.ndarray],
    envs: np.ndarray,
    sampled: np.ndarray,
    *,
    deterministic: bool,
    rng: torch.Generator | None,
) -> np.ndarray:
    """Return the actions of a player, int64[k], which are sampled where ``sampled``, bool[k], also if ``deterministic``."""
    if not deterministic:
        return player.act(obs, envs, deterministic=False, rng=rng)
    actions = np.empty(len(envs), np.int64)
    for own, greedy in ((~sampled, True), (sampled, False)):
        if own.any():
            selected = obs if own.all() else {key: values[own] for key, values in obs.items()}
            actions[own] = player.act(selected, envs[own], deterministic=greedy, rng=rng)
    return actions


def player_of(policy: Any, num_envs: int, patience: int = 0) -> Player:
    """Return the player that fits a policy, for N environments at the start of their episodes.

    patience: decisions without progress after which an ``ExploringPlayer`` explores; 0: never.  Policies that do not
        observe path lengths never explore.
    """
    player = Player(policy)
    if isinstance(policy, NppPolicy) and policy.high_level is not None:
        player = HierarchicalPlayer(policy, num_envs)
    elif isinstance(policy, NppPolicy) and policy.memory is not None:
        player = RecurrentPlayer(policy, num_envs)
    explores = patience > 0 and PATH in getattr(policy, "observations", ())
    return ExploringPlayer(player, num_envs, patience) if explores else player


# Policies for other processes


@dataclass(frozen=True)
class PickledPolicy:
    """A pickled policy for other processes.

    plugins: plug-ins that a process must import before it unpickles the policy.
    """

    pickled: bytes
    plugins: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: Any, own: Iterable[str] = ()) -> "PickledPolicy":
        """Pickle a policy.  own: names of its plug-ins; their files must have the same paths on all machines."""
        names = (str(Path(plugin).resolve()) if plugin.endswith(".py") else plugin for plugin in own)
        return cls(pickle.dumps(policy), tuple(names))

    def unpack(self) -> Any:
        """Return the policy, which each process unpickles once.  Raises ConfigError for a missing plug-in.

        The process then computes with one thread, as the results of a network may depend on the number of threads.
        """
        return _unpacked(self)


@lru_cache(maxsize=1)
def _unpacked(policy: PickledPolicy) -> Any:
    plugins.load(policy.plugins)
    torch.set_num_threads(1)
    return pickle.loads(policy.pickled)
