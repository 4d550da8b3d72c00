"""Image observations of demonstrations, rendered on demand from stored states.

A state needs a fiftieth of the memory of its images, and rendering costs no more than copying them.
"""

import numpy as np

from nppsim import BatchSimulator, LevelBank
from nppsim.observe import layout
from nppsim.states import impossible

_BATCH = 512  # states rendered together; bounds the memory


class StoredImages:
    """The images ``keys`` of states from ``BatchSimulator.snapshot``, bit for bit as the agent observed them.

    bank: the simulator's, or one of the same levels in its order.  states: uint8[S, B].
    Raises ValueError if the states are not of these levels.
    """

    def __init__(self, bank: LevelBank, states: np.ndarray, keys: tuple[str, ...]):
        self.keys, self.states = keys, states
        self._simulator = BatchSimulator(bank, min(_BATCH, len(states)), observations=keys)
        self._simulator.reset(np.zeros(self._simulator.num_envs, np.int32))
        size = self._simulator.snapshot(0).size
        if states.shape[1:] != (size,):
            raise ValueError(f"states of shape {states.shape}; those of these levels have {size} bytes each")

    def check(self) -> None:
        """Raise ValueError for impossible states: compiled code does not check them."""
        simulator = self._simulator
        for start in range(0, len(self.states), simulator.num_envs):
            states = self.states[start : start + simulator.num_envs]
            simulator.restore(slice(len(states)), states)
            if problem := impossible(simulator.state, simulator.bank, len(states)):
                raise ValueError(f"/observations/states: of the {len(states)} from row {start} on: {problem}")

    def draw(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Render the images of these rows: key -> uint8[len(rows), ...], in new arrays."""
        simulator = self._simulator
        images = {key: np.empty((len(rows), *layout.SPECS[key].shape), np.uint8) for key in self.keys}
        for start in range(0, len(rows), simulator.num_envs):
            states = self.states[rows[start : start + simulator.num_envs]]
            simulator.restore(slice(len(states)), states)
            observed = simulator.observe()
            for key, drawn in images.items():
                drawn[start : start + len(states)] = observed[key][: len(states)]
        return images
