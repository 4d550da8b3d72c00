"""Time rounds of repeated work; used by all benchmarks of the project.

    rounds = measure_rounds(work, 20)         # with calibration loops before and after every round
    summary = summarise(rounds.seconds)       # mean, standard deviation, percentiles, stability
    on, off = alternate(work_on, work_off, 20)  # A B B A A B B A ...: slow minutes of the machine affect both

See ``machine`` for the conditions of a measurement, ``intervals`` for ratios and differences with confidence intervals.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from nppsim.errors import UserError
from nppsim.io.reading import read_json
from nppsim.measure.intervals import Sample
from nppsim.measure.kernels import spin

POOR = "poor"
_STABILITY = ((0.05, "excellent"), (0.10, "good"), (0.20, "fair"))  # (limit of the coefficient of variation, rating)
TOLERANCE = 0.2  # loss of speed relative to the stored baseline that is reported
_PYTHON_LOOP = 200_000  # iterations of the calibration loops, which take about 0.05 s together
_NUMBA_LOOP = 5_000_000


class TimingError(UserError, ValueError):
    """A measurement or comparison is impossible."""


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


def summarise(seconds: Sample) -> Summary:
    """Return the statistics of round times.  Raises TimingError for fewer than two times and for times <= 0."""
    times = np.asarray(seconds, float)
    if times.ndim != 1 or len(times) < 2 or not (np.isfinite(times).all() and (times > 0).all()):
        raise TimingError(f"round times are {times.tolist()}; give at least two, all above 0 s")
    percentiles = np.percentile(times, (50, 95, 99))
    return Summary(len(times), *map(float, (times.mean(), times.std(ddof=1), times.min(), times.max(), *percentiles)))


def amdahl(share: float, speed_up: float) -> float:
    """Return the overall speed-up if a part with this share of the time runs ``speed_up`` times as fast (Amdahl's law)."""
    if not 0 <= share <= 1 or not speed_up > 0:
        raise TimingError(f"share {share} must be within 0 and 1, speed-up {speed_up} above 0")
    return 1 / (1 - share + share / speed_up)


class Rounds(NamedTuple):
    """Times of repeated rounds of the same work.

    seconds: time of each round.
    calibration: loop ("python", "numba") -> its speed at each round, the mean of the results before and after the round.
    """

    seconds: list[float]
    calibration: dict[str, list[float]]


def measure_rounds(work: Callable[[], object], rounds: int) -> Rounds:
    """Time ``rounds`` calls of ``work``, which must be compiled already."""
    calibrate()  # compiles the Numba loop
    results, seconds = [calibrate()], []
    for _ in range(rounds):
        seconds.append(seconds_of(work))
        results.append(calibrate())
    pairs = list(itertools.pairwise(results))
    return Rounds(seconds, {name: [(a[name] + b[name]) / 2 for a, b in pairs] for name in results[0]})


def relative_to_loops(rates: Sequence[float], calibration: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return, for each calibration loop, the median units of work per million iterations of the loop.

    rates: units of work per second of each round.  calibration: see ``Rounds``.
    """
    return {loop: float(np.median(np.divide(rates, speeds))) for loop, speeds in calibration.items()}


def relative_speeds(result: Mapping, baseline: Mapping) -> dict[str, float]:
    """Return the speed of a result divided by that of a baseline of any machine, by calibration loop.

    result, baseline: mappings with the entry "relative" (see ``relative_to_loops``).
    """
    return {loop: result["relative"][loop] / value for loop, value in baseline["relative"].items()}


def load_baseline(path: str | Path) -> dict[str, dict]:
    """Read stored results of ``python -m nppsim bench --json`` by workload.  Raises TimingError for another file."""
    shape = {"workloads": {...: {"relative": {"python": float, "numba": float}}}}
    return read_json(path, TimingError, "give the output of python -m nppsim bench --json", shape=shape)["workloads"]


def is_slower(result: Mapping, baseline: Mapping) -> bool:
    """Return True if a result is slower than a baseline of any machine by more than TOLERANCE, by every loop."""
    return max(relative_speeds(result, baseline).values()) < 1 - TOLERANCE


def abba(pairs: int) -> Iterator[tuple[str, str]]:
    """Yield pairs whose order alternates: ("a", "b"), ("b", "a"), ("a", "b"), ..."""
    for k in range(pairs):
        yield ("b", "a") if k % 2 else ("a", "b")


def alternate(a: Callable[[], object], b: Callable[[], object], pairs: int) -> tuple[list[float], list[float]]:
    """Run two functions in the order of ``abba``; return the seconds of the calls of ``a`` and ``b``, paired by index."""
    work = {"a": a, "b": b}
    seconds: dict[str, list[float]] = {"a": [], "b": []}
    for name in itertools.chain.from_iterable(abba(pairs)):
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
