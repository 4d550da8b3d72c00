"""Plan of a training run: sizes, threads, precision and device, with the source of each value, memory and duration.

Explicit requests take precedence over the profile, and the profile takes precedence over the automatic choice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from hardware.compute import Benchmark, choose_compute
from hardware.machine import GB, Machine, PlanError, detect
from hardware.memory import MemoryNeeds, MemoryRow, UpdateMemory, total
from hardware.request import PlanRequest, Profile, find_profile
from hardware.sizes import (
    DEVICE_SHARE,
    HOST_SHARE,
    MAX_MINIBATCHES,
    MIN_ENVS,
    MIN_ROLLOUT,
    WANTED_UPDATES,
    Chosen,
    Constraints,
    Throughput,
    choose_sizes,
)
from hardware.throughput import EPOCHS, EPOCHS_IMAGES_ON_CPU, Sizes, model_throughput, network_costs, on_gpu
from nppsim.io.files import table
from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking

EVALUATOR_SHARE = 4  # an evaluation process during training has one simulator thread per this many cores
MILLION = 1_000_000


@dataclass(frozen=True)
class Speed:
    """Training speed of PPO, rollouts and updates together."""

    decisions_per_s: float
    source: str  # description of the measurement or estimate

    def duration(self, decisions: int) -> str:
        """Format the time of ``decisions`` decisions."""
        minutes = decisions / self.decisions_per_s / 60
        if minutes < 1:
            return f"{60 * minutes:.0f} s"
        return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


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
    speed: Speed | None = None  # expected speed of PPO

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
    def sizes(self) -> Sizes:
        """Number of environments, rollout length and minibatch size."""
        return Sizes(self.num_envs, self.rollout_length, self.minibatch_size)

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

    def per_process(self, processes: int) -> "Plan":
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
        if self.speed is not None:
            steps = self.total_timesteps or MILLION
            speed = f"{self.speed.decisions_per_s:,.0f} decisions/s, {self.speed.source}"
            lines.append(f"duration:   {self.speed.duration(steps)} for {steps:,} decisions of PPO alone ({speed})")
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
            "speed": self.speed and vars(self.speed),
            "minutes": self.total_timesteps and self.speed and self.total_timesteps / self.speed.decisions_per_s / 60,
        }


def plan(
    observations: Iterable[str],
    request: PlanRequest | None = None,
    *,
    architecture: str = "",
    stacking: Stacking = NO_STACKS,
    carried_bytes: int = 0,
    machine: Machine | None = None,
    update: UpdateMemory | None = None,
    benchmark: Benchmark | None = None,
    throughput: Throughput | None = None,
) -> Plan:
    """Return a plan that fits the machine.

    observations: keys or short names of the observations that the architecture reads.
    request: sizes and settings fixed by the user; None: none.
    architecture: name, for stored figures of memory and speed; "" for estimates from the observations.
    stacking: frame stacking of the observations.
    carried_bytes: bytes of recurrent state or subtask that are stored with each decision.
    machine: machine to plan for; None: the machine that runs this process.
    update: memory of one gradient step (``measure_update``); None: stored figures or an estimate.
    benchmark: measures candidates for threads and precision; None: use defaults for the hardware.
    throughput: measured decisions per second by sizes; None: modelled (``model_throughput``).
    Raises PlanError if no plan fits; the message names the sizes to lower.
    """
    keys = layout.observation_keys(observations)
    request = PlanRequest() if request is None else request
    machine = detect() if machine is None else machine
    profile = find_profile(request.profile)
    device = _choose_device(request.device, profile, machine)
    gpus = 0 if device.value == "cpu" else _gpus_used(profile, machine, request.processes)
    costs = network_costs(architecture, keys, stacking)
    if update is None:
        update = on_gpu(costs.update) if gpus and costs.update.source != "estimate" else costs.update
    needs = MemoryNeeds(
        keys, update, gpus, stacking, request.processes or 1, int(bool(request.evaluator)), carried_bytes
    )
    constraints = Constraints(request, profile, machine, needs)
    epochs = request.epochs or (EPOCHS_IMAGES_ON_CPU if needs.convolutions_on_cpu else EPOCHS)
    precision = str(choose_compute(constraints, 1, None)["precision"].value)
    model = model_throughput(costs.sample_us, needs, machine, precision=precision, epochs=epochs)
    settings = choose_sizes(constraints, throughput or model, throughput is not None)
    sizes = Sizes(**{name: int(chosen.value or 0) for name, chosen in settings.items()})
    settings |= {
        "epochs": Chosen(epochs, "flag" if request.epochs else "default"),
        **_other_settings(constraints, sizes, benchmark),
        "device": device,
    }
    speed = Speed(model(sizes), f"modelled on generated levels: {costs.source}")
    budgets = constraints.host_budget, constraints.device_budget
    rows = needs.rows(*sizes)
    made = Plan(machine, keys, settings, gpus, rows, *budgets, request.total_timesteps, speed=speed)
    return replace(made, warnings=tuple(_warnings(made, profile)))


def _other_settings(constraints: Constraints, sizes: Sizes, benchmark: Benchmark | None) -> dict[str, Chosen]:
    """Choose threads, precision and learning rate."""
    request, cores = constraints.request, constraints.cores
    simulator_threads = min(cores, sizes.num_envs)
    return {
        "simulator_threads": _requested_or(request.simulator_threads, simulator_threads, f"{cores} cores per process"),
        **choose_compute(constraints, sizes.minibatch_size, benchmark),
        "evaluator_threads": _choose_evaluator_threads(constraints),
        "learning_rate": _choose_learning_rate(request.learning_rate, constraints.profile),
    }


def plan_table(plans: Mapping[str, Plan | PlanError], total_timesteps: int | None) -> str:
    """Format a table with one row per architecture.  total_timesteps: decisions per run; None: one million."""
    steps = total_timesteps or MILLION
    amount = f"{steps / MILLION:g} M" if steps >= MILLION else f"{steps:,}"
    header = ("architecture", "envs", "rollout", "minibatch", "precision", "host GB", "GPU GB", f"{amount} decisions")
    rows: list[Sequence[object]] = []
    notes = []
    for name, made in plans.items():
        if isinstance(made, PlanError):
            rows.append((name, *["–"] * (len(header) - 1)))
            notes.append(f"{name}: {made}")
            continue
        gpu = f"{made.device_bytes / GB:.2f}" if made.gpus else "–"
        sizes = made.num_envs, made.rollout_length, made.minibatch_size, made.precision
        duration = made.speed.duration(steps) if made.speed else "unknown"
        rows.append((name, *sizes, f"{made.host_bytes / GB:.2f}", gpu, duration))
    notes.append("durations of PPO alone: estimates, except with --measure")
    return "\n".join([table(header, rows), "", *notes])


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


def _choose_evaluator_threads(constraints: Constraints) -> Chosen:
    if not constraints.request.evaluator:
        return Chosen(None, "default")
    cores = constraints.machine.cores
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
