"""95 % confidence intervals; all intervals of the project are computed here.

    speed_up = ratio_of_means(before, after)      # Estimate: a value with its interval
    success = mean_over_levels(wins / episodes)   # [levels] or [seeds, levels]
    gain = mean_over_levels(after - before)       # paired: the same levels, the same seeds
    low, high = wilson(wins=9, trials=10)         # independent trials

Bootstraps are seeded, so equal input gives equal intervals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nppsim.errors import UserError

Sample = Sequence[float] | np.ndarray
RESAMPLES = 4000  # resamples of a bootstrap; the Monte Carlo error of a limit is about a tenth of the interval's width
_INTERVAL = (2.5, 97.5)  # percentiles that bound a 95 % interval
Z95 = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
_CHUNK = 1 << 20  # maximum number of elements of the array of resampled counts


class IntervalError(UserError, ValueError):
    """No interval can be computed for the input; the message names the required shape."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; low and high are None if the observations do not determine an interval."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.value:.3f} (no interval: one observation)"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(statistic: Callable[..., np.ndarray], *samples: Sample, paired: bool = False) -> Estimate:
    """Percentile bootstrap of ``statistic(*samples)``.

    statistic: receives one array [resamples, n] per sample and returns one value per resample, [resamples].
    samples: arrays of shape [n], where n may differ.
    paired: all samples have the same length and are resampled with the same indices.
    Raises IntervalError for other shapes.
    """
    arrays = [np.asarray(sample, float) for sample in samples]
    if any(array.ndim != 1 or not len(array) for array in arrays) or (paired and len({len(a) for a in arrays}) > 1):
        raise IntervalError(
            f"samples have shapes {[array.shape for array in arrays]}; each must be [n], paired ones of equal length"
        )
    value = float(statistic(*(array[None] for array in arrays))[0])
    if min(map(len, arrays)) < 2:
        return Estimate(value, None, None)
    rng = np.random.default_rng(0)
    rows = [rng.integers(len(array), size=(RESAMPLES, len(array))) for array in arrays]
    if paired:
        rows = rows[:1] * len(arrays)
    low, high = np.percentile(statistic(*(a[r] for a, r in zip(arrays, rows, strict=True))), _INTERVAL).tolist()
    return Estimate(value, low, high)


def ratio_of_means(numerator: Sample, denominator: Sample) -> Estimate:
    """Ratio of the means of two independent samples."""
    return bootstrap(lambda a, b: a.mean(axis=1) / b.mean(axis=1), numerator, denominator)


def mean_of_ratios(numerator: Sample, denominator: Sample) -> Estimate:
    """Geometric mean of numerator / denominator over pairs, such as measurements with the same seed."""
    return bootstrap(lambda a, b: np.exp(np.log(a / b).mean(axis=1)), numerator, denominator, paired=True)


def mean_difference(minuend: Sample, subtrahend: Sample) -> Estimate:
    """Mean of minuend - subtrahend over pairs, such as measurements with the same seed."""
    return bootstrap(lambda a, b: (a - b).mean(axis=1), minuend, subtrahend, paired=True)


def mean_over_levels(values: Sample, weights: Sample | None = None) -> Estimate:
    """Mean of ``values`` with its 95 % interval, by a hierarchical bootstrap over levels and seeds.

    values: [L], one value per level, such as the success rate, or a difference of success rates for a paired comparison;
        or [S, L] with a row per training seed.
    weights: [L], weights of the levels in the mean, such as numbers of episodes; None: equal weights.
    low and high are None if all values are equal, because resampling then gives no information.

    Levels and seeds are the random units, because episodes on one level are correlated, and so are the levels played by
    one policy.  Each resample draws levels (their means over the seeds) and adds the mean of resampled seed effects.  The
    interval lies between two percentiles of these sums.  Seed effects are first shrunk by the variance that the finite
    number of levels causes, because resampling the levels covers this variance already.  Each resample leaves one value
    out; otherwise intervals of few seeds would be too narrow.  In simulations in which the seeds differ more than the
    levels, the interval contained the true value in 90 % of the cases with five seeds and in 87 % with three.

    Sources: Efron & Tibshirani 1993, chapter 13 (percentiles); Davison & Hinkley 1997, section 3.8 (hierarchical data);
    Hesterberg 2004 (leaving one out); Agarwal et al. 2021 (why intervals over runs and tasks in reinforcement learning).
    """
    table = np.atleast_2d(np.asarray(values, float))
    weight = np.ones(table.shape[-1]) if weights is None else np.asarray(weights, float)
    if not table.size or table.ndim != 2 or weight.shape != table.shape[1:] or not (weight > 0).all():
        raise IntervalError(
            f"values {table.shape} with weights {weight.shape}: values must be [seeds, levels], with a weight above 0 "
            "for each level"
        )
    by_level = table.mean(axis=0)
    value = float(np.average(by_level, weights=weight))
    rng = np.random.default_rng(0)
    means = _redrawn_means(rng, by_level, weight) + _redrawn_means(
        rng, _seed_effects(table, weight), np.ones(len(table))
    )
    low, high = np.percentile(means, _INTERVAL).tolist()
    return Estimate(value, low, high) if high - low > 1e-12 else Estimate(value, None, None)  # more than rounding error


def _seed_effects(table: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return float64[seeds], the effect of each seed: its mean minus the overall mean; 0 for a single seed.

    The effects are shrunk to remove the variance due to the finite number of levels (two-way analysis of variance).
    """
    seeds, levels = table.shape
    effects = np.average(table, axis=1, weights=weight)
    effects -= effects.mean()
    spread = (effects**2).sum() / max(seeds - 1, 1)
    if spread == 0 or levels == 1:
        return effects
    left = table - table.mean(axis=0) - effects[:, None]
    by_chance = (left**2).sum() / ((seeds - 1) * (levels - 1)) * (weight**2).sum() / weight.sum() ** 2
    return effects * math.sqrt(max(0.0, 1 - by_chance / spread))


def _redrawn_means(rng: np.random.Generator, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return float64[RESAMPLES], weighted means of bootstrap samples.

    Each sample leaves out a random value and draws len(values) values from the others, with replacement.

    Equal (value, weight) pairs are drawn as one category with a count.  This is faster, because success rates of few
    episodes have few distinct values.
    """
    total = len(values)
    if total == 1:
        return np.full(RESAMPLES, values[0])
    kinds, count = np.unique(np.stack([values, weight], axis=1), axis=0, return_counts=True)
    means = []
    for first in range(0, RESAMPLES, step := max(1, _CHUNK // len(kinds))):
        times = min(step, RESAMPLES - first)
        left = np.repeat(count[None], times, axis=0)
        left[np.arange(times), rng.choice(len(kinds), times, p=count / total)] -= 1
        drawn = rng.multinomial(total, left / (total - 1)) * kinds[:, 1]
        means.append(drawn @ kinds[:, 0] / drawn.sum(axis=1))
    return np.concatenate(means)


def wilson(wins: float, trials: int, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's interval (low, high) of a success rate in independent trials; (0, 1) for no trials.

    z: quantile of the standard normal distribution; default: that of a 95 % interval.
    Unlike the interval of ± 2 standard errors, it never has width 0: for 0 wins in 10 trials it ends at 0.28.
    """
    if not 0 <= wins <= trials:
        raise IntervalError(f"{wins} wins in {trials} trials")
    if trials == 0:
        return 0.0, 1.0
    rate, z2 = wins / trials, z**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = z / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    low = 0.0 if wins == 0 else max(centre - half, 0.0)  # exact, without a rounding error of 1e-17
    high = 1.0 if wins == trials else min(centre + half, 1.0)
    return low, high
