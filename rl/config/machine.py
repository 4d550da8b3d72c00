"""Settings of the hardware plan, and of profiling."""

from dataclasses import dataclass
from typing import ClassVar

from hardware import DEVICES, PlanError, PlanRequest
from hardware.profiles import AUTO, find_profile
from nppsim.errors import ConfigError
from nppsim.settings import check_settings, setting

BACKENDS = ("nccl", "gloo")
_TRACING = "enable-pytorch-profiler"
_MEMORY = "enable-memory-profiling"


@dataclass(frozen=True)
class HardwareConfig:
    """Settings of the hardware plan; None leaves the choice to it."""

    flag_prefix: ClassVar[str] = ""
    hardware_profile: str = setting(AUTO, "auto, or a profile's name (python -m hardware plan --help lists them)")
    num_envs: int | None = setting(None, "environments, summed over all processes; default: the hardware plan's", low=1)
    rollout_length: int | None = setting(None, "decisions per environment and update; default: the plan's", low=1)
    minibatch_size: int | None = setting(
        None, "decisions per gradient step, of all processes together; default: the plan's", low=1
    )
    torch_threads: int | None = setting(
        None,
        "that share a gradient step, of each process; default: measured once on each machine; others round differently",
        low=1,
        high=1024,
    )
    simulator_threads: int | None = setting(
        None,
        "threads of the simulator, per process; results do not depend on it; default: the plan's",
        low=1,
        high=1024,
    )
    mixed_precision: bool | None = setting(
        None, "networks compute in bfloat16; default: where that is fast", switch=True
    )
    device: str | None = setting(None, "default: a GPU if there is one", choices=DEVICES)
    num_gpus: int = setting(1, "at most; 0 means CPU; from 2 on, that many, with a process for each", low=0)
    num_processes: int | None = setting(
        None,
        "processes that train together, on this machine or as torchrun has started them (docs/long_runs.md); default: one, "
        "or one for each GPU",
        low=1,
        high=1024,
    )
    distributed_backend: str | None = setting(
        None, "how several processes share gradients; default: nccl on GPUs, gloo on CPUs", choices=BACKENDS
    )

    def __post_init__(self) -> None:
        check_settings(self)
        try:
            find_profile(self.hardware_profile)
        except PlanError as error:
            raise ConfigError(str(error), "hardware_profile", self.hardware_profile) from error
        if self.num_gpus == 0 and self.device == "cuda":
            raise ConfigError("--num-gpus 0 and --device cuda contradict each other; leave one of them out")
        if self.num_gpus > 1 and (self.device == "cpu" or self.num_processes not in (None, self.num_gpus)):
            raise ConfigError(
                "there is one process for each GPU; leave out --num-processes and --device", "num_gpus", self.num_gpus
            )
        if self.distributed_backend == "nccl" and (self.device == "cpu" or self.num_gpus == 0):
            raise ConfigError("is for GPUs; use gloo", "distributed_backend", "nccl")

    @property
    def processes(self) -> int:
        """Number of processes that train together."""
        return self.num_processes or max(self.num_gpus, 1)

    def plan_request(self, total_timesteps: int | None) -> PlanRequest:
        """Return the explicit settings for ``hardware.plan``; total_timesteps: decisions of the whole run."""
        return PlanRequest(
            total_timesteps=total_timesteps,
            profile=self.hardware_profile,
            num_envs=self.num_envs,
            rollout_length=self.rollout_length,
            minibatch_size=self.minibatch_size,
            torch_threads=self.torch_threads,
            simulator_threads=self.simulator_threads,
            precision={None: None, True: "bf16", False: "float32"}[self.mixed_precision],
            device={0: "cpu", 1: self.device}.get(self.num_gpus, "cuda"),
            processes=self.processes if self.processes > 1 else None,
        )


@dataclass(frozen=True)
class ProfilingConfig:
    """Profiling of training (``rl.ppo.callbacks``).  It costs time and does not change results."""

    flag_prefix: ClassVar[str] = "profiler-"
    phases: bool = setting(
        False, "where the time goes, phase by phase, in profiling/phases.json", flag="enable-profiling", switch=True
    )
    pytorch: bool = setting(
        False, "traces of PyTorch's operations for Chrome, in profiling/", flag=_TRACING, switch=True
    )
    wait: int = setting(1, "updates that are left alone before a trace", needs=_TRACING, low=0)
    warmup: int = setting(1, "updates then that warm the profiler up", needs=_TRACING, low=0)
    active: int = setting(3, "updates then that are traced", needs=_TRACING, low=1)
    repeat: int = setting(1, "traces, one after the other; 0: as many as the run is long", needs=_TRACING, low=0)
    memory: bool = setting(False, "snapshots of the memory in use, in profiling/memory.txt", flag=_MEMORY, switch=True)
    memory_snapshot_freq: int = setting(
        500,
        "steps, summed over environments, between snapshots; each is taken after the current update",
        flag="memory-snapshot-freq",
        needs=_MEMORY,
        low=1,
    )

    def __post_init__(self) -> None:
        check_settings(self)
