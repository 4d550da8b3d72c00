"""What this process may use: cores, host memory, GPUs, fast bf16.

A container often sees all cores and all memory of its host, while its control group allows it a part.  So affinity
and the quotas of every enclosing control group (version 1 and 2) are read, and the smallest figure counts.
"""

import importlib.util
import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

GB = 1_000_000_000  # bytes; memory is counted in decimal gigabytes everywhere in this package


@dataclass(frozen=True)
class Gpu:
    """One accelerator.  memory_bytes: all of its memory.  bf16: whether bf16 runs at full speed (Ampere or newer)."""

    name: str
    memory_bytes: int
    bf16: bool


@dataclass(frozen=True)
class Machine:
    """What a run may use.

    cpu: model name.  cores: usable at once, at least 1.  memory_bytes: physical memory or the control group's limit.
    available_bytes: of these, free now.  amx: the CPU multiplies bf16 matrices in hardware (Intel AMX).
    present: False for a machine that was only described, so that a plan for it may ask for what is not here.
    """

    cpu: str
    cores: int
    memory_bytes: int
    available_bytes: int
    amx: bool = False
    gpus: tuple[Gpu, ...] = ()
    present: bool = True

    @property
    def name(self) -> str:
        """One line for reports, e.g. ``Intel(R) Xeon(R) Processor, 2 cores, AMX, 25.2 GB; no GPU``."""
        amx = ", AMX" if self.amx else ""
        kinds = sorted({gpu.name for gpu in self.gpus})
        gpus = f"{len(self.gpus)} x {' and '.join(kinds)}" if kinds else "no GPU"
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{self.cpu}, {cores}{amx}, {self.memory_bytes / GB:.1f} GB; {gpus}"

    def to_dict(self) -> dict:
        """Plain values for JSON."""
        return {"name": self.name, **asdict(self)}


def detect() -> Machine:
    """The machine that this process runs on.  Imports torch, if it is installed, to look for GPUs."""
    cpu, flags = _cpu()
    total, available = _memory()
    return Machine(cpu, _cores(), total, available, amx="amx_bf16" in flags, gpus=_gpus())


def _cores() -> int:
    """Cores that this process may keep busy: affinity, cut to the control groups' quota (rounded down)."""
    # macOS and Windows have neither affinity nor control groups.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in control_groups("cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            cores = min(cores, int(quota))
    return max(cores, 1)


def _memory() -> tuple[int, int]:
    """(usable, free now) bytes of host memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meminfo = _read(Path("/proc/meminfo")) or ""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    available = int(found[1]) * 1024 if found else total
    for folder in control_groups("memory"):
        limit, used = _memory_limit(folder)
        if limit is not None:
            total, available = min(total, limit), min(available, limit - used)
    return total, max(available, 0)


def _cpu() -> tuple[str, set[str]]:
    """(model name, instruction set flags) of the first CPU; without /proc/cpuinfo no flags are known."""
    cpuinfo = _read(Path("/proc/cpuinfo")) or ""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return (
        name[1].strip() if name else platform.processor() or platform.machine(),
        set(flags[1].split()) if flags else set(),
    )


def _gpus() -> tuple[Gpu, ...]:
    if importlib.util.find_spec("torch") is None:  # the light install has no use for a GPU
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    found = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return tuple(Gpu(gpu.name, gpu.total_memory, gpu.major >= 8) for gpu in found)


def control_groups(controller: str, proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")):
    """Folders of the control groups that this process is in, innermost first, up to the root.

    controller: "cpu" or "memory".  proc, root: where the kernel tells (arguments for the tests).
    """
    folders = []
    for line in (_read(proc) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2 has one hierarchy; beside version 1 it is mounted under unified/
            mount = root
        elif controller in controllers.split(","):
            mount = root / controllers
        else:
            continue
        group = mount / path.lstrip("/")
        folders += [folder for folder in (group, *group.parents) if folder.is_relative_to(mount) and folder.is_dir()]
    return folders


def _cpu_quota(folder: Path) -> float | None:
    """Cores allowed by this control group; None without a quota."""
    version2 = _read(folder / "cpu.max")
    if version2 is not None:
        quota, period = version2.split()
        return None if quota == "max" else int(quota) / int(period)
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def _memory_limit(folder: Path) -> tuple[int | None, int]:
    """(limit, use) in bytes of this control group; the limit is None where there is none."""
    limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes") or "max"
    used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes") or "0"
    # Version 1 says "no limit" with a huge number; the caller's minimum with physical memory deals with it.
    return (None if limit == "max" else int(limit)), int(used)


def _read(path: Path) -> str | None:
    """Stripped text of a kernel file; None where this kernel has no such file."""
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
