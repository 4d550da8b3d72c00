"""Reference implementation of the rewards of an episode, computed decision by decision from the states after each frame."""

import math
from collections.abc import Sequence

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.reward import (
    MIN_PATH,
    NUM_TERMS,
    PROXIMITY_REACH,
    STAGE_DIAGONAL,
    STRAIGHT_LINE_SHAPING,
    RewardConfig,
    Terms,
)
from nppsim.shadow.geometry import ReferenceState, clamped_cell, position
from nppsim.shadow.reference_level import ReferenceLevel

# Cells and square blocks of cells as (size, column, row), in the order of the simulator's ``visited``.
BLOCK_SIZES = (1, 4, 8, 16)
BLOCKS = [
    (size, column, row)
    for size in BLOCK_SIZES
    for column in range(math.ceil(CELLS_X / size))
    for row in range(math.ceil(CELLS_Y / size))
]


def sum_in_order(values: Sequence[float]) -> float:
    """Sum from left to right, rounded after each addition; Python's ``sum`` of floats compensates rounding errors."""
    result = 0.0
    for value in values:
        result += value
    return result


class EpisodeRewards:
    """The rewards of one running episode.

    config, gamma: see BatchSimulator.
    reference: data of the level.
    now: state of the environment at creation.

    Attributes:
    potential: phi of the current state.
    path_start: path length of the level, px.
    best: smallest straight-line distance to the objective, px.
    given: phases in which ``proximity`` was paid: False before, True after the first exit switch.
    visited: elements of BLOCKS that the ninja has visited.
    decisions: number of decisions.
    terms: sums of ``reward.TERMS``.
    """

    def __init__(self, config: RewardConfig, gamma: float, reference: ReferenceLevel, now: ReferenceState):
        self.config, self.gamma, self.reference = config, gamma, reference
        self.path_start = reference.path_start
        self.taken, self.frame = bool(now.ninja["switch_taken"]), now.ninja["frame"]
        self.best = self._straight(now)
        self.given: set[bool] = set()
        self.visited = set(self._blocks(now)) if config.exploration else set()
        self.potential = self._potential(now)
        self.decisions = 0
        self.terms = [0.0] * NUM_TERMS

    def resume(self, progress: np.void, terms: np.ndarray, visited: np.ndarray) -> None:
        """Copy from the simulator's rows what the state does not determine (it determines potential and path length)."""
        self.best, self.decisions = float(progress["best"]), int(progress["decisions"])
        self.given = {bool(phase) for phase in (0, 1) if progress["near"] >> phase & 1}
        self.visited = {BLOCKS[k] for k in np.flatnonzero(visited)}
        self.terms = terms.tolist()

    def progress(self) -> dict[str, float]:
        """Return the fields of ``decision.PROGRESS_DTYPE``."""
        near = sum(1 << phase for phase in self.given)
        values = {"potential": self.potential, "path_start": self.path_start, "best": self.best}
        return values | {"decisions": self.decisions, "near": near}

    def visited_flags(self, size: int) -> np.ndarray:
        """Return ``visited`` as the simulator stores it, uint8[size]; size is 1 if exploration is not rewarded."""
        return np.array([block in self.visited for block in BLOCKS[:size]], np.uint8)

    @staticmethod
    def _blocks(now: ReferenceState) -> list[tuple[int, int, int]]:
        cx, cy = clamped_cell(now.ninja["x"], now.ninja["y"])
        return [(size, cx // size, cy // size) for size in BLOCK_SIZES]

    def _straight(self, now: ReferenceState) -> float:
        """Return the straight-line distance to the nearest objective, px, at most the stage diagonal."""
        if now.ninja["switch_taken"]:
            goals = [e for e in self.reference.exits if now.states[e.index].clock]
        else:
            goals = [e for e in self.reference.listed if e.kind == kinds.EXIT_SWITCH]
        offsets = [(x - now.ninja["x"], y - now.ninja["y"]) for x, y in (position(e, now) for e in goals)]
        # Rounded as in the kernels, unlike ``math.hypot``.
        return min([math.sqrt(dx * dx + dy * dy) for dx, dy in offsets] + [STAGE_DIAGONAL])

    def _potential(self, now: ReferenceState) -> float:
        c = self.config
        if not c.shaping or now.ninja["state"] in (CELEBRATING, DEAD):
            return 0.0
        if c.potential == STRAIGHT_LINE_SHAPING:
            return c.shaping * (1 - self._straight(now) / STAGE_DIAGONAL)
        path, _ = self.reference.path(now)
        return c.shaping * (self.path_start - min(path, 2 * self.path_start)) / max(self.path_start, MIN_PATH)

    def decide(self, frames: Sequence[ReferenceState]) -> Terms:
        """Return the reward of one decision.  frames: states after each of its frames."""
        c, now = self.config, frames[-1]
        first_touch = bool(now.ninja["switch_taken"]) and not self.taken
        self.taken |= first_touch
        before, self.potential = self.potential, self._potential(now)
        gained, near = 0.0, False
        if c.closest:
            straight = self._straight(now)
            gained = 0.0 if first_touch else max(self.best - straight, 0.0)
            self.best = straight if first_touch else min(self.best, straight)
        if c.proximity and self.taken not in self.given and self._straight(now) < PROXIMITY_REACH:
            near = True
            self.given.add(self.taken)
        visited_before = len(self.visited)
        for frame in frames if c.exploration else ():
            self.visited.update(self._blocks(frame))
        elapsed, self.frame = now.ninja["frame"] - self.frame, now.ninja["frame"]
        values = Terms(
            win=c.win if now.ninja["state"] == CELEBRATING else 0.0,
            death=c.death if now.ninja["state"] == DEAD else 0.0,
            switch=c.switch if first_touch else 0.0,
            time=c.time * elapsed,
            shaping=self.gamma * self.potential - before,
            closest=c.closest * gained,
            proximity=c.proximity if near else 0.0,
            exploration=c.exploration * (len(self.visited) - visited_before),
        )
        self.terms = [term + value for term, value in zip(self.terms, values, strict=True)]
        self.decisions += 1
        return values
