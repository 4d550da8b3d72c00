"""Strategy "plr": prioritized level replay.

Levels played before are drawn by the rank of their score (mean error of the critic) and by staleness.  New levels are drawn
uniformly, with a total probability equal to their share of all levels.
Source: Jiang et al. 2021 (Prioritized Level Replay); the positive score is from Jiang et al. 2021 (Replay-Guided Adversarial
Environment Design).  Their rank temperature of 0.1 gives the first rank 99.9 % of the draws.  That suits scores that change
after each episode.  Here, all draws between two updates have the same distribution, so a higher temperature is used.
"""

from typing import ClassVar

import numpy as np

from rl.config.curriculum import CurriculumConfig
from rl.curriculum.strategy import Levels, Outcomes, Strategy, mixed


class PrioritizedLevelReplay(Strategy):
    """Prioritises levels by the rank of their score, mixed with staleness.

    score: float32[L], at least 0, from the latest rollout with the level.
    last: int32[L], update of the latest rollout with the level; -1: never played.
    now: number of updates so far.
    staleness: rho, the fraction of draws in proportion to the number of updates since a level was last played.
    """

    saved: ClassVar[tuple[str, ...]] = ("score", "last", "now")
    wants_advantages: ClassVar[bool] = True

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        self.score, self.last = np.zeros(len(levels), np.float32), np.full(len(levels), -1, np.int32)
        self.now = 0
        self.share = config.uniform_share or 0.0
        self.staleness = config.replay_staleness
        self._by_rank = np.arange(1, len(levels) + 1) ** (-1 / config.replay_temperature)
        self._by_rank_sums = np.cumsum(self._by_rank)

    def update(self, outcomes: Outcomes) -> None:
        self.now += 1
        error = outcomes.advantages
        error = np.maximum(error, 0) if self.config.replay_score == "positive" else np.abs(error)
        count = np.bincount(outcomes.decided, minlength=len(self.levels))
        seen = np.flatnonzero(count)
        total = np.bincount(outcomes.decided, error, minlength=len(self.levels))[seen]
        self.score[seen] = total / count[seen]
        self.last[seen] = self.now
        weights = self._weights()
        self.weigh(mixed(weights, self.share) if self.share else weights)

    def _weights(self) -> np.ndarray:
        """Return the weights float64[L] of all levels, with sum 1."""
        played_levels = np.flatnonzero(self.last >= 0)
        count, played = len(self.levels), len(played_levels)
        if not played:
            return np.full(count, 1 / count)
        replayed = played / count
        ages = int((self.now - self.last[played_levels]).sum())
        if ages:
            weights = (self.now - self.last) * (replayed * self.staleness / ages)
        else:
            weights = np.full(count, replayed * self.staleness / played)
        if played < count:
            weights[self.last < 0] = 1 / count  # the sum over all new levels is 1 - replayed
        ranked = played_levels[np.argsort(-self.score[played_levels], kind="stable")]
        by_rank = self._by_rank[:played]
        weights[ranked] += by_rank * (replayed * (1 - self.staleness) / self._by_rank_sums[played - 1])
        return weights

    def details(self) -> dict[str, float]:
        seen = self.last >= 0
        if not seen.any():
            return {}
        return {
            "curriculum/replay_score_mean": float(self.score[seen].mean(dtype=np.float64)),
            "curriculum/replay_score_drawn": float(self.probabilities() @ self.score),
            "curriculum/replay_age_mean": float((self.now - self.last[seen]).mean()),
        }
