"""Callbacks of PPO: their base class, and profilers that write to ``<run>/profiling``.

    ppo.learn(..., callback=[*profilers(config.profiling, folder), ...])

phases.json          total seconds and share of each phase of training, and of each phase within a step of the simulator;
                     mean number of busy cores; utilisation and largest memory of a GPU
phases.csv           seconds of each phase per update
trace_N.json.gz      trace for chrome://tracing or ui.perfetto.dev
trace_N.txt          table of the slowest operations in the trace
memory.txt           memory of the process, and the lines of code whose objects take or gain the most memory

Profilers make training slower but do not change its results.  A resumed run starts new measurements.
"""

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import profiler

from nppsim.io.files import append_text, table, write_json, write_text
from rl.config import ProfilingConfig
from rl.ppo.base import PHASES
from rl.ppo.ppo import PPO

FOLDER = "profiling"
PROFILERS = "profilers"  # phase: traces and memory snapshots
OTHER = "other"  # phase: time outside all other phases, such as bookkeeping, evaluations, checkpoints
OPERATIONS = 40  # number of rows in the table of a trace
LINES = 10  # number of lines of code in a snapshot of memory
MIB = 1 << 20
PAGE = 4096  # bytes per page of memory


class PPOCallback(BaseCallback):
    """Callback of Stable-Baselines3 whose ``model`` is a PPO of this project."""

    model: PPO  # type: ignore[assignment]  # has the attributes that callbacks read

    def _on_step(self) -> bool:
        return True


def profilers(config: ProfilingConfig, folder: Path) -> list[PPOCallback]:
    """Return the profilers that the settings enable; pass them to ``learn`` before other callbacks.

    folder: folder of the run.
    """
    folder = folder / FOLDER
    callbacks: list[PPOCallback] = []
    if config.pytorch:
        callbacks.append(TorchTrace(folder, config))
    if config.memory:
        callbacks.append(MemorySnapshots(folder, config.memory_snapshot_freq))
    if config.phases:  # last: the first phase must begin after the other profilers have started
        callbacks.append(PhaseTimings(folder))
    return callbacks


def memory_mib() -> float:
    """Return the resident memory of the process in MiB; NaN on systems without /proc."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * PAGE / MIB if statm.exists() else float("nan")


def gpu_utilisation(device: torch.device) -> int | None:
    """Return the percent of the latest sample period (1/6 to 1 s) in which kernels ran; None if the driver has no answer."""
    try:
        from pynvml import NVMLError
    except ModuleNotFoundError:
        return None
    try:
        return torch.cuda.utilization(device)
    except NVMLError:  # e.g. on a partition of a GPU (MIG)
        return None


class Profiler(PPOCallback):
    """Base class with a hook ``after_update``, which is called when the next rollout begins.

    ``phase_seconds`` of PPO counts the duration of this hook.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder
        self._updates = 0  # ``PPO.updates`` at the latest measurement

    def _on_training_start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._updates = self.model.updates

    def _on_rollout_start(self) -> None:
        if self.model.updates > self._updates:
            self._updates = self.model.updates
            began, seconds = time.perf_counter(), self.model.phase_seconds
            self.after_update()
            seconds[PROFILERS] = seconds.get(PROFILERS, 0.0) + time.perf_counter() - began

    def _on_training_end(self) -> None:
        self._on_rollout_start()

    def after_update(self) -> None:
        """Measure the update that has just ended."""
        raise NotImplementedError


class PhaseTimings(Profiler):
    """Profiler that writes the seconds of each phase, per update and in total, and the load of cores and of a GPU.

    The utilisation of the GPU is sampled at the end of each rollout and of each update.
    With ``BatchSimulator.profile``, also seconds of the phases within a step of the simulator, summed over its threads.
    """

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._last: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._steps: dict[str, float] = {}
        self._cores = 0.0  # CPU time of the process in seconds
        self._gpu: dict[str, list[int | None]] = {"rollout": [], "update": []}  # percent

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._last = self._clocks()
        write_text(
            self.folder / "phases.csv",
            ",".join(["number", "decisions", *PHASES, "curriculum", PROFILERS, OTHER]) + "\n",
        )

    def _clocks(self) -> dict[str, float]:
        """Return the seconds of each phase so far, of training as a whole ("all"), and the CPU time ("cores")."""
        return {PROFILERS: 0.0, **self.model.phase_seconds, "all": self.model.elapsed_s, "cores": time.process_time()}

    def _on_step(self) -> bool:
        for phase, nanoseconds in self.model.sim.step_timing.items():
            self._steps[phase] = self._steps.get(phase, 0.0) + nanoseconds / 1e9
        return True

    def _on_rollout_end(self) -> None:
        self._sample_gpu("rollout")

    def _sample_gpu(self, phase: str) -> None:
        if self.model.device.type == "cuda":
            self._gpu[phase].append(gpu_utilisation(self.model.device))

    def _gpu_figures(self) -> dict[str, Any]:
        if self.model.device.type != "cuda":
            return {}
        means = {
            phase: sum(percent) / len(percent)
            for phase, samples in self._gpu.items()
            if (percent := [one for one in samples if one is not None])
        }
        utilisation: Any = means or "unknown: install nvidia-ml-py, and use a whole GPU"
        peak = torch.cuda.max_memory_reserved(self.model.device) / MIB
        return {"gpu": {"utilisation_percent": utilisation, "peak_memory_mib": peak}}

    def after_update(self) -> None:
        """Add a row to the table and write the totals."""
        self._sample_gpu("update")
        ppo, now = self.model, self._clocks()
        seconds = {name: now[name] - self._last[name] for name in now}
        self._last = now
        curriculum = float(ppo.logger.name_to_value.get("sim/curriculum_s", 0.0))
        row = {part: seconds[part] for part in PHASES} | {"curriculum": curriculum, PROFILERS: seconds[PROFILERS]}
        row["update"] -= curriculum
        row[OTHER] = seconds["all"] - sum(row.values())
        self._totals = {name: self._totals.get(name, 0.0) + value for name, value in row.items()}
        self._cores += seconds["cores"]
        figures = [str(ppo.updates), str(ppo.num_timesteps), *(f"{value:.6f}" for value in row.values())]
        append_text(self.folder / "phases.csv", ",".join(figures) + "\n")
        busy = self._cores / max(sum(self._totals.values()), 1e-9)  # number of cores in use, averaged over time
        counts = {"updates": ppo.updates, "decisions": ppo.num_timesteps, "busy_cores": busy}
        shares = {"share": _shares(self._totals), "share_of_a_step": _shares(self._steps)}
        write_json(self.folder / "phases.json", counts | self._gpu_figures() | {"seconds": self._totals} | shares)


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {name: part / total for name, part in seconds.items()} if total > 0 else {}


class TorchTrace(Profiler):
    """Profiler that writes traces of torch.profiler.  config: numbers of updates to skip, to warm up and to record."""

    def __init__(self, folder: Path, config: ProfilingConfig):
        super().__init__(folder)
        self._schedule: Callable = profiler.schedule(
            wait=config.wait, warmup=config.warmup, active=config.active, repeat=config.repeat
        )
        self._profiler: profiler.profile | None = None
        self._traces = 0

    def _on_training_start(self) -> None:
        super()._on_training_start()
        activities = [profiler.ProfilerActivity.CPU]
        if self.model.device.type == "cuda":
            activities.append(profiler.ProfilerActivity.CUDA)
        every_thread = profiler._ExperimentalConfig(profile_all_threads=True)  # default: only the main thread
        self._profiler = profiler.profile(
            activities=activities, schedule=self._schedule, on_trace_ready=self._write, experimental_config=every_thread
        )
        self._profiler.start()

    def _write(self, recorded: profiler.profile) -> None:
        self._traces += 1
        recorded.export_chrome_trace(str(self.folder / f"trace_{self._traces}.json.gz"))
        text = recorded.key_averages().table(sort_by="self_cpu_time_total", row_limit=OPERATIONS)
        write_text(self.folder / f"trace_{self._traces}.txt", text)

    def after_update(self) -> None:
        """Advance the profiler's schedule."""
        assert self._profiler is not None
        self._profiler.step()

    def _on_training_end(self) -> None:
        super()._on_training_end()
        assert self._profiler is not None
        self._profiler.stop()


class MemorySnapshots(Profiler):
    """Profiler that writes snapshots of memory: of the process, of PyTorch on a GPU, and of Python's objects by line of code.

    freq: number of steps of all environments between snapshots, which are taken after an update.
    """

    def __init__(self, folder: Path, freq: int):
        super().__init__(folder)
        self.freq = freq
        self._steps = 0
        self._first: tracemalloc.Snapshot | None = None

    def _on_training_start(self) -> None:
        super()._on_training_start()
        title = f"Memory, MiB: a snapshot every {self.freq:,} steps of all environments\n"
        write_text(self.folder / "memory.txt", title)
        tracemalloc.start()

    def _on_step(self) -> bool:
        self._steps += 1
        return True

    def after_update(self) -> None:
        """Take a snapshot if one is due."""
        if self._steps < self.freq and self._first is not None:
            return
        self._steps = 0
        ignored = (tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__))
        snapshot = tracemalloc.take_snapshot().filter_traces(ignored)
        text = f"\nupdate {self.model.updates}, {self.model.num_timesteps:,} decisions: {self._totals()}\n"
        if self._first is None:
            self._first = snapshot
            rows = [
                (f"{s.size / MIB:.2f}", f"{s.count:,}", str(s.traceback)) for s in snapshot.statistics("lineno")[:LINES]
            ]
        else:
            grown = [s for s in snapshot.compare_to(self._first, "lineno") if s.size_diff > 0][:LINES]
            rows = [(f"{s.size_diff / MIB:+.2f}", f"{s.count_diff:+,}", str(s.traceback)) for s in grown]
        unit = "MiB" if snapshot is self._first else "MiB since the first"
        append_text(self.folder / "memory.txt", f"{text}{table((unit, 'objects', 'made in'), rows, align='rrl')}\n")

    def _totals(self) -> str:
        traced, peak = tracemalloc.get_traced_memory()
        sizes = {"process": memory_mib(), "Python's objects": traced / MIB, "peak": peak / MIB}
        if self.model.device.type == "cuda":
            sizes["GPU, allocated"] = torch.cuda.memory_allocated() / MIB
            sizes["GPU, reserved"] = torch.cuda.memory_reserved() / MIB
            sizes["GPU, peak"] = torch.cuda.max_memory_allocated() / MIB
        return "; ".join(f"{name} {size:,.1f}" for name, size in sizes.items())

    def _on_training_end(self) -> None:
        super()._on_training_end()
        tracemalloc.stop()
