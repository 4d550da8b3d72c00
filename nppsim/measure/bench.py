"""Benchmarks of the simulator: physics alone, decisions with observations, restarts, snapshots, compilation of levels.

Random inputs are drawn and kernels compiled before the timing starts.  A result is the median of several rounds.  The
speed of shared machines varies, so every result includes the speed of two calibration loops, one in pure Python and one
in Numba.  Compare results only if their calibration agrees.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nppsim.actions import FRAME_SKIP, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.io.files import table
from nppsim.levels.kinds import EXIT, MINES, MOVERS
from nppsim.levels.level import TYPE, Level
from nppsim.measure.player import DecisionPlayer, FramePlayer
from nppsim.measure.timing import measure_rounds, seconds_of
from nppsim.measure.workload import Play
from nppsim.observe import layout
from nppsim.parallel.workers import usable_cores

# The generated levels on which the workloads run; fixed so that results of different versions can be compared.
BENCH_CATEGORIES = ("simplest", "simpler", "simple")
LEVELS_PER_CATEGORY = 40

NUM_ENVS = 1024  # environments stepped together, enough to make the overhead per call small
NUM_DECISIONS = 32  # rows of random actions, which are repeated; a row has one action per environment
PHYSICS_ENVS = 256  # environments of the workloads of physics alone
PHYSICS_FRAMES = 200  # frames per environment and call
OBSERVATION_SETS = {
    "state_only": ("game_state",),
    "vision_free": layout.VISION_FREE,
    "foresight": (*layout.VISION_FREE, "foresight"),
    "images": layout.IMAGES,
    "with_images": (*layout.VISION_FREE, *layout.IMAGES),
}
# Observations of the workloads on levels of the original game; these levels are not part of this project.
CAMPAIGN_SETS = {"campaign": OBSERVATION_SETS["state_only"], "campaign_foresight": OBSERVATION_SETS["foresight"]}


@dataclass(frozen=True)
class Work:
    """Work to be timed."""

    unit: str  # unit of the work, such as "frames"
    run: Callable[[], int]  # does a portion of the work and returns how many units it did
    observations: tuple[str, ...] = ()  # observation keys
    phases: Callable[[], dict[str, float]] | None = (
        None  # returns nanoseconds per unit of work by phase; None: no profile
    )


def benchmark(
    plays: Sequence[Play],
    *,
    rounds: int = 5,
    seconds: float = 1.5,
    threads: Sequence[int] = (1,),
    campaign: Sequence[Level] = (),
) -> Iterator[tuple[str, dict]]:
    """Run all workloads and yield (name of the workload, result) for each.

    seconds: duration of all rounds of a workload together, without preparation.
    threads: numbers of threads; each multi-threaded workload runs once with each number.
    campaign: levels of the game for the workloads of CAMPAIGN_SETS, which are skipped without such levels.
    Keys of a result: "unit", "per_s" (units per second of all threads together), "per_s_per_core", "slowest" and "fastest"
    (units per second of these rounds), "threads", "observations", "calibration" (see ``calibrate``), and if the
    workload measures them "frames_per_s_per_core", "decisions_per_s_per_core" and "phases_ns_per_decision".
    Raises ConfigError for more threads than usable cores.
    """
    if not all(1 <= count <= usable_cores() for count in threads):
        raise ConfigError(f"give 1 to {usable_cores()}, the number of usable cores", "threads", tuple(threads))
    bank = LevelBank(campaign) if campaign else ()
    for count in threads:
        jobs = _physics(plays, count) | _decisions([play.level for play in plays], count, OBSERVATION_SETS)
        if bank:
            jobs |= _decisions(bank, count, CAMPAIGN_SETS)
        if count == 1:
            jobs |= _on_one_core(plays)
        for name, prepare in jobs.items():
            yield f"{name}/{count}", _measured(prepare(), count, rounds, seconds)


def _measured(job: Work, threads: int, rounds: int, seconds: float) -> dict:
    """Time one workload and return the result.  seconds: time of all rounds together."""
    portion = job.run()  # the first call compiles the kernels
    calls = max(round(seconds / rounds / seconds_of(job.run)), 1)

    def work() -> None:
        for _ in range(calls):
            job.run()

    timed = measure_rounds(work, rounds, calls * portion)
    per_s = statistics.median(timed.rates)
    result = {"unit": job.unit, "per_s": per_s, "per_s_per_core": per_s / threads, "threads": threads}
    if job.unit == "frames":
        result["frames_per_s_per_core"] = per_s / threads
    if job.unit == "decisions":
        result["decisions_per_s_per_core"] = per_s / threads
        result["frames_per_s_per_core"] = (
            per_s / threads * FRAME_SKIP
        )  # slightly too high: an episode's last decision may be shorter
    result["slowest"], result["fastest"] = min(timed.rates), max(timed.rates)
    result["observations"] = list(job.observations)
    result["calibration"] = timed.median_calibration()
    if job.phases is not None:
        result["phases_ns_per_decision"] = job.phases()
    return result


def results_table(results: Mapping[str, Mapping]) -> str:
    """Format results of ``benchmark`` (name -> result) as a table."""
    header = ("workload", "unit", "per s", "per s, core", "slowest", "fastest", "Python, 10^6/s", "Numba, 10^6/s")
    rows = []
    for name, result in results.items():
        figures = [f"{result[key]:,.0f}" for key in ("per_s", "per_s_per_core", "slowest", "fastest")]
        loops = result["calibration"]
        rows.append((name, result["unit"], *figures, f"{loops['python']:.1f}", f"{loops['numba']:.0f}"))
    return table(header, rows, align="llrrrrrr")


def measure_start(folder: str | Path) -> dict[str, float]:
    """Return the seconds until a new process has stepped a BatchSimulator: "first" with compilation, "later" without.

    folder: empty folder in which Numba caches the compiled code.
    """
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    program = """
import numpy as np
from nppsim import BatchSimulator
from nppsim.generate import generate
simulator = BatchSimulator([generate("simple", 0)[0]], 1)
simulator.reset()
simulator.step(np.zeros(1, int))
"""
    start = partial(subprocess.run, [sys.executable, "-c", program], env=environment, check=True)
    return {"first": seconds_of(start), "later": seconds_of(start)}


# ---------------------------------------------------------------------------------------------------------------------
# Workloads: name -> function that prepares it


def _physics(plays: Sequence[Play], threads: int) -> dict[str, Callable[[], Work]]:
    """Workloads of physics alone, one per group of levels.

    The groups are levels with moving entities, levels with mines but no moving entities, and levels with neither.  Groups
    without levels in ``plays`` are omitted.
    """
    groups: dict[str, list[Play]] = {"physics": [], "physics_mines": [], "physics_movers": []}
    for play in plays:
        groups[_group(play.level)].append(play)
    return {name: partial(_frames, group, threads) for name, group in groups.items() if group}


def _group(level: Level) -> str:
    types = set(level.records[1:, TYPE].tolist())
    if types & (set(MOVERS) - {EXIT}):
        return "physics_movers"
    return "physics_mines" if types & set(MINES) else "physics"


def _frames(plays: Sequence[Play], threads: int) -> Work:
    bank = LevelBank([play.level for play in plays])
    player = FramePlayer(bank, [play.inputs for play in plays], PHYSICS_ENVS, threads=threads)
    return Work("frames", lambda: player.play(PHYSICS_FRAMES))


def _decisions(
    levels: Sequence[Level] | LevelBank, threads: int, observation_sets: Mapping[str, tuple[str, ...]]
) -> dict[str, Callable[[], Work]]:
    """Workloads of random play, one per set of observations."""

    def prepare(keys: tuple[str, ...]) -> Work:
        player = _random_player(levels, NUM_DECISIONS, keys, threads)
        phases = partial(_phases, levels, keys, threads)
        return Work("decisions", lambda: player.play(NUM_DECISIONS), player.simulator.keys, phases)

    return {name: partial(prepare, keys) for name, keys in observation_sets.items()}


def _random_player(
    levels: Sequence[Level] | LevelBank, rows: int, keys: tuple[str, ...], threads: int, *, profile: bool | None = None
) -> DecisionPlayer:
    simulator = BatchSimulator(
        levels, NUM_ENVS, frame_skip=FRAME_SKIP, observations=keys, threads=threads, profile=profile
    )
    return DecisionPlayer(simulator, np.random.default_rng(0).integers(NUM_ACTIONS, size=(rows, NUM_ENVS)))


def _phases(levels: Sequence[Level] | LevelBank, keys: tuple[str, ...], threads: int) -> dict[str, float]:
    """Return the nanoseconds per decision that each phase of a step takes, summed over threads."""
    player = _random_player(levels, 2 * NUM_DECISIONS, keys, threads, profile=True)
    decisions = player.play(2 * NUM_DECISIONS)
    return {phase: ns / decisions for phase, ns in player.phases.items() if ns}


def _on_one_core(plays: Sequence[Play]) -> dict[str, Callable[[], Work]]:
    """Workloads of one core: restarts with observations, snapshot and restore, compilation of levels."""
    levels = [play.level for play in plays]

    def reset(simulator: BatchSimulator) -> int:
        simulator.reset()
        return NUM_ENVS

    def snapshot(simulator: BatchSimulator) -> int:
        for i in range(NUM_ENVS):
            simulator.restore(i, simulator.snapshot(i))
        return NUM_ENVS

    def prepare(unit: str, work: Callable[[BatchSimulator], int], keys: tuple[str, ...] = ()) -> Work:
        simulator = BatchSimulator(levels, NUM_ENVS, frame_skip=FRAME_SKIP, threads=1)
        simulator.reset()
        return Work(unit, lambda: work(simulator), keys)

    return {
        "reset": lambda: prepare("resets", reset, layout.VISION_FREE),
        "snapshot_restore": lambda: prepare("pairs", snapshot),
        "level_compile": lambda: Work(
            "levels", lambda: len(LevelBank(levels).path_length)
        ),  # the time includes the path search
    }
