"""Speed of the simulator: physics alone, with observations, restarts, snapshots, and compiling levels.

Everything random is made, and every kernel compiled and run once, before the clock starts.  A figure is the median of
several rounds.  Shared machines change their speed from hour to hour, so beside every figure stands what a fixed
pure-Python loop and a fixed Numba loop did in the same second: compare figures only where these agree.
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
from nppsim.files import table
from nppsim.levels.kinds import EXIT, MINES, MOVERS
from nppsim.levels.level import TYPE, Level
from nppsim.measure.player import DecisionPlayer, FramePlayer
from nppsim.measure.timing import measure_rounds, seconds_of
from nppsim.measure.workload import Play
from nppsim.observe import layout
from nppsim.workers import usable_cores

# The generated levels.  Always the same categories and number, so that figures can be compared.
BENCH_CATEGORIES = ("simplest", "simpler", "simple")
LEVELS_PER_CATEGORY = 40

NUM_ENVS = 1024  # stepped together: enough to make the cost of a call, and of waiting for a thread, small
NUM_DECISIONS = 32  # rows of random actions, used over and over
PHYSICS_ENVS = 256  # of the physics kernel
PHYSICS_FRAMES = 200  # of each of them, in one call
OBSERVATION_SETS = {
    "state_only": ("game_state",),
    "vision_free": layout.VISION_FREE,
    "foresight": (*layout.VISION_FREE, "foresight"),
    "images": layout.IMAGES,
    "with_images": (*layout.VISION_FREE, *layout.IMAGES),
}
# Of workloads on levels of the game, which this project does not contain.
CAMPAIGN_SETS = {"campaign": OBSERVATION_SETS["state_only"], "campaign_foresight": OBSERVATION_SETS["foresight"]}


@dataclass(frozen=True)
class Work:
    """Amount of work of one timing."""

    unit: str  # of what is counted
    run: Callable[[], int]  # does a portion and returns how many units that were
    observations: tuple[str, ...] = ()  # keys
    phases: Callable[[], dict[str, float]] | None = None  # nanoseconds per unit, measured apart


def benchmark(
    plays: Sequence[Play],
    *,
    rounds: int = 5,
    seconds: float = 1.5,
    threads: Sequence[int] = (1,),
    campaign: Sequence[Level] = (),
) -> Iterator[tuple[str, dict]]:
    """Measure; yields (name of the workload, result) one by one.

    campaign: levels of the game, for the workloads of CAMPAIGN_SETS; without them these are left out.
    seconds: time of one workload, without preparation.  threads: every workload that can use them runs with each count.
    A result: "unit" of what is counted, "per_s" (all threads together), "per_s_per_core", "slowest" and "fastest" round
    (per s), "threads", "observations" (keys), "calibration" (``calibrate``), and where they apply
    "frames_per_s_per_core", "decisions_per_s_per_core" and "phases_ns_per_decision".
    Raises ConfigError for settings out of range.
    """
    if rounds < 1:
        raise ConfigError("give at least 1", "rounds", rounds)
    if not seconds > 0:
        raise ConfigError("give more than 0", "seconds", seconds)
    if not all(1 <= count <= usable_cores() for count in threads):
        raise ConfigError(f"this machine has cores for 1..{usable_cores()}", "threads", tuple(threads))
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
    """The result of one workload; seconds: of all rounds together."""
    portion = job.run()  # compiles
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
        result["frames_per_s_per_core"] = per_s / threads * FRAME_SKIP  # a few less: episodes end inside a decision
    result["slowest"], result["fastest"] = min(timed.rates), max(timed.rates)
    result["observations"] = list(job.observations)
    result["calibration"] = timed.median_calibration()
    if job.phases is not None:
        result["phases_ns_per_decision"] = job.phases()
    return result


def results_table(results: Mapping[str, Mapping]) -> str:
    """Results (name -> result) of ``benchmark`` as a table."""
    header = ("workload", "unit", "per s", "per s, core", "slowest", "fastest", "Python, 10^6/s", "Numba, 10^6/s")
    rows = []
    for name, result in results.items():
        figures = [f"{result[key]:,.0f}" for key in ("per_s", "per_s_per_core", "slowest", "fastest")]
        loops = result["calibration"]
        rows.append((name, result["unit"], *figures, f"{loops['python']:.1f}", f"{loops['numba']:.0f}"))
    return table(header, rows, align="llrrrrrr")


def measure_start(folder: str | Path) -> dict[str, float]:
    """Seconds until a fresh process has stepped a BatchSimulator: "first" compiles everything, "later" finds it compiled.

    folder: an empty one, for the compiled code.
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
    """Physics alone: on levels without and with mines where nothing moves, and with moving entities (which there are)."""
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
    """Decisions of random play with each set of observations."""

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
    """Nanoseconds of each phase per decision (of one core, if the threads do not disturb each other)."""
    player = _random_player(levels, 2 * NUM_DECISIONS, keys, threads, profile=True)
    decisions = player.play(2 * NUM_DECISIONS)
    return {phase: ns / decisions for phase, ns in player.phases.items() if ns}


def _on_one_core(plays: Sequence[Play]) -> dict[str, Callable[[], Work]]:
    """Return the workloads of one core: restarts with observations, snapshot and restore, compilation of levels."""
    levels = [play.level for play in plays]

    def started() -> BatchSimulator:
        simulator = BatchSimulator(levels, NUM_ENVS, frame_skip=FRAME_SKIP, threads=1)
        simulator.reset()
        return simulator

    def reset(simulator: BatchSimulator) -> int:
        simulator.reset()
        return NUM_ENVS

    def snapshot(simulator: BatchSimulator) -> int:
        for i in range(NUM_ENVS):
            simulator.restore(i, simulator.snapshot(i))
        return NUM_ENVS

    def prepare(unit: str, work: Callable[[BatchSimulator], int], keys: tuple[str, ...] = ()) -> Work:
        simulator = started()
        return Work(unit, lambda: work(simulator), keys)

    return {
        "reset": lambda: prepare("resets", reset, layout.VISION_FREE),
        "snapshot_restore": lambda: prepare("pairs", snapshot),
        "level_compile": lambda: Work(
            "levels", lambda: len(LevelBank(levels).path_length)
        ),  # including the path search
    }
