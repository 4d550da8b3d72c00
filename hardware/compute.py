"""How a network computes: precision and threads, by timing updates as training makes them, where somebody does that.

What a processor claims says little: bf16 is three times as fast as float32 on one with AVX512-BF16, slower on one without.
How threads do can be seen only while nobody else wants the cores.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import NamedTuple

from hardware.plan_request import PRECISIONS
from hardware.sizes import Chosen, Task

MAX_THREADS = 16
THREAD_GAIN = 1.05  # what each doubling of threads must gain to be worth it
BF16_GAIN = 1.1  # what bf16 must gain to be worth its rounding
BUSY = 0.1  # share of the cores that others may have while threads are compared


class Way(NamedTuple):
    """One way to compute an update on the CPU; precision: of PRECISIONS."""

    precision: str
    threads: int


class Timings(NamedTuple):
    """Updates in several ways: the least time of each, and what disturbed them.

    wall: seconds.
    processor: seconds of all threads together.
    others: share of the cores that other programs kept busy meanwhile.
    date: of the day, for timings that are kept; "": just now.
    """

    wall: list[float]
    processor: list[float]
    others: float
    date: str = ""


Race = Callable[[int, list[Way]], Timings]  # of: decisions of a minibatch, ways


def choose_way(task: Task, minibatch_size: int, race: Race | None) -> dict[str, Chosen]:
    """The settings ``torch_threads`` and ``precision``.

    Without a race: as many threads as cores, bf16 where the hardware has instructions for it.
    """
    usual = {"torch_threads": _usual_threads(task), "precision": _usual_precision(task)}
    request = task.request
    given = {
        name: Chosen(value, "flag")
        for name, value in (("torch_threads", request.torch_threads), ("precision", request.precision))
        if value is not None
    }
    if race is None or task.needs.gpus or len(given) == 2:
        return usual | given
    ways = [
        Way(precision, threads)
        for precision in ([request.precision] if request.precision else PRECISIONS)
        for threads in ([request.torch_threads] if request.torch_threads else _counts(task.cores))
    ]
    each = max(minibatch_size // task.needs.processes, 1)
    return _fastest(ways, race(each, ways), each) | given


def _fastest(ways: Sequence[Way], timings: Timings, minibatch_size: int) -> dict[str, Chosen]:
    """Precision by processor time, which others hardly disturb; threads by wall time, unless others have the cores."""
    processor = dict(zip(ways, timings.processor, strict=True))
    precision = min(ways, key=lambda way: processor[way] * (BF16_GAIN if way.precision == "bf16" else 1)).precision
    wall = dict(zip(ways, timings.wall, strict=True))
    when = f", {timings.date}" if timings.date else ""
    note = f"update of {minibatch_size}{when}, {_told(wall)}"
    rivals = [way for way in ways if way.precision == precision]
    if timings.others > BUSY:
        threads = max(way.threads for way in rivals)
        note = f"others had {timings.others:.0%} of the cores, so no fewer than there are; {note}"
    else:
        threads = min(rivals, key=lambda way: wall[way] * THREAD_GAIN ** log2(way.threads)).threads
    return {
        "torch_threads": Chosen(threads, "measurement", note),
        "precision": Chosen(precision, "measurement", "by the processor time of the same updates"),
    }


def _counts(cores: int) -> list[int]:
    """Powers of two up to the number of cores, and that number itself."""
    most = min(cores, MAX_THREADS)
    return sorted({*(1 << n for n in range(most.bit_length()) if 1 << n < most), most})


def _told(seconds: dict[Way, float]) -> str:
    """For example ``float32 by threads 1: 56 ms, 2: 31 ms; bf16 by threads 1: 18 ms, 2: 10 ms``."""
    rows = []
    for precision in PRECISIONS:
        times = [f"{way.threads}: {1000 * s:.0f} ms" for way, s in seconds.items() if way.precision == precision]
        if times:
            rows.append(f"{precision} by threads {', '.join(times)}")
    return "; ".join(rows)


def _usual_threads(task: Task) -> Chosen:
    if task.needs.gpus:
        return Chosen(1, "default", "the GPU computes")
    return Chosen(min(task.cores, MAX_THREADS), "default", "each takes a part of a minibatch")


def _usual_precision(task: Task) -> Chosen:
    gpus = task.machine.gpus[: task.needs.gpus]
    if gpus:
        fast = all(gpu.bf16 for gpu in gpus)
        return Chosen("bf16" if fast else "float32", "default", f"the GPU has {'' if fast else 'no '}fast bf16")
    fast = bool(task.machine.bf16)
    return Chosen("bf16" if fast else "float32", "default", f"the CPU has {task.machine.bf16 or 'no bf16'}")
