"""One level being played, exactly, as many frames at a time as one likes.

    game = Game(level)
    game.play(np.array([2, 2, 3], np.uint8))
    state = game.snapshot()
    ...
    game.restore(state)                         # and everything goes on as it did from there

The same kernels as ``nppsim.simulate``: what is played here plays back there bit for bit.
"""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.planner.kernels import begin, play_on
from nppsim.planner.search import first_state

_OUTCOMES = {DEAD: NAMES[DIED], CELEBRATING: NAMES[WON]}


class Game:
    """A level and its present state.

    level: or a LevelBank of it alone, if it is compiled already.
    bank: of the level alone.
    """

    def __init__(self, level: Level | LevelBank):
        self.bank = level if isinstance(level, LevelBank) else LevelBank([level])
        self._rows, self._state = first_state(self.bank, None)

    @property
    def level(self) -> Level:
        """The level."""
        return self.bank.levels[0]

    @property
    def ninja(self) -> np.void:
        """The ninja now, NINJA_DTYPE; a view."""
        return self._state.ninja[0]

    @property
    def entities(self) -> np.ndarray:
        """ENTITY_DTYPE[E], the entities now in the order of ``Run.entities``; a view."""
        return self._state.entities[0]

    @property
    def movers(self) -> np.ndarray:
        """MOVER_DTYPE[M], the movers now; a view."""
        return self._state.movers[0]

    @property
    def frame(self) -> int:
        """Frames since the start."""
        return int(self.ninja["frame"])

    @property
    def outcome(self) -> str:
        """ "running", "won" or "died"."""
        return _OUTCOMES.get(int(self.ninja["state"]), UNFINISHED)

    def play(self, inputs: np.ndarray) -> int:
        """Play inputs (uint8[frames], one a frame); returns the number of frames played: fewer after a win or a death."""
        if self.outcome != UNFINISHED:
            return 0
        return play_on(self._state, self.bank.world, inputs.copy())  # for read-only arrays Numba would compile it again

    def restart(self) -> None:
        """Back to the spawn."""
        begin(self._state, self.bank.world)

    def snapshot(self) -> np.ndarray:
        """uint8[B]: everything that the future depends on."""
        return self._rows[0].copy()

    def restore(self, snapshot: np.ndarray) -> None:
        """Go to a state that ``snapshot`` gave."""
        self._rows[0] = snapshot
