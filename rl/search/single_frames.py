"""Shorten a run at single frames: simulated annealing over its inputs.

    for shorter in shorten(bank, inputs, rng, FrameBudget(10_000_000)):     # uint8[frames], shorter and shorter
        ...

Each step changes the inputs at a random place: it deletes or inserts frames, shifts the begin or end of a key, or presses or
releases a key for some frames.  It simulates the rest of the run from a stored state.  A change is accepted if the run wins
earlier, or as early and then, one frame before the end, is hardly farther from the exit.
Source: Kirkpatrick et al. 1983.
"""

from collections.abc import Iterator

import numpy as np

from nppsim.actions import INPUT_ACTION
from nppsim.bank import LevelBank
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.planner.search import WinningRun, first_state
from nppsim.simulate import play_on
from rl.search.guided_search import FrameBudget

STRIDE = 16  # frames between stored states
TEMPERATURE = 1.0  # px
LONGEST = 12.0  # mean number of frames for which a key is pressed or released
MOST_SHIFTED = (
    4  # largest number of frames that are deleted or inserted, or by which the begin or end of a key is shifted
)
KEYS = JUMP, RIGHT, LEFT = 1, 2, 4  # bits of an input


def shorten(bank: LevelBank, inputs: np.ndarray, rng: np.random.Generator, budget: FrameBudget) -> Iterator[np.ndarray]:
    """Yield shorter and shorter inputs, uint8[frames], which win on their last frame, until the budget is used up.

    bank: LevelBank that contains only the level.
    inputs: uint8[frames], a run from the spawn that wins on its last frame.
    """
    rows, states = first_state(bank, None)
    ninja = states.ninja[0]
    stored = [rows[0].copy()]  # state before every STRIDE-th frame of the current run

    def play(frames: np.ndarray) -> int:
        """Play frames from the current state; return their number."""
        played: int = play_on(states, bank.world, frames)
        budget.spend(played)
        return played

    def store(first: int) -> float:
        """Store the states after ``first``; return the distance from the exit one frame before the end, in px."""
        del stored[first + 1 :]
        rows[0] = stored[first]
        for begin in range(first * STRIDE, len(inputs) - 1, STRIDE):
            play(inputs[begin : min(begin + STRIDE, len(inputs) - 1)])
            stored.append(rows[0].copy())
        x, y = ninja["x"], ninja["y"]
        play(inputs[-1:])
        return float(np.hypot(ninja["x"] - x, ninja["y"] - y))

    distance = store(0)
    exit_x, exit_y = float(ninja["x"]), float(ninja["y"])
    while budget.left and len(inputs) > 1:
        changed = _changed(inputs, rng)
        different = np.flatnonzero(changed != inputs)
        if not different.size:
            continue
        first = min(int(different[0]), len(inputs) - 2) // STRIDE
        rows[0] = stored[first]
        frames = first * STRIDE + play(changed[first * STRIDE : -1])
        if ninja["state"] == CELEBRATING:
            inputs = changed[:frames]
            yield inputs
        elif ninja["state"] == DEAD:
            continue
        else:
            ahead = float(np.hypot(ninja["x"] - exit_x, ninja["y"] - exit_y))
            play(changed[-1:])
            if ninja["state"] != CELEBRATING or ahead > distance + TEMPERATURE * rng.exponential():
                continue
            inputs = changed
        distance = store(first)
        exit_x, exit_y = float(ninja["x"]), float(ninja["y"])


def run_of(inputs: np.ndarray) -> WinningRun:
    """Return a run with one action per frame."""
    return WinningRun(INPUT_ACTION[inputs].astype(np.int64), inputs)


def _changed(inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return inputs with a random change, with as many frames."""
    count, key = len(inputs), KEYS[rng.integers(3)]
    at, shift = int(rng.integers(count)), int(rng.integers(1, MOST_SHIFTED + 1))
    kind, changed = int(rng.integers(4)), inputs.copy()
    if kind == 0:  # delete frames; the last input is repeated
        changed[at:-shift] = inputs[at + shift :] if at + shift < count else inputs[-1]
        changed[max(count - shift, at) :] = inputs[-1]
    elif kind == 1:  # insert frames
        changed[at + shift :] = inputs[at : max(count - shift, at)]
        changed[at : at + shift] = inputs[at]
    else:
        edges = np.flatnonzero(np.diff(inputs & key)) + 1
        if kind == 2 and edges.size:  # shift the begin or end of a key
            edge = int(edges[rng.integers(edges.size)])
            begin, end = (edge - shift, edge) if rng.random() < 0.5 else (edge, edge + shift)
            pressed = inputs[edge if begin < edge else edge - 1] & key
        else:  # press or release a key
            begin, end = at, at + 1 + int(rng.exponential(LONGEST))
            pressed = ~inputs[at] & key
        part = slice(max(begin, 0), end)
        opposite = {JUMP: 0, RIGHT: LEFT, LEFT: RIGHT}[key] if pressed else 0
        changed[part] = (changed[part] & ~np.uint8(key | opposite)) | np.uint8(pressed)
    return changed
