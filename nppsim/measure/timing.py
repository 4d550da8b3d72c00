"""Timing: what the times of repeated rounds say, what they belong to, and how two sets of them compare.

Knows nothing about what is timed; every measuring tool of the project uses it.

    summary = summarise(seconds)              # mean, spread, percentiles; summary.stability: "excellent" ... "poor"
    speed_up = ratio_of_means(before, after)  # Estimate: value with a 95 % bootstrap interval
    on, off = alternate(run_on, run_off, 20)  # A B B A A B B A ..., so that a slow minute hits both

A time belongs to a machine, to library versions and to settings: times are compared only where all of these agree
(``differences``).  The build, digest and commit of the sources, may differ: it is what one compares.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nppsim.errors import UserError
from nppsim.measure.kernels import spin

POOR = "poor"
_STABILITY = ((0.05, "excellent"), (0.10, "good"), (0.20, "fair"))  # below this coefficient of variation
_RESAMPLES = 4000  # of the bootstrap; an interval's ends are then known to about a tenth of its width
_LEVELS = (2.5, 97.5)  # percentiles that bound a 95 % interval


class TimingError(UserError, ValueError):
    """Something that cannot be measured or compared; the message says what, and what to do."""


# ---------------------------------------------------------------------------------------------------------------------
# Statistics


@dataclass(frozen=True)
class Summary:
    """Times of rounds, in seconds; ``sd`` is the sample's (n - 1)."""

    rounds: int
    mean: float
    sd: float
    min: float
    max: float
    p50: float
    p95: float
    p99: float

    @property
    def cv(self) -> float:
        """Coefficient of variation, sd / mean."""
        return self.sd / self.mean

    @property
    def stability(self) -> str:
        """The coefficient of variation in a word: below 5 % excellent, 10 % good, 20 % fair, otherwise poor."""
        return next((word for limit, word in _STABILITY if self.cv < limit), POOR)

    def rate(self, units: float) -> tuple[float, float]:
        """Units per second of rounds with ``units`` each, and its standard deviation (first-order propagation)."""
        per_s = units / self.mean
        return per_s, per_s * self.cv


def summarise(seconds: Sequence[float]) -> Summary:
    """Statistics of the times of rounds.  Raises TimingError for fewer than two, or times that are not above 0."""
    times = np.asarray(seconds, float)
    if times.ndim != 1 or len(times) < 2 or not (np.isfinite(times).all() and (times > 0).all()):
        raise TimingError(f"round times {times.tolist()}: at least two are needed, all above 0 s")
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return Summary(
        len(times), float(times.mean()), float(times.std(ddof=1)), float(times.min()), float(times.max()), p50, p95, p99
    )


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; low and high are None where a single observation allows no interval."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.value:.3f} (no interval: one observation)"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(statistic: Callable[..., np.ndarray], *samples: Sequence[float], paired: bool = False) -> Estimate:
    """Percentile bootstrap of ``statistic(*samples)``.

    statistic: takes arrays [resamples, n], gives [resamples].  paired: all samples are resampled with the same indices.
    The resampling is seeded: equal samples give equal intervals.
    """
    arrays = [np.asarray(sample, float) for sample in samples]
    if any(array.ndim != 1 or not len(array) for array in arrays) or (paired and len({len(a) for a in arrays}) > 1):
        raise TimingError(
            f"samples of shapes {[array.shape for array in arrays]}; needed are values, paired ones in step"
        )
    value = float(statistic(*(array[None] for array in arrays))[0])
    if min(map(len, arrays)) < 2:
        return Estimate(value, None, None)
    rng = np.random.default_rng(0)
    rows = [rng.integers(len(array), size=(_RESAMPLES, len(array))) for array in arrays]
    if paired:
        rows = rows[:1] * len(arrays)
    low, high = np.percentile(statistic(*(a[r] for a, r in zip(arrays, rows, strict=True))), _LEVELS).tolist()
    return Estimate(value, low, high)


def ratio_of_means(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """mean(numerator) / mean(denominator) of independent samples."""
    return bootstrap(lambda a, b: a.mean(axis=1) / b.mean(axis=1), numerator, denominator)


def mean_of_ratios(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Geometric mean of the ratios of pairs that were measured next to each other, or with the same seed."""
    return bootstrap(lambda a, b: np.exp(np.log(a / b).mean(axis=1)), numerator, denominator, paired=True)


def mean_difference(minuend: Sequence[float], subtrahend: Sequence[float]) -> Estimate:
    """Mean of minuend - subtrahend over pairs."""
    return bootstrap(lambda a, b: (a - b).mean(axis=1), minuend, subtrahend, paired=True)


def amdahl(share: float, speed_up: float) -> float:
    """How much faster the whole becomes when a part with this share of its time becomes ``speed_up`` times as fast."""
    if not 0 <= share <= 1 or not speed_up > 0:
        raise TimingError(f"share {share} must be within 0 and 1, speed-up {speed_up} above 0")
    return 1 / (1 - share + share / speed_up)


# ---------------------------------------------------------------------------------------------------------------------
# The clock


def abba(pairs: int) -> Iterator[tuple[str, str]]:
    """The order of alternating pairs: ("a", "b"), ("b", "a"), ("a", "b"), ..."""
    for k in range(pairs):
        yield ("b", "a") if k % 2 else ("a", "b")


def alternate(run_a: Callable[[], float], run_b: Callable[[], float], pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Run both in alternation, in the order of ``abba``; each returns its time.  Two arrays float64[pairs], in step."""
    runs, times = {"a": run_a, "b": run_b}, {"a": [], "b": []}
    for pair in abba(pairs):
        for name in pair:
            times[name].append(runs[name]())
    return np.array(times["a"]), np.array(times["b"])


def calibrate() -> dict[str, float]:
    """Million iterations per second of a fixed pure-Python loop and of a fixed Numba loop, about 0.05 s in all."""
    return {"python": rate_of(lambda: _python_loop(200_000)) / 1e6, "numba": rate_of(lambda: spin(5_000_000)) / 1e6}


def rate_of(run: Callable[[], int]) -> float:
    """Units per second of one call; ``run`` returns how many units it did."""
    begin = time.perf_counter()
    count = run()
    return count / (time.perf_counter() - begin)


def _python_loop(n: int) -> int:
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    assert x
    return n
