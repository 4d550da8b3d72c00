"""Choose environments, rollout length and minibatch together, for the memory at hand and a wanted number of updates.

The order of thought (the reverse of "as many environments as the GPU holds"): first the decisions per update, 8 K to
32 K, fewer for short runs so that the policy is refreshed some hundred times; then as many environments as leave a
rollout of 64 decisions, long enough for credit to travel; then a minibatch of an eighth, which always divides.
Explicit flags win over the profile, the profile over the automatic choice; what does not fit is an error or, where the
number was nobody's wish, made smaller and said so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, log2

from hardware.detect import GB, Machine, detect
from hardware.memory import MemoryNeeds, MemoryRow, estimate_update, has_images, measure_update, total
from hardware.profiles import PlanError, Profile, find_profile
from nppsim.observe import layout

# For the command line, which has no network at hand; a test compares it with the architectures themselves.
ARCHITECTURE_OBSERVATIONS: dict[str, tuple[str, ...]] = {"mlp_baseline": layout.ALL, "vision_free": layout.VISION_FREE}

WANTED_UPDATES = 200  # below this the behaviour policy is refreshed too seldom to learn much
MIN_ENVS = 64  # below this the decisions of a rollout are too much alike
MIN_ROLLOUT, USUAL_ROLLOUT, MAX_ROLLOUT = 32, 64, 256  # decisions; gamma 0.995 looks about 200 ahead
MIN_BATCH = 8_192  # decisions per update
MAX_BATCH = 32_768
MAX_BATCH_IMAGES_ON_CPU = 8_192  # 1,500 decisions/s: a larger update takes longer than anybody likes to wait
MINIBATCHES = 8  # per epoch
MAX_MINIBATCH, MAX_MINIBATCH_IMAGES_ON_CPU, MAX_MINIBATCH_PER_GPU = 4_096, 1_024, 8_192
HOST_SHARE = 0.8  # of host memory: the system, evaluation and video need some too
DEVICE_SHARE = 0.9  # of a GPU's memory: the rest is fragmentation and CUDA's own

PRECISIONS, DEVICES = ("float32", "bf16"), ("cpu", "cuda")
_SIZES = ("num_envs", "rollout_length", "minibatch_size")


@dataclass(frozen=True)
class Setting:
    """A chosen value.  source: "default", "profile NAME", "measurement", "flag" or "memory limit"; note: why."""

    value: int | float | str | None
    source: str
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """The sizes of a training run, where each comes from, and the memory they take.  ``str(plan)`` is a table.

    settings: num_envs, rollout_length (decisions), minibatch_size (all three: totals over the GPUs), epochs,
    torch_threads, simulator_threads (per process), precision "float32" or "bf16", device "cpu" or "cuda" and
    learning_rate (None leaves it to PPO's settings).  gpus: used by this plan.  memory: the arithmetic; host_budget
    and device_budget (per GPU, 0 without): bytes it may sum to.  total_timesteps: decisions, or None if unknown.
    """

    machine: Machine
    observations: tuple[str, ...]
    settings: Mapping[str, Setting]
    gpus: int
    memory: tuple[MemoryRow, ...]
    host_budget: int
    device_budget: int
    total_timesteps: int | None
    warnings: tuple[str, ...]

    num_envs = property(lambda self: self.settings["num_envs"].value)
    rollout_length = property(lambda self: self.settings["rollout_length"].value)
    minibatch_size = property(lambda self: self.settings["minibatch_size"].value)
    epochs = property(lambda self: self.settings["epochs"].value)
    torch_threads = property(lambda self: self.settings["torch_threads"].value)
    simulator_threads = property(lambda self: self.settings["simulator_threads"].value)
    precision = property(lambda self: self.settings["precision"].value)
    device = property(lambda self: self.settings["device"].value)
    learning_rate = property(lambda self: self.settings["learning_rate"].value)

    @property
    def batch_size(self) -> int:
        """Decisions per update."""
        return self.num_envs * self.rollout_length

    @property
    def updates(self) -> int | None:
        """Updates of the whole run; None if its length is unknown."""
        return None if self.total_timesteps is None else ceil(self.total_timesteps / self.batch_size)

    @property
    def host_bytes(self) -> int:
        """Host memory that the run will take."""
        return total(self.memory, "host")

    @property
    def device_bytes(self) -> int:
        """Memory that the run will take on each GPU; 0 on a CPU."""
        return total(self.memory, "device")

    def projection(self, update_s: float, limit_s: float | None = None) -> str:
        """A sentence on how long the run will take, from the seconds that one whole update took.

        Raises PlanError if that is longer than limit_s seconds.
        """
        if self.updates is None:
            raise PlanError("the length of the run is unknown: plan(..., total_timesteps=...) is needed to project it")
        whole = self.updates * update_s
        text = f"{update_s:.1f} s per update of {self.batch_size} decisions: {self.updates} updates take {_time(whole)}"
        if limit_s is not None and whole > limit_s:
            raise PlanError(f"{text}, more than the {_time(limit_s)} allowed; lower --total-timesteps")
        return text

    def table(self) -> str:
        """The plan for people: machine, settings with sources, memory arithmetic, updates, warnings."""
        lines = [f"machine: {self.machine.name}", "", f"{'setting':<18}{'value':<10}{'source':<22}note"]
        for name, setting in self.settings.items():
            if setting.value is not None:
                lines.append(f"{name:<18}{setting.value!s:<10}{setting.source:<22}{setting.note}".rstrip())
        lines += ["", f"{'memory':<18}{'GB':<10}{'where':<10}arithmetic"]
        lines += [f"{row.name:<18}{row.bytes / GB:<10.3f}{row.where:<10}{row.how}" for row in self.memory]
        lines.append(f"host:   {self.host_bytes / GB:.2f} of {self.host_budget / GB:.2f} GB ({HOST_SHARE:.0%} of all)")
        if self.gpus:
            used, budget = self.device_bytes / GB, self.device_budget / GB
            lines.append(f"device: {used:.2f} of {budget:.2f} GB ({DEVICE_SHARE:.0%} of each GPU)")
        lines += ["", f"one update: {self.batch_size} decisions, {self.batch_size // self.minibatch_size} minibatches"]
        if self.updates is not None:
            lines.append(f"whole run:  {self.updates} updates for {self.total_timesteps} decisions")
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    __str__ = table

    def to_dict(self) -> dict:
        """Plain values for JSON and for ``results.json``."""
        return {
            "machine": self.machine.to_dict(),
            "observations": list(self.observations),
            "settings": {name: vars(setting) for name, setting in self.settings.items()},
            "gpus": self.gpus,
            "batch_size": self.batch_size,
            "total_timesteps": self.total_timesteps,
            "updates": self.updates,
            "memory": [vars(row) for row in self.memory],
            "host_bytes": self.host_bytes,
            "host_budget": self.host_budget,
            "device_bytes": self.device_bytes,
            "device_budget": self.device_budget,
            "warnings": list(self.warnings),
        }


def plan(
    observations: Iterable[str],
    *,
    total_timesteps: int | None = None,
    machine: Machine | None = None,
    profile: str | None = None,
    num_envs: int | None = None,
    rollout_length: int | None = None,
    minibatch_size: int | None = None,
    epochs: int | None = None,
    torch_threads: int | None = None,
    simulator_threads: int | None = None,
    precision: str | None = None,
    device: str | None = None,
    learning_rate: float | None = None,
    probe: Callable[[int], int] | None = None,
    thread_probe: Callable[[int], float] | None = None,
    other_bytes: int = 0,
) -> Plan:
    """A plan that fits the machine, or PlanError with what to lower.

    observations: keys or short names of what the architecture reads.  total_timesteps: decisions of the whole run.
    machine: default this one.  profile: a name of ``hardware.PROFILES`` or "auto" (None means the same).
    num_envs ... learning_rate: explicit flags, never changed here; None leaves the choice to the plan.
    probe(minibatch_size) -> peak bytes of one update on the device; without it the memory is estimated.
    thread_probe(threads) -> seconds of one update with that many torch threads; without it a cautious default.
    other_bytes: host memory that the caller holds besides: level bank, demonstrations.
    """
    keys = layout.observation_keys(observations)
    flags = {
        "num_envs": num_envs,
        "rollout_length": rollout_length,
        "minibatch_size": minibatch_size,
        "epochs": epochs,
        "torch_threads": torch_threads,
        "simulator_threads": simulator_threads,
    }
    _check_flags(flags, total_timesteps=total_timesteps, precision=precision, device=device)
    preset = find_profile(profile)
    machine = machine if machine is not None else detect()
    warnings: list[str] = []

    chosen_device = _choose_device(device, preset, machine)
    gpus = _gpus_used(chosen_device.value, preset, machine, warnings)
    update = measure_update(probe, keys) if probe is not None else estimate_update(keys)
    workload = MemoryNeeds(keys, update, gpus, other_bytes)
    host_budget = int(HOST_SHARE * machine.memory_bytes)
    device_budget = int(DEVICE_SHARE * min(gpu.memory_bytes for gpu in machine.gpus[:gpus])) if gpus else 0

    slow_images = has_images(keys) and not gpus
    target = _target_batch(total_timesteps, slow_images, gpus)
    sizes = _choose_sizes(flags, preset, target, slow_images, workload, host_budget, device_budget)

    settings = dict(sizes)
    settings["epochs"] = _flag_or(epochs, 2 if slow_images else 3)
    cores = max(machine.cores // max(gpus, 1), 1)  # per process
    settings["torch_threads"] = _choose_torch_threads(torch_threads, thread_probe, cores, slow_images)
    settings["simulator_threads"] = _flag_or(
        simulator_threads, min(cores, sizes["num_envs"].value), f"{cores} cores for each process"
    )
    settings["precision"] = _choose_precision(precision, machine, gpus)
    settings["device"] = chosen_device
    settings["learning_rate"] = (
        Setting(preset.learning_rate, f"profile {preset.name}")
        if learning_rate is None and preset is not None and preset.learning_rate is not None
        else _flag_or(learning_rate, None)
    )
    result = Plan(
        machine=machine,
        observations=keys,
        settings=settings,
        gpus=gpus,
        memory=workload.rows(*(sizes[name].value for name in _SIZES)),
        host_budget=host_budget,
        device_budget=device_budget,
        total_timesteps=total_timesteps,
        warnings=(),
    )
    return replace(result, warnings=(*warnings, *_warnings(result)))


def _time(seconds: float) -> str:
    """Hours and minutes, or seconds where it is short."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def _flag_or(flag, default, note: str = "") -> Setting:
    return Setting(default, "default", note) if flag is None else Setting(flag, "flag")


def _check_flags(numbers: Mapping[str, int | None], *, total_timesteps, precision, device) -> None:
    for name, value in {**numbers, "total_timesteps": total_timesteps}.items():
        if value is not None and value < 1:
            raise PlanError(f"{name}={value}: give a whole number of at least 1")
    if precision not in (None, *PRECISIONS):
        raise PlanError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    if device not in (None, *DEVICES):
        raise PlanError(f"unknown device {device!r}; known: {', '.join(DEVICES)}")


def _choose_device(flag: str | None, preset: Profile | None, machine: Machine) -> Setting:
    if flag == "cuda" and not machine.gpus:
        raise PlanError(f"device 'cuda' was asked for, but {machine.name} was found; use 'cpu'")
    if flag is not None:
        return Setting(flag, "flag")
    if preset is not None:
        return Setting("cuda" if preset.gpus else "cpu", f"profile {preset.name}")
    return Setting("cuda" if machine.gpus else "cpu", "default", "what the machine has")


def _gpus_used(device: str, preset: Profile | None, machine: Machine, warnings: list[str]) -> int:
    """Number of GPUs that the plan is for.  Training on several comes later; only a plan on paper may have them."""
    if device == "cpu":
        return 0
    wanted = preset.gpus if preset is not None and preset.gpus else len(machine.gpus)
    if machine.present and preset is not None and preset.gpus > 1:
        raise PlanError(
            f"hardware profile {preset.name!r} trains on {preset.gpus} GPUs; training on several GPUs comes later: "
            "use 'auto' or a profile with one GPU ('python -m hardware plan' shows the plan for a machine like that)"
        )
    if wanted > len(machine.gpus):
        raise PlanError(
            f"hardware profile {preset.name!r} needs {wanted} GPU(s), and this machine is {machine.name}; use 'auto'"
        )
    if machine.present and wanted > 1:
        warnings.append(f"{wanted} GPUs found, one is used: training on several GPUs comes later")
        return 1
    return wanted


def _target_batch(total_timesteps: int | None, slow_images: bool, gpus: int) -> int:
    """Decisions per update: a power of two that gives the wanted number of updates, within reason."""
    most = MAX_BATCH_IMAGES_ON_CPU if slow_images else MAX_BATCH * (2 if gpus > 1 else 1)
    if total_timesteps is None:
        return most
    wanted = max(MIN_BATCH, min(most, total_timesteps // WANTED_UPDATES))
    return 1 << (min(wanted, max(total_timesteps, 512)).bit_length() - 1)  # a trial of a few thousand decisions: less


def _choose_sizes(flags, preset, target, slow_images, workload, host_budget, device_budget) -> dict[str, Setting]:
    """num_envs, rollout_length and minibatch_size: of all combinations that fit, the one nearest to the wishes."""
    processes = max(workload.gpus, 1)
    candidates = sorted(
        _candidates(flags, preset, target, _minibatch_cap(preset, slow_images, workload.gpus), processes)
    )
    if not candidates:
        raise _indivisible(flags, processes)
    ideal = candidates[0][1]
    for _, sizes in candidates:
        rows = workload.rows(*sizes)
        if total(rows, "host") <= host_budget and total(rows, "device") <= device_budget:
            break
    else:
        raise _too_large([sizes for _, sizes in candidates], workload, flags, host_budget, device_budget)

    settings = {}
    for name, value, unlimited in zip(_SIZES, sizes, ideal, strict=True):
        wish = getattr(preset, name) if preset is not None else None
        if flags[name] is not None:
            settings[name] = Setting(value, "flag")
        elif value != unlimited:
            settings[name] = Setting(value, "memory limit", f"{unlimited} would be better, but does not fit")
        elif wish is None:
            settings[name] = Setting(value, "default")
        elif value == wish:
            settings[name] = Setting(value, f"profile {preset.name}")
        else:
            settings[name] = Setting(value, "default", f"{wish} of profile {preset.name} does not go with the flags")
    return settings


def _minibatch_cap(preset: Profile | None, slow_images: bool, gpus: int) -> int:
    if preset is not None:
        return preset.minibatch_size
    if gpus:
        return MAX_MINIBATCH_PER_GPU * gpus
    return MAX_MINIBATCH_IMAGES_ON_CPU if slow_images else MAX_MINIBATCH


def _candidates(flags, preset, target, minibatch_cap, processes):
    """(distance from the wishes, (num_envs, rollout_length, minibatch_size)) of every combination worth a thought.

    Distances are in octaves.  Without a profile the decisions per update count most, so that fewer environments mean
    longer rollouts; with one, each of its numbers stays where it is.
    """
    powers = {1 << n for n in range(3, 13)}  # 8 .. 4096
    envs = {flags["num_envs"]} if flags["num_envs"] else powers | ({preset.num_envs} if preset else set())
    if flags["rollout_length"]:
        rollouts = {flags["rollout_length"]}
    elif flags["minibatch_size"]:
        rollouts = set(range(MIN_ROLLOUT, MAX_ROLLOUT + 1))  # an odd minibatch may need an odd rollout
    else:
        rollouts = {32, 64, 128, 256}
    for num_envs in envs:
        for rollout in rollouts:
            batch = num_envs * rollout
            if preset is not None:
                distance = abs(log2(num_envs / preset.num_envs)) + abs(log2(rollout / preset.rollout_length))
            else:
                distance = abs(log2(batch / target)) + 0.25 * abs(log2(rollout / USUAL_ROLLOUT))
            distance += 0.01 * (rollout.bit_count() > 1)  # of two equals, the power of two
            wish = min(minibatch_cap, max(batch // MINIBATCHES, 1))
            for minibatch in [flags["minibatch_size"]] if flags["minibatch_size"] else _divisors(batch):
                if batch % minibatch == 0 and num_envs % processes == 0 and minibatch % processes == 0:
                    yield distance + 0.5 * abs(log2(minibatch / wish)), (num_envs, rollout, minibatch)


def _divisors(batch: int) -> list[int]:
    """Divisors of batch that may serve as a minibatch: at least 32, or the batch itself where it is smaller."""
    small = [n for n in range(1, int(batch**0.5) + 1) if batch % n == 0]
    return sorted({d for n in small for d in (n, batch // n) if d >= min(32, batch)})


def _indivisible(flags, processes: int) -> PlanError:
    given = ", ".join(f"{name}={flags[name]}" for name in _SIZES if flags[name])
    if processes > 1:
        return PlanError(f"{given}: num_envs and minibatch_size must be multiples of the {processes} GPUs")
    if flags["num_envs"] and flags["rollout_length"]:
        batch = flags["num_envs"] * flags["rollout_length"]
        near = min(_divisors(batch), key=lambda d: abs(log2(d / flags["minibatch_size"])))
        return PlanError(f"{given}: the minibatch does not divide the {batch} decisions of an update; try {near}")
    return PlanError(
        f"{given}: no rollout of {MIN_ROLLOUT} to {MAX_ROLLOUT} decisions is divided by this minibatch; "
        "choose a power of two, or give num_envs, rollout_length and minibatch_size together"
    )


def _too_large(all_sizes, workload: MemoryNeeds, flags, host_budget: int, device_budget: int) -> PlanError:
    """The error for "nothing fits": the smallest combination, what it needs, its largest part, and what to lower."""

    def need(sizes):
        rows = workload.rows(*sizes)
        return max(total(rows, "host") - host_budget, total(rows, "device") - device_budget)

    smallest = min(all_sizes, key=need)
    rows = workload.rows(*smallest)
    where = "host" if total(rows, "host") > host_budget else "device"
    budget = host_budget if where == "host" else device_budget
    largest = max((row for row in rows if row.where == where), key=lambda row: row.bytes)
    given = ", ".join(f"{name}={flags[name]}" for name in _SIZES if flags[name])
    remedy = {
        "rollout buffer": "lower --num-envs or the rollout length",
        "environments": "lower --num-envs",
        "network update": "lower the minibatch size or --num-envs",
        "processes": "use a machine with more memory",
        "levels and data": "use fewer levels or demonstrations",
    }[largest.name]
    return PlanError(
        f"not enough {where} memory: even num_envs={smallest[0]}, rollout_length={smallest[1]}, "
        f"minibatch_size={smallest[2]} needs {total(rows, where) / GB:.2f} GB, and {budget / GB:.2f} GB may be used; "
        f"most of it is the {largest.name} ({largest.bytes / GB:.2f} GB = {largest.how}); {remedy}"
        + (f" (given: {given})" if given else "")
        + (", or choose an architecture without images" if has_images(workload.observations) else "")
    )


def _choose_torch_threads(flag, thread_probe, cores: int, slow_images: bool) -> Setting:
    """Threads for torch on the CPU: measured where there is a probe.

    Convolutions use every core.  Small networks gain 15-25 % from a second thread in a quiet hour, and lose far more
    when somebody else wants that core: half the cores, at most four.
    """
    if flag is not None:
        return Setting(flag, "flag")
    if thread_probe is not None:
        counts = sorted({1 << n for n in range(cores.bit_length()) if 1 << n <= min(cores, 16)})
        seconds = {count: thread_probe(count) for count in counts}
        best = min(counts, key=lambda count: seconds[count] * 1.05 ** log2(count))  # each doubling must gain 5 %
        note = ", ".join(f"{count}: {1000 * seconds[count]:.0f} ms" for count in counts)
        return Setting(best, "measurement", f"update by threads {note}")
    if slow_images:
        return Setting(min(cores, 16), "default", "convolutions use every core")
    return Setting(min(max(cores // 2, 1), 4), "default", "more threads seldom help without convolutions on the CPU")


def _choose_precision(flag: str | None, machine: Machine, gpus: int) -> Setting:
    if flag is not None:
        return Setting(flag, "flag")
    if gpus:
        fast = all(gpu.bf16 for gpu in machine.gpus[:gpus])
        return Setting("bf16" if fast else "float32", "default", f"the GPU has {'' if fast else 'no '}fast bf16")
    return Setting("bf16" if machine.amx else "float32", "default", f"the CPU has {'' if machine.amx else 'no '}AMX")


def _warnings(plan: Plan) -> list[str]:
    """What is allowed, but hardly wise."""
    found = []
    if plan.updates is not None and plan.updates < WANTED_UPDATES:
        found.append(
            f"only {plan.updates} updates ({plan.total_timesteps} decisions / {plan.batch_size} per update): the "
            f"policy learns little in fewer than {WANTED_UPDATES}; raise --total-timesteps or lower --num-envs"
        )
    if plan.num_envs < MIN_ENVS:
        found.append(
            f"only {plan.num_envs} environments: their decisions are much alike; {MIN_ENVS} or more are better"
        )
    if plan.rollout_length < MIN_ROLLOUT:
        found.append(
            f"rollouts of {plan.rollout_length} decisions are short for credit to travel; {MIN_ROLLOUT} or more"
        )
    minibatches = plan.batch_size // plan.minibatch_size
    if minibatches < 2:
        found.append(f"one minibatch of {plan.minibatch_size} is the whole update: a smaller one learns faster")
    if minibatches > 64:
        found.append(f"{minibatches} minibatches of {plan.minibatch_size} per epoch: noisy and slow; take a larger one")
    if plan.machine.present and plan.host_bytes > plan.machine.available_bytes:
        free = plan.machine.available_bytes / GB
        found.append(f"{plan.host_bytes / GB:.2f} GB are needed and only {free:.2f} GB are free now: close something")
    return found
