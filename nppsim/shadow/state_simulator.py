"""Simulation of inputs from a copy of the state of an environment."""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.decision import make_states
from nppsim.simulate import play_on

Rows = tuple[np.void, np.ndarray, np.ndarray, np.ndarray]  # ninja, entities, movers and trail of an environment


class StateSimulator:
    """A state from which the kernel ``play_on`` plays; ``bank`` has its level."""

    def __init__(self, bank: LevelBank):
        self.world = self._world = bank.world
        self._state = make_states(1, bank)[1]
        self.rows: Rows = (
            self._state.ninja[0],
            self._state.entities[0],
            self._state.movers[0],
            self._state.trail[0],
        )

    def load(self, rows: Rows, movers: np.ndarray | None = None) -> None:
        """Continue from a copy of this state. movers: int64[k], indices of the simulated movers; None: all."""
        self._world = self.world
        self._state.ninja[0] = rows[0]
        for own, other in zip(self.rows[1:], rows[1:], strict=True):
            own[:] = other
        if movers is not None:
            records = self._world.level.copy()
            records["mover_end"] = records["mover_first"] + len(movers)
            self._world = self._world._replace(level=records)
            self.rows[2][: len(movers)] = rows[2][movers]

    def play(self, inputs: list[int]) -> int:
        """Play one input per frame until a win or death; return the number of frames played."""
        return play_on(self._state, self._world, np.array(inputs, np.uint8))
