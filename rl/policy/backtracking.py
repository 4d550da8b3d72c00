"""Backtracking: play a policy ahead in the simulator, and return to earlier states where it fails.

    player = with_backtracking(player_of(policy, sim.num_envs, patience), sim, horizon=80)
    actions = player.act(obs, envs, deterministic=True, rng=rng)      # as for every player
    sim.step(actions)
    for env, count in player.backtrack(rng).items():                  # the last ``count`` decisions were undone
        del played[env][-count:]

An action is final once the episode is ``horizon`` decisions ahead of it; until then, it can be undone.  In the real game, an
agent would simulate ``horizon`` decisions before it makes the first one.

Source: Tesauro and Galperin 1996, who simulate the policy itself before each decision.  Returning to earlier states where
the simulation fails is this project's method.
"""

from collections.abc import Mapping

import numpy as np
import torch

from nppsim.batch import BatchSimulator
from nppsim.physics.outcomes import DIED
from rl.policy.constants import (
    DEPTH_STEP,
    MAX_DEATH_RETRIES,
    MAX_PHASE_RETRIES,
    MIN_DEPTH,
    PASSED_DECISIONS,
)
from rl.policy.player import LOOK_AHEAD, Player, act_in_part

MAX_HORIZON = 10_000  # decisions


class BacktrackingPlayer(Player):
    """Player that undoes decisions where its episodes fail, in N environments of one simulator.

    An episode fails where the ninja dies, and where a phase of exploration ends without a shorter path to the exit.  After
    a death, the player backtracks by a random number of decisions and samples as many actions; the range of this number
    grows with each retry.  After a failed phase of exploration, it returns to the beginning of the phase and explores again.
    It never goes back more than ``horizon`` decisions behind the farthest state of the episode.  It accepts a failure after
    MAX_DEATH_RETRIES or MAX_PHASE_RETRIES retries.

    inner: player whose actions are played.
    simulator: the simulator of the episodes.
    horizon: number of decisions, at least 1.
    """

    def __init__(self, inner: Player, simulator: BatchSimulator, horizon: int):
        super().__init__(inner.policy)
        self.inner, self.horizon, self._simulator = inner, horizon, simulator
        self.subtasks = inner.subtasks
        count = simulator.num_envs
        # State before each of the latest decisions; decision i is in column i % (horizon + 1).
        self._snapshots = [[np.empty(0, np.uint8)] * (horizon + 1) for _ in range(count)]
        self._stored_states = [
            np.empty((count, horizon + 1, *array.shape[1:]), array.dtype) for array in inner.episode_state
        ]
        self._decisions = np.zeros(count, np.int64)  # of the episode so far
        self._farthest = np.zeros(count, np.int64)  # largest number of decisions of the episode so far
        self._failed = np.zeros(count, np.int64)  # number of decisions at the latest failure
        self._tries = np.zeros((count, 2), np.int64)  # retries after phases and after deaths, for the latest failure
        self._sampled = np.zeros(count, np.int64)  # number of decisions that are still sampled
        self._acting = np.empty(0, np.int64)  # environments of the last call of ``act``

    def begin(self, envs: np.ndarray) -> None:
        """See ``Player``."""
        self.inner.begin(envs)
        for values in (self._decisions, self._farthest, self._failed, self._tries, self._sampled):
            values[envs] = 0

    def act(
        self, obs: Mapping[str, np.ndarray], envs: np.ndarray, *, deterministic: bool, rng: torch.Generator | None
    ) -> np.ndarray:
        """See ``Player``."""
        decisions, left = self._decisions[envs], self._sampled[envs]
        column = decisions % (self.horizon + 1)
        for env, at in zip(envs, column, strict=True):
            self._snapshots[env][at] = self._simulator.compact_snapshot(env)
        for past, now in zip(self._stored_states, self.inner.episode_state, strict=True):
            past[envs, column] = now[envs]
        actions = act_in_part(self.inner, obs, envs, left > 0, deterministic=deterministic, rng=rng)
        self._sampled[envs] = np.maximum(left - 1, 0)
        self._decisions[envs] = decisions = decisions + 1
        self._farthest[envs] = np.maximum(self._farthest[envs], decisions)
        self._tries[envs[decisions > self._failed[envs] + PASSED_DECISIONS]] = 0
        self._acting = envs
        return actions

    def backtrack(self, rng: torch.Generator | None, final: int = 0) -> dict[int, int]:
        """See ``Player``."""
        sim, envs = self._simulator, self._acting
        ended = (sim.terminated | sim.truncated)[envs]
        explored = ~ended & self.inner.exploration_failed(sim.obs, envs)
        if not (ended | explored).any():
            return {}
        died = ended & (sim.episode["outcome"][envs] == DIED)
        tries = self._tries[envs, died.astype(int)]
        fails = (died & (tries < MAX_DEATH_RETRIES)) | (explored & (tries < MAX_PHASE_RETRIES))
        if not fails.any():
            return {}
        envs, died, tries = envs[fails], died[fails], tries[fails]
        deepest = np.minimum(MIN_DEPTH + DEPTH_STEP * (tries + 1), self.horizon)
        drawn = MIN_DEPTH + torch.rand(len(envs), generator=rng).numpy() * (deepest + 1 - MIN_DEPTH)
        wanted = self._decisions[envs] - np.where(died, drawn.astype(np.int64), self.inner.phase)
        start = np.maximum(wanted, np.maximum(self._farthest[envs] - self.horizon, final))
        count = self._decisions[envs] - start
        envs, died, start, count = (values[count > 0] for values in (envs, died, start, count))
        if len(envs):
            self._failed[envs] = np.maximum(self._failed[envs], self._decisions[envs])
            self._tries[envs, died.astype(int)] += 1
            self._decisions[envs], self._sampled[envs] = start, np.where(died, count, 0)
            column = start % (self.horizon + 1)
            for past, now in zip(self._stored_states, self.inner.episode_state, strict=True):
                now[envs] = past[envs, column]
            for env, at in zip(envs, column, strict=True):
                sim.restore_compact(env, self._snapshots[env][at])
            sim.observe(envs)
        return dict(zip(envs.tolist(), count.tolist(), strict=True))


def with_backtracking(player: Player, simulator: BatchSimulator, horizon: int) -> Player:
    """Return a ``BacktrackingPlayer``, or the player itself if ``horizon`` is 0 or its policy does not observe foresight.

    Policies without foresight play without a simulator.  Raises ValueError for a horizon out of 0 to MAX_HORIZON.
    """
    if not 0 <= horizon <= MAX_HORIZON:
        raise ValueError(f"horizon must be 0 to {MAX_HORIZON:,} decisions; got {horizon}")
    looks_ahead = LOOK_AHEAD in getattr(player.policy, "observations", ())
    return BacktrackingPlayer(player, simulator, horizon) if horizon and looks_ahead else player
