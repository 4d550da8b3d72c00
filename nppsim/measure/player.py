"""Playing on a batch of environments what was made before: inputs through the physics alone, or actions through decisions."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.measure.kernels import advance, start_all
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE


class FramePlayer:
    """Physics alone: environment i plays level i of the bank, modulo their number."""

    def __init__(self, bank: LevelBank, inputs: Sequence[np.ndarray], num_envs: int | None = None, *, threads: int = 1):
        """inputs: uint8[frames] for each level of the bank.  num_envs: None: one for each level."""
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
        self._advance(0, 0, 0, True)  # compiled before two threads want it

    def play(self, frames: int, *, restart: bool = True) -> int:
        """Advance every environment by ``frames`` frames; returns the frames of all.

        restart: at the end of the inputs, at death and at a win.  Without, a play goes on as long as it has inputs.
        """
        parts = self._edges[:-1], self._edges[1:]
        list(self._pool.map(lambda begin, end: self._advance(begin, end, frames, restart), *parts))
        return frames * len(self.ninjas)

    def _advance(self, begin: int, end: int, frames: int, restart: bool) -> None:
        state = self.ninjas, self.entities, self.movers, self.trail, self.bank.world
        advance(begin, end, *state, self.inputs, self.lengths, frames, restart)

    def lost(self) -> np.ndarray:
        """int[n]: the environments in which a position or velocity is no finite number."""
        names = ("x", "y", "vx", "vy")
        fine = np.all([np.isfinite(self.ninjas[name]) for name in names], axis=0)
        for name in names:
            fine &= np.isfinite(self.movers[name]).all(axis=1)
        return np.flatnonzero(~fine)


class DecisionPlayer:
    """Decisions: a simulator, the actions for it, and how far they are played."""

    def __init__(
        self,
        simulator: BatchSimulator,
        actions: np.ndarray,
        next_level: np.ndarray | None = None,
        start: np.ndarray | None = None,
    ):
        """The simulator is reset.

        actions: int64[T, N]; after the last row comes the first again.
        next_level: int32[T, N], the level that an environment loads if its episode ends in that row; None: unchanged.
        start: int32[N], levels to start on; None: the simulator's own.
        """
        self.simulator, self.actions, self.next_level = simulator, actions, next_level
        self.row = 0
        self.phases: Counter[str] = Counter()  # nanoseconds of each phase so far, where the simulator is profiled
        self.observations = simulator.reset(start)

    def play(self, rows: int) -> int:
        """Play the next rows; returns the decisions of all environments."""
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
