"""Random and damaged levels and replays are refused in one line, or can be played; part of ``make fuzz``.

FUZZ_CASES and FUZZ_SEED in the environment set the number of cases and their seed.  With NUMBA_BOUNDSCHECK=1, a read outside
of an array is found, too.
"""

import os

import numpy as np
import pytest

from nppsim.actions import NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.generate import CATEGORIES, generate
from nppsim.levels.kinds import ENTITY_NAMES, NINJA
from nppsim.levels.level import BOTTOM_Y, MIRROR_X, MODE, ORIENTATION, STEPS_PER_TILE, Level, LevelError, X, Y
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import NUM_TILE_SHAPES
from nppsim.measure.player import DecisionPlayer, FramePlayer
from nppsim.observe import layout
from nppsim.replays.replay import Replay, ReplayError

CASES, SEED = int(os.environ.get("FUZZ_CASES", "5000")), int(os.environ.get("FUZZ_SEED", "0"))
GROUP = 64  # cases played together
FRAMES = 200  # of play, with raw inputs
DECISIONS = 12  # of play through a BatchSimulator with every observation
MAX_RANDOM_BYTES = 4096
KINDS = ("bytes as level", "bytes as replay", "random level", "damaged level", "damaged replay")


def case(index):
    """Return (kind, bytes of a level or replay) of one case."""
    rng = np.random.default_rng([SEED, index])
    kind = KINDS[rng.integers(len(KINDS))]
    if kind.startswith("bytes"):
        return kind, rng.integers(0, 256, rng.integers(MAX_RANDOM_BYTES), np.uint8).tobytes()
    if kind == "random level":
        return kind, random_level(rng).to_bytes()
    level = random_level(rng) if rng.random() < 0.7 else generate(CATEGORIES[0], int(rng.integers(1000)))[0]
    if kind == "damaged level":
        return kind, damaged(level.to_bytes(), rng)
    replay = Replay(level, rng.integers(0, 8, rng.integers(1, FRAMES), np.uint8), bool(rng.integers(2)))
    return kind, damaged(replay.to_bytes(), rng)


def random_level(rng):
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


def damaged(data, rng):
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


def load(index):
    """Return the level, the inputs uint8[FRAMES] and the error of a case; the level is None if it was refused."""
    kind, data = case(index)
    inputs = np.repeat(np.random.default_rng([SEED, index, 1]).integers(0, 16, FRAMES // 10, np.uint8), 10)
    try:
        if not kind.endswith("replay"):
            return Level.from_bytes(data, f"case {index}"), inputs, ""
        replay = Replay.from_bytes(data, f"case {index}")
    except (LevelError, ReplayError) as error:
        return None, inputs, str(error)
    inputs[: len(replay.inputs)] = replay.inputs[:FRAMES]
    return replay.level, inputs, ""


@pytest.mark.parametrize("first", range(0, CASES, GROUP))
def test_damaged_level_or_replay_raises_error_or_plays(first):
    indices = range(first, min(first + GROUP, CASES))
    loaded = []
    for index in indices:
        level, inputs, error = load(index)
        if level is None:
            assert case(index)[0] != "random level" and f"case {index}" in error and "\n" not in error
        else:
            loaded.append((level, inputs))
    bank = LevelBank([level for level, _ in loaded])
    frames = FramePlayer(bank, [inputs for _, inputs in loaded])
    frames.play(FRAMES, restart=False)
    for name in ("x", "y", "vx", "vy"):
        assert np.isfinite(frames.ninjas[name]).all() and np.isfinite(frames.movers[name]).all()
    simulator = BatchSimulator(bank, len(loaded), observations=layout.ALL, threads=1, profile=False)
    actions = np.random.default_rng([SEED, first, 2]).integers(NUM_ACTIONS, size=(DECISIONS, len(loaded)))
    decisions = DecisionPlayer(simulator, actions)
    decisions.play(DECISIONS)
    for key, values in decisions.observations.items():
        assert np.isfinite(values).all(), key
