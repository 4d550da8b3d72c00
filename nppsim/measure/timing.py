"""Time rounds of repeated work; used by all benchmarks of the project.

    rounds = measure_rounds(work, 20, units)  # with calibration loops before and after every round
    summary = summarise(rounds.seconds)       # mean, standard deviation, percentiles, stability
    on, off = alternate(work_on, work_off, 20)  # A B B A A B B A ...: slow minutes of the machine affect both

See ``machine`` for the conditions of a measurement, ``intervals`` for ratios and differences with confidence intervals.
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
_STABILITY = (
    (0.05, "excellent"),
    (0.10, "good"),
    (0.20, "fair"),
)  # (upper limit of the coefficient of variation, rating)
_PYTHON_LOOP = 200_000  # iterations of the calibration loops, which take about 0.05 s together
_NUMBA_LOOP = 5_000_000


class TimingError(UserError, ValueError):
    """A measurement or comparison is impossible."""


# ---------------------------------------------------------------------------------------------------------------------
# Statistics


@dataclass(frozen=True)
class Summary:
    """Statistics of the durations of rounds, in seconds; ``sd`` is the sample standard deviation (n - 1)."""

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
        """Rating of the coefficient of variation: excellent below 5 %, good below 10 %, fair below 20 %, else poor."""
        return next((word for limit, word in _STABILITY if self.cv < limit), POOR)

    def rate(self, units: float) -> tuple[float, float]:
        """Return units per second and their standard deviation (first-order propagation).

        units: units of work per round.
        """
        per_s = units / self.mean
        return per_s, per_s * self.cv


def summarise(seconds: Sample) -> Summary:
    """Return the statistics of round times.  Raises TimingError for fewer than two times and for times <= 0."""
    times = np.asarray(seconds, float)
    if times.ndim != 1 or len(times) < 2 or not (np.isfinite(times).all() and (times > 0).all()):
        raise TimingError(f"round times are {times.tolist()}; give at least two, all above 0 s")
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return Summary(
        len(times), float(times.mean()), float(times.std(ddof=1)), float(times.min()), float(times.max()), p50, p95, p99
    )


def amdahl(share: float, speed_up: float) -> float:
    """Return the overall speed-up if a part with this share of the time runs ``speed_up`` times as fast (Amdahl's law)."""
    if not 0 <= share <= 1 or not speed_up > 0:
        raise TimingError(f"share {share} must be within 0 and 1, speed-up {speed_up} above 0")
    return 1 / (1 - share + share / speed_up)


# ---------------------------------------------------------------------------------------------------------------------
# The clock


@dataclass(frozen=True)
class Rounds:
    """Times of repeated rounds of the same work.

    units: units of work per round.
    seconds: time of each round.
    calibration: results of ``calibrate``, one before the first round and one after each round.
    """

    units: float
    seconds: list[float]
    calibration: list[dict[str, float]]

    @property
    def rates(self) -> list[float]:
        """Units of work per second in each round."""
        return [self.units / seconds for seconds in self.seconds]

    def median_calibration(self) -> dict[str, float]:
        """Return the median speed of each calibration loop over all its results."""
        return {name: statistics.median(c[name] for c in self.calibration) for name in self.calibration[0]}

    def calibration_beside(self) -> dict[str, list[float]]:
        """Return the calibration of each round: name of the loop -> mean of the results before and after the round."""
        pairs = list(itertools.pairwise(self.calibration))
        return {name: [(a[name] + b[name]) / 2 for a, b in pairs] for name in self.calibration[0]}


def measure_rounds(work: Callable[[], object], rounds: int, units: float) -> Rounds:
    """Time ``rounds`` calls of ``work``, which must be compiled already.  units: units of work per call."""
    calibrate()  # compiles the Numba loop
    calibration, seconds = [calibrate()], []
    for _ in range(rounds):
        seconds.append(seconds_of(work))
        calibration.append(calibrate())
    return Rounds(units, seconds, calibration)


def abba(pairs: int) -> Iterator[tuple[str, str]]:
    """Yield pairs whose order alternates: ("a", "b"), ("b", "a"), ("a", "b"), ..."""
    for k in range(pairs):
        yield ("b", "a") if k % 2 else ("a", "b")


def alternate(a: Callable[[], object], b: Callable[[], object], pairs: int) -> tuple[list[float], list[float]]:
    """Run two functions in the order of ``abba``; return the seconds of the calls of ``a`` and ``b``, paired by index."""
    work = {"a": a, "b": b}
    seconds: dict[str, list[float]] = {"a": [], "b": []}
    for pair in abba(pairs):
        for name in pair:
            seconds[name].append(seconds_of(work[name]))
    return seconds["a"], seconds["b"]


def seconds_of(work: Callable[[], object]) -> float:
    """Return the duration of one call in seconds."""
    begin = perf_counter()
    work()
    return perf_counter() - begin


def calibrate() -> dict[str, float]:
    """Return the speed of a fixed pure-Python loop and of a fixed Numba loop, in million iterations per second."""
    return {
        "python": _PYTHON_LOOP / seconds_of(lambda: _python_loop(_PYTHON_LOOP)) / 1e6,
        "numba": _NUMBA_LOOP / seconds_of(lambda: spin(_NUMBA_LOOP)) / 1e6,
    }


def _python_loop(n: int) -> None:
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    assert x
