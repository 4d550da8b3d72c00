"""Model selection by evaluations on the dev levels: best policy, roll-back after a significant loss, early stopping.

    retention = Retention(bc_success)         # success of the BC policy on each dev level; None without a BC policy
    retention.consider(success, at=100_000)   # True if no earlier policy was better
    retention.significant_loss(success)       # difference from the BC policy if it is significantly negative, else None

    snapshot = PolicySnapshot.of(ppo)         # the current policy, whose weights change with training
    snapshot = PolicySnapshot.copy_of(ppo)    # a copy, which another process can evaluate during training

Policies are compared level by level (paired differences), so differences between levels do not add noise.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nppsim.measure.intervals import Estimate, mean_over_levels
from rl.config import EvaluationConfig
from rl.policy.policy import NppPolicy
from rl.ppo.ppo import PPO


@dataclass(frozen=True)
class Evaluation:
    """Success of a policy on the dev levels: the share of episodes won, 0 to 1.

    overall: success in all episodes.
    rows: success by category, and in all episodes, for tables.
    levels: float64[L], success on each level, always in the same order.
    """

    overall: float
    rows: dict[str, float]
    levels: np.ndarray


Evaluate = Callable[[NppPolicy, int], Evaluation]  # arguments: a policy, and its number of training decisions


class RemoteEvaluator(Protocol):
    """Interface of an evaluator in another process, for one policy at a time."""

    def submit(self, policy: NppPolicy, decisions: int) -> None:
        """Start the evaluation of a copy of the policy.  decisions: number of its training decisions."""

    def check(self) -> None:
        """Raise the error of the other process, if it had one."""

    def result(self) -> tuple[Evaluation, float]:
        """Wait for the evaluation; return it and its duration in seconds."""


@dataclass(frozen=True)
class PolicySnapshot:
    """A policy of a training run, with its optimiser.

    decisions, updates: numbers of decisions and updates that the policy was trained for.
    actor_updates: number of updates that changed the actor; with 0, the policy acts like the BC policy.
    """

    policy: NppPolicy
    decisions: int
    updates: int
    actor_updates: int

    @classmethod
    def of(cls, ppo: PPO) -> "PolicySnapshot":
        """Return the current policy; its weights are shared with ``ppo``."""
        return cls(ppo.policy, ppo.num_timesteps, ppo.updates, ppo.actor_updates)

    @classmethod
    def copy_of(cls, ppo: PPO) -> "PolicySnapshot":
        """Return a copy of the current policy."""
        return cls(copy.deepcopy(ppo.policy), ppo.num_timesteps, ppo.updates, ppo.actor_updates)

    @classmethod
    def from_state(cls, ppo: PPO, state: Mapping[str, Any]) -> "PolicySnapshot":
        """Restore a snapshot from a ``state`` of the same training run."""
        policy = copy.deepcopy(ppo.policy)
        policy.load_state_dict(state["policy"])
        policy.optimizer.load_state_dict(state["optimizer"])
        return cls(policy, state["decisions"], state["updates"], state["actor_updates"])

    @property
    def weights(self) -> dict[str, Any]:
        """Arguments of ``PPO.restore``; the tensors are those of this object, not copies."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.policy.optimizer.state_dict(),
            "actor_updates": self.actor_updates,
        }

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return self.weights | {"decisions": self.decisions, "updates": self.updates}


@dataclass
class Retention:
    """Best policy so far, and comparison with the BC policy.  Success is float64[L], 0 to 1, on each dev level.

    bc_success: success of the BC policy; None without a BC policy, or before its evaluation.
    best: success of the best policy so far; None before the first evaluation.
    best_at: number of training decisions of the best policy; 0 for the BC policy.
    """

    bc_success: np.ndarray | None = None
    best: np.ndarray | None = None
    best_at: int = 0

    def consider(self, success: np.ndarray, at: int) -> bool:
        """Record an evaluation; return True if no earlier policy was better."""
        is_best = self.best is None or success.mean() >= self.best.mean()
        if is_best:
            self.best, self.best_at = success, at
        return bool(is_best)

    def significant_loss(self, success: np.ndarray) -> Estimate | None:
        """Return the difference from the BC policy if its whole confidence interval is negative, else None."""
        if self.bc_success is None:
            return None
        difference = mean_over_levels(success - self.bc_success)
        if difference.high is None:  # no interval: equal on all levels; significant unless there is one level
            return difference if difference.value < 0 and len(success) > 1 else None
        return difference if difference.high < 0 else None

    @property
    def best_name(self) -> str:
        """Description of the best policy."""
        return f"the policy after {self.best_at:,} decisions" if self.best_at else "the policy before PPO"

    def delivery_message(self, last: np.ndarray) -> str:
        """Return the message about the delivered policy.  last: success of the last policy."""
        assert self.best is not None
        best, end = f"{100 * self.best.mean():.1f} %", f"{100 * last.mean():.1f} %"
        if self.best_at == 0:
            return (
                f"PPO HAS NOT IMPROVED THE INITIAL POLICY: the policy before PPO is delivered, which finishes {best} of "
                f"the dev levels; the last one finishes {end}"
            )
        of_last = "" if np.array_equal(last, self.best) else f" (the last one: {end})"
        text = f"{self.best_name}, which finishes {best} of the dev levels{of_last}"
        if self.bc_success is None:
            return text
        return f"{text}, {in_points(mean_over_levels(self.best - self.bc_success))} against the policy before PPO"

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"bc_success": self.bc_success, "best": self.best, "best_at": self.best_at}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a ``state``."""
        self.bc_success, self.best, self.best_at = state["bc_success"], state["best"], state["best_at"]


def in_points(difference: Estimate) -> str:
    """Format a difference of success in percentage points, e.g. "-4.5 points [-7.0, -1.9]"."""
    interval = "" if difference.low is None else f" [{100 * difference.low:+.1f}, {100 * (difference.high or 0):+.1f}]"
    return f"{100 * difference.value:+.1f} points{interval}"


class EarlyStopping:
    """Early stopping if evaluations no longer improve and the settings enable it."""

    def __init__(self, config: EvaluationConfig):
        self.config = config
        self.best = -np.inf
        self.evaluations = 0
        self.without_improvement = 0  # number of evaluations since the best one

    def update(self, success: float) -> bool:
        """Record the success of an evaluation, 0 to 1; return True if training must stop."""
        self.evaluations += 1
        if success >= self.best + self.config.early_stopping_improvement:
            self.best, self.without_improvement = success, 0
        else:
            self.without_improvement += 1
        return (
            self.config.early_stopping
            and self.evaluations >= self.config.early_stopping_min_evaluations
            and self.without_improvement >= self.config.early_stopping_patience
        )
