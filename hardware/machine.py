"""Resources of a machine: cores, host memory, GPUs, fast bf16; detection, and GPU models for plans for other machines.

A container sees all cores and memory of its host, but its control group may limit their use.  The number of cores is
therefore the minimum of CPU affinity and the quotas of all enclosing control groups (versions 1 and 2).
"""

import importlib.util
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nppsim.errors import UserError, did_you_mean
from nppsim.measure.machine import processor
from nppsim.parallel.workers import usable_cores, usable_memory

GB = 1_000_000_000  # bytes; memory is counted in decimal gigabytes everywhere in this package
DATA = tomllib.loads(Path(__file__).with_name("data.toml").read_text(encoding="utf-8"))
DEFAULT_BANDWIDTH = 600.0  # GB/s, assumed for unknown GPUs


class PlanError(UserError, ValueError):
    """No plan fits, or a request is invalid; the message names the value and the remedy."""


@dataclass(frozen=True)
class Gpu:
    """One accelerator."""

    name: str
    memory_bytes: int
    bf16: bool  # True if bf16 runs at full speed (``fast_bf16``)
    bandwidth: float = DEFAULT_BANDWIDTH  # memory bandwidth in GB/s, by which training speed is estimated


@dataclass(frozen=True)
class Machine:
    """Resources available to a run."""

    cpu: str  # model name
    cores: int  # at least 1
    memory_bytes: int  # physical memory, or the control group's limit
    available_bytes: int  # currently free memory
    bf16: str = ""  # bf16 instruction set of the CPU, "AMX" or "AVX512-BF16"; "" if it has none
    gpus: tuple[Gpu, ...] = ()
    present: bool = True  # False for a description of another machine

    @property
    def name(self) -> str:
        """One line for reports, e.g. ``Intel(R) Xeon(R) Processor, 2 cores, AMX, 25.2 GB; no GPU``."""
        bf16 = f", {self.bf16}" if self.bf16 else ""
        kinds = sorted({gpu.name for gpu in self.gpus})
        gpus = f"{len(self.gpus)} x {' and '.join(kinds)}" if kinds else "no GPU"
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{self.cpu}, {cores}{bf16}, {self.memory_bytes / GB:.1f} GB; {gpus}"

    def times(self, count: int) -> "Machine":
        """Return the combined resources of ``count`` such machines."""
        sums = {name: count * getattr(self, name) for name in ("cores", "memory_bytes", "available_bytes", "gpus")}
        return replace(self, **sums)

    def to_dict(self) -> dict:
        """Return plain values for JSON."""
        return {"name": self.name, **asdict(self)}


def detect() -> Machine:
    """Return the machine that runs this process.  Imports torch, if installed, to detect GPUs."""
    cpu, flags = processor()
    total, available = usable_memory()
    bf16 = "AMX" if "amx_bf16" in flags else "AVX512-BF16" if "avx512_bf16" in flags else ""
    return Machine(cpu, usable_cores(), total, available, bf16=bf16, gpus=_gpus())


def fast_bf16(capability: float) -> bool:
    """Return True if a GPU of this compute capability computes bf16 at full speed: 8.0 (Ampere) or later.

    Older GPUs emulate bf16, many times slower than float32, although ``torch.cuda.is_bf16_supported`` returns True.
    """
    return capability >= 8


def _gpus() -> tuple[Gpu, ...]:
    if importlib.util.find_spec("torch") is None:
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    devices = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return tuple(Gpu(gpu.name, gpu.total_memory, fast_bf16(gpu.major), _bandwidth(gpu.name)) for gpu in devices)


def _bandwidth(name: str) -> float:
    """Return the bandwidth of the known model that a device name such as "NVIDIA A100-SXM4-80GB" contains."""
    parts = name.replace(" ", "-").split("-")
    models = [gpu for gpu in map(known_gpu, KNOWN_GPUS) if set(gpu.name.split("-")) <= set(parts)]
    return max(models, key=lambda gpu: len(gpu.name)).bandwidth if models else DEFAULT_BANDWIDTH


KNOWN_GPUS: tuple[str, ...] = tuple(DATA["gpus"])


def known_gpu(name: str) -> Gpu:
    """Return the GPU model ``name``; raise PlanError with the nearest name if it is unknown."""
    known_name = {known.lower(): known for known in KNOWN_GPUS}.get(name.lower())
    if known_name is None:
        raise PlanError(f"unknown GPU {name!r}; known: {', '.join(KNOWN_GPUS)}{did_you_mean(name, KNOWN_GPUS)}")
    memory_gb, capability, bandwidth = DATA["gpus"][known_name]
    return Gpu(known_name, memory_gb * GB, fast_bf16(capability), bandwidth)
