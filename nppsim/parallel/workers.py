"""Cores and memory available to this process, and a pool of worker processes."""

import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import InvalidStateError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from nppsim.errors import import_optional


def usable_cores() -> int:
    """Return the number of cores available to this process: CPU affinity, limited by control group quotas."""
    # macOS and Windows have neither affinity nor control groups.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in control_groups("cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            cores = min(cores, int(quota))
    return max(cores, 1)


class OtherPrograms:
    """CPU load that other programs cause on the cores of this process, since the object was created."""

    def __init__(self) -> None:
        self._began = self._reading()

    def share(self) -> float:
        """Return the load as a fraction of these cores; 0 without /proc/stat."""
        now, used = self._reading()
        began, used_before = self._began
        return max(used - used_before, 0.0) / max(now - began, 1e-9)

    @staticmethod
    def _reading() -> tuple[float, float]:
        """Return (wall-clock seconds, CPU seconds of other programs, averaged over the cores)."""
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
        busy = []
        for line in (kernel_text("/proc/stat") or "").splitlines():
            name, *fields = line.split()
            if name in cores:
                user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, fields[:8])
                busy.append((user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK"))
        used = (sum(busy) - time.process_time()) / len(busy) if busy else 0.0
        return time.perf_counter(), used


def usable_memory() -> tuple[int, int]:
    """Return (usable, free) bytes of host memory within the limits of control groups (containers)."""
    total, available = _host_memory()
    for folder in control_groups("memory"):
        limit, used = _memory_limit(folder)
        if limit is not None:
            total, available = min(total, limit), min(available, limit - used)
    return total, max(available, 0)


@contextmanager
def worker_pool(workers: int, error: Callable[[str], Exception]) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes; cancel pending work at the end of the block.  Raise ``error`` if a process dies."""
    # Not "fork", which would copy locks that threads of Numba or torch have, without the threads that release them.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, begin_work)
    with _invalid_state_ignored():
        try:
            yield pool
        except BrokenProcessPool as broken:
            raise error(
                without_main_guard()
                or "a worker process died, perhaps for lack of memory; finished work is saved: continue with fewer workers "
                "(--workers)"
            ) from broken
        finally:
            pool.shutdown(cancel_futures=True)


def without_main_guard() -> str:
    """Describe the fault of a main program that starts processes but lacks a main guard; "" for other programs.

    Each started process imports the main program.  Without the guard, it would start processes again.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) or "__main__" in Path(path).read_text(errors="replace"):
        return ""
    return f'{path} starts processes, which import it again; put its calls below the line: if __name__ == "__main__":'


@contextmanager
def _invalid_state_ignored() -> Iterator[None]:
    """Silence InvalidStateError in the thread of the pool.

    Before Python 3.12.2, the thread raises it if a process ends after its work was cancelled.  This happens, for example,
    when SIGTERM is sent to all processes of a job.
    """

    def report(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_type is not InvalidStateError:
            before(failure)

    before, threading.excepthook = threading.excepthook, report
    try:
        yield
    finally:
        threading.excepthook = before


def begin_work() -> None:
    """Initialise a worker process: ignore signals of the terminal, which the parent handles, and end with the parent."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):  # Windows lacks SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def run_batch(function: bytes, batch: bytes) -> list:
    """Apply a pickled function to each item of a pickled batch; runs in a worker process."""
    return list(map(_load_function(function), pickle.loads(batch)))


@lru_cache(maxsize=1)
def _load_function(function: bytes) -> Callable[[Any], Any]:
    return pickle.loads(function)


def control_groups(
    controller: str, proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[Path]:
    """Return the folders of the control groups of this process, from the innermost to the root.

    controller: "cpu" or "memory".
    proc, root: paths of the kernel's files; other values are for tests.
    """
    folders = []
    for line in (kernel_text(proc) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2 of control groups, which has a single hierarchy
            mount = root
        elif controller in controllers.split(","):
            mount = root / controllers
        else:
            continue
        group = mount / path.lstrip("/")
        folders += [folder for folder in (group, *group.parents) if folder.is_relative_to(mount) and folder.is_dir()]
    return folders


def _host_memory() -> tuple[int, int]:
    """Return (total, free) bytes of memory of the machine."""
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB", kernel_text("/proc/meminfo") or "", re.MULTILINE))
    if "MemAvailable" in kilobytes:
        return int(kilobytes["MemTotal"]) * 1024, int(kilobytes["MemAvailable"]) * 1024
    memory = import_optional("psutil", "train").virtual_memory()  # macOS, Windows
    return memory.total, memory.available


def _cpu_quota(folder: Path) -> float | None:
    """Return the number of cores allowed by a control group; None without a quota."""
    version1 = kernel_text(folder / "cpu.cfs_quota_us"), kernel_text(folder / "cpu.cfs_period_us")
    version2 = (kernel_text(folder / "cpu.max") or "").split()
    quota, period = version2 or version1
    return int(quota) / int(period) if quota and period and quota not in ("max", "-1") else None


def _memory_limit(folder: Path) -> tuple[int | None, int]:
    """Return (limit or None, memory in use without reclaimable file cache) of a control group, in bytes."""
    limit = kernel_text(folder / "memory.max") or kernel_text(folder / "memory.limit_in_bytes") or "max"
    used = kernel_text(folder / "memory.current") or kernel_text(folder / "memory.usage_in_bytes") or "0"
    # The kernel counts the file cache as used, although it frees the cache on demand.
    cached = re.search(r"^(?:total_)?inactive_file (\d+)$", kernel_text(folder / "memory.stat") or "", re.MULTILINE)
    # Version 1 of control groups stores a huge number for "no limit"; the caller limits it to the physical memory.
    return (None if limit == "max" else int(limit)), int(used) - (int(cached[1]) if cached else 0)


def kernel_text(path: str | Path) -> str | None:
    """Return the stripped text of a kernel file; None if it does not exist."""
    try:
        return Path(path).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
