"""Evaluation: play fixed episodes on fixed levels, and keep of each exactly what is needed to play it again.

    suite = EvaluationSuite(pairs, episodes_per_category=20, seed=1, frame_skip=4, observations=policy.observations)
    records = suite.run(policy, deterministic=False)       # as often as you like; the levels are compiled once

Every run of a suite plays the same levels equally often, with the same random numbers.  An episode ends by winning,
by dying or by the level's own limit of frames, never by the clock, so a slow machine gets the same result.  All
episodes begun are counted: stopping at the first so many to end would favour short ones.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import torch

from nppsim.batch import ACTION_INPUT, DIED, NUM_ACTIONS, TIMEOUT, WON, BatchSimulator, LevelBank
from nppsim.level import Level
from nppsim.observe import layout
from rl.config import ConfigError, EvaluationConfig
from rl.results import EpisodeRecord

OUTCOME_NAMES = {TIMEOUT: "timeout", WON: "won", DIED: "died"}


class Policy(Protocol):
    """Whatever acts."""

    def act(self, obs: dict[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        """int64[N]: an action, 0..5, for each row of the raw observations ``obs`` (key -> [N, ...])."""


class RandomPolicy:
    """Every action equally likely: what any trained agent has to beat.  It has no likeliest action to be greedy with."""

    def act(self, obs, *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        return torch.randint(NUM_ACTIONS, (_rows(obs),), generator=rng).numpy()


class NoOpPolicy:
    """Presses nothing."""

    def act(self, obs, *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        return np.zeros(_rows(obs), np.int64)


class EvaluationSuite:
    """Levels chosen once, to be played by any number of policies.

    levels: (level, category) pairs, or a LevelSet.  episodes_per_category: spread over the category's levels, each played
    equally often give or take one, in an order that ``seed`` fixes; None: every level once.  frame_skip, observations:
    as in training.  num_envs: environments stepped together; like ``seed`` it is part of what makes runs comparable,
    since sampled actions are drawn for the whole batch at once.
    Raises ConfigError if there are no levels, LevelError for a level that cannot be built.
    """

    def __init__(
        self,
        levels: Iterable[tuple[Level, str]],
        *,
        episodes_per_category: int | None,
        seed: int,
        frame_skip: int,
        observations: Sequence[str] = layout.VISION_FREE,
        num_envs: int = 64,
        threads: int | None = None,
    ):
        pairs = list(levels)
        if not pairs:
            raise ConfigError("there are no levels to evaluate on; give a folder that holds some")
        if episodes_per_category is not None and episodes_per_category < 1:
            raise ConfigError(f"episodes_per_category={episodes_per_category}; give at least 1")
        self.seed = seed
        self.level_index = _schedule([category for _, category in pairs], episodes_per_category, seed)
        chosen = np.unique(self.level_index)
        self._pairs = pairs
        self._row = {int(level): row for row, level in enumerate(chosen)}  # place in the bank of each level chosen
        self.bank = LevelBank([pairs[i][0] for i in chosen])
        self._sim = BatchSimulator(
            self.bank,
            min(num_envs, len(self.level_index)),
            frame_skip=frame_skip,
            observations=observations,
            threads=threads,
        )

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories that are played, in the order of the levels."""
        return tuple(dict.fromkeys(self._pairs[i][1] for i in np.sort(self.level_index)))

    def __len__(self) -> int:
        """Episodes of one run."""
        return len(self.level_index)

    def run(
        self, policy: Policy, *, deterministic: bool, progress: Callable[[int], None] | None = None
    ) -> list[EpisodeRecord]:
        """Play all episodes and return their records in the order of the schedule.

        progress: called with the number of episodes that have just ended.
        """
        rng = torch.Generator().manual_seed(self.seed)
        sim, total = self._sim, len(self)
        rows = np.array([self._row[int(level)] for level in self.level_index], np.int32)
        slots = sim.num_envs
        episode_of = np.arange(slots)  # episode that each environment plays; ``total`` or more: it is idle
        following = slots  # the first episode that has no environment yet
        pressed: list[list[int]] = [[] for _ in range(total)]
        records: list[EpisodeRecord | None] = [None] * total

        upcoming = np.arange(slots, 2 * slots)  # episode that each environment would play after this one; see below
        obs = sim.reset(rows[episode_of])
        actions = np.zeros(slots, np.int64)
        while following < total or (episode_of < total).any():
            active = np.flatnonzero(episode_of < total)
            actions[:] = 0
            seen = obs if len(active) == slots else {key: values[active] for key, values in obs.items()}
            actions[active] = policy.act(seen, deterministic=deterministic, rng=rng)
            for env in active:
                pressed[episode_of[env]].append(actions[env])
            # Environments restart inside the step; which of them is not known before, so each is offered the next
            # episode in line, and those that really end are sorted out afterwards.
            sim.next_level[:] = rows[np.minimum(following, total - 1)]
            obs = sim.step(actions)
            ended = [env for env in sim.finished if episode_of[env] < total]
            for env in ended:
                records[episode_of[env]] = self._record(int(episode_of[env]), sim.episode[env], pressed)
            del upcoming
        return records
