"""The states that sequences of actions lead to, played once and kept for a while."""

from collections import OrderedDict
from collections.abc import Collection

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.errors import UserError

MOST_BYTES = 128 << 20  # of the states that are kept


class StartStateError(UserError, RuntimeError):
    """A stored run that does not lead where it led when it was stored."""


class Prefixes:
    """States by (level, actions), the latest ones that were asked for.

    asked, known: how many were, and how many of these were there.
    """

    def __init__(self) -> None:
        self.asked = self.known = 0
        self._states: OrderedDict[tuple[int, bytes], np.ndarray] = OrderedDict()
        self._sim: BatchSimulator | None = None  # one environment, with the levels of the one that asks

    def __len__(self) -> int:
        return len(self._states)

    def forget(self) -> None:
        """Drop all states: levels may have other numbers now."""
        self._states.clear()

    @property
    def nbytes(self) -> int:
        """Of the states that are kept."""
        return sum(state.nbytes for state in self._states.values())

    def state(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int] = ()) -> np.ndarray:
        """uint8[B]: a snapshot for ``sim`` of where these actions lead, as if an episode began there.

        Decisions and rewards are counted from there on; the level's clock has run as long as the actions take.
        stops: after so many actions there will be questions, too; what was on the way is kept.
        Raises StartStateError if the actions end the episode.
        """
        key = (level, actions.tobytes())
        self.asked += 1
        self.known += key in self._states
        if key not in self._states:
            self._play(sim, level, actions, {*stops, len(actions)})
            while len(self._states) > max(1, MOST_BYTES // self._states[key].nbytes):
                self._states.popitem(last=False)
        self._states.move_to_end(key)
        return self._states[key]

    def _play(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int]) -> None:
        if self._sim is None or self._sim.bank is not sim.bank:
            self._sim = sim.sibling()
        alone = self._sim
        alone.reset(np.array([level]))
        for number, action in enumerate(actions, 1):
            alone.step(np.array([action]))
            if alone.finished.size:
                raise StartStateError(
                    f"level {sim.bank.levels[level].fingerprint[:16]}: a stored run ends after decision {number} of "
                    f"{len(actions)}, but went on when it was stored; begin a new run, or go on without --start-states"
                )
            if number in stops:
                self._states[level, actions[:number].tobytes()] = _as_if_it_began(alone)


def _as_if_it_began(sim: BatchSimulator) -> np.ndarray:
    """A snapshot of the only environment in which nothing was decided or earned so far."""
    kept = sim.snapshot(0)
    sim.state.progress["decisions"][0] = 0
    sim.state.terms[0] = 0.0
    sim.forget_frames(np.zeros(1, int))
    found = sim.snapshot(0)
    sim.restore(0, kept)
    return found
