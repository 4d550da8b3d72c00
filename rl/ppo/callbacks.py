"""Callbacks of PPO: their base class, and profilers that write to ``<run>/profiling``.

    ppo.learn(..., callback=[*profilers(config.profiling, folder), ...])

phases.json          total seconds of each phase, and shares of the phases within a step; phases.csv: per update
trace_N.json.gz      for chrome://tracing or ui.perfetto.dev; trace_N.txt: table of the slowest operations
memory.txt           snapshots of the process's memory, and growth since the first one

Profilers do not change results, only speed.  A resumed run starts new measurements.
"""

import tracemalloc
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import profiler

from nppsim.files import append_text, table, write_json, write_text
from rl.config import ProfilingConfig
from rl.ppo.ppo import PHASES, PPO


class PPOCallback(BaseCallback):
    """A Stable-Baselines3 callback whose ``model`` is this project's PPO."""

    model: PPO  # type: ignore[assignment]  # has the attributes that callbacks read

    def _on_step(self) -> bool:
        return True


FOLDER = "profiling"
OTHER = "other"  # what is neither simulator, network nor update: bookkeeping, evaluations, checkpoints
OPERATIONS = 40  # rows of a trace's table
LINES = 10  # of code, in a snapshot of memory
MIB = 1 << 20
PAGE = 4096


def profilers(config: ProfilingConfig, folder: Path) -> list[PPOCallback]:
    """The callbacks that are asked for; give them to ``learn`` before all others.  folder: of the run."""
    place = folder / FOLDER
    found: list[PPOCallback] = []
    if config.phases:
        found.append(PhaseTimings(place))
    if config.pytorch:
        found.append(TorchTrace(place, config))
    if config.memory:
        found.append(MemorySnapshots(place, config.memory_snapshot_freq))
    return found


def memory_mib() -> float:
    """Resident memory of the process, MiB; NaN without /proc."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * PAGE / MIB if statm.exists() else float("nan")


class Profiler(PPOCallback):
    """What they have in common: a folder, and that updates are complete when the next rollout begins."""

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder
        self._seen = 0  # updates

    def _on_training_start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._seen = self.model.updates

    def _on_rollout_start(self) -> None:
        self._look()

    def _on_training_end(self) -> None:
        self._look()

    def _look(self) -> None:
        if self.model.updates > self._seen:
            self._seen = self.model.updates
            self.after_update()

    @abstractmethod
    def after_update(self) -> None:
        """An update has just ended."""


class PhaseTimings(Profiler):
    """Seconds of rollouts, inference, updates and the rest, update by update and in all.  Also those of the phases within a
    step of the simulator, all of its threads together, if it measures them (``BatchSimulator(profile=True)``)."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._last: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._steps: dict[str, float] = {}

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._last = self._clocks()
        write_text(self.folder / "phases.csv", ",".join(["number", "decisions", *PHASES, "curriculum", OTHER]) + "\n")

    def _clocks(self) -> dict[str, float]:
        """Seconds so far of each part, and of everything."""
        return {**self.model.phase_seconds, "all": self.model.elapsed_s}

    def _on_step(self) -> bool:
        for phase, nanoseconds in self.model.sim.step_timing.items():
            self._steps[phase] = self._steps.get(phase, 0.0) + nanoseconds / 1e9
        return True

    def after_update(self) -> None:
        """Add a row."""
        ppo, now = self.model, self._clocks()
        took = {name: now[name] - self._last[name] for name in now}
        self._last = now
        curriculum = float(ppo.logger.name_to_value.get("sim/curriculum_s", 0.0))
        row = {part: took[part] for part in PHASES} | {"curriculum": curriculum}
        row["update"] -= curriculum
        row[OTHER] = took["all"] - sum(row.values())
        self._totals = {name: self._totals.get(name, 0.0) + seconds for name, seconds in row.items()}
        figures = [str(ppo.updates), str(ppo.num_timesteps), *(f"{seconds:.6f}" for seconds in row.values())]
        append_text(self.folder / "phases.csv", ",".join(figures) + "\n")
        facts = {"updates": ppo.updates, "decisions": ppo.num_timesteps}
        write_json(
            self.folder / "phases.json",
            facts | {"seconds": self._totals, "share": _shares(self._totals), "share_of_a_step": _shares(self._steps)},
        )


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {name: part / total for name, part in seconds.items()} if total > 0 else {}


class TorchTrace(Profiler):
    """Traces of PyTorch: waits for some updates, lets the profiler warm up, and records the next ones; that, again and again.

    config: with the numbers of updates for each, and how often.
    """

    def __init__(self, folder: Path, config: ProfilingConfig):
        super().__init__(folder)
        self._schedule: Callable = profiler.schedule(
            wait=config.wait, warmup=config.warmup, active=config.active, repeat=config.repeat
        )
        self._profiler: profiler.profile | None = None
        self._written = 0

    def _on_training_start(self) -> None:
        super()._on_training_start()
        activities = [profiler.ProfilerActivity.CPU]
        if self.model.device.type == "cuda":
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profiler = profiler.profile(
            activities=activities,
            schedule=self._schedule,
            on_trace_ready=self._write,
            experimental_config=profiler._ExperimentalConfig(
                profile_all_threads=True
            ),  # of the plan; else Python's first
        )
        self._profiler.start()

    def _write(self, recorded: profiler.profile) -> None:
        self._written += 1
        recorded.export_chrome_trace(str(self.folder / f"trace_{self._written}.json.gz"))
        text = recorded.key_averages().table(sort_by="self_cpu_time_total", row_limit=OPERATIONS)
        write_text(self.folder / f"trace_{self._written}.txt", text)

    def after_update(self) -> None:
        """Tell the profiler that an update has passed."""
        assert self._profiler is not None
        self._profiler.step()

    def _on_training_end(self) -> None:
        super()._on_training_end()
        assert self._profiler is not None
        self._profiler.stop()


class MemorySnapshots(Profiler):
    """Memory of the process, of PyTorch on a GPU and of Python's objects by line of code.

    freq: steps of all environments between snapshots, each taken when the update in progress is done.
    """

    def __init__(self, folder: Path, freq: int):
        super().__init__(folder)
        self.freq = freq
        self._steps = 0
        self._first: tracemalloc.Snapshot | None = None

    def _on_training_start(self) -> None:
        super()._on_training_start()
        write_text(
            self.folder / "memory.txt", f"Memory, MiB: a snapshot every {self.freq:,} steps of all environments\n"
        )
        tracemalloc.start()

    def _on_step(self) -> bool:
        self._steps += 1
        return True

    def after_update(self) -> None:
        """Take a snapshot if one is due."""
        if self._steps >= self.freq or self._first is None:
            self._steps = 0
            self._snapshot()

    def _on_training_end(self) -> None:
        super()._on_training_end()
        tracemalloc.stop()

    def _snapshot(self) -> None:
        ours = (tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__))
        taken = tracemalloc.take_snapshot().filter_traces(ours)
        traced, peak = tracemalloc.get_traced_memory()
        figures = {"process": memory_mib(), "Python's objects": traced / MIB, "at most": peak / MIB}
        if self.model.device.type == "cuda":
            figures |= {
                "GPU, in use": torch.cuda.memory_allocated() / MIB,
                "GPU, reserved": torch.cuda.memory_reserved() / MIB,
                "GPU, in use at most": torch.cuda.max_memory_allocated() / MIB,
            }
        first, self._first = self._first, self._first or taken
        told = "; ".join(f"{name} {size:,.1f}" for name, size in figures.items())
        lines = [f"\nupdate {self.model.updates}, {self.model.num_timesteps:,} decisions: {told}"]
        if first is None:
            rows = [
                (f"{s.size / MIB:.2f}", f"{s.count:,}", str(s.traceback)) for s in taken.statistics("lineno")[:LINES]
            ]
            lines.append(table(("MiB", "objects", "made in"), rows, align="rrl"))
        else:
            grown = [s for s in taken.compare_to(first, "lineno") if s.size_diff > 0][:LINES]
            rows = [(f"{s.size_diff / MIB:+.2f}", f"{s.count_diff:+,}", str(s.traceback)) for s in grown]
            lines.append(table(("MiB since the first", "objects", "made in"), rows, align="rrl"))
        append_text(self.folder / "memory.txt", "\n".join(lines) + "\n")
