"""Play one level step by step, with any number of frames per call.

    game = Game(level)
    game.play(np.array([2, 2, 3], np.uint8))
    game.frame, game.outcome

The kernels are those of ``nppsim.simulate``, so the results are identical bit for bit.
"""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.physics.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.planner.search import PlanStart, first_state
from nppsim.simulate import play_on

_PARTS = ("ninja", "entities", "movers", "trail")
OUTCOMES = {DEAD: NAMES[DIED], CELEBRATING: NAMES[WON]}  # state of the ninja -> outcome; others: UNFINISHED


class Game:
    """A level and its current state.  bank: LevelBank of the level."""

    def __init__(self, level: Level):
        self.level, self.bank = level, LevelBank([level])
        _, self._state = first_state(self.bank, None)

    @property
    def ninja(self) -> np.void:
        """View of the ninja's state, NINJA_DTYPE."""
        return self._state.ninja[0]

    @property
    def entities(self) -> np.ndarray:
        """View of the entities, ENTITY_DTYPE[E], in the order of ``Run.entities``."""
        return self._state.entities[0]

    @property
    def frame(self) -> int:
        """Frames since the start."""
        return int(self.ninja["frame"])

    @property
    def outcome(self) -> str:
        """ "running", "won" or "died"."""
        return OUTCOMES.get(int(self.ninja["state"]), UNFINISHED)

    def play(self, inputs: np.ndarray) -> int:
        """Play inputs (uint8[frames]) until they end, or until a win or death; return the number of frames played."""
        if self.outcome != UNFINISHED:
            return 0
        return play_on(self._state, self.bank.world, inputs.copy())  # a read-only array would compile the kernel again

    @property
    def start(self) -> PlanStart:
        """Copy of the current state, from which the planner and agents can play on."""
        ninja, entities, movers, trail = (getattr(self._state, name)[0].copy() for name in _PARTS)
        return PlanStart(ninja, entities, movers, trail)
