"""A policy of a training that is evaluated: the present one, or one of an earlier moment that is played elsewhere meanwhile.

candidate = Candidate.of(ppo)          # the present policy itself
candidate = Candidate.kept(ppo)        # as it is now, whatever training does next
remote.order(candidate.policy, candidate.decisions)
...                                    # updates
found, seconds = remote.result()       # waits, if need be
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rl.policy.policy import NppPolicy
from rl.ppo.ppo import PPO


@dataclass(frozen=True)
class Evaluation:
    """What a policy achieves on the dev levels; success is a share of episodes won, 0 to 1.

    overall: of all episodes.
    rows: of the rows of a table: every category and all of them.
    levels: float64[L], of each level; always the same levels in the same order, so that ``a.levels - b.levels`` compares
        two policies in pairs.
    """

    overall: float
    rows: dict[str, float]
    levels: np.ndarray


Evaluate = Callable[[NppPolicy, int], Evaluation]  # of: the policy, decisions that it has learned from


class Remote(Protocol):
    """Who plays the dev levels in a process of its own, one policy after another."""

    def order(self, policy: NppPolicy, decisions: int) -> None:
        """Have a policy played, as it is now; returns at once.  decisions: that it has learned from."""

    def check(self) -> None:
        """Raise what has gone wrong so far, if anything has."""

    def result(self) -> tuple[Evaluation, float]:
        """What was ordered, and the seconds that it was played; waits for its end."""


@dataclass(frozen=True)
class Candidate:
    """policy: with its optimiser.

    decisions, updates: that it has learned from.
    actor_updates: those of them in which its actor learned; without any, it acts like the BC policy.
    """

    policy: NppPolicy
    decisions: int
    updates: int
    actor_updates: int

    @classmethod
    def of(cls, ppo: PPO) -> "Candidate":
        """The present policy."""
        return cls(ppo.policy, ppo.num_timesteps, ppo.updates, ppo.actor_updates)

    @classmethod
    def kept(cls, ppo: PPO) -> "Candidate":
        """A copy of the present policy, which training leaves alone."""
        return cls(copy.deepcopy(ppo.policy), ppo.num_timesteps, ppo.updates, ppo.actor_updates)

    @classmethod
    def restored(cls, ppo: PPO, state: Mapping[str, Any]) -> "Candidate":
        """The candidate whose ``state`` this is, of the same training."""
        policy = copy.deepcopy(ppo.policy)
        policy.load_state_dict(state["policy"])
        policy.optimizer.load_state_dict(state["optimizer"])
        return cls(policy, state["decisions"], state["updates"], state["actor_updates"])

    @property
    def learned(self) -> bool:
        """Whether its actor has."""
        return self.actor_updates > 0

    @property
    def weights(self) -> dict[str, Any]:
        """What ``PPO.restore`` goes back to, as it is now; not copied."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.policy.optimizer.state_dict(),
            "actor_updates": self.actor_updates,
        }

    def state(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        return self.weights | {"decisions": self.decisions, "updates": self.updates}
