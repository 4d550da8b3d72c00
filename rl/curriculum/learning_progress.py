"""Strategy "learning_progress": more of what success changes on, whichever way.

Each level of a pool has a fast and a slow running average of its success; their distance is its learning progress.  A level
from outside the pool, drawn by the uniform share, enters it in place of one that teaches little.

``--curriculum-formulas original`` keeps the formulas that this goes back to, with their defects, for comparison: a score has
a floor that nearly all levels sit on; the reweighting, meant for probabilities, is given -1 to 1 and has a pole where success
is 47 %; levels without a score weigh 0.1 among weights of about 1 / levels.  Mended: averages are free of the bias of their
first value, the reweighting is given 0 to 1, there is no floor, microscopic differences are not magnified, and levels without
a score weigh as much as the mean of those that have one.
Source: Portelas et al. 2019 and Kanitscheider et al. 2021 for learning progress of two averages.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rl.curriculum.statistics import gini
from rl.curriculum.strategy import Levels, Outcomes, Strategy, mixed
from rl.curriculum_config import CurriculumConfig

BASELINE_LIMIT = 0.75  # success at first, above which a level's baseline does not lie
LEAST_SPREAD = 0.02  # of learning progress over levels; smaller differences are not magnified further
MIN_PLAYED_TO_LEAVE = 5  # episodes of a level, before it may leave the pool
LEAVING_SHARE = 0.4  # of the pool, lowest scores first, that may leave
RAW_SCORE = 0.1  # of a level without a score, in the original formulas
BASIC_RATE = 0.2  # of the averages of success and of its square, in the basic variant


@dataclass(frozen=True)
class Preset:
    """Numbers of a variant.

    timescale: rate of the fast average, per episode.
    slow: that of the slow one, times this.
    exploration_bonus: floor of a score, in the original formulas.
    smoothing: of their reweighting; 0: none.
    early: of the mended reweighting, which counts progress near 0 more; 0.5: none.
    success_bonus: score for the success itself, times this.
    amplification: of z-scores before the logistic function.
    temperature: above 0, of a softmax in their place.
    uniform_share: of the draws, over all levels.
    min_samples: episodes before a score counts.
    pool: levels in it.
    """

    timescale: float = 0.1
    slow: float = 0.2
    exploration_bonus: float = 0.1
    smoothing: float = 0.0
    early: float = 0.5
    success_bonus: float = 0.0
    amplification: float = 10.0
    temperature: float = 0.0
    uniform_share: float = 0.01
    min_samples: int = 10
    pool: int = 1000


PRESETS = {
    "default": Preset(),
    "stable": Preset(
        timescale=0.01, exploration_bonus=0.15, amplification=5.0, uniform_share=0.02, min_samples=20, pool=256
    ),
    "fast": Preset(
        timescale=0.2, exploration_bonus=0.05, amplification=15.0, uniform_share=0.005, min_samples=5, pool=256
    ),
    "arena_legacy": Preset(timescale=0.001, pool=256),
    "first": Preset(timescale=0.001, smoothing=0.05, success_bonus=0.1, amplification=1.0, uniform_share=0.25),
}


class LearningProgress(Strategy):
    """Fast and slow averages of the levels of a pool.

    active: bool[L], whether a level is in the pool.  What follows is 0 for levels outside it:
    played: int64[L], episodes since a level entered.
    first: float64[L], its mean success in the first ``min_samples``.
    fast, slow: float64[L], averages of success as the formulas have them.
    mean, square: of the basic variant.
    entered: int64[L], update.
    evictions: int64[C], levels of each category that left.
    draws: int64[C], episodes of each.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("active", "played", "first", "fast", "slow", "mean", "square", "entered", "evictions", "draws", "now"),
    )
    OF_LEVELS: ClassVar[tuple[str, ...]] = ("played", "first", "fast", "slow", "mean", "square", "entered")

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        self.preset = PRESETS[config.preset]
        self.original = config.formulas == "original"
        self.share = self.preset.uniform_share if config.uniform_share is None else config.uniform_share
        count = len(levels)
        size = min(count, config.active_levels or self.preset.pool)
        self.active = np.zeros(count, bool)
        self.active[rng.permutation(count)[:size]] = True
        self.played, self.entered = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.first, self.fast, self.slow = np.zeros(count), np.zeros(count), np.zeros(count)
        self.mean, self.square = np.zeros(count), np.zeros(count)
        self.evictions, self.draws = np.zeros(len(levels.names), np.int64), np.zeros(len(levels.names), np.int64)
        self.now = 0
        self._spread()

    # -----------------------------------------------------------------------------------------------------------------
    # Episodes

    def update(self, outcomes: Outcomes) -> None:
        self.now += 1
        self.draws += np.bincount(self.levels.category[outcomes.levels], minlength=len(self.draws))
        self._admit(np.unique(outcomes.levels))
        inside = self.active[outcomes.levels]
        self._average(outcomes.levels[inside], outcomes.won[inside])
        self._spread()

    def _admit(self, levels: np.ndarray) -> None:
        """Let levels into the pool that were played, in place of those that teach least."""
        new = levels[~self.active[levels]]
        if not len(new):
            return
        score = self.scores()
        may_leave = self.active & (self.played >= MIN_PLAYED_TO_LEAVE)
        may_leave[levels] = False
        if not may_leave.any():
            return
        may_leave &= score <= np.quantile(score[self.active], LEAVING_SHARE)
        leaving = np.flatnonzero(may_leave)
        leaving = leaving[np.argsort(score[leaving], kind="stable")][: len(new)]
        self.active[leaving] = False
        for name in self.OF_LEVELS:
            getattr(self, name)[leaving] = 0
        self.evictions += np.bincount(self.levels.category[leaving], minlength=len(self.evictions))
        entering = new[: len(leaving)]
        self.active[entering] = True
        self.entered[entering] = self.now

    def _average(self, levels: np.ndarray, won: np.ndarray) -> None:
        """Add outcomes to the averages, all of a level at once: after k values, an old one weighs (1 - rate) ** k."""
        if not len(levels):
            return
        count, order = len(self.levels), np.argsort(levels, kind="stable")
        levels, value = levels[order], won[order].astype(np.float64)
        added = np.bincount(levels, minlength=count)
        place = np.arange(len(levels)) - (np.cumsum(added) - added)[levels]  # number of the episode among its level's
        later = added[levels] - 1 - place  # episodes of the level that come after
        samples = self.preset.min_samples
        ordinal = self.played[levels] + place
        early = ordinal < samples
        known = np.minimum(self.played, samples)
        total = self.first * known + np.bincount(levels, np.where(early, value, 0.0), minlength=count)
        self.first = total / np.maximum(1, np.minimum(self.played + added, samples))
        if self.original:
            value = (value - 0.5) / 0.5

        def averaged(old: np.ndarray, rate: float, value: np.ndarray) -> np.ndarray:
            weight = np.where(self.original & (ordinal == 0), 1.0, rate) * (1 - rate) ** later
            return old * (1 - rate) ** added + np.bincount(levels, weight * value, minlength=count)

        self.fast = averaged(self.fast, self.preset.timescale, value)
        self.slow = averaged(self.slow, self.preset.timescale * self.preset.slow, value)
        self.mean = averaged(self.mean, BASIC_RATE, value)
        self.square = averaged(self.square, BASIC_RATE, value**2)
        self.played += added

    # -----------------------------------------------------------------------------------------------------------------
    # Scores

    def scores(self) -> np.ndarray:
        """float64[L]: learning progress of each level; 0 outside the pool and, mended, for those that never were played."""
        if self.config.basic_progress:
            mean, square = self._unbiased(self.mean, BASIC_RATE), self._unbiased(self.square, BASIC_RATE)
            found = np.sqrt(np.maximum(square - mean**2, 0))
        elif self.original:
            found = self._original_scores()
        else:
            found = self._mended_scores()
        return np.where(self.active, found, 0.0)

    def _original_scores(self) -> np.ndarray:
        theta = self.preset.smoothing
        fast, slow = (_reweighted(x, theta) if theta else x for x in (self.fast, self.slow))
        score = np.abs(fast - slow) + self.preset.success_bonus * np.maximum(self.fast, 0)
        return np.maximum(score, self.preset.exploration_bonus)

    def _mended_scores(self) -> np.ndarray:
        baseline = np.minimum(self.first, BASELINE_LIMIT)
        fast, slow = self.success(), self._unbiased(self.slow, self.preset.timescale * self.preset.slow)
        fast, slow = ((x - baseline) / (1 - baseline) for x in (fast, slow))
        bonus = self.preset.success_bonus * np.clip(fast, 0, 1)
        if self.preset.early < 0.5:
            fast, slow = (_reweighted(np.clip(x, 0, 1), self.preset.early) for x in (fast, slow))
        return np.abs(fast - slow) + bonus

    def success(self) -> np.ndarray:
        """float64[L], 0 to 1: recent success of each level in the pool, by its fast average."""
        return self.fast / 2 + 0.5 if self.original else self._unbiased(self.fast, self.preset.timescale)

    def _unbiased(self, average: np.ndarray, rate: float) -> np.ndarray:
        """An average that began at 0, without the bias towards it; the original ones begin at their first value."""
        if self.original:
            return average
        return average / np.maximum(1 - (1 - rate) ** self.played, 1e-12)

    @property
    def scored(self) -> np.ndarray:
        """bool[L]: levels whose score counts."""
        return self.active & (self.played >= self.preset.min_samples)

    def weights(self) -> np.ndarray:
        """float64[L]: how likely levels of the pool are, one against another; what is drawn is this and a uniform share."""
        scored, weights = self.scored, np.zeros(len(self.levels))
        if scored.any():
            weights[scored] = self._weights_of(self.scores()[scored])
        unscored = self.active & ~scored
        if self.original:
            weights[scored] /= max(weights[scored].sum(), 1e-12)
            weights[unscored] = RAW_SCORE
        else:
            weights[unscored] = weights[scored].mean() if scored.any() else 1.0
        return weights

    def _weights_of(self, score: np.ndarray) -> np.ndarray:
        if self.preset.temperature > 0:
            return np.exp((score - score.max()) / self.preset.temperature)
        spread = score.std()
        spread = max(spread, 1e-12) if self.original else max(spread, LEAST_SPREAD)
        z = (score - score.mean()) / spread if len(score) > 2 else score
        return 1 / (1 + np.exp(-np.clip(self.preset.amplification * z, -50, 50)))

    def _spread(self) -> None:
        self.weigh(mixed(self.weights(), self.share))

    # -----------------------------------------------------------------------------------------------------------------
    # Statistics

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for statistic in CHEAP if self.config.performance_mode else (*CHEAP, *DETAILED):
            found |= statistic(self)
        return found


def _reweighted(p: np.ndarray, theta: float) -> np.ndarray:
    """Counts changes near 0 more than near 1, for a theta below 0.5; for probabilities."""
    return p * (1 - theta) / (p + theta * (1 - 2 * p))


def _summary(strategy: LearningProgress) -> dict[str, float]:
    scored, active = strategy.scored, strategy.active
    return {
        "lp/levels_in_pool": float(active.sum()),
        "lp/levels_with_score": float(scored.sum()),
        "lp/mean_success": float(strategy.success()[scored].mean()) if scored.any() else 0.0,
        "lp/mean_score": float(strategy.scores()[scored].mean()) if scored.any() else 0.0,
        "lp/mean_draw_probability": float(strategy.probabilities()[active].mean()),
        "lp/evictions": float(strategy.evictions.sum()),
    }


def _pools(strategy: LearningProgress) -> dict[str, float]:
    """By category: composition of the pool, episodes, evictions, mean score and success."""
    category, names, active = strategy.levels.category, strategy.levels.names, strategy.active
    size = np.bincount(category[active], minlength=len(names))
    score = np.bincount(category[active], strategy.scores()[active], minlength=len(names)) / np.maximum(1, size)
    success = np.bincount(category[active], strategy.success()[active], minlength=len(names)) / np.maximum(1, size)
    columns = {
        "pool_composition": size,
        "sampling_counts": strategy.draws,
        "eviction_counts": strategy.evictions,
        "per_label_stats/mean_lp_score": score,
        "per_label_stats/mean_reward_ema": success,
    }
    return {f"{tag}/{name}": float(x) for tag, row in columns.items() for name, x in zip(names, row, strict=True)}


def _raw_scores(strategy: LearningProgress) -> dict[str, float]:
    score = strategy.scores()[strategy.active]
    numbers = {
        "mean": score.mean(),
        "std": score.std(),
        "min": score.min(),
        "max": score.max(),
        "nonzero_count": np.count_nonzero(score),
        "total_count": len(score),
    }
    return {f"debug/raw_lp_{name}": float(value) for name, value in numbers.items()}


def _ginis(strategy: LearningProgress) -> dict[str, float]:
    """How unequal each step of the chain is, from scores over weights to draws, and what is lost from one to the next."""
    active, category, count = strategy.active, strategy.levels.category, len(strategy.levels.names)

    def by_label(values: np.ndarray) -> np.ndarray:
        return np.bincount(category, values, minlength=count)

    score, weights, chances = strategy.scores(), strategy.weights(), strategy.probabilities()
    found = {
        "pool_occupancy": gini(strategy.played[active]),
        "task_age": gini((strategy.now - strategy.entered)[active]),
        "raw_lp_scores": gini(score[active]),
        "raw_lp_by_label": gini(by_label(score)),
        "zscored_lp_scores": gini(weights[active]),
        "sampling_probs": gini(chances[active]),
        "sampling_probs_by_label": gini(by_label(chances)),
        "sampling_by_label": gini(strategy.draws),
        "evictions_by_label": gini(strategy.evictions),
        "pool_composition_by_label": gini(by_label(active.astype(float))),
    }
    found |= {
        "selectivity_loss_zscore": found["raw_lp_scores"] - found["zscored_lp_scores"],
        "selectivity_loss_sampling": found["zscored_lp_scores"] - found["sampling_probs"],
        "selectivity_loss_lp_to_label": found["raw_lp_by_label"] - found["sampling_probs_by_label"],
        "selectivity_loss_label_to_episodes": found["sampling_probs_by_label"] - found["sampling_by_label"],
    }
    return {f"curriculum_gini/{name}": value for name, value in found.items()}


CHEAP = (_summary,)
DETAILED = (_pools, _raw_scores, _ginis)
