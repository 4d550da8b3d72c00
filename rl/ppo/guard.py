"""What is concluded from evaluations on the dev levels: which policy of a run is the best so far, when one has lost what
it was given (Retention), and when training no longer improves (EarlyStopping).

    retention = Retention(cloned)             # success of the BC policy on each dev level; None without one
    retention.consider(success, at=100_000)   # True: the best so far, whose weights are worth keeping
    retention.lost(success)                   # the difference to the BC policy, where that is clearly a loss

Levels are compared in pairs, so that easy and hard ones do not add to the noise.
"""

from dataclasses import asdict, dataclass, fields

import numpy as np

from nppsim.measure.intervals import Estimate, mean_over_levels
from rl.config import EvaluationConfig

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
