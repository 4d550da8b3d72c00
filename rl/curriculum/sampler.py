"""What every curriculum is: a sampler of levels that hears how episodes ended.

    levels = sampler.draw(512)           # int32[512], what to play next
    sampler.record(played, won)          # when episodes end: the level *played* gets the credit

Cost: O(1) per episode and per draw, whatever the number of levels; memory is one bounded window per category.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from nppsim.errors import ConfigError
from nppsim.generate import CATEGORIES


class Window:
    """The latest outcomes, at most ``size`` of them, with a running sum."""

    def __init__(self, size: int):
        self._ring = bytearray(size)
        self.count = 0  # outcomes in the window
        self._next = 0  # where the next one goes
        self._sum = 0

    def append(self, won: bool) -> None:
        """Add an outcome; the oldest one leaves a full window."""
        if self.count == len(self._ring):
            self._sum -= self._ring[self._next]
        else:
            self.count += 1
        self._ring[self._next] = won
        self._sum += won
        self._next = (self._next + 1) % len(self._ring)

    @property
    def mean(self) -> float:
        """Share of wins; 0 where there are no outcomes."""
        return self._sum / self.count if self.count else 0.0

    def rise(self) -> float:
        """Success of the newer half minus that of the older half; 0 with fewer than two outcomes."""
        values, half = self.values(), self.count // 2
        return sum(values[self.count - half :]) / half - sum(values[:half]) / half if half else 0.0

    def values(self) -> list[int]:
        """Outcomes, oldest first."""
        start = self._next if self.count == len(self._ring) else 0
        return list(self._ring[start : self.count]) + list(self._ring[:start])

    def fill(self, values: Sequence[int]) -> None:
        """Begin anew with these outcomes, oldest first."""
        self.count = self._next = self._sum = 0
        for value in values:
            self.append(bool(value))


class Sampler(ABC):
    """Draws levels category by category, and keeps the latest outcomes of each.

    A strategy says how draws are spread over categories (``shares``) and what follows from an outcome
    (``_after_episode``).

    stages: categories that occur, in the curriculum's order.  stage_of: int32[L], place of each level's category there.
    """

    def __init__(self, categories: Sequence[str], window: int, seed: int):
        names = np.asarray(categories, dtype=str)
        if names.ndim != 1 or not len(names):
            raise ConfigError("a curriculum needs at least one level; the training dataset is empty")
        present = set(names.tolist())
        self.stages = (*(s for s in CATEGORIES if s in present), *sorted(present - set(CATEGORIES)))
        place = {name: index for index, name in enumerate(self.stages)}
        self.stage_of = np.array([place[name] for name in names.tolist()], np.int32)
        self._order = np.argsort(self.stage_of, kind="stable").astype(np.int32)
        self._counts = np.bincount(self.stage_of, minlength=len(self.stages))
        self._first = np.cumsum(self._counts) - self._counts
        self._windows = [Window(window) for _ in self.stages]
        self._episodes = [0] * len(self.stages)  # ended so far
        self._seen = np.zeros(len(names), bool)
        self._rng = np.random.default_rng(seed)
        self.events: list[dict] = []  # what happened, oldest first: a handful per stage

    def seed(self, seed: int) -> None:
        """Begin the sequence of draws anew from this seed; what was recorded stays."""
        self._rng = np.random.default_rng(seed)

    def draw(self, n: int) -> np.ndarray:
        """int32[n]: indices of the levels to play next."""
        cumulative = np.cumsum(self.shares())
        stage = np.searchsorted(cumulative, self._rng.random(n) * cumulative[-1], side="right")
        stage = np.minimum(stage, len(self.stages) - 1)
        within = (self._rng.random(n) * self._counts[stage]).astype(np.int64)
        return self._order[self._first[stage] + within]

    def record(self, levels: Sequence[int] | np.ndarray, wins: Sequence[bool] | np.ndarray) -> None:
        """Take note of episodes that ended.  levels: int[k], the levels played.  wins: bool[k].  Once per episode."""
        levels, wins = np.asarray(levels, np.int64), np.asarray(wins, bool)
        if levels.shape != wins.shape:
            raise ValueError(f"levels and wins differ in shape: {levels.shape}, {wins.shape}")
        self._seen[levels] = True
        for stage, won in zip(self.stage_of[levels].tolist(), wins.tolist(), strict=True):
            self._windows[stage].append(won)
            self._episodes[stage] += 1
            self._after_episode(stage)

    def metrics(self) -> dict[str, float]:
        """Scalars by TensorBoard tag; the success of a stage is missing until an episode of it has ended."""
        result = {"curriculum/episodes": float(sum(self._episodes)), "curriculum/levels_seen": float(self._seen.sum())}
        for name, window, episodes in zip(self.stages, self._windows, self._episodes, strict=True):
            result[f"curriculum_stages/{name}_episodes"] = float(episodes)
            if window.count:
                result[f"curriculum_stages/{name}_success_rate"] = window.mean
        return result

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on, as plain JSON values."""
        return {
            "stages": list(self.stages),
            "level_counts": self._counts.tolist(),
            "windows": [window.values() for window in self._windows],
            "episodes": list(self._episodes),
            "seen": np.packbits(self._seen).tobytes().hex(),
            "rng": self._rng.bit_generator.state,
            "events": [dict(event) for event in self.events],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken; ConfigError if that was with other levels."""
        mine = dict(zip(self.stages, self._counts.tolist(), strict=True))
        theirs = dict(zip(state["stages"], state["level_counts"], strict=True))
        if mine != theirs:
            raise ConfigError(
                f"the saved curriculum has levels {theirs}, this dataset {mine}; go on with the same dataset"
            )
        for window, values in zip(self._windows, state["windows"], strict=True):
            window.fill(values)
        self._episodes = list(state["episodes"])
        packed = np.frombuffer(bytes.fromhex(state["seen"]), np.uint8)
        self._seen = np.unpackbits(packed, count=len(self._seen)).astype(bool)
        self._rng.bit_generator.state = state["rng"]
        self.events = [dict(event) for event in state["events"]]

    @abstractmethod
    def shares(self) -> np.ndarray:
        """float64[stages], sums to 1: how the next draws are spread over the categories."""

    @abstractmethod
    def _after_episode(self, stage: int) -> None:
        """What follows from an outcome that was recorded for ``stage``."""


class UniformSampler(Sampler):
    """Every level is equally likely, always; success is recorded by category, as in the curriculum."""

    def shares(self) -> np.ndarray:
        return self._counts / self._counts.sum()

    def _after_episode(self, stage: int) -> None:
        pass
