"""Play prepared inputs (physics only) or prepared actions (decisions) on a batch of environments."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.measure.kernels import advance, start_all
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE


class FramePlayer:
    """Plays inputs with the physics alone; environment i plays level i modulo the number of levels."""

    def __init__(self, bank: LevelBank, inputs: Sequence[np.ndarray], num_envs: int | None = None, *, threads: int = 1):
        """inputs: uint8[frames] for each level of the bank.  num_envs: None means one environment per level."""
        num_envs = len(bank) if num_envs is None else num_envs
        self.bank = bank
        self.ninjas = np.zeros(num_envs, NINJA_DTYPE)
        self.entities = np.zeros((num_envs, bank.max_entities), ENTITY_DTYPE)
        self.movers = np.zeros((num_envs, bank.max_movers), MOVER_DTYPE)
        self.trail = np.zeros((num_envs, bank.max_trail), TRAIL_DTYPE)
        self.lengths = np.array([len(row) for row in inputs])
        self.inputs = np.zeros((len(inputs), self.lengths.max() + 1), np.uint8)
        for row, values in zip(self.inputs, inputs, strict=True):
            row[: len(values)] = values
        self._edges = np.linspace(0, num_envs, threads + 1).astype(int).tolist()
        self._pool = ThreadPoolExecutor(threads)
        start_all(self.ninjas, self.entities, self.movers, bank.world, np.arange(num_envs) % len(bank))
        self._advance(0, 0, 0, True)  # compiles the kernel before several threads call it

    def play(self, frames: int, *, restart: bool = True) -> int:
        """Advance every environment by ``frames`` frames; return the total number of simulated frames.

        restart: restart a level at the end of its inputs, at a death and at a win; if False, the inputs must suffice.
        """
        parts = self._edges[:-1], self._edges[1:]
        list(self._pool.map(lambda begin, end: self._advance(begin, end, frames, restart), *parts))
        return frames * len(self.ninjas)

    def _advance(self, begin: int, end: int, frames: int, restart: bool) -> None:
        state = self.ninjas, self.entities, self.movers, self.trail, self.bank.world
        advance(begin, end, *state, self.inputs, self.lengths, frames, restart)


class DecisionPlayer:
    """Plays prepared actions on a simulator."""

    def __init__(
        self,
        simulator: BatchSimulator,
        actions: np.ndarray,
        next_level: np.ndarray | None = None,
        start: np.ndarray | None = None,
    ):
        """Reset the simulator.

        actions: int64[T, N], T decisions of N environments, which are repeated.
        next_level: int32[T, N], level that an environment loads if its episode ends in that row; None: the same level.
        start: int32[N], level of each environment at the start; None: the default of ``BatchSimulator.reset``.
        """
        self.simulator, self.actions, self.next_level = simulator, actions, next_level
        self.row = 0
        self.phases: Counter[str] = Counter()  # nanoseconds of each phase so far; empty without profiling
        self.observations = simulator.reset(start)

    def play(self, rows: int) -> int:
        """Play the next rows of actions; return the total number of decisions."""
        simulator = self.simulator
        for row in range(self.row, self.row + rows):
            t = row % len(self.actions)
            if self.next_level is not None:
                simulator.next_level[:] = self.next_level[t]
            self.observations = simulator.step(self.actions[t])
            if simulator.profile:
                self.phases.update(simulator.step_timing)
        self.row += rows
        return rows * simulator.num_envs
