"""Choice of precision and number of threads for updates on the CPU, by timing updates if a benchmark is given.

bf16 is three times as fast as float32 on CPUs with AVX512-BF16, but slower on others, so it has to be measured.
Timings of thread counts are meaningful only while the cores are otherwise idle.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import NamedTuple

from hardware.request import PRECISIONS
from hardware.sizes import Chosen, Constraints

MAX_THREADS = 16
THREAD_GAIN = 1.05  # minimum speed-up for which the number of threads is doubled
BF16_GAIN = 1.1  # minimum speed-up for which the rounding of bf16 is accepted
BUSY = 0.1  # maximum share of the cores that other programs may use while numbers of threads are compared


class ComputeOption(NamedTuple):
    """Precision and number of threads of an update on the CPU."""

    precision: str  # one of PRECISIONS
    threads: int  # number of torch threads


class Timings(NamedTuple):
    """Duration of the fastest update of each candidate, and the load of the machine during the measurement."""

    wall: list[float]  # wall-clock time in seconds, by candidate
    processor: list[float]  # CPU time in seconds, summed over all threads, by candidate
    others: float  # share of the cores that other programs used during the measurement
    date: str = ""  # ISO date of stored timings; "" for new timings


Benchmark = Callable[[int, list[ComputeOption]], Timings]  # (decisions per minibatch, candidates) -> timings


def choose_compute(constraints: Constraints, minibatch_size: int, benchmark: Benchmark | None) -> dict[str, Chosen]:
    """Choose ``torch_threads`` and ``precision``; return both by name.

    Without a benchmark, updates on the CPU use one thread per core, at most MAX_THREADS.  bf16 is then chosen if the CPU or
    GPU computes it fast.
    """
    request, gpus = constraints.request, constraints.machine.gpus[: constraints.needs.gpus]
    if gpus:
        threads, reason = 1, "updates run on the GPU"
        fast, bf16 = all(gpu.bf16 for gpu in gpus), "the GPU has fast bf16"
    else:
        threads, reason = min(constraints.cores, MAX_THREADS), "each thread processes a part of the minibatch"
        fast, bf16 = bool(constraints.machine.bf16), f"the CPU has {constraints.machine.bf16}"
    usual = {
        "torch_threads": Chosen(threads, "default", reason),
        "precision": Chosen("bf16" if fast else "float32", "default", bf16 if fast else "no fast bf16"),
    }
    requested = {name: Chosen(getattr(request, name), "flag") for name in usual if getattr(request, name) is not None}
    if benchmark is None or gpus or len(requested) == 2:
        return usual | requested
    candidates = [
        ComputeOption(precision, threads)
        for precision in ([request.precision] if request.precision else PRECISIONS)
        for threads in ([request.torch_threads] if request.torch_threads else _thread_counts(constraints.cores))
    ]
    each = max(minibatch_size // constraints.needs.processes, 1)
    return _fastest(candidates, benchmark(each, candidates), each) | requested


def _fastest(candidates: Sequence[ComputeOption], timings: Timings, minibatch_size: int) -> dict[str, Chosen]:
    """Choose the precision by CPU time, which other programs hardly affect, and the number of threads by wall-clock time.

    If other programs use the cores, wall-clock time is meaningless, and the largest number of threads is chosen.
    """
    processor = dict(zip(candidates, timings.processor, strict=True))
    precision = min(
        candidates, key=lambda candidate: processor[candidate] * (BF16_GAIN if candidate.precision == "bf16" else 1)
    ).precision
    wall = dict(zip(candidates, timings.wall, strict=True))
    when = f", {timings.date}" if timings.date else ""
    note = f"update of {minibatch_size}{when}, {_describe(wall)}"
    options = [candidate for candidate in candidates if candidate.precision == precision]
    if timings.others > BUSY:
        threads = max(candidate.threads for candidate in options)
        note = f"not compared: other programs used {timings.others:.0%} of the cores; {note}"
    else:
        threads = min(options, key=lambda c: wall[c] * THREAD_GAIN ** log2(c.threads)).threads
    return {
        "torch_threads": Chosen(threads, "measurement", note),
        "precision": Chosen(precision, "measurement", "by the CPU time of the same updates"),
    }


def _thread_counts(cores: int) -> list[int]:
    """Return the numbers of threads to compare: powers of two below the number of cores, and that number; at most 16."""
    most = min(cores, MAX_THREADS)
    return sorted({*(1 << n for n in range(most.bit_length()) if 1 << n < most), most})


def _describe(seconds: dict[ComputeOption, float]) -> str:
    """Format timings as ``float32 by threads 1: 56 ms, 2: 31 ms; bf16 by threads 1: 18 ms, 2: 10 ms``."""
    rows = []
    for precision in PRECISIONS:
        times = [
            f"{candidate.threads}: {1000 * s:.0f} ms"
            for candidate, s in seconds.items()
            if candidate.precision == precision
        ]
        if times:
            rows.append(f"{precision} by threads {', '.join(times)}")
    return "; ".join(rows)
