"""Joint choice of the number of environments, rollout length and minibatch size.

1. Decisions per update: 8 K to 32 K, for about 200 updates; fewer than 8 K only for runs shorter than that.
2. Number of environments: chosen so that rollouts have 64 decisions, which is long enough for credit assignment.
3. Minibatch size: an eighth of the decisions per update.
Requested values are never changed.  Other sizes are reduced, with a note, if they do not fit into memory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log2
from typing import NamedTuple

from hardware.detect import GB, Machine
from hardware.memory import MemoryNeeds, MemoryRow, has_images, total
from hardware.plan_request import PlanRequest
from hardware.profiles import PlanError, Profile

WANTED_UPDATES = 200  # desired updates per run; with fewer, the policy changes too rarely to learn much
MIN_ENVS = 64  # minimum; with fewer environments, the decisions of a rollout are strongly correlated
# Rollout lengths in decisions.  For comparison, the horizon of gamma 0.995 is about 200 decisions.
MIN_ROLLOUT = 32
USUAL_ROLLOUT = 64
MAX_ROLLOUT = 256
# Decisions per update.
MIN_BATCH = 8_192
MAX_BATCH = 32_768
MAX_BATCH_IMAGES_ON_CPU = 8_192  # maximum if convolutions run on the CPU; a rollout takes 5 s at 1,500 decisions/s
# Decisions per minibatch.
MINIBATCHES = 8  # target number of minibatches per epoch
MIN_MINIBATCH = 32
MAX_MINIBATCH = 4_096
MAX_MINIBATCH_IMAGES_ON_CPU = 1_024
MAX_MINIBATCH_PER_GPU = 8_192
TRIAL_BATCH = 512  # decisions per update of the shortest runs

HOST_SHARE = 0.8  # usable share of host memory; the operating system, evaluation and video need the rest
DEVICE_SHARE = 0.9  # usable share of GPU memory; fragmentation and CUDA need the rest

_REMEDIES = {
    "rollout buffer": "lower --num-envs or the rollout length",
    "environments": "lower --num-envs",
    "network update": "lower the minibatch size or --num-envs",
    "encoded graphs": "lower --num-envs or the rollout length",
    "processes": "use a machine with more memory",
}


class Sizes(NamedTuple):
    """Sizes of a run; num_envs and minibatch_size are totals over all processes, rollout_length is in decisions."""

    num_envs: int
    rollout_length: int
    minibatch_size: int


@dataclass(frozen=True)
class Chosen:
    """A chosen value."""

    value: int | float | str | None
    source: str  # "default", "profile NAME", "measurement", "flag" or "memory limit"
    note: str = ""  # reason for the choice


@dataclass(frozen=True)
class Task:
    """Input of the plan: request, profile, machine, and memory needs of the run."""

    request: PlanRequest
    profile: Profile | None
    machine: Machine
    needs: MemoryNeeds

    @property
    def cores(self) -> int:
        """Cores per process."""
        return max(self.machine.cores // self.needs.processes, 1)

    @property
    def host_budget(self) -> int:
        """Upper limit of host memory in bytes."""
        return int(HOST_SHARE * self.machine.memory_bytes)

    @property
    def device_budget(self) -> int:
        """Upper limit of memory per GPU in bytes; 0 without a GPU."""
        gpus = self.machine.gpus[: self.needs.gpus]
        return int(DEVICE_SHARE * min(gpu.memory_bytes for gpu in gpus)) if gpus else 0

    def excess(self, rows: Iterable[MemoryRow]) -> int:
        """Return the bytes over budget on host or device, whichever is more; 0 or less if everything fits."""
        rows = tuple(rows)
        return max(total(rows, "host") - self.host_budget, total(rows, "device") - self.device_budget)

    def requested(self, name: str) -> int | None:
        """Return the requested value of a field of ``Sizes``, or None."""
        return getattr(self.request, name)


def choose_sizes(task: Task) -> tuple[Sizes, dict[str, Chosen]]:
    """Return the sizes that fit into memory and are nearest to the targets, and the source of each size by name."""
    candidates = [sizes for _, sizes in sorted(_candidates(task))]
    if not candidates:
        raise _indivisible(task)
    fitting = next((sizes for sizes in candidates if task.excess(task.needs.rows(*sizes)) <= 0), None)
    if fitting is None:
        raise _too_large(task, candidates)
    sources = (_setting(task, *column) for column in zip(Sizes._fields, fitting, candidates[0], strict=True))
    return fitting, dict(zip(Sizes._fields, sources, strict=True))


def _setting(task: Task, name: str, value: int, unlimited: int) -> Chosen:
    """Return a size with its source.  unlimited: the value that would be chosen without a memory limit."""
    if task.requested(name) is not None:
        return Chosen(value, "flag")
    if value != unlimited:
        return Chosen(value, "memory limit", f"{unlimited} would be better, but does not fit into memory")
    if task.profile is None:
        return Chosen(value, "default")
    usual = getattr(task.profile, name)
    if value == usual:
        return Chosen(value, f"profile {task.profile.name}")
    return Chosen(value, "default", f"{usual} of profile {task.profile.name} is incompatible with the flags")


def _target_batch(task: Task) -> int:
    """Return the decisions per update: a power of two that gives about WANTED_UPDATES updates, within the limits."""
    most = MAX_BATCH_IMAGES_ON_CPU if task.needs.slow_images else MAX_BATCH * (2 if task.needs.gpus > 1 else 1)
    steps = task.request.total_timesteps
    if steps is None:
        return most
    wanted = max(MIN_BATCH, min(most, steps // WANTED_UPDATES))
    return 1 << (min(wanted, max(steps, TRIAL_BATCH)).bit_length() - 1)


def _largest_minibatch(task: Task) -> int:
    if task.profile is not None:
        return task.profile.minibatch_size
    if task.needs.gpus:
        return MAX_MINIBATCH_PER_GPU * task.needs.gpus
    return MAX_MINIBATCH_IMAGES_ON_CPU if task.needs.slow_images else MAX_MINIBATCH


def _candidates(task: Task) -> Iterator[tuple[float, Sizes]]:
    """Yield (distance from the targets in powers of two, sizes) for every combination to consider."""
    processes, largest = task.needs.processes, _largest_minibatch(task)
    requested = task.request.minibatch_size
    for num_envs in _environments(task):
        for rollout in _rollouts(task):
            batch = num_envs * rollout
            distance = _distance(task, num_envs, rollout)
            wanted = min(largest, max(batch // MINIBATCHES, 1))
            for minibatch in [requested] if requested else _divisors(batch):
                if batch % minibatch == 0 and num_envs % processes == 0 and minibatch % processes == 0:
                    yield distance + 0.5 * abs(log2(minibatch / wanted)), Sizes(num_envs, rollout, minibatch)


def _environments(task: Task) -> set[int]:
    if task.request.num_envs:
        return {task.request.num_envs}
    processes = task.needs.processes
    powers = {
        processes * -(-(1 << n) // processes) for n in range(3, 13)
    }  # 8 to 4096, rounded up to multiples of ``processes``
    return powers | ({task.profile.num_envs} if task.profile else set())


def _rollouts(task: Task) -> set[int]:
    if task.request.rollout_length:
        return {task.request.rollout_length}
    if task.request.minibatch_size:
        return set(range(MIN_ROLLOUT, MAX_ROLLOUT + 1))  # an unusual minibatch size may need an unusual rollout length
    return {32, 64, 128, 256}


def _distance(task: Task, num_envs: int, rollout: int) -> float:
    """Return how far sizes are from the profile's sizes, in powers of two.

    Without a profile, the sizes are compared with the target decisions per update and rollout length.
    """
    preset = task.profile
    if preset is not None:
        distance = abs(log2(num_envs / preset.num_envs)) + abs(log2(rollout / preset.rollout_length))
    else:
        distance = abs(log2(num_envs * rollout / _target_batch(task))) + 0.25 * abs(log2(rollout / USUAL_ROLLOUT))
    return distance + 0.01 * (rollout.bit_count() > 1)  # prefer powers of two


def _divisors(batch: int) -> list[int]:
    """Return the divisors of ``batch`` that are at least 32, or the batch itself if it is smaller."""
    small = [n for n in range(1, int(batch**0.5) + 1) if batch % n == 0]
    return sorted({d for n in small for d in (n, batch // n) if d >= min(MIN_MINIBATCH, batch)})


def _given(task: Task) -> str:
    return ", ".join(f"{name}={task.requested(name)}" for name in Sizes._fields if task.requested(name))


def _indivisible(task: Task) -> PlanError:
    request, processes = task.request, task.needs.processes
    if any((task.requested(name) or 0) % processes for name in ("num_envs", "minibatch_size")):
        return PlanError(f"{_given(task)}: num_envs and minibatch_size must be multiples of the {processes} processes")
    if request.num_envs and request.rollout_length and request.minibatch_size:
        batch, requested = request.num_envs * request.rollout_length, request.minibatch_size
        near = min(
            (d for d in _divisors(batch) if d % processes == 0), default=batch, key=lambda d: abs(log2(d / requested))
        )
        return PlanError(
            f"{_given(task)}: the minibatch size does not divide the {batch} decisions of an update; try {near}"
        )
    return PlanError(
        f"{_given(task)}: the minibatch size divides the decisions of an update for no rollout length from {MIN_ROLLOUT} "
        f"to {MAX_ROLLOUT}; choose a power of two, or give num_envs, rollout_length and minibatch_size together"
    )


def _too_large(task: Task, candidates: Iterable[Sizes]) -> PlanError:
    """Return an error that names the smallest sizes, the memory they need, its largest part, and a remedy."""
    smallest = min(candidates, key=lambda sizes: task.excess(task.needs.rows(*sizes)))
    rows = task.needs.rows(*smallest)
    where, budget = "host", task.host_budget
    if total(rows, "host") <= budget:
        where, budget = "device", task.device_budget
    largest = max((row for row in rows if row.where == where), key=lambda row: row.bytes)
    given = _given(task)
    return PlanError(
        f"not enough {where} memory: even {', '.join(f'{name}={n}' for name, n in smallest._asdict().items())} "
        f"needs {total(rows, where) / GB:.2f} GB, but only {budget / GB:.2f} GB may be used; "
        f"the largest part is {largest.name} ({largest.bytes / GB:.2f} GB = {largest.how}); {_REMEDIES[largest.name]}"
        + (f" (given: {given})" if given else "")
        + (", or choose an architecture without images" if has_images(task.needs.observations) else "")
    )
