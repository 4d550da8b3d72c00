"""Images of demonstrations, drawn from the states in which they were seen rather than kept: a state is a fiftieth of its
images, and drawing one costs no more than copying it.
"""

import numpy as np

from nppsim import BatchSimulator, LevelBank
from nppsim.observe import layout
from nppsim.states import impossible

_AT_ONCE = 512  # states; bounds the memory of drawing


class StoredImages:
    """The images ``keys`` of states that ``BatchSimulator.snapshot`` has taken, bit for bit as its agent saw them.

    bank: the simulator's, or one of the same levels in its order.  states: uint8[S, B].
    Raises ValueError if the states are not of these levels.
    """

    def __init__(self, bank: LevelBank, states: np.ndarray, keys: tuple[str, ...]):
        self.keys, self.states = keys, states
        self._simulator = BatchSimulator(bank, min(_AT_ONCE, len(states)), observations=keys)
        self._simulator.reset(np.zeros(self._simulator.num_envs, np.int32))
        size = self._simulator.snapshot(0).size
        if states.shape[1:] != (size,):
            raise ValueError(f"states of shape {states.shape}; those of these levels have {size} bytes each")

    def check(self) -> None:
        """ValueError for states that cannot be true: compiled code would take their numbers as they are."""
        simulator = self._simulator
        for start in range(0, len(self.states), simulator.num_envs):
            states = self.states[start : start + simulator.num_envs]
            simulator.restore(slice(len(states)), states)
            if told := impossible(simulator.state, simulator.bank, len(states)):
                raise ValueError(f"/observations/states: of the {len(states)} from row {start} on: {told}")

    def draw(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """key -> uint8[len(rows), ...] of the states of these rows, in arrays of their own."""
        simulator = self._simulator
        images = {key: np.empty((len(rows), *layout.SPECS[key].shape), np.uint8) for key in self.keys}
        for start in range(0, len(rows), simulator.num_envs):
            states = self.states[rows[start : start + simulator.num_envs]]
            simulator.restore(slice(len(states)), states)
            observed = simulator.observe()
            for key, drawn in images.items():
                drawn[start : start + len(states)] = observed[key][: len(states)]
        return images
