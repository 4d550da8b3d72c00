"""Base class of strategies: a distribution over levels, recomputed once per update from finished episodes.

    class Failures(Strategy):
        saved = ("lost",)  # attributes saved in checkpoints

        def __init__(self, levels, config, rng):
            super().__init__(levels, config, rng)
            self.lost = np.ones(len(levels))

        def update(self, outcomes):
            np.add.at(self.lost, outcomes.levels[~outcomes.won], 1)
            self.weigh(self.lost)

A draw is a binary search in the running sum of the weights, O(log levels).  An update may take O(levels + episodes) in numpy:
a few passes over all levels, no sorting of all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from nppsim._kernel import kernel
from nppsim.errors import ConfigError
from nppsim.generate import CATEGORIES
from rl.config.curriculum import CurriculumConfig
from rl.curriculum.statistics import unpacked

THIRDS = 3  # parts of the difficulty axis of a family


@dataclass(frozen=True)
class Levels:
    """The levels to draw from.

    names: categories, easiest first: in the configured order, then that of ``nppsim.generate``, then others by name.
    category: int32[L], index of each level's category in ``names``.
    family: int32[L], generator family of each level, numbered through all categories.
    third: int8[L], 0 to 2, third of its family by difficulty.
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
        """Group levels by category, family and difficulty.

        categories: of each level.
        difficulty: [L], any scale; None: all levels are in the first third.
        order: some categories, easiest first.
        families: generator family of each level; None: one family per category.
        ConfigError without levels, and for unknown categories in ``order``.
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
        """Number of levels int64[C] of each category."""
        return np.bincount(self.category, minlength=len(self.names))

    @cached_property
    def cell(self) -> np.ndarray:
        """Cell int64[L] of each level: family and third."""
        return self.family.astype(np.int64) * THIRDS + self.third

    @cached_property
    def cells(self) -> int:
        """Number of cells, including empty ones."""
        return (int(self.family.max()) + 1) * THIRDS


@dataclass(frozen=True)
class Outcomes:
    """Episodes since the previous update, in order of their end.

    levels, won, returns, began: int64[k], bool[k], float64[k], int64[k]: level, win, undiscounted return, and number of
        updates before the start, of each finished episode.
    running, running_began: int64[N], int64[N]: level and start of each unfinished episode.
    decided, advantages: int64[m], float32[m]: level and estimated advantage of each decision of the rollout; empty unless
        ``wants_advantages``.
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
    rng: shared with the manager, which seeds and saves it.
    saved: names of attributes (arrays, plain values) saved in checkpoints.
    events: e.g. stages, oldest first; a handful per run.
    """

    _cumulative: np.ndarray
    _last: int
    _chances: np.ndarray | None
    saved: ClassVar[tuple[str, ...]] = ()
    wants_advantages: ClassVar[bool] = False

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        self.levels, self.config, self.rng = levels, config, rng
        self.events: list[dict] = []
        self.weigh(np.ones(len(levels)))

    def weigh(self, weights: np.ndarray) -> None:
        """Set the distribution.  weights: float[L], >= 0, not all 0."""
        cumulative = np.cumsum(weights, dtype=np.float64)
        total = float(cumulative[-1])
        if not (np.isfinite(total) and total > 0 and weights.min() >= 0):
            raise ValueError(f"weights of levels must be finite, at least 0, not all 0; their sum is {total}")
        self._draw_by(cumulative)

    def _draw_by(self, cumulative: np.ndarray) -> None:
        self._cumulative, self._chances = cumulative, None
        self._last = int(np.searchsorted(cumulative, cumulative[-1]))  # last level with a positive weight

    def probabilities(self) -> np.ndarray:
        """Probability float64[L] of each level in the next draw; read-only."""
        if self._chances is None:
            self._chances = np.diff(self._cumulative, prepend=0.0) / self._cumulative[-1]
            self._chances.flags.writeable = False
        return self._chances

    def draw(self, n: int) -> np.ndarray:
        """Draw indices int32[n] of levels."""
        points = self.rng.random(n) * self._cumulative[-1]
        # rounding may give the end of the range, which belongs to the last level with a weight
        return np.minimum(places(self._cumulative, points), self._last, dtype=np.int32)

    @abstractmethod
    def update(self, outcomes: Outcomes) -> None:
        """Learn from finished episodes and call ``weigh``; once per update of the policy."""

    @property
    def stage(self) -> str:
        """Current category of strategies with stages; else ""."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Scalars by TensorBoard tag at each update, without a pass over all levels."""
        return {}

    def details(self) -> dict[str, float]:
        """Scalars by TensorBoard tag that need a pass over all levels; less often with more levels (see the manager)."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """State for ``load_state_dict``, without random numbers: plain values and copies of arrays."""
        values = {name: getattr(self, name) for name in self.saved}
        return {
            "cumulative": self._cumulative.copy(),
            "events": [dict(event) for event in self.events],
            **{name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``, with the same levels."""
        cumulative = unpacked(state["cumulative"])
        rising = cumulative.shape == self._cumulative.shape and (np.diff(cumulative, prepend=0.0) >= 0).all()
        if not (rising and np.isfinite(cumulative[-1]) and cumulative[-1] > 0):
            raise ConfigError("the saved curriculum has invalid weights: the file was changed")
        self._draw_by(cumulative)
        self.events = [dict(event) for event in state["events"]]
        for name in self.saved:
            value = state[name]
            array = isinstance(value, np.ndarray) or (isinstance(value, dict) and "base64" in value)
            setattr(self, name, unpacked(value) if array else value)


def mixed(weights: np.ndarray, uniform_share: float) -> np.ndarray:
    """Mix weights with a uniform distribution, float64[L] with sum 1; uniform if all weights are 0."""
    total, count = weights.sum(), len(weights)
    if total <= 0:
        return np.full(count, 1 / count)
    spread = weights * ((1 - uniform_share) / total)
    spread += uniform_share / count
    return spread


def places(rising: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Number of entries <= each value, int32[n], as ``rising.searchsorted(values, side="right")``.

    Searches in lockstep, which is five times as fast, as memory accesses overlap.

    rising: float64[k], contiguous, k at least 1 and less than 2 ** 31.
    values: float64[n], contiguous.
    """
    found = np.zeros(len(values), np.int32)
    _search(rising, values, found)
    return found


@kernel
def _search(rising: np.ndarray, values: np.ndarray, found: np.ndarray) -> None:
    left = len(rising)
    while left > 1:
        half = left >> 1
        for i in range(len(values)):
            found[i] += half * np.int32(rising[found[i] + half - 1] <= values[i])
        left -= half
    for i in range(len(values)):
        found[i] += np.int32(rising[found[i]] <= values[i])
