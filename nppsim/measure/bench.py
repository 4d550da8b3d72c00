"""Benchmarks of the simulator: physics alone, decisions with observations, restarts, snapshots, compilation of levels.

Random inputs are drawn and kernels compiled before the timing starts.  A result is the median of several rounds.  The
speed of shared machines varies, so the speed of two calibration loops is measured beside every round.  ``relative`` is the
speed per speed of a loop, which is compared between machines (``timing.relative_speeds``).
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppsim.actions import FRAME_SKIP, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.io.files import table
from nppsim.levels.kinds import EXIT, MINES, MOVERS
from nppsim.levels.level import TYPE, Level
from nppsim.measure.player import DecisionPlayer, FramePlayer
from nppsim.measure.timing import measure_rounds, relative_speeds, relative_to_loops, seconds_of
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


class TimedWork(NamedTuple):
    """Prepared work of one workload, to be timed."""

    unit: str  # unit of the work, such as "frames"
    run: Callable[[], int]  # does a portion of the work and returns how many units it did
    observations: tuple[str, ...] = ()  # observation keys
    phases: Callable[[], dict[str, float]] = dict  # returns nanoseconds per unit of work by phase


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
    (units per second of these rounds), "threads", "observations", "calibration" (median speed of each calibration loop),
    "relative" (see ``relative_to_loops``), and if the workload measures them "frames_per_s_per_core",
    "decisions_per_s_per_core" and "phases_ns_per_decision".
    Raises ConfigError for more threads than usable cores.
    """
    if not all(1 <= count <= usable_cores() for count in threads):
        raise ConfigError(f"give 1 to {usable_cores()}, the number of usable cores", "threads", tuple(threads))
    levels, bank = [play.level for play in plays], LevelBank(campaign) if campaign else ()
    for count in threads:
        workloads = _physics(plays, count) | _decisions(levels, count, OBSERVATION_SETS)
        if bank:
            workloads |= _decisions(bank, count, CAMPAIGN_SETS)
        if count == 1:
            workloads |= _on_one_core(levels)
        for name, prepare in workloads.items():
            yield f"{name}/{count}", measure_work(prepare(), count, rounds, seconds)


def measure_work(work: TimedWork, threads: int, rounds: int, seconds: float) -> dict:
    """Time one workload and return its result (see ``benchmark``).  seconds: time of all rounds together."""
    portion = work.run()  # the first call compiles the kernels
    calls = max(round(seconds / rounds / seconds_of(work.run)), 1)
    timed = measure_rounds(lambda: [work.run() for _ in range(calls)], rounds)
    rates = [calls * portion / round_s for round_s in timed.seconds]
    per_s = statistics.median(rates)
    result = {"unit": work.unit, "per_s": per_s, "per_s_per_core": per_s / threads, "threads": threads}
    if work.unit == "frames":
        result["frames_per_s_per_core"] = per_s / threads
    if work.unit == "decisions":
        result["decisions_per_s_per_core"] = per_s / threads
        # Slightly too high: an episode's last decision may be shorter.
        result["frames_per_s_per_core"] = per_s / threads * FRAME_SKIP
    result["slowest"], result["fastest"] = min(rates), max(rates)
    result["observations"] = list(work.observations)
    result["calibration"] = {loop: statistics.median(speeds) for loop, speeds in timed.calibration.items()}
    result["relative"] = relative_to_loops(rates, timed.calibration)
    if phases := work.phases():
        result["phases_ns_per_decision"] = phases
    return result


def results_table(results: Mapping[str, Mapping], baseline: Mapping[str, Mapping]) -> str:
    """Format results of ``benchmark`` (name -> result) as a table, with their speeds relative to stored results."""
    header = ["workload", "unit", "per s", "per s, core", "slowest", "fastest", "Python, 10^6/s", "Numba, 10^6/s"]
    rows = []
    for name, result in results.items():
        figures = [f"{result[key]:,.0f}" for key in ("per_s", "per_s_per_core", "slowest", "fastest")]
        loops = result["calibration"]
        rows.append([name, result["unit"], *figures, f"{loops['python']:.1f}", f"{loops['numba']:.0f}"])
        if baseline:
            speeds = relative_speeds(result, baseline[name]) if name in baseline else {}
            rows[-1].append(" to ".join(f"{ratio:.2f}" for ratio in sorted(speeds.values())))
    return table([*header, "of baseline"] if baseline else header, rows, align="llrrrrrr" + "r" * bool(baseline))


def measure_start(folder: str | Path) -> dict[str, float]:
    """Return the seconds until a new process has stepped a BatchSimulator: "first" with compilation, "later" without.

    folder: empty folder in which Numba caches the compiled code.
    """
    program = """
import numpy as np
from nppsim import BatchSimulator
from nppsim.generate import generate
simulator = BatchSimulator([generate("simple", 0)[0]], 1)
simulator.reset()
simulator.step(np.zeros(1, int))
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    start = partial(subprocess.run, [sys.executable, "-c", program], env=environment, check=True)
    return {"first": seconds_of(start), "later": seconds_of(start)}


# ---------------------------------------------------------------------------------------------------------------------
# Workloads: name -> function that prepares it


def _physics(plays: Sequence[Play], threads: int) -> dict[str, Callable[[], TimedWork]]:
    """Workloads of physics alone on levels with neither mines nor movers, with mines alone, and with movers."""
    groups: dict[str, list[Play]] = {"physics": [], "physics_mines": [], "physics_movers": []}
    for play in plays:
        types = set(play.level.records[1:, TYPE].tolist())
        moving, mines = types & (set(MOVERS) - {EXIT}), types & set(MINES)
        groups["physics_movers" if moving else "physics_mines" if mines else "physics"].append(play)

    def prepare(group: Sequence[Play]) -> TimedWork:
        bank = LevelBank([play.level for play in group])
        player = FramePlayer(bank, [play.inputs for play in group], PHYSICS_ENVS, threads=threads)
        return TimedWork("frames", lambda: player.play(PHYSICS_FRAMES))

    return {name: partial(prepare, group) for name, group in groups.items() if group}


def _decisions(
    levels: Sequence[Level] | LevelBank, threads: int, observation_sets: Mapping[str, tuple[str, ...]]
) -> dict[str, Callable[[], TimedWork]]:
    """Workloads of random play, one per set of observations."""

    def player_of(keys: tuple[str, ...], rows: int, profile: bool) -> DecisionPlayer:
        simulator = BatchSimulator(
            levels, NUM_ENVS, frame_skip=FRAME_SKIP, observations=keys, threads=threads, profile=profile
        )
        return DecisionPlayer(simulator, np.random.default_rng(0).integers(NUM_ACTIONS, size=(rows, NUM_ENVS)))

    def phases(keys: tuple[str, ...]) -> dict[str, float]:
        """Return the nanoseconds per decision of each phase of a step, summed over threads."""
        player = player_of(keys, 2 * NUM_DECISIONS, True)
        decisions = player.play(2 * NUM_DECISIONS)
        return {phase: ns / decisions for phase, ns in player.phases.items() if ns}

    def prepare(keys: tuple[str, ...]) -> TimedWork:
        player = player_of(keys, NUM_DECISIONS, False)
        return TimedWork("decisions", lambda: player.play(NUM_DECISIONS), player.simulator.keys, partial(phases, keys))

    return {name: partial(prepare, keys) for name, keys in observation_sets.items()}


def _on_one_core(levels: Sequence[Level]) -> dict[str, Callable[[], TimedWork]]:
    """Workloads of one core: restarts with observations, snapshot and restore, compilation of levels."""

    def reset(simulator: BatchSimulator) -> int:
        simulator.reset()
        return NUM_ENVS

    def snapshot(simulator: BatchSimulator) -> int:
        for i in range(NUM_ENVS):
            simulator.restore(i, simulator.snapshot(i))
        return NUM_ENVS

    def prepare(unit: str, work: Callable[[BatchSimulator], int], keys: tuple[str, ...] = ()) -> TimedWork:
        simulator = BatchSimulator(levels, NUM_ENVS, frame_skip=FRAME_SKIP, threads=1)
        simulator.reset()
        return TimedWork(unit, lambda: work(simulator), keys)

    return {
        "reset": lambda: prepare("resets", reset, layout.VISION_FREE),
        "snapshot_restore": lambda: prepare("pairs", snapshot),
        "level_compile": lambda: TimedWork(
            "levels", lambda: len(LevelBank(levels).path_length)
        ),  # with the path search
    }
