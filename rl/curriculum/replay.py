"""Strategy "plr": prioritised level replay.

Levels that were played are drawn by the rank of their score, how far the critic was off there, and by how long ago they
were; levels that were never played are drawn evenly, with a share that falls as they become fewer.
Source: Jiang et al. 2021 (Prioritized Level Replay), with the score of Jiang et al. 2022 as a choice.  There the temperature
of the ranks is 0.1, which gives the first rank 99.9 % of these draws: good where scores change after each episode, while here
all draws of an update share one table.
"""

from typing import ClassVar

import numpy as np

from rl.curriculum.strategy import Levels, Outcomes, Strategy, mixed
from rl.curriculum_config import CurriculumConfig

STALENESS_SHARE = 0.1  # rho: of the draws, in proportion to the updates since a level was played last


class PrioritisedReplay(Strategy):
    """Rank prioritisation of scores, mixed with staleness.

    score: float64[L], of the latest rollout that a level was played in.
    last: int64[L], update of that; -1: never.
    now: updates so far.
    """

    kept: ClassVar[tuple[str, ...]] = ("score", "last", "now")
    wants_advantages: ClassVar[bool] = True

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        self.score, self.last = np.zeros(len(levels)), np.full(len(levels), -1, np.int64)
        self.now = 0
        self.share = config.uniform_share or 0.0

    def update(self, outcomes: Outcomes) -> None:
        self.now += 1
        error = outcomes.advantages
        error = np.maximum(error, 0) if self.config.replay_score == "positive" else np.abs(error)
        count = np.bincount(outcomes.decided, minlength=len(self.levels))
        seen = count > 0
        total = np.bincount(outcomes.decided, error, minlength=len(self.levels))
        self.score[seen] = total[seen] / count[seen]
        self.last[seen] = self.now
        self.weigh(mixed(self._weights(), self.share))

    def _weights(self) -> np.ndarray:
        """float64[L], sums to 1."""
        seen = self.last >= 0
        weights = np.zeros(len(self.levels))
        new_share = 1 - seen.mean()
        if new_share:
            weights[~seen] = new_share / np.count_nonzero(~seen)
        if seen.any():
            weights[seen] = (1 - new_share) * self._replayed(seen)
        return weights

    def _replayed(self, seen: np.ndarray) -> np.ndarray:
        """float64[n], sums to 1: how draws are spread over the levels that were played."""
        rank = np.empty(np.count_nonzero(seen))
        rank[np.argsort(-self.score[seen], kind="stable")] = np.arange(1, len(rank) + 1)
        by_score = rank ** (-1 / self.config.replay_temperature)
        age = (self.now - self.last[seen]).astype(np.float64)
        by_age = age / age.sum() if age.sum() else np.full(len(age), 1 / len(age))
        return (1 - STALENESS_SHARE) * by_score / by_score.sum() + STALENESS_SHARE * by_age

    def metrics(self) -> dict[str, float]:
        seen = self.last >= 0
        if not seen.any():
            return {}
        return {
            "curriculum/replay_score_mean": float(self.score[seen].mean()),
            "curriculum/replay_score_drawn": float(self.probabilities() @ self.score),
            "curriculum/replay_age_mean": float((self.now - self.last[seen]).mean()),
        }
