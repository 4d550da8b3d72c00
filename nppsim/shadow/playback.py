"""Playback of inputs from a copy of an environment's state."""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.decision import make_states
from nppsim.simulate import play_on

Rows = tuple[np.void, np.ndarray, np.ndarray, np.ndarray]  # ninja, entities, movers and trail of an environment


class Playback:
    """A state from which the kernel ``play_on`` plays; ``bank`` has its level."""

    def __init__(self, bank: LevelBank):
        self._world = bank.world
        records = bank.world.level.copy()
        records["mover_end"] = records["mover_first"] + records["first_moving"]
        self._exits_only = bank.world._replace(level=records)
        self._state = make_states(1, bank)[1]
        self.rows: Rows = (
            self._state.ninja[0],
            self._state.entities[0],
            self._state.movers[0],
            self._state.trail[0],
        )

    def load(self, rows: Rows) -> None:
        """Continue from a copy of this state."""
        self._state.ninja[0] = rows[0]
        for own, other in zip(self.rows[1:], rows[1:], strict=True):
            own[:] = other

    def play(self, inputs: list[int], *, exits_only: bool = False) -> int:
        """Play one input per frame until a win or death; return the number of frames played.

        exits_only: True to play without movers other than exits.
        """
        return play_on(self._state, self._exits_only if exits_only else self._world, np.array(inputs, np.uint8))
