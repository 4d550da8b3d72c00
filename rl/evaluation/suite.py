"""Evaluation: play fixed episodes on fixed levels and record them.

    suite = EvaluationSuite("datasets/dev")     # the defaults of scripts/evaluate.py
    records = suite.run(policy)                 # can be repeated, also with other policies; levels are compiled once

Every run of a suite plays the same levels equally often, with the same random numbers.  An episode ends with a win, a
death or after the game's time limit, which can be longer than in training.  All episodes begun are counted: stopping after
a number of ended episodes would favour short episodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from nppsim.actions import ACTION_INPUT, FRAME_SKIP, NUM_ACTIONS
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.physics import outcomes
from nppsim.reward import GAMMA, RewardConfig
from rl.config.evaluation import EvaluationConfig
from rl.evaluation.levels import Pairs, read_pairs
from rl.evaluation.results import EpisodeRecord
from rl.policy.backtracking import with_backtracking
from rl.policy.constants import HORIZON, PATIENCE
from rl.policy.inference import compiled
from rl.policy.player import player_of


class Policy(Protocol):
    """Interface of a policy.

    Optional attributes: ``observations``, names or keys of ``layout`` (default: those of ``NppEnv``), ``stacking``
    (default: none) and ``foresight`` (default: ``FORESIGHT``).
    """

    def act(self, obs: dict[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        """Return an action int64[N], 0..5, for each row of the raw observations ``obs`` (key -> [N, ...])."""


CHEAPEST = ("game_state",)  # observations of policies that use none


class RandomPolicy:
    """Baseline with uniformly random actions, also if ``deterministic``."""

    observations = CHEAPEST

    def act(self, obs: dict[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        """See ``Policy``."""
        return torch.randint(NUM_ACTIONS, (_rows(obs),), generator=rng).numpy()


class NoOpPolicy:
    """Baseline that never presses a key."""

    observations = CHEAPEST

    def act(self, obs: dict[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        """See ``Policy``."""
        return np.zeros(_rows(obs), np.int64)


class RecordedPolicy:
    """Policy that takes recorded actions in one environment.

    actions: action of each decision, 0..5.
    policy: policy that is also evaluated, for its outputs; None: no policy.
    """

    def __init__(self, actions: Iterable[int], policy: Any = None):
        self._actions, self._policy = iter(actions), policy
        self.observations: tuple[str, ...] = CHEAPEST if policy is None else policy.observations

    def act(self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        """See ``Policy``."""
        if self._policy is not None:
            self._policy.act(obs, deterministic=deterministic, rng=rng)
        return np.array([next(self._actions)], np.int64)


class EvaluationSuite:
    """Fixed episodes for any number of policies, which are simulated with the observations of each policy.

    levels: (level, category) pairs, or one or several paths of levels and folders (``read_pairs``).
    episodes_per_category: number of episodes per category, distributed evenly over its levels in an order that depends
        on ``seed``; None: ``episodes_per_level`` episodes on every level.
    seed: seed of this order and of sampled actions.
    frame_skip: frames per decision, as in training.
    reward, gamma: reward settings and discount of the simulator, which affect the recorded returns.
    num_envs: number of environments stepped together.  Sampled actions depend on it, as they are drawn for the whole batch.
    threads: number of threads of the simulator.
    patience: decisions without progress after which policies explore, see ``ExploringPlayer``; 0: never.
    horizon: decisions that can be taken back, see ``BacktrackingPlayer``; 0: none.
    Raises ConfigError if there are no levels, LevelSetError if they cannot be read.
    """

    def __init__(
        self,
        levels: Iterable[tuple[Level, str]] | Sequence[str | Path] | str | Path,
        *,
        episodes_per_category: int | None = None,
        episodes_per_level: int = 1,
        seed: int = EvaluationConfig.seed,
        frame_skip: int = FRAME_SKIP,
        reward: str | RewardConfig = "default",
        gamma: float = GAMMA,
        num_envs: int = 64,
        threads: int | None = None,
        patience: int = PATIENCE,
        horizon: int = HORIZON,
    ):
        pairs = _pairs(levels)
        categories = [category for _, category in pairs]
        if not categories:
            raise ConfigError("there are no levels to evaluate on; give a folder with levels")
        for name, value in (("category", episodes_per_category), ("level", episodes_per_level)):
            if value is not None and value < 1:
                raise ConfigError("give at least 1", f"episodes_per_{name}", value)
        self.seed, self.frame_skip, self.patience, self.horizon = seed, frame_skip, patience, horizon
        self.level_index = _schedule(categories, episodes_per_category, episodes_per_level, seed)
        chosen, rows = np.unique(self.level_index, return_inverse=True)
        self._rows = rows.astype(np.int32)  # index in the bank of each episode's level
        self._category = [categories[i] for i in self.level_index]
        self.bank = LevelBank([pairs[i][0] for i in chosen], least_time=GAME_TIME)
        self._make_simulator = partial(
            BatchSimulator,
            self.bank,
            min(num_envs, len(self.level_index)),
            frame_skip=frame_skip,
            reward=reward,
            gamma=gamma,
            threads=threads,
        )
        self._simulators: dict[tuple[tuple[str, ...], Stacking, Foresight], BatchSimulator] = {}

    def __len__(self) -> int:
        """Number of episodes of a run."""
        return len(self.level_index)

    def run(
        self, policy: Policy, *, deterministic: bool = False, progress: Callable[[int], None] | None = None
    ) -> list[EpisodeRecord]:
        """Play all episodes; return their records in a fixed order.

        progress: function that is called with the number of episodes that have just ended.
        """
        rng = torch.Generator().manual_seed(self.seed)
        sim, total = self._simulator(policy), len(self)
        # Number of each environment's episode; from ``total`` on, no episode is left.  An environment plays every
        # num_envs-th episode, so the assignment does not depend on the lengths of episodes.
        playing = np.arange(sim.num_envs)
        pressed: list[list[int]] = [[] for _ in range(sim.num_envs)]
        subtasks: list[list[np.ndarray]] = [[] for _ in range(sim.num_envs)]
        backtracks = np.zeros(sim.num_envs, np.int64)  # how often decisions of the episode were taken back
        player = with_backtracking(player_of(compiled(policy), sim.num_envs, self.patience), sim, self.horizon)
        records: dict[int, EpisodeRecord] = {}
        obs = sim.reset(self._bank_row(playing))
        sim.next_level[:] = self._bank_row(playing + sim.num_envs)
        actions = np.zeros(sim.num_envs, np.int64)
        while len(records) < total:
            active = np.flatnonzero(playing < total)
            seen = obs if len(active) == len(playing) else {key: values[active] for key, values in obs.items()}
            actions[:] = 0
            actions[active] = player.act(seen, active, deterministic=deterministic, rng=rng)
            for env in active:
                pressed[env].append(actions[env])
                if player.subtasks is not None:
                    subtasks[env].append(player.subtasks[env].copy())
            obs = sim.step(actions, asleep=None if seen is obs else playing >= total)
            backtracked = player.backtrack(rng)
            ended = [env for env in sim.finished if env not in backtracked]
            for env in ended:
                episode = sim.episode[env]
                records[playing[env]] = self._record(
                    playing[env], episode, pressed[env], subtasks[env], backtracks[env]
                )
                pressed[env], subtasks[env], backtracks[env] = [], [], 0
                playing[env] += sim.num_envs
            for row, count in backtracked.items():
                backtracks[row] += 1
                for values in (pressed, subtasks):
                    del values[row][-count:]
            if ended:
                player.begin(np.array(ended))
                sim.next_level[:] = self._bank_row(playing + sim.num_envs)
                if progress is not None:
                    progress(len(ended))
        return [records[number] for number in range(total)]

    def _simulator(self, policy: Policy) -> BatchSimulator:
        """Return the simulator with the observations of a policy, which is made on first use."""
        keys = layout.observation_keys(getattr(policy, "observations", layout.VISION_FREE))
        stacking = getattr(policy, "stacking", NO_STACKS)
        foresight = getattr(policy, "foresight", FORESIGHT)
        if (keys, stacking, foresight) not in self._simulators:
            made = self._make_simulator(observations=keys, stacking=stacking, foresight=foresight)
            self._simulators[keys, stacking, foresight] = made
        return self._simulators[keys, stacking, foresight]

    def _bank_row(self, episodes: np.ndarray) -> np.ndarray:
        """Return the index in the bank of each episode's level, int32[N]; numbers beyond the last episode mean the last."""
        return self._rows[np.minimum(episodes, len(self._rows) - 1)]

    def _record(
        self, number: int, episode: np.void, actions: list[int], subtasks: list[np.ndarray], backtracks: int
    ) -> EpisodeRecord:
        """Return the record of an ended episode."""
        frames = int(episode["frames"])
        level = self.bank.levels[episode["level"]]
        return EpisodeRecord(
            level_index=int(self.level_index[number]),
            level_name=level.name,
            category=self._category[number],
            level=level,
            inputs=np.repeat(ACTION_INPUT[np.array(actions)], self.frame_skip)[:frames],
            outcome=outcomes.NAMES[episode["outcome"]],
            frames=frames,
            decisions=len(actions),
            ret=float(episode["ret"]),
            gold=int(episode["gold"]),
            path_length=float(self.bank.path_length[episode["level"]]),
            subtasks=np.array(subtasks) if subtasks else None,
            backtracks=int(backtracks),
        )


def _pairs(levels: Iterable[tuple[Level, str]] | Sequence[str | Path] | str | Path) -> Pairs:
    """Return levels with their categories; read those at paths."""
    items = [levels] if isinstance(levels, str | Path) else list(levels)
    if all(isinstance(item, str | Path) for item in items):
        return read_pairs([item for item in items if isinstance(item, str | Path)])
    if not all(isinstance(item, tuple) and len(item) == 2 for item in items):
        raise ConfigError("levels of an evaluation are paths, or pairs (level, category)")
    return [item for item in items if isinstance(item, tuple)]


def _schedule(
    categories: Sequence[str], episodes_per_category: int | None, episodes_per_level: int, seed: int
) -> np.ndarray:
    """Return the index of each episode's level, int64[episodes]."""
    if episodes_per_category is None:
        return np.repeat(np.arange(len(categories)), episodes_per_level)
    names = np.asarray(categories)
    parts = []
    for category in dict.fromkeys(categories):  # in the order of first appearance
        own = np.random.default_rng(seed).permutation(np.flatnonzero(names == category))
        parts.append(np.resize(own, episodes_per_category))
    return np.concatenate(parts)


def _rows(obs: dict[str, np.ndarray]) -> int:
    return len(next(iter(obs.values())))
