"""What this process may use: cores, host memory, GPUs, fast bf16.

A container often sees all cores and all memory of its host, while its control group allows it a part.  So affinity
and the quotas of every enclosing control group (version 1 and 2) are read, and the smallest figure counts.
"""

import importlib.util
from dataclasses import asdict, dataclass, replace

from nppsim.measure.machine import processor
from nppsim.workers import usable_cores, usable_memory

GB = 1_000_000_000  # bytes; memory is counted in decimal gigabytes everywhere in this package


@dataclass(frozen=True)
class Gpu:
    """One accelerator."""

    name: str
    memory_bytes: int  # all of its memory
    bf16: bool  # whether bf16 runs at full speed: see ``hardware.gpus.fast_bf16``


@dataclass(frozen=True)
class Machine:
    """What a run may use."""

    cpu: str  # model name
    cores: int  # usable at once, at least 1
    memory_bytes: int  # physical memory, or the control group's limit
    available_bytes: int  # of these, free now
    bf16: str = ""  # the CPU's instructions for bf16 numbers, "AMX" or "AVX512-BF16"; "" without
    gpus: tuple[Gpu, ...] = ()
    present: bool = True  # False: only described, so that a plan for it may ask for what is not here

    @property
    def name(self) -> str:
        """One line for reports, e.g. ``Intel(R) Xeon(R) Processor, 2 cores, AMX, 25.2 GB; no GPU``."""
        bf16 = f", {self.bf16}" if self.bf16 else ""
        kinds = sorted({gpu.name for gpu in self.gpus})
        gpus = f"{len(self.gpus)} x {' and '.join(kinds)}" if kinds else "no GPU"
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{self.cpu}, {cores}{bf16}, {self.memory_bytes / GB:.1f} GB; {gpus}"

    def times(self, count: int) -> "Machine":
        """So many of these, as one."""
        return replace(
            self,
            cores=count * self.cores,
            memory_bytes=count * self.memory_bytes,
            available_bytes=count * self.available_bytes,
            gpus=count * self.gpus,
        )

    def to_dict(self) -> dict:
        """Plain values for JSON."""
        return {"name": self.name, **asdict(self)}


def detect() -> Machine:
    """The machine that this process runs on.  Imports torch, if it is installed, to look for GPUs."""
    cpu, flags = processor()
    total, available = usable_memory()
    return Machine(cpu, usable_cores(), total, available, bf16=_bf16(flags), gpus=_gpus())


def _bf16(flags: set[str]) -> str:
    if "amx_bf16" in flags:
        return "AMX"
    return "AVX512-BF16" if "avx512_bf16" in flags else ""


def fast_bf16(capability: float) -> bool:
    """Whether a GPU of this compute capability computes bf16 at full speed: from 8.0 (Ampere) on.

    Older ones emulate it, many times slower than float32, whatever ``torch.cuda.is_bf16_supported`` says.
    """
    return capability >= 8


def _gpus() -> tuple[Gpu, ...]:
    if importlib.util.find_spec("torch") is None:  # the light install has no use for a GPU
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    found = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return tuple(Gpu(gpu.name, gpu.total_memory, fast_bf16(gpu.major)) for gpu in found)
