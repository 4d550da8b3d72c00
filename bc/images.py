"""Image observations of demonstrations, rendered on demand from stored simulator states.

A state needs a fiftieth of the memory of its images.  Rendering takes no longer than copying the images.
"""

import numpy as np

from nppsim import BatchSimulator, LevelBank
from nppsim.observe import layout
from nppsim.states import impossible

_BATCH = 512  # maximum number of states that are rendered together, which limits the memory


class StoredImages:
    """Renderer of image observations from simulator states; the images equal the recorded observations bit for bit.

    bank: the levels of the simulator that made the states, in the same order.
    states: uint8[S, bytes], from ``BatchSimulator.snapshot``.
    keys: observation keys of the images.
    Raises ValueError if the states have another size than states of these levels.
    """

    def __init__(self, bank: LevelBank, states: np.ndarray, keys: tuple[str, ...]):
        self.keys, self.states = keys, states
        self._simulator = BatchSimulator(bank, min(_BATCH, len(states)), observations=keys)
        self._simulator.reset(np.zeros(self._simulator.num_envs, np.int32))
        size = self._simulator.snapshot(0).size
        if states.shape[1:] != (size,):
            raise ValueError(f"states of shape {states.shape}; those of these levels have {size} bytes each")

    def check(self) -> None:
        """Raise ValueError for impossible states, which compiled code would not notice."""
        simulator = self._simulator
        for start in range(0, len(self.states), simulator.num_envs):
            states = self.states[start : start + simulator.num_envs]
            simulator.restore(slice(len(states)), states)
            if problem := impossible(simulator.state, simulator.bank, len(states)):
                raise ValueError(f"/observations/states: {problem} (environment 0 is row {start})")

    def draw(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Render the images of these rows into new arrays: key -> uint8[len(rows), ...]."""
        simulator = self._simulator
        images = {key: np.empty((len(rows), *layout.SPECS[key].shape), np.uint8) for key in self.keys}
        for start in range(0, len(rows), simulator.num_envs):
            states = self.states[rows[start : start + simulator.num_envs]]
            simulator.restore(slice(len(states)), states)
            observed = simulator.observe()
            for key, drawn in images.items():
                drawn[start : start + len(states)] = observed[key][: len(states)]
        return images
