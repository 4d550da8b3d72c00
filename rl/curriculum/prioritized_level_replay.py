"""Strategy "plr": prioritized level replay.

Levels played before are drawn by the rank of their score (mean error of the critic) and by staleness.  New levels are drawn
uniformly, with a total probability equal to their share of all levels.
Source: Jiang et al. 2021 (Prioritized Level Replay); the positive score is from Jiang et al. 2021 (Replay-Guided Adversarial
Environment Design).  Their rank temperature of 0.1 gives the first rank 99.9 % of the draws.  That suits scores that change
after each episode.  Here, all draws between two updates have the same distribution, so a higher temperature is used.
"""

from typing import Any, ClassVar

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
        self._ranked = np.empty(0, np.uint64)  # sort keys of played levels, highest score first

    def update(self, outcomes: Outcomes) -> None:
        self.now += 1
        error = outcomes.advantages
        error = np.maximum(error, 0) if self.config.replay_score == "positive" else np.abs(error)
        count = np.bincount(outcomes.decided, minlength=len(self.levels))
        seen = np.flatnonzero(count)
        total = np.bincount(outcomes.decided, error, minlength=len(self.levels))[seen]
        self._rescore(seen, (total / count[seen]).astype(np.float32))
        self.last[seen] = self.now
        weights = self._weights()
        self.weigh(mixed(weights, self.share) if self.share else weights)

    def _rescore(self, seen: np.ndarray, score: np.ndarray) -> None:
        """Set the scores of some levels and update all ranks.  seen: int64[n], distinct levels."""
        self.score[seen] = score + np.float32(0)  # -0 becomes 0
        moves = np.zeros(len(self.levels), bool)
        moves[seen] = True
        stay = self._ranked[~moves[self._by_score]]
        both = np.concatenate([stay, np.sort(self._keys(seen))])
        self._ranked = np.sort(both, kind="stable")  # merges two sorted parts

    def _keys(self, levels: np.ndarray) -> np.ndarray:
        """Return keys uint64[n] that sort levels by descending score, then by index.

        The bits of non-negative floats sort like the floats.
        """
        bits = np.uint32(0xFFFF_FFFF) - self.score[levels].view(np.uint32)
        return bits.astype(np.uint64) << np.uint64(32) | levels.astype(np.uint64)

    @property
    def _by_score(self) -> np.ndarray:
        """Played levels int64[played], in descending order of their scores."""
        return (self._ranked & np.uint64(0xFFFF_FFFF)).astype(np.int64)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._ranked = np.sort(self._keys(np.flatnonzero(self.last >= 0)))

    def _weights(self) -> np.ndarray:
        """Return the weights float64[L] of all levels, with sum 1."""
        count, played = len(self.levels), len(self._ranked)
        if not played:
            return np.full(count, 1 / count)
        replayed = played / count
        ages = played * self.now - int(self.last.sum(dtype=np.int64)) - (count - played)
        if ages:
            weights = (self.now - self.last) * (replayed * self.staleness / ages)
        else:
            weights = np.full(count, replayed * self.staleness / played)
        if played < count:
            weights[self.last < 0] = 1 / count  # the sum over all new levels is 1 - replayed
        by_rank = self._by_rank[:played]
        weights[self._by_score] += by_rank * (replayed * (1 - self.staleness) / self._by_rank_sums[played - 1])
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
