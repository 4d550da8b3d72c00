"""Choice of the number of environments, rollout length and minibatch size.

1. Rollouts have 64 decisions, which is long enough for credit assignment.
2. A run has about 200 updates or more, of at least 8 K decisions.
3. On a CPU, updates have up to 32 K decisions (8 K with images), the sizes that trained best; speed hardly depends on them.
   On a GPU, the number of environments is doubled while this raises the decisions per second by GROWTH, measured or modelled.
4. A minibatch is an eighth of the decisions per update.
Requested values are never changed.  If the sizes do not fit into memory, first the minibatch and then the number of
environments is reduced, with a note.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log2

from hardware.machine import GB, Machine, PlanError
from hardware.memory import MemoryNeeds, MemoryRow, has_images, total
from hardware.request import PlanRequest, Profile
from hardware.throughput import Sizes

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
MAX_BATCH_PER_GPU = 131_072
TRIAL_BATCH = 512  # decisions per update of the shortest runs
GROWTH = 1.25  # minimum gain of speed for which the decisions per update are doubled, as each then teaches less
# Decisions per minibatch.
MINIBATCHES = 8  # target number of minibatches per epoch
MAX_MINIBATCHES = 64  # maximum number; with more, gradients are noisy and updates slow
MAX_MINIBATCH = 4_096
MAX_MINIBATCH_IMAGES_ON_CPU = 1_024
MAX_MINIBATCH_PER_GPU = 8_192

HOST_SHARE = 0.8  # usable share of host memory; the operating system, evaluation and video need the rest
DEVICE_SHARE = 0.9  # usable share of GPU memory; fragmentation and CUDA need the rest

_REMEDIES = {
    "rollout buffer": "lower --num-envs or the rollout length",
    "environments": "lower --num-envs",
    "network update": "lower the minibatch size or --num-envs",
    "encoded graphs": "lower --num-envs or the rollout length",
    "processes": "use a machine with more memory",
}

Throughput = Callable[[Sizes], float]  # sizes -> decisions per second of PPO


@dataclass(frozen=True)
class Chosen:
    """A chosen value."""

    value: int | float | str | None
    source: str  # "default", "profile NAME", "measurement", "flag" or "memory limit"
    note: str = ""  # reason for the choice


@dataclass(frozen=True)
class Constraints:
    """Request, profile, machine, and memory needs of a run."""

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

    def excess(self, sizes: Sizes) -> int:
        """Return the bytes over budget on host or device, whichever is more; 0 or less if everything fits."""
        rows = self.needs.rows(*sizes)
        return max(total(rows, "host") - self.host_budget, total(rows, "device") - self.device_budget)

    def fixed(self, name: str) -> int | None:
        """Return the requested value of a field of ``Sizes``, else that of the profile, else None."""
        return getattr(self.request, name) or (getattr(self.profile, name) if self.profile else None)


def choose_sizes(constraints: Constraints, throughput: Throughput, measured: bool) -> dict[str, Chosen]:
    """Return the sizes that fit into memory, by name.  Raises PlanError if there are none.

    measured: True if ``throughput`` is measured, False if it is modelled.
    """
    options = list(_options(constraints, throughput))
    if not options:
        raise _indivisible(constraints)
    fitting = next((sizes for sizes in options if constraints.excess(sizes) <= 0), None)
    if fitting is None:
        raise _too_large(constraints, options)
    columns = zip(Sizes._fields, fitting, options[0], strict=True)
    chosen = {name: _setting(constraints, name, value, unlimited) for name, value, unlimited in columns}
    if constraints.needs.gpus and constraints.profile is None and chosen["num_envs"].source == "default":
        source, kind = ("measurement", "measured") if measured else ("default", "modelled")
        chosen["num_envs"] = Chosen(fitting.num_envs, source, f"by {kind} decisions/s")
    return chosen


def _setting(constraints: Constraints, name: str, value: int, unlimited: int) -> Chosen:
    """Return a size with its source.  unlimited: the value that would be chosen without a memory limit."""
    if getattr(constraints.request, name) is not None:
        return Chosen(value, "flag")
    if value != unlimited:
        return Chosen(value, "memory limit", f"{unlimited} would be better, but does not fit into memory")
    profile = constraints.profile
    if profile is None:
        return Chosen(value, "default")
    usual = getattr(profile, name)
    if value == usual:
        return Chosen(value, f"profile {profile.name}")
    return Chosen(value, "default", f"{usual} of profile {profile.name} is incompatible with the flags")


def _options(constraints: Constraints, throughput: Throughput) -> Iterator[Sizes]:
    """Yield sizes that agree with the request, best first: smaller minibatches, then fewer environments."""
    request, processes = constraints.request, constraints.needs.processes
    wanted = constraints.fixed("num_envs") or _wanted_envs(constraints, throughput)
    counts = [wanted >> n for n in range(wanted.bit_length()) if wanted >> n >= min(8, wanted)]
    for num_envs in [request.num_envs] if request.num_envs else [processes * -(-n // processes) for n in counts]:
        for rollout in _rollouts(constraints, num_envs):
            batch = num_envs * rollout
            target = min(
                constraints.fixed("minibatch_size") or _max_minibatch(constraints), max(batch // MINIBATCHES, 1)
            )
            sizes = [request.minibatch_size] if request.minibatch_size else _minibatches(batch, target)
            for minibatch in sizes:
                if batch % minibatch == 0 and num_envs % processes == 0 and minibatch % processes == 0:
                    yield Sizes(num_envs, rollout, minibatch)


def _rollouts(constraints: Constraints, num_envs: int) -> list[int]:
    """Return rollout lengths to consider, best first."""
    if constraints.request.rollout_length:
        return [constraints.request.rollout_length]
    usual, minibatch = constraints.fixed("rollout_length") or USUAL_ROLLOUT, constraints.request.minibatch_size
    if minibatch:  # an unusual minibatch size may need an unusual rollout length
        lengths = [n for n in range(MIN_ROLLOUT, MAX_ROLLOUT + 1) if num_envs * n % minibatch == 0]
        return sorted(lengths, key=lambda n: (abs(log2(n / usual)), n))
    return [usual, MIN_ROLLOUT] if constraints.request.num_envs and usual > MIN_ROLLOUT else [usual]


def _minibatches(batch: int, target: int) -> list[int]:
    """Return divisors of a batch, best first: the nearest to ``target``, smaller ones up to MAX_MINIBATCHES, larger ones."""
    small = [n for n in range(1, int(batch**0.5) + 1) if batch % n == 0]
    divisors = sorted({d for n in small for d in (n, batch // n)})
    best = min(divisors, key=lambda d: abs(log2(d / target)))
    smaller = [d for d in reversed(divisors) if d < best and batch // d <= MAX_MINIBATCHES]
    return [best, *smaller, *(d for d in divisors if d > best)]


def _wanted_envs(constraints: Constraints, throughput: Throughput) -> int:
    """Return the number of environments, a power of two, for a requested or the usual rollout length."""
    gpus, steps = constraints.needs.gpus, constraints.request.total_timesteps
    most = MAX_BATCH_PER_GPU * gpus or (MAX_BATCH_IMAGES_ON_CPU if constraints.needs.convolutions_on_cpu else MAX_BATCH)
    if steps is not None:
        most = min(max(MIN_BATCH, min(most, steps // WANTED_UPDATES)), max(steps, TRIAL_BATCH))
    rollout = constraints.fixed("rollout_length") or USUAL_ROLLOUT

    def sizes(batch: int) -> Sizes:
        minibatch = constraints.request.minibatch_size or min(_max_minibatch(constraints), batch // MINIBATCHES)
        return Sizes(max(batch // rollout, 1), rollout, max(minibatch, 1))

    batch = 1 << (most.bit_length() - 1)
    if gpus:
        most, batch = batch, min(batch, MIN_BATCH * gpus)
        while 2 * batch <= most and throughput(sizes(2 * batch)) > GROWTH * throughput(sizes(batch)):
            batch *= 2
    return max(1 << (max(batch // rollout, 1).bit_length() - 1), 8)


def _max_minibatch(constraints: Constraints) -> int:
    if constraints.needs.gpus:
        return MAX_MINIBATCH_PER_GPU * constraints.needs.gpus
    return MAX_MINIBATCH_IMAGES_ON_CPU if constraints.needs.convolutions_on_cpu else MAX_MINIBATCH


def _given(constraints: Constraints) -> str:
    values = {name: getattr(constraints.request, name) for name in Sizes._fields}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value)


def _indivisible(constraints: Constraints) -> PlanError:
    request, processes, given = constraints.request, constraints.needs.processes, _given(constraints)
    if (request.num_envs or 0) % processes or (request.minibatch_size or 0) % processes:
        return PlanError(f"{given}: num_envs and minibatch_size must be multiples of the {processes} processes")
    if request.num_envs and request.rollout_length and request.minibatch_size:
        batch = request.num_envs * request.rollout_length
        near = next((d for d in _minibatches(batch, request.minibatch_size) if d % processes == 0), batch)
        return PlanError(f"{given}: the minibatch size does not divide the {batch} decisions of an update; try {near}")
    return PlanError(
        f"{given}: the minibatch size divides the decisions of an update for no rollout length from {MIN_ROLLOUT} "
        f"to {MAX_ROLLOUT}; choose a power of two, or give num_envs, rollout_length and minibatch_size together"
    )


def _too_large(constraints: Constraints, options: Iterable[Sizes]) -> PlanError:
    """Return an error that names the smallest sizes, the memory they need, its largest part, and a remedy."""
    smallest = min(options, key=constraints.excess)
    rows: tuple[MemoryRow, ...] = constraints.needs.rows(*smallest)
    where, budget = "host", constraints.host_budget
    if total(rows, "host") <= budget:
        where, budget = "device", constraints.device_budget
    largest = max((row for row in rows if row.where == where), key=lambda row: row.bytes)
    given = _given(constraints)
    return PlanError(
        f"not enough {where} memory: even {', '.join(f'{name}={n}' for name, n in smallest._asdict().items())} "
        f"needs {total(rows, where) / GB:.2f} GB, but only {budget / GB:.2f} GB may be used; "
        f"the largest part is {largest.name} ({largest.bytes / GB:.2f} GB = {largest.how}); {_REMEDIES[largest.name]}"
        + (f" (given: {given})" if given else "")
        + (", or choose an architecture without images" if has_images(constraints.needs.observations) else "")
    )
