"""What each environment's present episode has done so far: its actions, and how far they have led.

How far: the potential of the reward's shaping, and as much again as that can grow, once the switch is taken; counted from
where the level begins.
"""

from typing import Any, ClassVar

import numpy as np

from nppsim.batch import BatchSimulator
from rl.curriculum.statistics import unpacked


class Tracks:
    """N episodes.

    actions: uint8[N, longest], since the level's beginning, those of a start state included.
    length: int64[N], how many of them count.
    origin: float64[N], what the beginning of the level is worth.
    best, best_at: float64[N], int64[N], how far the episode has come at most, and after how many actions.
    known: bool[N], whether the actions are all there are: not where somebody else put the environment.
    """

    KEPT: ClassVar[tuple[str, ...]] = ("actions", "length", "origin", "best", "best_at", "known")

    def __init__(self, sim: BatchSimulator):
        longest = int(sim.bank.time_limit.max()) // sim.frame_skip + 2
        count = sim.num_envs
        self.actions = np.zeros((count, longest), np.uint8)
        self.length, self.best_at = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.origin, self.best = np.zeros(count), np.zeros(count)
        self.known = np.zeros(count, bool)

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Take note of the present states and of what is decided in them.  actions: int[N]."""
        far = self._worth(sim, slice(None)) - self.origin
        better = far > self.best
        self.best[better], self.best_at[better] = far[better], self.length[better]
        self.actions[np.arange(len(actions)), self.length] = actions
        self.length += 1

    def begin(self, sim: BatchSimulator, envs: np.ndarray) -> None:
        """These environments stand at the beginning of their level."""
        self.length[envs] = self.best_at[envs] = 0
        self.best[envs] = 0.0
        self.origin[envs] = self._worth(sim, envs)
        self.known[envs] = True

    def follow(self, sim: BatchSimulator, env: int, actions: np.ndarray) -> None:
        """This environment stands where these actions lead."""
        self.actions[env, : len(actions)] = actions
        self.length[env] = self.best_at[env] = len(actions)
        self.best[env] = self._worth(sim, env) - self.origin[env]

    def forget(self) -> None:
        """Somebody has put the environments somewhere."""
        self.length[:] = self.best_at[:] = 0
        self.known[:] = False

    def run(self, env: int, length: int) -> np.ndarray:
        """uint8[length]: the first actions of an episode."""
        return self.actions[env, :length].copy()

    @staticmethod
    def _worth(sim: BatchSimulator, envs: Any) -> Any:
        count = sim.num_envs
        potential, switch = sim.state.progress["potential"][:count], sim.state.ninja["switch_taken"][:count]
        return potential[envs] + unit(sim) * switch[envs]

    def state_dict(self) -> dict[str, Any]:
        """Copies of the arrays."""
        return {name: getattr(self, name).copy() for name in self.KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        for name in self.KEPT:
            setattr(self, name, unpacked(state[name]))


def unit(sim: BatchSimulator) -> float:
    """What progress is measured in: how much shaping's potential can grow; 1 without shaping."""
    return float(abs(sim.reward_config.shaping)) or 1.0
