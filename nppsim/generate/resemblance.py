"""How much levels resemble the official levels of N++, by a logistic regression on statistics of levels.

    x = statistics(levels)                          # float64[levels, len(NAMES)]
    Classifier.fit(x, is_official).log_odds(x)      # float64[levels]
    is_selected(level)                              # rejection sampling with the stored classifier

``official_like.json`` has the classifier that separates candidates of the hard levels (docs/benchmark.md) that the planner
finishes from half of the official levels.  ``benchmarks/compare_levels.py --write`` makes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from nppsim.errors import ConfigError
from nppsim.generate.variety import MEASURES, variety
from nppsim.io.files import write_json
from nppsim.io.reading import read_json
from nppsim.levels import kinds
from nppsim.levels.level import TYPE, Level
from nppsim.levels.tiles import SOLID

NARROW = 2  # tiles; free cells whose row and column are free over at most this length are narrow
OPEN = 12  # tiles; free cells whose row or column is free over at least this length are open
TILES = ("free share", "narrow share", "open share", "share of slopes and curves")
COUNTED = [kind for kind in range(len(kinds.ENTITY_NAMES)) if kind != kinds.GOLD]
NAMES = (*(kinds.ENTITY_NAMES[kind] for kind in COUNTED), *MEASURES, *TILES)

RIDGE = 1.0  # weight of the squared coefficients; the statistics have standard deviation 1
STEPS = 25  # of Newton's method
EQUAL = 1e-9  # a statistic with a smaller standard deviation is constant
CLIP = 5.0  # largest absolute value of a standardised statistic

CLASSIFIER = Path(__file__).with_name("official_like.json")
# A candidate with log-odds x is selected with probability min(1, exp(x - ALWAYS)).
ALWAYS = 1.5


def statistics(levels: Sequence[Level]) -> np.ndarray:
    """Return float64[levels, len(NAMES)]: logarithms of counts and lengths, and shares of tiles.  Gold is not counted."""
    counts = [np.bincount(level.records[:, TYPE], minlength=len(kinds.ENTITY_NAMES))[COUNTED] for level in levels]
    measured = variety(("", level) for level in levels)[""].values
    tiles = [_of_tiles(level.tiles) for level in levels]
    return np.hstack([np.log1p(counts), np.log1p(np.maximum(measured, 0)), tiles])


def _of_tiles(tiles: np.ndarray) -> tuple[float, float, float, float]:
    """Return the statistics TILES of uint8[23, 42]."""
    free = tiles != SOLID
    across, down = _runs(free), _runs(free.T).T
    count = max(int(free.sum()), 1)
    return (
        float(free.mean()),
        float((free & (np.minimum(across, down) <= NARROW)).sum()) / count,
        float((np.maximum(across, down) >= OPEN).sum()) / count,
        float((free & (tiles > SOLID)).sum()) / count,
    )


def _runs(free: np.ndarray) -> np.ndarray:
    """Return for each cell the number of free cells in a row that contain it; 0 for other cells."""
    lengths = np.zeros(free.shape, int)
    for row, cells in zip(lengths, free, strict=True):
        edges = np.flatnonzero(np.diff([0, *cells, 0]))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            row[start:end] = end - start
    return lengths


@dataclass(frozen=True)
class Classifier:
    """Ridge logistic regression on standardised statistics.

    mean, std: float64[statistics].
    weights: float64[statistics + 1]; the last one is the intercept.
    """

    mean: np.ndarray
    std: np.ndarray
    weights: np.ndarray

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray) -> "Classifier":
        """Fit by Newton's method.  Both classes have the same total weight.

        x: float64[levels, statistics].
        y: bool[levels], the class.
        """
        share = y.mean()
        weight = np.where(y, 0.5 / share, 0.5 / (1 - share))
        mean, std = x.mean(0), x.std(0)
        std[std < EQUAL] = 1.0
        fitted = cls(mean, std, np.zeros(x.shape[1] + 1))
        z, w = fitted._standardised(x), fitted.weights
        for _ in range(STEPS):
            p = 1 / (1 + np.exp(-(z @ w).clip(-30, 30)))
            hessian = (z * (weight * p * (1 - p))[:, None]).T @ z + RIDGE * np.eye(len(w))
            w -= np.linalg.solve(hessian, z.T @ (weight * (p - y)) + RIDGE * w)
        return fitted

    def log_odds(self, x: np.ndarray) -> np.ndarray:
        """Return the log-odds of class True, float64[levels], for float64[levels, statistics]."""
        return self._standardised(x) @ self.weights

    def _standardised(self, x: np.ndarray) -> np.ndarray:
        return np.hstack([((x - self.mean) / self.std).clip(-CLIP, CLIP), np.ones((len(x), 1))])

    def save(self, path: Path) -> None:
        """Write the classifier as JSON."""
        rows = zip((*NAMES, "intercept"), (*self.mean, 0.0), (*self.std, 1.0), self.weights, strict=True)
        write_json(path, {name: [float(value) for value in values] for name, *values in rows})

    @classmethod
    def load(cls, path: Path) -> "Classifier":
        """Read a classifier that ``save`` wrote.  Raises ConfigError for invalid JSON."""
        stored = read_json(path, ConfigError, "install nppsim again")
        mean, std, weights = np.array([stored[name] for name in (*NAMES, "intercept")]).T
        return cls(mean[:-1], std[:-1], weights)


@cache
def official_like() -> Classifier:
    """Return the stored classifier; class True: official."""
    return Classifier.load(CLASSIFIER)


def is_selected(level: Level) -> bool:
    """Decide whether to accept a candidate, so that accepted ones have statistics like official levels.

    Rejection sampling (von Neumann 1951) by the odds of the stored classifier.  The random number is the level's fingerprint,
    so a level always gets the same answer.
    """
    random = int(level.fingerprint[:13], 16) / 16**13
    return bool(np.log(max(random, 1e-300)) < official_like().log_odds(statistics([level]))[0] - ALWAYS)
