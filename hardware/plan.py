"""Plan of a training run: sizes, threads, precision and device, with the source of each value and the memory needed.

Explicit requests take precedence over the profile, and the profile takes precedence over the automatic choice.
``hardware.sizes`` chooses the number of environments, rollout length and minibatch size together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from hardware.compute import Benchmark, choose_compute
from hardware.detect import GB, Machine, detect
from hardware.memory import MemoryNeeds, MemoryRow, UpdateMemory, estimate_update, total
from hardware.plan_request import PlanRequest
from hardware.profiles import PlanError, Profile, find_profile
from hardware.sizes import (
    DEVICE_SHARE,
    HOST_SHARE,
    MIN_ENVS,
    MIN_ROLLOUT,
    WANTED_UPDATES,
    Chosen,
    Sizes,
    Task,
    choose_sizes,
)
from nppsim.io.files import table
from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking

EPOCHS = 3  # passes over the decisions of an update
EPOCHS_IMAGES_ON_CPU = 2
MAX_MINIBATCHES = 64  # maximum minibatches per epoch; with more, gradients are noisy and updates slow
EVALUATOR_SHARE = 4  # an evaluation process during training has one simulator thread per this many cores


@dataclass(frozen=True)
class Plan:
    """Sizes of a training run, the source of each value, and the memory needed.  ``str(plan)`` is a table."""

    machine: Machine
    observations: tuple[str, ...]
    settings: Mapping[str, Chosen]  # value and source of each property below, by name
    gpus: int  # number of GPUs used
    memory: tuple[MemoryRow, ...]  # rows of the memory estimate
    host_budget: int  # upper limit of host memory in bytes
    device_budget: int  # upper limit of memory per GPU in bytes; 0 without a GPU
    total_timesteps: int | None  # length of the run in decisions, or None if unknown
    warnings: tuple[str, ...] = ()

    # num_envs and minibatch_size are totals over all processes.
    num_envs = property(lambda self: self.settings["num_envs"].value)
    rollout_length = property(lambda self: self.settings["rollout_length"].value)  # decisions
    minibatch_size = property(lambda self: self.settings["minibatch_size"].value)
    epochs = property(lambda self: self.settings["epochs"].value)
    torch_threads = property(lambda self: self.settings["torch_threads"].value)  # threads that share a minibatch
    simulator_threads = property(lambda self: self.settings["simulator_threads"].value)  # per process
    evaluator_threads = property(lambda self: self.settings["evaluator_threads"].value)  # None without an evaluator
    precision = property(lambda self: self.settings["precision"].value)  # one of PRECISIONS
    device = property(lambda self: self.settings["device"].value)  # one of DEVICES
    learning_rate = property(lambda self: self.settings["learning_rate"].value)  # None: the default of PPO

    @property
    def batch_size(self) -> int:
        """Decisions per update."""
        return self.num_envs * self.rollout_length

    @property
    def updates(self) -> int | None:
        """Number of updates of the run; None if its length is unknown."""
        return None if self.total_timesteps is None else ceil(self.total_timesteps / self.batch_size)

    @property
    def host_bytes(self) -> int:
        """Host memory needed, in bytes."""
        return total(self.memory, "host")

    @property
    def device_bytes(self) -> int:
        """Memory needed on each GPU, in bytes; 0 on a CPU."""
        return total(self.memory, "device")

    def of_each(self, processes: int) -> "Plan":
        """Return the plan of one training process, which has an equal part of the environments and of each minibatch."""
        parts = {
            name: replace(self.settings[name], value=self.settings[name].value // processes)  # type: ignore[operator]
            for name in ("num_envs", "minibatch_size")
        }
        return replace(self, settings={**self.settings, **parts})

    def __str__(self) -> str:
        """Format machine, settings with sources, memory estimate, updates and warnings."""
        settings = [
            (name, setting.value, setting.source, setting.note)
            for name, setting in self.settings.items()
            if setting.value is not None
        ]
        memory = [(row.name, f"{row.bytes / GB:.3f}", row.where, row.how) for row in self.memory]
        lines = [f"machine: {self.machine.name}", "", table(("setting", "value", "source", "note"), settings, "lrll")]
        lines += ["", table(("memory", "GB", "where", "arithmetic"), memory, "lrll"), ""]
        lines.append(f"host:   {self.host_bytes / GB:.2f} of {self.host_budget / GB:.2f} GB ({HOST_SHARE:.0%} of all)")
        if self.gpus:
            used, budget = self.device_bytes / GB, self.device_budget / GB
            lines.append(f"device: {used:.2f} of {budget:.2f} GB ({DEVICE_SHARE:.0%} of each GPU)")
        lines += ["", f"one update: {self.batch_size} decisions, {self.batch_size // self.minibatch_size} minibatches"]
        if self.updates is not None:
            lines.append(f"total:      {self.updates} updates for {self.total_timesteps} decisions")
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def to_dict(self) -> dict:
        """Return plain values for JSON, as in ``results.json``."""
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
    request: PlanRequest | None = None,
    *,
    stacking: Stacking = NO_STACKS,
    carried_bytes: int = 0,
    machine: Machine | None = None,
    update: UpdateMemory | None = None,
    benchmark: Benchmark | None = None,
) -> Plan:
    """Return a plan that fits the machine.

    observations: keys or short names of the observations that the architecture reads.
    request: sizes and settings fixed by the user; None: none.
    stacking: frame stacking of the observations.
    carried_bytes: bytes of recurrent state or subtask that are stored with each decision.
    machine: machine to plan for; None: the machine that runs this process.
    update: memory of one gradient step (``measure_update``); None: an estimate.
    benchmark: measures candidates for threads and precision; None: use defaults for the hardware.
    Raises PlanError if no plan fits; the message names the sizes to lower.
    """
    keys = layout.observation_keys(observations)
    request = PlanRequest() if request is None else request
    machine = detect() if machine is None else machine
    profile = find_profile(request.profile)
    device = _choose_device(request.device, profile, machine)
    gpus = 0 if device.value == "cpu" else _gpus_used(profile, machine, request.processes)
    update = estimate_update(keys, stacking) if update is None else update
    needs = MemoryNeeds(
        keys, update, gpus, stacking, request.processes or 1, int(bool(request.evaluator)), carried_bytes
    )
    task = Task(request, profile, machine, needs)
    sizes, settings = choose_sizes(task)
    settings |= _other_settings(task, sizes, benchmark, device)
    rows = task.needs.rows(*sizes)
    made = Plan(machine, keys, settings, gpus, rows, task.host_budget, task.device_budget, request.total_timesteps)
    return replace(made, warnings=tuple(_warnings(made, profile)))


def _choose_device(requested: str | None, profile: Profile | None, machine: Machine) -> Chosen:
    if requested == "cuda" and not machine.gpus:
        raise PlanError(f"device 'cuda' is not available on {machine.name}; use 'cpu'")
    if requested is not None:
        return Chosen(requested, "flag")
    if profile is not None:
        return Chosen("cuda" if profile.gpus else "cpu", f"profile {profile.name}")
    return Chosen(
        "cuda" if machine.gpus else "cpu", "default", "a GPU was found" if machine.gpus else "no GPU was found"
    )


def _gpus_used(profile: Profile | None, machine: Machine, processes: int | None) -> int:
    """Return the number of GPUs to use.

    A profile with GPUs determines the number.  Otherwise each process uses one GPU.  The default is one process on this
    machine, and one process per GPU on a machine that is only described.
    """
    if profile is None or not profile.gpus:
        wanted = processes or (1 if machine.present else len(machine.gpus))
        if wanted > len(machine.gpus):
            raise PlanError(
                f"{wanted} processes need one GPU each, but this machine is {machine.name}; start fewer processes, or train "
                "on the CPU (--num-gpus 0 --num-processes N)"
            )
        return wanted
    wanted = len(profile.gpus)
    if machine.present and wanted != (processes or 1):
        raise PlanError(
            f"hardware profile {profile.name!r} is for {wanted} GPU(s), but the run has {processes or 1} process(es): use "
            f"--num-gpus {wanted}, profile 'auto' or another profile"
        )
    if wanted > len(machine.gpus):
        raise PlanError(
            f"hardware profile {profile.name!r} needs {wanted} GPU(s), but this machine is {machine.name}; use 'auto'"
        )
    return wanted


def _other_settings(task: Task, sizes: Sizes, benchmark: Benchmark | None, device: Chosen) -> dict[str, Chosen]:
    """Choose all settings except the sizes."""
    request, slow_images, cores = task.request, task.needs.slow_images, task.cores
    simulator_threads = min(cores, sizes.num_envs)
    return {
        "epochs": _requested_or(request.epochs, EPOCHS_IMAGES_ON_CPU if slow_images else EPOCHS),
        "simulator_threads": _requested_or(
            request.simulator_threads, simulator_threads, f"{cores} cores for each process"
        ),
        **choose_compute(task, sizes.minibatch_size, benchmark),
        "evaluator_threads": _choose_evaluator_threads(task),
        "device": device,
        "learning_rate": _choose_learning_rate(request.learning_rate, task.profile),
    }


def _choose_evaluator_threads(task: Task) -> Chosen:
    if not task.request.evaluator:
        return Chosen(None, "default")
    cores = task.machine.cores
    return Chosen(max(cores // EVALUATOR_SHARE, 1), "default", f"training uses all {cores} cores at the same time")


def _requested_or(requested: int | float | None, default: int | float | None, note: str = "") -> Chosen:
    return Chosen(default, "default", note) if requested is None else Chosen(requested, "flag")


def _choose_learning_rate(requested: float | None, profile: Profile | None) -> Chosen:
    if requested is None and profile is not None and profile.learning_rate is not None:
        return Chosen(profile.learning_rate, f"profile {profile.name}")
    return _requested_or(requested, None)


def _warnings(plan: Plan, profile: Profile | None) -> Iterator[str]:
    """Yield warnings about settings that are allowed but probably not intended."""
    if plan.machine.present and plan.gpus and len(plan.machine.gpus) > plan.gpus and not (profile and profile.gpus):
        found = len(plan.machine.gpus)
        yield f"{found} GPUs were found and {plan.gpus} used: give --num-gpus {found} to train on all of them"
    if plan.updates is not None and plan.updates < WANTED_UPDATES:
        yield (
            f"only {plan.updates} updates ({plan.total_timesteps} decisions / {plan.batch_size} per update): the "
            f"policy learns little in fewer than {WANTED_UPDATES}; raise --total-timesteps or lower --num-envs"
        )
    if plan.evaluator_threads and plan.machine.cores == 1:
        yield "evaluation and training share one core: --remote-evaluation saves no time"
    if plan.num_envs < MIN_ENVS:
        yield f"only {plan.num_envs} environments: decisions in a rollout are correlated; use {MIN_ENVS} or more"
    if plan.rollout_length < MIN_ROLLOUT:
        yield (
            f"rollouts of {plan.rollout_length} decisions are short for credit assignment; use {MIN_ROLLOUT} or more"
        )
    minibatches = plan.batch_size // plan.minibatch_size
    if minibatches < 2:
        yield f"the minibatch of {plan.minibatch_size} decisions is the whole batch: training is faster with a smaller one"
    if minibatches > MAX_MINIBATCHES:
        yield f"{minibatches} minibatches of {plan.minibatch_size} decisions are noisy and slow; raise --minibatch-size"
    slow = sorted({gpu.name for gpu in plan.machine.gpus[: plan.gpus] if not gpu.bf16})
    if plan.precision == "bf16" and slow:
        yield f"{' and '.join(slow)} has no fast bf16: float32 is faster there (--no-mixed-precision)"
    if plan.machine.present and plan.host_bytes > plan.machine.available_bytes:
        free = plan.machine.available_bytes / GB
        yield f"{plan.host_bytes / GB:.2f} GB are needed and only {free:.2f} GB are free now: close other programs"
