"""Decisions from evaluations on the dev levels: best policy, roll-back after a loss (Retention), early stopping.

    retention = Retention(bc_success)         # success of the BC policy on each dev level; None without one
    retention.consider(success, at=100_000)   # True if it is the best so far
    retention.lost(success)                   # the difference from the BC policy if it is significantly negative

    candidate = Candidate.of(ppo)             # the current policy
    candidate = Candidate.copy_of(ppo)        # a copy of it, to be evaluated in another process during training

Levels are compared in pairs, so that differences between levels do not add to the noise.
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
    """Success of a policy on the dev levels, as a share of episodes won, 0 to 1.

    overall: of all episodes.
    rows: of each category, and of all, for tables.
    levels: float64[L], of each level, always in the same order.
    """

    overall: float
    rows: dict[str, float]
    levels: np.ndarray


Evaluate = Callable[[NppPolicy, int], Evaluation]  # arguments: the policy, decisions that it was trained with


class Remote(Protocol):
    """Evaluation in another process, of one policy after another."""

    def order(self, policy: NppPolicy, decisions: int) -> None:
        """Start the evaluation of a copy of the policy.  decisions: that it was trained with."""

    def check(self) -> None:
        """Raise an error of the other process, if there was one."""

    def result(self) -> tuple[Evaluation, float]:
        """Wait for the evaluation; return it and the seconds that it took."""


@dataclass(frozen=True)
class Candidate:
    """A policy of a training run, with its optimiser.

    decisions, updates: training so far.
    actor_updates: updates in which its actor learned; with 0 it acts like the BC policy.
    """

    policy: NppPolicy
    decisions: int
    updates: int
    actor_updates: int

    @classmethod
    def of(cls, ppo: PPO) -> "Candidate":
        """Return the current policy."""
        return cls(ppo.policy, ppo.num_timesteps, ppo.updates, ppo.actor_updates)

    @classmethod
    def copy_of(cls, ppo: PPO) -> "Candidate":
        """Return a copy of the current policy."""
        return cls(copy.deepcopy(ppo.policy), ppo.num_timesteps, ppo.updates, ppo.actor_updates)

    @classmethod
    def from_state(cls, ppo: PPO, state: Mapping[str, Any]) -> "Candidate":
        """Restore a ``state`` of the same training run."""
        policy = copy.deepcopy(ppo.policy)
        policy.load_state_dict(state["policy"])
        policy.optimizer.load_state_dict(state["optimizer"])
        return cls(policy, state["decisions"], state["updates"], state["actor_updates"])

    @property
    def weights(self) -> dict[str, Any]:
        """Arguments of ``PPO.restore``; not copied."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.policy.optimizer.state_dict(),
            "actor_updates": self.actor_updates,
        }

    def state(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return self.weights | {"decisions": self.decisions, "updates": self.updates}


@dataclass
class Retention:
    """Best policy so far, and comparison with the BC policy.  Success is float64[L], 0 to 1, of each dev level.

    bc_success: of the BC policy; None without one, or before its evaluation.
    best: of the best policy so far; None before there is one.
    best_at: decisions that the best policy was trained with; 0 for the BC policy.
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

    def lost(self, success: np.ndarray) -> Estimate | None:
        """Return success minus that of the BC policy if the whole confidence interval is negative, else None."""
        if self.bc_success is None:
            return None
        difference = mean_over_levels(success - self.bc_success)
        if difference.high is None:  # the same on all levels; one level alone proves nothing
            return difference if difference.value < 0 and len(success) > 1 else None
        return difference if difference.high < 0 else None

    @property
    def best_name(self) -> str:
        """Description of the best policy."""
        return f"the policy after {self.best_at:,} decisions" if self.best_at else "the policy before PPO"

    def delivery(self, last: np.ndarray) -> str:
        """Message about the delivered policy.  last: success of the last policy."""
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
        """State for a checkpoint."""
        return {"cloned": self.bc_success, "best": self.best, "best_at": self.best_at}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore ``state``."""
        self.bc_success, self.best, self.best_at = state["cloned"], state["best"], state["best_at"]


def in_points(difference: Estimate) -> str:
    """Format a difference of success, e.g. "-4.5 points [-7.0, -1.9]"."""
    interval = "" if difference.low is None else f" [{100 * difference.low:+.1f}, {100 * (difference.high or 0):+.1f}]"
    return f"{100 * difference.value:+.1f} points{interval}"


class EarlyStopping:
    """Detection of evaluations that no longer improve, if the configuration enables it."""

    def __init__(self, config: EvaluationConfig):
        self.config = config
        self.best = -np.inf
        self.evaluations = 0
        self.without_improvement = 0  # evaluations since the best one

    def update(self, success: float) -> bool:
        """Record the success of an evaluation, 0 to 1; return True if training should stop."""
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
