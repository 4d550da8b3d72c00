"""Settings of the hardware plan and of profiling."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from hardware import DEVICES, PlanError, PlanRequest
from hardware.request import AUTO, find_profile
from nppsim.errors import ConfigError
from nppsim.settings import check_settings, require, setting

BACKENDS = ("nccl", "gloo")

_tracing = partial(setting, needs="profiling.pytorch")


@dataclass(frozen=True)
class HardwareConfig:
    """Settings of the hardware plan (sizes, precision and device), which chooses a value for each None."""

    flag_prefix: ClassVar[str] = ""
    group: ClassVar[str] = "hardware"
    hardware_profile: str = setting(AUTO, "auto, or the name of a profile (scripts/hardware_plan.py --help lists them)")
    num_envs: int | None = setting(None, "environments, summed over processes; default: set by the plan", low=1)
    rollout_length: int | None = setting(None, "decisions per environment and update; default: set by the plan", low=1)
    minibatch_size: int | None = setting(
        None, "decisions per gradient step, of all processes; default: set by the plan", low=1
    )
    torch_threads: int | None = setting(
        None, "threads that share a gradient step, which affects rounding; default: measured once", low=1, high=1024
    )
    simulator_threads: int | None = setting(
        None, "simulator threads per process, which do not affect results; default: set by the plan", low=1, high=1024
    )
    mixed_precision: bool | None = setting(None, "compute networks in bfloat16; default: where it is fast", switch=True)
    device: str | None = setting(None, "device of the networks; default: a GPU if there is one", choices=DEVICES)
    num_gpus: int = setting(1, "largest number of GPUs; 0: CPU only; above 1: that many, with a process each", low=0)
    num_processes: int | None = setting(
        None, "processes that train together (docs/long_runs.md); default: one, or one per GPU", low=1, high=1024
    )
    distributed_backend: str | None = setting(
        None, "library that averages gradients between processes; default: nccl on GPUs, gloo on CPUs", choices=BACKENDS
    )

    def __post_init__(self) -> None:
        check_settings(self)
        try:
            find_profile(self.hardware_profile)
        except PlanError as error:
            raise ConfigError(str(error), "hardware_profile", self.hardware_profile) from error
        on_cpu = self.num_gpus == 0 or self.device == "cpu"
        contradiction = self.num_gpus == 0 and self.device == "cuda"
        require(not contradiction, "--num-gpus 0 contradicts --device cuda; leave one of them out")
        fits = self.num_gpus < 2 or (not on_cpu and self.num_processes in (None, self.num_gpus))
        require(fits, "starts one process per GPU; leave out --num-processes and --device", "num_gpus", self.num_gpus)
        require(not on_cpu or self.distributed_backend != "nccl", "needs GPUs; use gloo", "distributed_backend", "nccl")

    @property
    def processes(self) -> int:
        """Number of processes that train together."""
        return self.num_processes or max(self.num_gpus, 1)

    def plan_request(self, total_timesteps: int | None) -> PlanRequest:
        """Return the arguments of ``hardware.plan`` as a request.  total_timesteps: decisions of the run."""
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
    """Settings of profiling (``rl.training.callbacks``), which slows training down without changing results."""

    flag_prefix: ClassVar[str] = "profiler-"
    group: ClassVar[str] = "output"
    phases: bool = setting(
        False, "measure the time of each training phase (profiling/phases.json)", flag="enable-profiling", switch=True
    )
    pytorch: bool = setting(
        False, "record traces of PyTorch for Chrome in profiling/", flag="enable-pytorch-profiler", switch=True
    )
    wait: int = _tracing(1, "updates without profiling before each trace", low=0)
    warmup: int = _tracing(1, "warm-up updates before each trace", low=0)
    active: int = _tracing(3, "updates in each trace", low=1)
    repeat: int = _tracing(1, "number of traces; 0: until training ends", low=0)
    memory: bool = setting(
        False, "record the memory in use in profiling/memory.txt", flag="enable-memory-profiling", switch=True
    )
    memory_snapshot_freq: int = setting(
        500, "decisions between memory snapshots", flag="memory-snapshot-freq", needs="profiling.memory", low=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
