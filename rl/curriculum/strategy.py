"""Base class of strategies: a probability distribution over levels, recomputed once per update from finished episodes.

    class Failures(Strategy):
        saved = ("lost",)  # attributes saved in checkpoints

        def __init__(self, levels, config, rng):
            super().__init__(levels, config, rng)
            self.lost = np.ones(len(levels))

        def update(self, outcomes):
            np.add.at(self.lost, outcomes.levels[~outcomes.won], 1)
            self.weigh(self.lost)

A draw is a binary search in the cumulative sum of the weights, O(log levels).  An update should be a few passes over all
levels and episodes in numpy.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from nppsim.errors import ConfigError
from nppsim.generate import CATEGORIES
from rl.config.curriculum import CurriculumConfig

THIRDS = 3  # number of parts of equal size into which the levels of a group are divided by difficulty


@dataclass(frozen=True)
class Levels:
    """The L levels to draw from."""

    # Categories, easiest first: those of the configured order, then those of ``nppsim.generate``, then others by name.
    names: tuple[str, ...]
    category: np.ndarray  # int32[L], index of the category of each level in ``names``
    group: np.ndarray  # int32[L], number of the level's pair (category, generator)
    third: np.ndarray  # int8[L], 0 to 2: in the easiest, middle or hardest third of its group

    @staticmethod
    def of(
        categories: Sequence[str],
        difficulty: np.ndarray | None = None,
        order: Sequence[str] = (),
        generators: Sequence[str] | None = None,
    ) -> "Levels":
        """Group levels by category, generator and difficulty.

        categories: category of each of the L levels.
        difficulty: [L] on any scale; None: all levels are in the first third.
        order: some of the categories, easiest first.
        generators: name of each level's generator; None: one generator per category.
        Raises ConfigError if there are no levels, and for unknown categories in ``order``.
        """
        labels = np.asarray(categories, dtype=str)
        if labels.ndim != 1 or not len(labels):
            raise ConfigError("a curriculum needs at least one level; the training dataset is empty")
        present = set(labels.tolist())
        if absent := sorted(set(order) - present):
            advice = f"no training level has this category; the categories are {', '.join(sorted(present))}"
            raise ConfigError(advice, "--curriculum-stage-order", absent[0])
        names = tuple(dict.fromkeys((*order, *(name for name in CATEGORIES if name in present), *sorted(present))))
        number = {name: index for index, name in enumerate(names)}
        category = np.array([number[name] for name in labels.tolist()], np.int32)
        generator = np.zeros(len(labels), np.int64)
        if generators is not None:
            generator = np.unique(generators, return_inverse=True)[1]
        pairs = np.stack([category, generator], axis=1)
        group = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)
        third = np.zeros(len(labels), np.int8)
        if difficulty is not None:
            for group_number in range(int(group.max()) + 1):
                members = np.flatnonzero(group == group_number)
                easiest = members[np.argsort(np.asarray(difficulty)[members], kind="stable")]
                third[easiest] = np.arange(len(easiest)) * THIRDS // len(easiest)
        return Levels(names, category, group, third)

    def __len__(self) -> int:
        return len(self.category)

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of levels in each category, int64[C]."""
        return np.bincount(self.category, minlength=len(self.names))

    @cached_property
    def cell(self) -> np.ndarray:
        """Number of the cell of each level, int64[L].  A cell has the levels of one third of a group."""
        return self.group.astype(np.int64) * THIRDS + self.third

    @cached_property
    def cells(self) -> int:
        """Number of cells, including empty ones."""
        return (int(self.group.max()) + 1) * THIRDS


@dataclass(frozen=True)
class Outcomes:
    """Episodes since the previous update."""

    # Finished episodes, in the order in which they ended.
    levels: np.ndarray  # int64[k], level
    won: np.ndarray  # bool[k], True for wins
    returns: np.ndarray  # float64[k], undiscounted return
    began: np.ndarray  # int64[k], number of updates at the start of the episode
    # Unfinished episodes, one per environment.
    running: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # int64[N], level
    running_began: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # int64[N], updates at its start
    # Decisions of the rollout; empty unless ``wants_advantages``.
    decided: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # int64[m], level
    advantages: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))  # float32[m], estimated advantage

    @staticmethod
    def none() -> "Outcomes":
        """Return an object without episodes."""
        return Outcomes(np.empty(0, np.int64), np.empty(0, bool), np.empty(0), np.empty(0, np.int64))


class Strategy(ABC):
    """Draws levels with weights that ``update`` sets.  The manager seeds and saves ``rng``."""

    _cumulative: np.ndarray
    _last: int
    _probabilities: np.ndarray | None
    saved: ClassVar[tuple[str, ...]] = ()  # names of the attributes (arrays, plain values) that checkpoints contain
    wants_advantages: ClassVar[bool] = False  # True if ``update`` needs the advantages of the rollout

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        self.levels, self.config, self.rng = levels, config, rng
        self.events: list[dict] = []  # rare events such as changes of stage, oldest first
        self.weigh(np.ones(len(levels)))

    def weigh(self, weights: np.ndarray) -> None:
        """Set the distribution.  weights: float[L], non-negative and not all 0."""
        cumulative = np.cumsum(weights, dtype=np.float64)
        total = float(cumulative[-1])
        if not (np.isfinite(total) and total > 0 and weights.min() >= 0):
            values = f"lowest {weights.min()}, sum {total}"
            raise ValueError(
                f"{type(self).__name__}: weights of levels must be finite, at least 0 and not all 0; {values}"
            )
        self._draw_by(cumulative)

    def _draw_by(self, cumulative: np.ndarray) -> None:
        self._cumulative, self._probabilities = cumulative, None
        self._last = int(np.searchsorted(cumulative, cumulative[-1]))  # last level with a positive weight

    def probabilities(self) -> np.ndarray:
        """Return the probability of each level in the next draw, float64[L], read-only."""
        if self._probabilities is None:
            self._probabilities = np.diff(self._cumulative, prepend=0.0) / self._cumulative[-1]
            self._probabilities.flags.writeable = False
        return self._probabilities

    def draw(self, n: int) -> np.ndarray:
        """Draw ``n`` levels; return their indices int32[n]."""
        points = self.rng.random(n) * self._cumulative[-1]
        # a point that is rounded up to the end of the range belongs to the last level with a positive weight
        return np.minimum(self._cumulative.searchsorted(points, side="right"), self._last).astype(np.int32)

    @abstractmethod
    def update(self, outcomes: Outcomes) -> None:
        """Set new weights (``weigh``) from the latest episodes.  Called once per update of the policy."""

    @property
    def stage(self) -> str:
        """Current category of a strategy with stages, else ""."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Return scalars by TensorBoard tag that are cheap to compute.  Called at each update."""
        return {}

    def details(self) -> dict[str, float]:
        """Return scalars by TensorBoard tag that need a pass over all levels.  Called less often with many levels."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values and copies of arrays, without the random generator."""
        return {
            "cumulative": self._cumulative.copy(),
            "events": [dict(event) for event in self.events],
            **{name: copy.copy(getattr(self, name)) for name in self.saved},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of ``state_dict``, which must be of the same levels."""
        self._draw_by(state["cumulative"].copy())
        self.events = [dict(event) for event in state["events"]]
        for name in self.saved:
            setattr(self, name, copy.copy(state[name]))


class Uniform(Strategy):
    """Strategy "uniform": all levels are equally likely; the baseline for other strategies."""

    def update(self, outcomes: Outcomes) -> None:
        """Leave the weights unchanged."""


def mixed(weights: np.ndarray, uniform_share: float) -> np.ndarray:
    """Mix weights with a uniform distribution; return float64[L] with sum 1, uniform if all weights are 0."""
    total, count = weights.sum(), len(weights)
    if total <= 0:
        return np.full(count, 1 / count)
    spread = weights * ((1 - uniform_share) / total)
    spread += uniform_share / count
    return spread
