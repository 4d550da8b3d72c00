"""Decisions from evaluations on the dev levels: best policy, roll-back after a loss (Retention), early stopping.

    retention = Retention(bc_success)         # success of the BC policy on each dev level; None without one
    retention.consider(success, at=100_000)   # True if it is the best so far
    retention.lost(success)                   # the difference from the BC policy if it is significantly negative

    candidate = Candidate.of(ppo)             # the current policy
    candidate = Candidate.copy_of(ppo)        # a copy of it, to be evaluated during training

Levels are compared in pairs, so that differences between levels do not add to the noise.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import numpy as np

from nppsim.measure.intervals import Estimate, mean_over_levels
from rl.config import EvaluationConfig
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


ENOUGH_LEVELS = 10  # whose mean is about normal
SURE = 4.0  # standard errors


@dataclass
class Retention:
    """Success is float64[L], 0 to 1, of each dev level, always in the same order.

    cloned: the BC policy's; None without one, or before it has been evaluated.
    best: of the best policy so far; None before there is one.
    best_at: decisions after which that was; 0 is the BC policy.
    """

    cloned: np.ndarray | None = None
    best: np.ndarray | None = None
    best_at: int = 0

    def consider(self, success: np.ndarray, at: int) -> bool:
        """Take note of a policy; True if none was better so far."""
        is_best = self.best is None or success.mean() >= self.best.mean()
        if is_best:
            self.best, self.best_at = success, at
        return bool(is_best)

    def lost(self, success: np.ndarray) -> Estimate | None:
        """Success minus the BC policy's, with its interval, if even the interval's upper end is a loss; else None."""
        if self.cloned is None:
            return None
        difference = mean_over_levels(success - self.cloned)
        if difference.high is None:  # the same on all levels: that says nothing of a single one
            return difference if difference.value < 0 and len(success) > 1 else None
        return difference if difference.high < 0 else None

    @property
    def best_in_words(self) -> str:
        """Which policy is the best."""
        return f"the policy after {self.best_at:,} decisions" if self.best_at else "the policy before PPO"

    def delivery(self, last: np.ndarray) -> str:
        """What is delivered, and why, in words; last: success of training's last policy."""
        assert self.best is not None
        if self.best_at == 0:
            return (
                f"PPO HAS NOT IMPROVED ON WHAT IT BEGAN WITH: the policy before PPO is delivered, which finishes "
                f"{100 * self.best.mean():.1f} % of the dev levels; the last one finishes {100 * last.mean():.1f} %"
            )
        beside = "" if np.array_equal(last, self.best) else f" (the last one: {100 * last.mean():.1f} %)"
        text = f"{self.best_in_words}, which finishes {100 * self.best.mean():.1f} % of the dev levels{beside}"
        if self.cloned is None:
            return text
        return f"{text}, {in_points(mean_over_levels(self.best - self.cloned))} against the policy before PPO"

    def state(self) -> dict:
        """Everything, for a checkpoint."""
        return asdict(self)

    def load(self, state: dict) -> None:
        """Continue where ``state`` was taken."""
        for field in fields(self):
            setattr(self, field.name, state[field.name])


def in_points(difference: Estimate) -> str:
    """A difference of success in words, e.g. "-4.5 points [-7.0, -1.9]"."""
    interval = "" if difference.low is None else f" [{100 * difference.low:+.1f}, {100 * (difference.high or 0):+.1f}]"
    return f"{100 * difference.value:+.1f} points{interval}"


class EarlyStopping:
    """Says when evaluations have stopped improving; does nothing unless the configuration asks for it."""

    def __init__(self, config: EvaluationConfig):
        self.config = config
        self.best = -np.inf
        self.evaluations = 0
        self.without_improvement = 0  # evaluations since the best one

    def update(self, success: float) -> bool:
        """Take note of an evaluation's success, 0 to 1; True if training should stop."""
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
