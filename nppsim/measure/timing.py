"""Timing: rounds of repeated work, what their times say, and how two sets of them compare.

Independent of what is timed; every measuring tool of the project uses it.

    rounds = measure_rounds(work, 20, units)  # with calibration loops beside every round
    summary = summarise(rounds.seconds)       # mean, spread, percentiles; summary.stability: "excellent" ... "poor"
    on, off = alternate(work_on, work_off, 20)  # A B B A A B B A ..., so that a slow minute hits both

A time belongs to a machine, to library versions and to settings: see ``machine``.  Ratios and differences of times, with
intervals: see ``intervals``.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from nppsim.errors import UserError
from nppsim.measure.intervals import Sample
from nppsim.measure.kernels import spin

POOR = "poor"
_STABILITY = ((0.05, "excellent"), (0.10, "good"), (0.20, "fair"))  # below this coefficient of variation
_PYTHON_LOOP = 200_000  # iterations of the calibration loops, about 0.05 s in all
_NUMBA_LOOP = 5_000_000


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


def summarise(seconds: Sample) -> Summary:
    """Statistics of the times of rounds.  Raises TimingError for fewer than two, or times that are not above 0."""
    times = np.asarray(seconds, float)
    if times.ndim != 1 or len(times) < 2 or not (np.isfinite(times).all() and (times > 0).all()):
        raise TimingError(f"round times {times.tolist()}: at least two are needed, all above 0 s")
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return Summary(
        len(times), float(times.mean()), float(times.std(ddof=1)), float(times.min()), float(times.max()), p50, p95, p99
    )


def amdahl(share: float, speed_up: float) -> float:
    """Overall speed-up if a part with this share of the time becomes ``speed_up`` times as fast (Amdahl's law)."""
    if not 0 <= share <= 1 or not speed_up > 0:
        raise TimingError(f"share {share} must be within 0 and 1, speed-up {speed_up} above 0")
    return 1 / (1 - share + share / speed_up)


# ---------------------------------------------------------------------------------------------------------------------
# The clock


@dataclass(frozen=True)
class Rounds:
    """Times of repeated rounds of the same work.

    units: of work, in each round.  seconds: of each round.
    calibration: results of ``calibrate`` before the first round and after each: one more than rounds.
    """

    units: float
    seconds: list[float]
    calibration: list[dict[str, float]]

    @property
    def rates(self) -> list[float]:
        """Units per second of each round."""
        return [self.units / seconds for seconds in self.seconds]

    def median_calibration(self) -> dict[str, float]:
        """Median of each calibration loop over all rounds."""
        return {name: statistics.median(c[name] for c in self.calibration) for name in self.calibration[0]}

    def calibration_beside(self) -> dict[str, list[float]]:
        """Calibration of each round: the mean of the results before and after it."""
        pairs = list(itertools.pairwise(self.calibration))
        return {name: [(a[name] + b[name]) / 2 for a, b in pairs] for name in self.calibration[0]}


def measure_rounds(work: Callable[[], object], rounds: int, units: float) -> Rounds:
    """Time ``work`` ``rounds`` times; it has run before (compiled, warm), and does ``units`` units of work each time."""
    calibrate()  # compiled
    calibration, seconds = [calibrate()], []
    for _ in range(rounds):
        seconds.append(seconds_of(work))
        calibration.append(calibrate())
    return Rounds(units, seconds, calibration)


def abba(pairs: int) -> Iterator[tuple[str, str]]:
    """The order of alternating pairs: ("a", "b"), ("b", "a"), ("a", "b"), ..."""
    for k in range(pairs):
        yield ("b", "a") if k % 2 else ("a", "b")


def alternate(a: Callable[[], object], b: Callable[[], object], pairs: int) -> tuple[list[float], list[float]]:
    """Run both in alternation, in the order of ``abba``; the seconds of each, in step."""
    work = {"a": a, "b": b}
    seconds: dict[str, list[float]] = {"a": [], "b": []}
    for pair in abba(pairs):
        for name in pair:
            seconds[name].append(seconds_of(work[name]))
    return seconds["a"], seconds["b"]


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    begin = perf_counter()
    work()
    return perf_counter() - begin


def calibrate() -> dict[str, float]:
    """Million iterations per second of a fixed pure-Python loop and of a fixed Numba loop."""
    return {
        "python": _PYTHON_LOOP / seconds_of(lambda: _python_loop(_PYTHON_LOOP)) / 1e6,
        "numba": _NUMBA_LOOP / seconds_of(lambda: spin(_NUMBA_LOOP)) / 1e6,
    }


def _python_loop(n: int) -> None:
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    assert x
