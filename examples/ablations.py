"""Variants that are known to be worse, for A/B comparisons: a plug-in for scripts/train_and_compare.py and ab_compare.py.

    python scripts/ab_compare.py --b "--plugin examples/ablations.py --reward-preset legacy_october" -- FLAGS
    python scripts/ab_compare.py --a "--curriculum learning_progress" \\
        --b "--plugin examples/ablations.py --curriculum original_learning_progress" -- FLAGS
    ABLATION=zeroed_gradients python scripts/ab_compare.py --b "--plugin examples/ablations.py" \\
        -- --gradient-accumulation 4 FLAGS

FLAGS are the flags of scripts/train_and_compare.py for both A and B.

legacy_october: reward weights of a run in which dying paid more than staying alive.
legacy_recommended: the weights that an analysis of that run proposed.
original_learning_progress: learning progress with the formulas of an earlier program, which have three defects.  Scores have
    a lower limit, at which nearly all levels are.  The reweighting, which is meant for probabilities, is applied to values
    from -1 to 1 and has a pole at a success rate of 47 %.  Levels without a score have the weight 0.1, among weights of
    about 1 / levels.
zeroed_gradients: gradients are set to zero before each accumulated minibatch, so that only the last minibatch counts.
"""

import os
from collections.abc import Sequence

import numpy as np
import torch

from nppsim.reward import STRAIGHT_LINE_SHAPING, RewardConfig
from rl.config import rewards
from rl.curriculum import register
from rl.curriculum.learning_progress import BASIC_RATE, LearningProgress, reweighted
from rl.ppo import PPO
from rl.ppo.losses import Losses, LossWeights, Samples

OCTOBER = RewardConfig(1.0, -0.5, 0.1, -0.01, 0.05, STRAIGHT_LINE_SHAPING, closest=0.0001, exploration=0.001)
RECOMMENDED = RewardConfig(
    1.0, -0.2, 0.3, -0.01, 0.05, STRAIGHT_LINE_SHAPING, closest=0.001, proximity=0.05, exploration=0.001
)
LOWEST_SCORE = 0.1
RAW_WEIGHT = 0.1  # weight of a level without a score


class OriginalLearningProgress(LearningProgress):
    """Learning progress with the original formulas."""

    def average(self, levels: np.ndarray, won: np.ndarray) -> None:
        """Add outcomes from -1 to 1; each average begins with the first value.  levels: int64[n]; won: bool[n]."""
        fast = self.preset.timescale
        rates = ((self.fast, fast), (self.slow, fast * self.preset.slow), (self.mean, BASIC_RATE))
        for level, value in zip(levels, 2.0 * won - 1.0, strict=True):
            for average, rate in rates:
                average[level] = (1 - rate) * average[level] + rate * value if self.played[level] else value
            self.square[level] = 1.0  # the square of both values
            self.played[level] += 1

    def success_of(self, levels: np.ndarray) -> np.ndarray:
        return self.fast[levels] / 2 + 0.5

    def scores_of(self, levels: np.ndarray) -> np.ndarray:
        if self.config.basic_progress:
            return np.sqrt(np.maximum(self.square[levels] - self.mean[levels] ** 2, 0))
        fast, slow = (reweighted(x[levels], self.preset.early) for x in (self.fast, self.slow))
        score = np.abs(fast - slow) + self.preset.success_bonus * np.maximum(self.fast[levels], 0)
        return np.maximum(score, LOWEST_SCORE)

    def weights_of(self, levels: np.ndarray) -> np.ndarray:
        scored, score, weights = (
            self.played[levels] >= self.preset.min_samples,
            self.scores_of(levels),
            np.zeros(len(levels)),
        )
        counted = scored & (score > 0)
        if counted.any():
            weights[counted] = self.amplified(score[counted], min_std=1e-12)
        weights[scored] /= max(weights[scored].sum(), 1e-12)
        weights[~scored] = RAW_WEIGHT
        return weights


def zero_gradients_before_each_minibatch() -> None:
    """Patch PPO so that each accumulated minibatch discards the gradients of those before it."""
    backward = PPO._backward

    def last_only(
        self: PPO, samples: Samples, minibatches: Sequence[torch.Tensor], weights: LossWeights
    ) -> Losses[float]:
        return backward(self, samples, minibatches[-1:], weights)

    PPO._backward = last_only  # type: ignore[method-assign]


rewards.register("legacy_october", OCTOBER)
rewards.register("legacy_recommended", RECOMMENDED)
register("original_learning_progress", OriginalLearningProgress)
if os.environ.get("ABLATION") == "zeroed_gradients":
    zero_gradients_before_each_minibatch()
