"""Actions and progress of the current episode of each environment.

Progress is the shaping potential, plus its range once the switch is taken, relative to the start of the level.
"""

from typing import Any, ClassVar

import numpy as np

from nppsim.batch import BatchSimulator
from rl.curriculum.statistics import unpacked


class Tracks:
    """N episodes.

    actions: uint8[N, longest], from the start of the level, including those before a start state.
    length: int64[N], number of actions.
    origin: float64[N], potential at the start of the level.
    best, best_at: float64[N], int64[N], largest progress, and the number of actions before it.
    known: bool[N], the actions are complete; False if the state was set externally.
    """

    STORED: ClassVar[tuple[str, ...]] = ("actions", "length", "origin", "best", "best_at", "known")

    def __init__(self, sim: BatchSimulator):
        longest = int(sim.bank.time_limit.max()) // sim.frame_skip + 2
        count = sim.num_envs
        self.actions = np.zeros((count, longest), np.uint8)
        self.length, self.best_at = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.origin, self.best = np.zeros(count), np.zeros(count)
        self.known = np.zeros(count, bool)

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Record the current progress and the next actions.  actions: int[N]."""
        far = self._worth(sim, slice(None)) - self.origin
        better = far > self.best
        self.best[better], self.best_at[better] = far[better], self.length[better]
        self.actions[np.arange(len(actions)), self.length] = actions
        self.length += 1

    def begin(self, sim: BatchSimulator, envs: np.ndarray) -> None:
        """Start tracks at the start of the level."""
        self.length[envs] = self.best_at[envs] = 0
        self.best[envs] = 0.0
        self.origin[envs] = self._worth(sim, envs)
        self.known[envs] = True

    def follow(self, sim: BatchSimulator, env: int, actions: np.ndarray) -> None:
        """Start a track at the state after these actions."""
        self.actions[env, : len(actions)] = actions
        self.length[env] = self.best_at[env] = len(actions)
        self.best[env] = self._worth(sim, env) - self.origin[env]

    def forget(self) -> None:
        """Mark all tracks as incomplete: environment states were set externally."""
        self.length[:] = self.best_at[:] = 0
        self.known[:] = False

    def run(self, env: int, length: int) -> np.ndarray:
        """First actions uint8[length] of an episode."""
        return self.actions[env, :length].copy()

    @staticmethod
    def _worth(sim: BatchSimulator, envs: Any) -> Any:
        count = sim.num_envs
        potential, switch = sim.state.progress["potential"][:count], sim.state.ninja["switch_taken"][:count]
        return potential[envs] + unit(sim) * switch[envs]

    def state_dict(self) -> dict[str, Any]:
        """Copies of the arrays."""
        return {name: getattr(self, name).copy() for name in self.STORED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``."""
        for name in self.STORED:
            setattr(self, name, unpacked(state[name]))


def unit(sim: BatchSimulator) -> float:
    """Unit of progress: range of the shaping potential; 1 without shaping."""
    return float(abs(sim.reward_config.shaping)) or 1.0
