"""Fuzz the level and replay readers and the simulator: python -m tests.fuzz.level_fuzzer --count 5000

Case i of seed s is a pure function of (s, i).  Every case must be refused with one LevelError or ReplayError of one line,
or play on: all numbers stay finite, and observations are made.  With NUMBA_BOUNDSCHECK=1 in the environment a read outside
an array is found, too.
"""

import argparse
import faulthandler
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from nppsim._numba.decorators import numba_config
from nppsim.actions import NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.generate import CATEGORIES, generate
from nppsim.io.files import table
from nppsim.levels.kinds import ENTITY_NAMES, NINJA
from nppsim.levels.level import BOTTOM_Y, MIRROR_X, MODE, ORIENTATION, STEPS_PER_TILE, Level, LevelError, X, Y
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import NUM_TILE_SHAPES
from nppsim.measure.player import DecisionPlayer, FramePlayer
from nppsim.observe import layout
from nppsim.replays.replay import Replay, ReplayError

FRAMES = 200  # of play, with raw inputs
DECISIONS = 12  # of play through a BatchSimulator with every observation
GROUP = 64  # cases played together
PATIENCE_S = 300  # a group that takes longer hangs
MAX_RANDOM_BYTES = 4096
_Case = tuple[int, Level, np.ndarray]  # index, level, inputs uint8[FRAMES]
KINDS = ("bytes as level", "bytes as replay", "random level", "damaged level", "damaged replay")


@dataclass
class FuzzReport:
    """Counts and failures of a fuzzing run.

    tried, played: number of cases by kind.
    refused: number of cases by class of error.
    frames: number of frames played in all cases.
    failures: one sentence each.
    """

    tried: Counter[str] = field(default_factory=Counter)
    played: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    frames: int = 0
    failures: list[str] = field(default_factory=list)


def case(seed: int, index: int) -> tuple[str, bytes]:
    """Return (kind, bytes) of one case; kinds are ``KINDS``, the bytes are a level's or a replay's."""
    rng = np.random.default_rng([seed, index])
    kind = KINDS[rng.integers(len(KINDS))]
    if kind.startswith("bytes"):
        return kind, rng.integers(0, 256, rng.integers(MAX_RANDOM_BYTES), np.uint8).tobytes()
    if kind == "random level":
        return kind, _random_level(rng).to_bytes()
    level = _random_level(rng) if rng.random() < 0.7 else generate(CATEGORIES[0], int(rng.integers(1000)))[0]
    if kind == "damaged level":
        return kind, _damaged(level.to_bytes(), rng)
    replay = Replay(level, rng.integers(0, 8, rng.integers(1, FRAMES), np.uint8), bool(rng.integers(2)))
    return kind, _damaged(replay.to_bytes(), rng)


def _random_level(rng: np.random.Generator) -> Level:
    """Return a level of random tiles and records, also with invalid types, orientations and positions."""
    density = rng.random() * 0.6
    high = NUM_TILE_SHAPES if rng.random() < 0.8 else 256
    tiles = np.where(rng.random((ROWS, COLUMNS)) < density, rng.integers(0, high, (ROWS, COLUMNS)), 0)
    count = int(rng.integers(120))
    common = rng.random() < 0.5  # few types, so that entities of one type meet each other
    kinds = rng.integers(0, len(ENTITY_NAMES), 3) if common else np.arange(len(ENTITY_NAMES) + 2)
    records = np.column_stack([rng.choice(kinds, count), rng.integers(0, 256, (count, 4))])
    inside = rng.random(count) < 0.9
    records[:, X] = np.where(inside, records[:, X] % (MIRROR_X + 1), records[:, X])
    records[:, Y] = np.where(inside, records[:, Y] % (BOTTOM_Y + 1), records[:, Y])
    records[:, ORIENTATION] %= 9  # one more than there are
    records[:, MODE] %= 5
    first, right, bottom = STEPS_PER_TILE, MIRROR_X - STEPS_PER_TILE, BOTTOM_Y - STEPS_PER_TILE  # inside the border
    spawn = [NINJA, rng.integers(first, right + 1), rng.integers(first, bottom + 1), 0, 0]
    return Level(tiles, np.array([spawn, *records.tolist()]), name="random", exit_count=int(rng.integers(4)))


def _damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Change some bytes, or delete, repeat or truncate a part."""
    array = np.frombuffer(data, np.uint8).copy()
    places = rng.integers(0, len(array), rng.integers(0, 12))
    array[places] = rng.integers(0, 256, len(places))
    a, b = np.sort(rng.integers(0, len(array) + 1, 2))
    form = rng.integers(6)
    if form == 0:
        array = array[:b]
    elif form == 1:
        array = np.concatenate([array[:a], array[b:]])
    elif form == 2:
        array = np.concatenate([array[:b], array[a:]])
    return array.tobytes()


def fuzz(count: int, seed: int = 0, first: int = 0, progress: Callable[[int], None] = lambda done: None) -> FuzzReport:
    """Try cases ``first`` to ``first + count - 1`` of a seed.  progress: called with the number of cases done.

    A group of cases that hangs ends the program with a traceback, after PATIENCE_S.
    """
    report = FuzzReport()
    for begin in range(first, first + count, GROUP):
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        loaded = list(_load(range(begin, min(begin + GROUP, first + count)), seed, report))
        if loaded:
            _play_group(loaded, seed, report)
        progress(min(begin + GROUP, first + count) - first)
    faulthandler.cancel_dump_traceback_later()
    return report


def _load(indices: Iterable[int], seed: int, report: FuzzReport) -> Iterator[_Case]:
    """Load the cases; skip those that are refused."""
    for index in indices:
        kind, data = case(seed, index)
        report.tried[kind] += 1
        name = f"case {index}"
        rng = np.random.default_rng([seed, index, 1])
        inputs = np.repeat(rng.integers(0, 16, FRAMES // 10, np.uint8), 10)
        try:
            if kind.endswith("replay"):
                replay = Replay.from_bytes(data, name)
                level = replay.level
                inputs[: len(replay.inputs)] = replay.inputs[:FRAMES]
            else:
                level = Level.from_bytes(data, name)
        except (LevelError, ReplayError) as error:
            message = str(error)
            if "\n" in message or name not in message:
                report.failures.append(f"{name} of seed {seed}: the message is not one line with the name: {message!r}")
            report.refused[type(error).__name__] += 1
            continue
        report.played[kind] += 1
        yield index, level, inputs


def _lost(player: FramePlayer) -> np.ndarray:
    """Return int[n], indices of the environments in which a position or velocity is not finite."""
    names = ("x", "y", "vx", "vy")
    fine = np.all([np.isfinite(player.ninjas[name]) for name in names], axis=0)
    for name in names:
        fine &= np.isfinite(player.movers[name]).all(axis=1)
    return np.flatnonzero(~fine)


def _play_group(loaded: Sequence[_Case], seed: int, report: FuzzReport) -> None:
    """Play the loaded cases, first frame by frame, then by decisions with every observation."""
    indices = [index for index, _, _ in loaded]
    bank = LevelBank([level for _, level, _ in loaded])
    frames = FramePlayer(bank, [inputs for _, _, inputs in loaded])
    report.frames += frames.play(FRAMES, restart=False)
    for i in _lost(frames):
        report.failures.append(f"case {indices[i]} of seed {seed}: a position or velocity is no finite number")

    simulator = BatchSimulator(bank, len(loaded), observations=layout.ALL, threads=1, profile=False)
    actions = np.random.default_rng([seed, indices[0], 2]).integers(NUM_ACTIONS, size=(DECISIONS, len(loaded)))
    decisions = DecisionPlayer(simulator, actions)
    report.frames += simulator.frame_skip * decisions.play(DECISIONS)
    for key, values in decisions.observations.items():
        for i in np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1)):
            report.failures.append(f"case {indices[i]} of seed {seed}: {key} is not finite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of a seed and print the report; return 1 after failures, else 0."""
    parser = argparse.ArgumentParser(description="load and play random and damaged levels and replays")
    parser.add_argument("--count", type=int, default=100_000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the cases")
    parser.add_argument("--first", type=int, default=0, help="index of the first case")
    chosen = parser.parse_args(arguments)

    def progress(done: int) -> None:
        at = chosen.first + done
        print(f"\r{done} of {chosen.count} cases; next: {at} to {at + GROUP - 1} ", end="", file=sys.stderr, flush=True)

    report = fuzz(chosen.count, chosen.seed, chosen.first, progress)
    print(file=sys.stderr)
    rows = [
        (kind, tried, report.played[kind], tried - report.played[kind]) for kind, tried in sorted(report.tried.items())
    ]
    print(table(("kind", "tried", "played", "refused"), rows))
    refused = ", ".join(f"{count} {name}" for name, count in report.refused.most_common()) or "nothing"
    print(f"{report.tried.total()} cases tried, {report.frames} frames played; refused: {refused}")
    for failure in report.failures:
        print(f"FAILED: {failure}")
    print(f"{len(report.failures)} failures; bounds check {'on' if numba_config.BOUNDSCHECK else 'off'}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
