"""Improve a run at single frames: simulated annealing over its inputs.

    for inputs in improve(level, inputs, TIME, 0, FrameBudget(10_000_000), None):     # uint8[frames], better and better
        ...

Each step changes the inputs at a random place: it deletes or inserts frames, shifts the begin or end of a key, or presses or
releases a key for some frames.  If gold counts, it may also press a key during inserted frames: a detour that delays the
rest of the run.  The rest is simulated from a stored state.  A change is accepted if the run is better, or as good and then,
one frame before the end, hardly farther from the exit.

Several *chains* of such steps begin with the same run, in parallel; the best of their runs is where all of them continue.
Source: Kirkpatrick et al. 1983.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nppsim.bank import LevelBank
from nppsim.errors import ConfigError
from nppsim.levels.level import Level
from nppsim.parallel.executor import open_executor
from nppsim.parallel.workers import usable_cores
from nppsim.physics.state import CELEBRATING
from nppsim.planner.budget import FrameBudget
from nppsim.planner.gold import FRAMES_PER_GOLD, clock_frames, rank
from nppsim.planner.search import final_gold, first_state
from nppsim.planner.settings import LOW_GOLD, TIME
from nppsim.simulate import play_on

CHAINS, ROUNDS = 4, 16  # parallel chains, and how often they continue from the best run
STRIDE = 16  # frames between stored states
TEMPERATURE = 1.0  # px
LONGEST = 12.0  # mean number of frames for which a key is pressed or released
# Largest number of frames that are deleted or inserted, or by which the begin or end of a key is shifted.
MOST_SHIFTED = 4
KEYS = JUMP, RIGHT, LEFT = 1, 2, 4  # bits of an input


class Chain(NamedTuple):
    """One chain of steps.

    inputs: uint8[frames], a run from the spawn that wins on its last frame.
    objective: see ``gold.rank``.
    seed: seeds of the random generator.
    frames: number of frames to simulate.
    until: deadline (``FrameBudget``), or None.
    """

    level: Level
    inputs: np.ndarray
    objective: str
    seed: tuple[int, ...]
    frames: int
    until: float | None

    def run(self) -> tuple[tuple[int, int], np.ndarray, int]:
        """Run the chain; return the rank and the inputs of its best run, and the number of simulated frames."""
        bank, budget = _bank(self.level), FrameBudget(self.frames, self.until)
        found = anneal(bank, self.inputs, self.objective, np.random.default_rng(self.seed), budget)
        *_, best = self.inputs, *found
        gold = final_gold(bank, best, None)
        assert gold is not None
        return rank(self.objective, len(best), gold), best, budget.simulated


@lru_cache(maxsize=1)
def _bank(level: Level) -> LevelBank:
    return LevelBank([level])


def improve(
    level: Level, inputs: np.ndarray, objective: str, seed: int, budget: FrameBudget, workers: int | None
) -> Iterator[np.ndarray]:
    """Yield better and better inputs, uint8[frames], which win on their last frame, until the budget is used up.

    inputs, objective: see ``Chain``.
    workers: number of processes; None: one per core.  The runs do not depend on it, except for a budget with a deadline.
    """
    if not budget.left:
        return
    gold, share = final_gold(_bank(level), inputs, None), -(-budget.left // (CHAINS * ROUNDS))
    assert gold is not None
    best = rank(objective, len(inputs), gold)
    with open_executor(min(workers or usable_cores(), CHAINS), ConfigError) as executor:
        for turn in range(ROUNDS):
            if not budget.left:
                return
            chains = [Chain(level, inputs, objective, (seed, turn, i), share, budget.until) for i in range(CHAINS)]
            with executor.map(Chain.run, chains) as results:
                chain_results = list(results)
            budget.spend(sum(simulated for *_, simulated in chain_results))
            reached, run, _ = min(chain_results, key=lambda result: result[0])
            if reached < best:
                best, inputs = reached, run
                yield inputs


def anneal(
    bank: LevelBank, inputs: np.ndarray, objective: str, rng: np.random.Generator, budget: FrameBudget
) -> Iterator[np.ndarray]:
    """Yield the better and better runs of one chain.  bank: LevelBank that contains only the level; see ``Chain``."""
    annealing = _Annealing(bank, inputs, objective, rng, budget)
    while budget.left and len(annealing.inputs) > 1:
        if annealing.step():
            yield annealing.inputs


class _Annealing:
    """Current run of the annealing.

    stored: states before every STRIDE-th frame of the run.
    gold: pieces of gold that it collects.
    distance: distance from the end one frame before it, px.
    """

    def __init__(
        self, bank: LevelBank, inputs: np.ndarray, objective: str, rng: np.random.Generator, budget: FrameBudget
    ):
        self.bank, self.inputs, self.objective, self.rng, self.budget = bank, inputs, objective, rng, budget
        self.rows, self.states = first_state(bank, None)
        self.ninja = self.states.ninja[0]
        self.stored = [self.rows[0].copy()]
        self._store(0)

    def step(self) -> bool:
        """Change the run at random; return True if it is better now."""
        count, changed = len(self.inputs), _changed(self.inputs, self.rng, self.objective != TIME)
        different = np.flatnonzero(changed[:count] != self.inputs)
        if not different.size:
            return False
        first, ahead = min(int(different[0]), count - 2) // STRIDE, np.inf
        self.rows[0] = self.stored[first]
        frames = first * STRIDE + self._play(changed[first * STRIDE : count - 1])
        if frames == count - 1:  # not over yet, unless it ends on this frame, after which nothing is played
            ahead = self._distance()
            changed = changed[:count] if self.objective == TIME else changed
            frames += self._play(changed[count - 1 :])
            more = self._most_frames() - len(changed)
            if frames == len(changed) and more > 0:
                changed = np.concatenate([changed, np.full(more, changed[-1])])
                frames += self._play(changed[frames:])
        if self.ninja["state"] != CELEBRATING or frames > self._most_frames():
            return False
        before, now = (rank(self.objective, *run) for run in ((count, self.gold), (frames, int(self.ninja["gold"]))))
        if now > before or (now == before and ahead > self.distance + TEMPERATURE * self.rng.exponential()):
            return False
        self.inputs = changed[:frames]
        self._store(first)
        return now < before

    def _most_frames(self) -> int:
        """Return the largest length of a run with the present gold that can be as good as the current run."""
        gold = int(self.ninja["gold"])
        gained = self.gold - gold if self.objective == LOW_GOLD else gold - self.gold
        if self.objective == TIME or gained <= 0:
            return len(self.inputs)
        return min(len(self.inputs) + FRAMES_PER_GOLD * gained, clock_frames(gold))

    def _play(self, inputs: np.ndarray) -> int:
        """Play inputs from the present state; return the number of frames."""
        played: int = play_on(self.states, self.bank.world, inputs)
        self.budget.spend(played)
        return played

    def _distance(self) -> float:
        return float(np.hypot(self.ninja["x"] - self.end[0], self.ninja["y"] - self.end[1]))

    def _store(self, first: int) -> None:
        """Store the states after ``first``, and the end."""
        del self.stored[first + 1 :]
        self.rows[0] = self.stored[first]
        last = len(self.inputs) - 1
        for begin in range(first * STRIDE, last, STRIDE):
            self._play(self.inputs[begin : min(begin + STRIDE, last)])
            self.stored.append(self.rows[0].copy())
        before = float(self.ninja["x"]), float(self.ninja["y"])
        self._play(self.inputs[last:])
        self.end = float(self.ninja["x"]), float(self.ninja["y"])
        self.distance = float(np.hypot(before[0] - self.end[0], before[1] - self.end[1]))
        self.gold = int(self.ninja["gold"])


def _changed(inputs: np.ndarray, rng: np.random.Generator, detours: bool) -> np.ndarray:
    """Return inputs with a random change, with at least as many frames.

    detours: True if keys may also be pressed or released in inserted frames, which delays the rest of the run.
    """
    count, key = len(inputs), KEYS[rng.integers(3)]
    at, shift = int(rng.integers(count)), int(rng.integers(1, MOST_SHIFTED + 1))
    kind = int(rng.integers(4))
    if kind == 0:  # delete frames; the last input is repeated
        return np.concatenate([inputs[:at], inputs[at + shift :], np.full(min(shift, count - at), inputs[-1])])
    pressed, begin, end = ~inputs[at] & key, at, at + 1 + int(rng.exponential(LONGEST))
    if kind == 1:  # insert frames
        if not detours or rng.random() < 0.5:
            return np.concatenate([inputs[:at], np.full(shift, inputs[at]), inputs[at:]])
        changed = np.concatenate([inputs[:at], np.full(end - at, inputs[at]), inputs[at:]])
    else:  # press or release a key
        changed, edges = inputs.copy(), np.flatnonzero(np.diff(inputs & key)) + 1
        if kind == 2 and edges.size:  # shift its begin or end
            edge = int(edges[rng.integers(edges.size)])
            begin, end = (edge - shift, edge) if rng.random() < 0.5 else (edge, edge + shift)
            pressed = inputs[edge if begin < edge else edge - 1] & key
    part = slice(max(begin, 0), end)
    opposite = {JUMP: 0, RIGHT: LEFT, LEFT: RIGHT}[key] if pressed else 0
    changed[part] = (changed[part] & ~np.uint8(key | opposite)) | np.uint8(pressed)
    return changed
