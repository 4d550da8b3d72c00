"""What every strategy is: a distribution over levels, worked out anew once per update from the episodes that ended.

    class Failures(Strategy):
        kept = ("lost",)  # attributes that a checkpoint keeps

        def __init__(self, levels, config, rng):
            super().__init__(levels, config, rng)
            self.lost = np.ones(len(levels))

        def update(self, outcomes):
            np.add.at(self.lost, outcomes.levels[~outcomes.won], 1)
            self.weigh(self.lost)

A draw is a binary search in the running sum of the weights, O(log levels); an update may take O(levels + episodes) in numpy:
a few passes over all levels, no sorting of all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from nppsim.errors import ConfigError
from nppsim.generate import CATEGORIES
from rl.curriculum.sorted_search import places
from rl.curriculum.statistics import unpacked
from rl.curriculum_config import CurriculumConfig

THIRDS = 3  # parts of the difficulty axis of a family


@dataclass(frozen=True)
class Levels:
    """The levels to draw from.

    names: categories that occur, easiest first: in an order that was asked for, then those of ``nppsim.generate``, then
        others by name.
    category: int32[L], place of each level's category in ``names``.
    family: int32[L], number of the family within its category that made a level, counted through all categories.
    third: int8[L], 0 to 2: which third of its family's levels it belongs to, by difficulty.
    """

    names: tuple[str, ...]
    category: np.ndarray
    family: np.ndarray
    third: np.ndarray

    @staticmethod
    def of(
        categories: Sequence[str],
        difficulty: np.ndarray | None = None,
        order: Sequence[str] = (),
        families: Sequence[str] | None = None,
    ) -> "Levels":
        """Levels by what is known of them.

        categories: of each level.
        difficulty: [L], any scale; None: unknown, so that all thirds are the first.
        order: some categories, easiest first.
        families: names of what made each level; None: unknown, so that a category is one family.
        ConfigError without levels, and for an order with others.
        """
        given = np.asarray(categories, dtype=str)
        if given.ndim != 1 or not len(given):
            raise ConfigError("a curriculum needs at least one level; the training dataset is empty")
        present = set(given.tolist())
        if absent := sorted(set(order) - present):
            advice = f"no training level has the category; they have {', '.join(sorted(present))}"
            raise ConfigError(advice, "stage_order", absent[0])
        names = tuple(dict.fromkeys((*order, *(name for name in CATEGORIES if name in present), *sorted(present))))
        place = {name: index for index, name in enumerate(names)}
        category = np.array([place[name] for name in given.tolist()], np.int32)
        makers = np.zeros(len(given), np.int64) if families is None else np.unique(families, return_inverse=True)[1]
        pairs = np.stack([category, makers], axis=1)
        family = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)
        third = np.zeros(len(given), np.int8)
        if difficulty is not None:
            for one in range(int(family.max()) + 1):
                members = np.flatnonzero(family == one)
                easiest = members[np.argsort(np.asarray(difficulty)[members], kind="stable")]
                third[easiest] = np.arange(len(easiest)) * THIRDS // len(easiest)
        return Levels(names, category, family, third)

    def __len__(self) -> int:
        return len(self.category)

    @cached_property
    def counts(self) -> np.ndarray:
        """int64[C]: levels of each category."""
        return np.bincount(self.category, minlength=len(self.names))

    @cached_property
    def cell(self) -> np.ndarray:
        """int64[L]: number of the cell, family and third, that a level belongs to."""
        return self.family.astype(np.int64) * THIRDS + self.third

    @cached_property
    def cells(self) -> int:
        """Number of cells, some of which may be empty."""
        return (int(self.family.max()) + 1) * THIRDS


@dataclass(frozen=True)
class Outcomes:
    """What happened since the update before, in the order in which episodes ended.

    levels, won, returns, began: int64[k], bool[k], float64[k], int64[k]: of each episode that ended: level, whether it was
        won, undiscounted return, and how many updates there had been when it began.
    running, running_began: int64[N], int64[N]: level of each episode that goes on, and when that began, likewise.
    decided, advantages: int64[m], float32[m]: of each decision of the rollout: level, and estimated advantage; empty unless
        the strategy's ``wants_advantages``.
    """

    levels: np.ndarray
    won: np.ndarray
    returns: np.ndarray
    began: np.ndarray
    running: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    running_began: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    decided: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    advantages: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))

    @staticmethod
    def none() -> "Outcomes":
        """No episodes."""
        return Outcomes(np.empty(0, np.int64), np.empty(0, bool), np.empty(0), np.empty(0, np.int64))


class Strategy(ABC):
    """Draws levels by weights that ``update`` sets.

    levels: to draw from.
    config: of the curriculum.
    rng: shared with the manager, which seeds and keeps it.
    kept: names of the attributes, arrays and plain values, that a checkpoint keeps.
    events: what happened, oldest first: a handful in a run.
    """

    _cumulative: np.ndarray
    _last: int
    _chances: np.ndarray | None
    kept: ClassVar[tuple[str, ...]] = ()
    wants_advantages: ClassVar[bool] = False

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        self.levels, self.config, self.rng = levels, config, rng
        self.events: list[dict] = []
        self.weigh(np.ones(len(levels)))

    def weigh(self, weights: np.ndarray) -> None:
        """From now on, draw in proportion to these.  weights: float[L], at least 0 and not all 0."""
        cumulative = np.cumsum(weights, dtype=np.float64)
        total = float(cumulative[-1])
        if not (np.isfinite(total) and total > 0 and weights.min() >= 0):
            raise ValueError(f"weights of levels must be finite, at least 0, not all 0; their sum is {total}")
        self._draw_by(cumulative)

    def _draw_by(self, cumulative: np.ndarray) -> None:
        self._cumulative, self._chances = cumulative, None
        self._last = int(np.searchsorted(cumulative, cumulative[-1]))  # level that has a weight

    def probabilities(self) -> np.ndarray:
        """float64[L], sums to 1, read-only: how likely each level is at the next draw."""
        if self._chances is None:
            self._chances = np.diff(self._cumulative, prepend=0.0) / self._cumulative[-1]
            self._chances.flags.writeable = False
        return self._chances

    def draw(self, n: int) -> np.ndarray:
        """int32[n]: indices of the levels to play next."""
        points = self.rng.random(n) * self._cumulative[-1]
        # A point that rounding puts at the very end belongs to the last level that has a weight.
        return np.minimum(places(self._cumulative, points), self._last, dtype=np.int32)

    @abstractmethod
    def update(self, outcomes: Outcomes) -> None:
        """Learn from what ended since the update before, and ``weigh`` anew; once per update of the policy."""

    @property
    def stage(self) -> str:
        """The category that is being learned, for those strategies that have one; else ""."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Scalars by TensorBoard tag, at each update: what costs no pass over all levels."""
        return {}

    def details(self) -> dict[str, float]:
        """Scalars by TensorBoard tag that take a look at all levels; the more there are, the rarer (see the manager)."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on beside the random numbers: plain values and copies of arrays."""
        values = {name: getattr(self, name) for name in self.kept}
        return {
            "cumulative": self._cumulative.copy(),
            "events": [dict(event) for event in self.events],
            **{name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken, with the same levels."""
        cumulative = unpacked(state["cumulative"])
        rising = cumulative.shape == self._cumulative.shape and (np.diff(cumulative, prepend=0.0) >= 0).all()
        if not (rising and np.isfinite(cumulative[-1]) and cumulative[-1] > 0):
            raise ConfigError("the saved curriculum draws by weights that are none: the file was changed")
        self._draw_by(cumulative)
        self.events = [dict(event) for event in state["events"]]
        for name in self.kept:
            value = state[name]
            array = isinstance(value, np.ndarray) or (isinstance(value, dict) and "base64" in value)
            setattr(self, name, unpacked(value) if array else value)


def mixed(weights: np.ndarray, uniform_share: float) -> np.ndarray:
    """float64[L], sums to 1: weights of which a share is spread evenly over all levels; evenly too where all are 0."""
    total, count = weights.sum(), len(weights)
    if total <= 0:
        return np.full(count, 1 / count)
    spread = weights * ((1 - uniform_share) / total)
    spread += uniform_share / count
    return spread
