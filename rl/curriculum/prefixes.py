"""Cache of the simulator states after sequences of actions."""

from collections import OrderedDict
from collections.abc import Collection

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.errors import UserError

MOST_BYTES = 128 << 20  # of the cached states


class StartStateError(UserError, RuntimeError):
    """A stored run whose playback differs from its recording."""


class Prefixes:
    """LRU cache of states by (level, actions).

    requests, hits: counts so far.
    """

    def __init__(self) -> None:
        self.requests = self.hits = 0
        self._states: OrderedDict[tuple[int, bytes], np.ndarray] = OrderedDict()
        self._sim: BatchSimulator | None = None  # one environment with the same levels

    def __len__(self) -> int:
        return len(self._states)

    def forget(self) -> None:
        """Drop all states, as level indices may have changed."""
        self._states.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the cached states."""
        return sum(state.nbytes for state in self._states.values())

    def state(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int] = ()) -> np.ndarray:
        """Snapshot uint8[B] for ``sim`` after these actions, with counts of decisions and rewards reset.

        The level's clock includes the actions.
        stops: numbers of actions whose states are cached as well.
        Raises StartStateError if the actions end the episode.
        """
        key = (level, actions.tobytes())
        self.requests += 1
        self.hits += key in self._states
        if key not in self._states:
            self._play(sim, level, actions, {*stops, len(actions)})
            while len(self._states) > max(1, MOST_BYTES // self._states[key].nbytes):
                self._states.popitem(last=False)
        self._states.move_to_end(key)
        return self._states[key]

    def _play(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int]) -> None:
        if self._sim is None or self._sim.bank is not sim.bank:
            self._sim = sim.sibling()
        single = self._sim
        single.reset(np.array([level]))
        for number, action in enumerate(actions, 1):
            single.step(np.array([action]))
            if single.finished.size:
                raise StartStateError(
                    f"level {sim.bank.levels[level].fingerprint[:16]}: a stored run ends after decision {number} of "
                    f"{len(actions)}, unlike its recording; start a new run, or train without --start-states"
                )
            if number in stops:
                self._states[level, actions[:number].tobytes()] = _as_start(single)


def _as_start(sim: BatchSimulator) -> np.ndarray:
    """Snapshot of the environment with decisions and rewards set to 0."""
    before = sim.snapshot(0)
    sim.state.progress["decisions"][0] = 0
    sim.state.terms[0] = 0.0
    sim.forget_frames(np.zeros(1, int))
    found = sim.snapshot(0)
    sim.restore(0, before)
    return found
