"""Speed of the simulator: physics alone, with observations, restarts, snapshots, and compiling levels.

Everything random is made, and every kernel compiled and run once, before the clock starts.  A figure is the median of
several rounds.  Shared machines change their speed from hour to hour, so beside every figure stands what a fixed
pure-Python loop and a fixed Numba loop did in the same second: compare figures only where these agree.
"""

import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.measure.kernels import advance, start_all
from nppsim.measure.timing import calibrate, rate_of
from nppsim.observe import layout
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE
from nppsim.verify import cases
from nppsim.workers import usable_cores

NUM_ENVS = 1024  # environments stepped together: enough to make the cost of a call, and of waiting for a thread, small
PHYSICS_ENVS, PHYSICS_FRAMES = 256, 200  # environments, and frames of each, in one call of the physics kernel
FRAME_SKIP = 4
RANDOM_FRAMES = 1200  # length of a random play, 20 s; then it starts again
LEVELS_PER_CATEGORY = 40  # of the generated levels
BENCH_CATEGORIES = ("simplest", "simpler", "simple")
NUM_DECISIONS = 32  # rows of random actions, used over and over


@dataclass(frozen=True)
class Play:
    """A level and the inputs (uint8[frames]) played on it; at their end, and at death or win, it starts again."""

    level: Level
    inputs: np.ndarray


def generated_plays(levels_per_category: int = LEVELS_PER_CATEGORY) -> list[Play]:
    """Random play on generated levels, of the same categories as ever so that figures can be compared."""
    seeds = range(levels_per_category)
    return _random_plays(generate(category, seed)[0] for category in BENCH_CATEGORIES for seed in seeds)


def folder_plays(path: str | Path) -> list[Play]:
    """Random play on the levels of a folder; LevelSetError if it is none."""
    return _random_plays(LevelSet.open(path))


def trace_plays(path: str | Path, themes: Sequence[str] = ()) -> list[Play]:
    """The recorded play of a trace file, of some themes only if they are named.

    Raises TraceError if it is no trace file, ConfigError if it lacks a theme.
    """
    plays, found = [], set()
    for theme, case, trace in cases(path):
        found.add(theme)
        if not themes or theme in themes:
            plays.append(Play(Level.from_bytes(trace["map"].tobytes(), f"{theme}/{case}"), trace["inputs"]))
    if missing := sorted(set(themes) - found):
        raise ConfigError(f"{path}: no theme {missing[0]!r}; it has {', '.join(sorted(found))}")
    return plays


def _random_plays(levels) -> list[Play]:
    rng = np.random.default_rng(0)
    plays = []
    for level in levels:
        actions = rng.integers(NUM_ACTIONS, size=RANDOM_FRAMES // FRAME_SKIP)
        plays.append(Play(level, np.repeat(ACTION_INPUT[actions], FRAME_SKIP)))
    return plays


def benchmark(
    plays: Sequence[Play], *, rounds: int = 5, seconds: float = 1.5, threads: Sequence[int] = (1,)
) -> Iterator[tuple[str, dict]]:
    """Measure; yields (name of the workload, result) one by one.

    seconds: time of one workload, without preparation.  threads: every workload that can use them runs with each count.
    A result: "unit" of what is counted, "per_s" (all threads together), "per_s_per_core", "slowest" and "fastest" round
    (per s), "threads", "observations" (keys), "calibration" (``calibrate``), and where they apply
    "frames_per_s_per_core", "decisions_per_s_per_core" and "phases_ns_per_decision".
    Raises ConfigError for settings out of range.
    """
    if rounds < 1 or not seconds > 0:
        raise ConfigError(f"rounds={rounds}, seconds={seconds}: give at least 1 round, and more than 0 seconds")
    if not all(1 <= count <= usable_cores() for count in threads):
        raise ConfigError(f"threads={list(threads)}: this machine has cores for 1..{usable_cores()}")
    calibrate()  # compiled
    for count in threads:
        workloads = {**_physics(plays, count), **_simulator(plays, count)}
        if count == 1:
            workloads |= _single(plays)
        for name, prepare in workloads.items():
            run, unit, observations = prepare()
            result = _measured(run, unit, observations, count, rounds, seconds)
            if unit == "decisions":
                result["phases_ns_per_decision"] = _phases(plays, observations, count)
            yield f"{name}/{count}", result


def measure_start(folder: str | Path) -> dict[str, float]:
    """Seconds until a fresh process has stepped a BatchSimulator: "first" compiles everything, "later" finds it compiled.

    folder: an empty one, for the compiled code.
    """
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    program = """
import numpy as np
from nppsim import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
simulator = BatchSimulator([generate("simple", 0)[0]], 1)
simulator.reset()
simulator.step(np.zeros(1, int))
"""
    seconds = {}
    for name in ("first", "later"):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        seconds[name] = time.perf_counter() - begin
    return seconds


# ---------------------------------------------------------------------------------------------------------------------
# The clock


def _measured(run, unit, observations, threads, rounds, seconds) -> dict:
    """The result of one workload.  run: does a portion of the work and returns how many units that were."""
    run()  # compiles
    begin = time.perf_counter()
    run()
    calls = max(round(seconds / rounds / (time.perf_counter() - begin)), 1)
    rates, calibrations = [], [calibrate()]
    for _ in range(rounds):
        rates.append(rate_of(lambda: sum(run() for _ in range(calls))))
        calibrations.append(calibrate())
    per_s = statistics.median(rates)
    result = {"unit": unit, "per_s": per_s, "per_s_per_core": per_s / threads, "threads": threads}
    if unit == "frames":
        result["frames_per_s_per_core"] = per_s / threads
    if unit == "decisions":
        result["decisions_per_s_per_core"] = per_s / threads
        result["frames_per_s_per_core"] = per_s / threads * FRAME_SKIP  # a few less: episodes end inside a decision
    result["slowest"], result["fastest"] = min(rates), max(rates)
    result["observations"] = list(observations)
    result["calibration"] = {name: statistics.median(c[name] for c in calibrations) for name in calibrations[0]}
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Workloads: name -> function that prepares it and returns (run, unit, observation keys)


def _physics(plays: Sequence[Play], threads: int) -> dict[str, Callable]:
    """Physics alone: on levels without and with mines where nothing moves, and with moving entities (which there are)."""

    def group(play):
        types = play.level.records[1:, 0]
        if np.isin(types, (*kinds.MOVING, kinds.LASER)).any():
            return "physics_movers"
        return "physics_mines" if np.isin(types, kinds.MINES).any() else "physics"

    groups: dict[str, list[Play]] = {"physics": [], "physics_mines": [], "physics_movers": []}
    for play in plays:
        groups[group(play)].append(play)
    return {name: lambda g=group: _prepare_physics(g, threads) for name, group in groups.items() if group}


def _prepare_physics(plays, threads):
    bank = LevelBank([play.level for play in plays])
    lengths = np.array([len(play.inputs) for play in plays])
    inputs = np.zeros((len(plays), lengths.max() + 1), np.uint8)
    for row, play in zip(inputs, plays, strict=True):
        row[: len(play.inputs)] = play.inputs
    ninjas, entities = np.zeros(PHYSICS_ENVS, NINJA_DTYPE), np.zeros((PHYSICS_ENVS, bank.max_entities), ENTITY_DTYPE)
    movers = np.zeros((PHYSICS_ENVS, bank.max_movers), MOVER_DTYPE)
    start_all(ninjas, entities, movers, bank.world, np.arange(PHYSICS_ENVS) % len(plays))

    edges = np.linspace(0, PHYSICS_ENVS, threads + 1).astype(int).tolist()
    pool = ThreadPoolExecutor(threads)

    def part(begin, end):
        advance(begin, end, ninjas, entities, movers, bank.world, inputs, lengths, PHYSICS_FRAMES)

    def run():
        list(pool.map(part, edges[:-1], edges[1:]))
        return PHYSICS_ENVS * PHYSICS_FRAMES

    part(0, 0)  # compiled before two threads want it

    return run, "frames", ()


def _simulator(plays: Sequence[Play], threads: int) -> dict[str, Callable]:
    """Decisions of random play with four sets of observations."""
    levels = [play.level for play in plays]
    images = ("player_frame", "global_view")
    sets = {
        "state_only": ("game_state",),
        "vision_free": layout.VISION_FREE,
        "images": images,
        "with_images": layout.ALL,
    }
    return {name: lambda k=keys: _prepare_decisions(levels, k, threads) for name, keys in sets.items()}


def _prepare_decisions(levels, keys, threads):
    simulator = BatchSimulator(levels, NUM_ENVS, frame_skip=FRAME_SKIP, observations=keys, threads=threads)
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=(NUM_DECISIONS, NUM_ENVS))
    simulator.reset()

    def run():
        for row in actions:
            simulator.step(row)
        return actions.size

    return run, "decisions", simulator.keys


def _phases(plays: Sequence[Play], keys, threads: int) -> dict[str, float]:
    """Nanoseconds of each phase per decision (of one core, if the threads do not disturb each other)."""
    levels = [play.level for play in plays]
    simulator = BatchSimulator(
        levels, NUM_ENVS, frame_skip=FRAME_SKIP, observations=keys, threads=threads, profile=True
    )
    simulator.reset()
    total: Counter[str] = Counter()
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=(2 * NUM_DECISIONS, NUM_ENVS))
    for row in actions:
        simulator.step(row)
        total.update(simulator.step_timing)
    return {phase: ns / actions.size for phase, ns in total.items() if ns}


def _single(plays: Sequence[Play]) -> dict[str, Callable]:
    """What runs on one core: restarts with observations, snapshot and restore, compiling levels."""
    levels = [play.level for play in plays]

    def prepared(function, unit, keys=()):
        def prepare():
            simulator = BatchSimulator(levels, NUM_ENVS, frame_skip=FRAME_SKIP, threads=1)
            simulator.reset()
            return (lambda: function(simulator)), unit, keys

        return prepare

    def reset(simulator):
        simulator.reset()
        return NUM_ENVS

    def snapshot(simulator):
        for i in range(NUM_ENVS):
            simulator.restore(i, simulator.snapshot(i))
        return NUM_ENVS

    def compile_levels(_simulator):
        return len(LevelBank(levels).path_length)  # compiled, and its ways searched

    return {
        "reset": prepared(reset, "resets", layout.VISION_FREE),
        "snapshot_restore": prepared(snapshot, "pairs"),
        "level_compile": prepared(compile_levels, "levels"),
    }
