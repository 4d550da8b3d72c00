"""How a network computes: precision and threads, by timing updates as training makes them, where somebody does that.

What a processor claims says little: bf16 is three times as fast as float32 on one with AVX512-BF16, slower on one without; a
second thread is worth what the rest of the machine leaves of it.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import NamedTuple

from hardware.sizes import Chosen, Task
from hardware.wishes import PRECISIONS

MAX_THREADS = 16
# What each doubling of threads may lose and is taken all the same: whatever else runs on the machine can only make more
# threads look worse than they are, and waiting ones cost nobody anything.
THREAD_LOSS = 1.1
BF16_GAIN = 1.1  # what bf16 must gain to be worth its rounding


class Way(NamedTuple):
    """One way to compute an update on the CPU; precision: of PRECISIONS."""

    precision: str
    threads: int

    @property
    def handicap(self) -> float:
        """What its time is multiplied by in a comparison."""
        return (BF16_GAIN if self.precision == "bf16" else 1.0) / THREAD_LOSS ** log2(self.threads)


# (decisions of a minibatch, ways) -> seconds of an update in each of the ways
Race = Callable[[int, Sequence[Way]], Sequence[float]]


def choose_way(task: Task, minibatch_size: int, race: Race | None) -> dict[str, Chosen]:
    """The settings ``torch_threads`` and ``precision``.

    Without a race: as many threads as cores, bf16 where the hardware has instructions for it.
    """
    usual = {"torch_threads": _usual_threads(task), "precision": _usual_precision(task)}
    wishes = task.wishes
    given = {
        name: Chosen(value, "flag")
        for name, value in (("torch_threads", wishes.torch_threads), ("precision", wishes.precision))
        if value is not None
    }
    if race is None or task.needs.gpus or len(given) == 2:
        return usual | given
    ways = [
        Way(precision, threads)
        for precision in ([wishes.precision] if wishes.precision else PRECISIONS)
        for threads in ([wishes.torch_threads] if wishes.torch_threads else _counts(task.cores))
    ]
    seconds = dict(zip(ways, race(minibatch_size, ways), strict=True))
    best = min(ways, key=lambda way: seconds[way] * way.handicap)
    measured = {
        "torch_threads": Chosen(best.threads, "measurement", f"update of {minibatch_size}, {_told(seconds)}"),
        "precision": Chosen(best.precision, "measurement", "by the same updates"),
    }
    return measured | given


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
