"""Strategy "learning_progress": prefer levels whose success rate changes, up or down.

Each level of a pool has a fast and a slow moving average of success.  The absolute difference of the two is the learning
progress of the level.  A small share of draws is uniform over all levels.  A level from outside the pool that is drawn this
way replaces a level with little learning progress.

Averages are corrected for the bias of their initial values.  The reweighting, which is meant for probabilities, is applied to
values from 0 to 1.  Levels without a score have the mean weight of all others.  examples/ablations.py has the formulas of an
earlier program without these corrections.
Source: Portelas et al. 2019 and Kanitscheider et al. 2021 for learning progress from two averages.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rl.config.curriculum import CurriculumConfig
from rl.curriculum.statistics import gini
from rl.curriculum.strategy import Levels, Outcomes, Strategy, mixed

BASELINE_LIMIT = 0.75  # upper limit of a level's baseline: its success rate in the first ``min_samples`` episodes
MIN_STD = 0.02  # lower limit of the standard deviation used for z-scores
MIN_PLAYED_TO_LEAVE = 5  # number of episodes after which a level may leave the pool
LEAVING_SHARE = 0.4  # fraction of the levels with enough episodes that may leave the pool, lowest scores first
SCORE_DIGITS = 9  # scores are rounded, so that floating-point errors do not decide which level leaves
BASIC_RATE = 0.2  # update rate of the two averages of the basic variant: of success and of its square


@dataclass(frozen=True)
class Preset:
    """Parameters of the strategy.

    The basic variant (``basic_progress``: the score is the standard deviation of success) uses only the last five of them.
    """

    timescale: float = 0.1  # update rate of the fast average, per episode
    slow: float = 0.2  # update rate of the slow average, as a fraction of ``timescale``
    early: float = 0.5  # theta of the reweighting; below 0.5 emphasises progress at low success rates, 0.5 disables it
    success_bonus: float = 0.0  # weight of the success rate in the score
    amplification: float = 10.0  # factor of z-scores before the logistic function
    temperature: float = 0.0  # if above 0, a softmax with this temperature is used instead of the logistic function
    uniform_share: float = 0.01  # fraction of draws that are uniform over all levels
    min_samples: int = 10  # minimum number of episodes of a level for its score to be used
    pool: int = 1000  # number of levels in the pool

    @staticmethod
    def of(config: CurriculumConfig) -> "Preset":
        """Return the configured preset; parameters that are also set individually replace those of the preset."""
        names = ("timescale", "slow", "early", "success_bonus", "amplification", "temperature")
        own = {name: getattr(config, f"lp_{name}") for name in (*names, "min_samples")}
        own |= {"uniform_share": config.uniform_share, "pool": config.active_levels}
        return replace(PRESETS[config.preset], **{name: value for name, value in own.items() if value is not None})


PRESETS = {
    "default": Preset(),
    "stable": Preset(timescale=0.01, amplification=5.0, uniform_share=0.02, min_samples=20, pool=256),
    "fast": Preset(timescale=0.2, amplification=15.0, uniform_share=0.005, min_samples=5, pool=256),
    "arena_legacy": Preset(timescale=0.001, pool=256),
    "first": Preset(timescale=0.001, early=0.05, success_bonus=0.1, amplification=1.0, uniform_share=0.25),
}


class LearningProgress(Strategy):
    """Learning progress of the levels of a pool, from fast and slow averages of success.

    active: bool[L], True for levels in the pool.

    The following arrays are 0 for levels outside the pool:
    played: int64[L], episodes since the level entered the pool.
    first: float64[L], mean success in the first ``min_samples`` of these episodes.
    fast, slow: float64[L], moving averages of success.
    mean, square: float64[L], moving averages of success and its square for the basic variant.
    entered: int64[L], update at which the level entered the pool.

    The following arrays have an entry per category:
    evictions: int64[C], number of levels that have left the pool.
    evicted: int64[C], number of levels that left the pool in the latest update.
    draws: int64[C], number of finished episodes in its levels.
    """

    saved: ClassVar[tuple[str, ...]] = (
        *("active", "played", "first", "fast", "slow", "mean", "square", "entered"),
        *("evictions", "evicted", "draws", "now"),
    )
    OF_LEVELS: ClassVar[tuple[str, ...]] = ("played", "first", "fast", "slow", "mean", "square", "entered")

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        self.preset = Preset.of(config)
        count = len(levels)
        size = min(count, self.preset.pool)
        self.active = np.zeros(count, bool)
        self.active[rng.permutation(count)[:size]] = True
        self.played, self.entered = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.first, self.fast, self.slow = np.zeros(count), np.zeros(count), np.zeros(count)
        self.mean, self.square = np.zeros(count), np.zeros(count)
        self.evictions, self.draws = np.zeros(len(levels.names), np.int64), np.zeros(len(levels.names), np.int64)
        self.evicted = np.zeros(len(levels.names), np.int64)
        self.now = 0
        self._update_weights()

    # -----------------------------------------------------------------------------------------------------------------
    # Episodes

    def update(self, outcomes: Outcomes) -> None:
        self.now += 1
        self.draws += np.bincount(self.levels.category[outcomes.levels], minlength=len(self.draws))
        self.evicted = np.zeros_like(self.evictions)
        self._admit(outcomes.levels[~self.active[outcomes.levels]], outcomes.levels)
        inside = self.active[outcomes.levels]
        self.average(outcomes.levels[inside], outcomes.won[inside])
        self._update_weights()

    def _admit(self, new: np.ndarray, played: np.ndarray) -> None:
        """Add levels to the pool, in the order of ``new``, in place of the levels with the lowest scores.

        If scores are equal, the most played level leaves.
        new: int64[n], played levels outside the pool, in the order in which their episodes ended.
        played: int64[k], all played levels; these do not leave.
        """
        candidates = self.pool[self.played[self.pool] >= MIN_PLAYED_TO_LEAVE]
        if not len(new) or not len(candidates):
            return
        new = new[np.sort(np.unique(new, return_index=True)[1])]  # without duplicates, in the same order
        score = self.scores_of(candidates).round(SCORE_DIGITS)
        may_leave = (score <= np.quantile(score, LEAVING_SHARE)) & ~np.isin(candidates, played)
        candidates, score = candidates[may_leave], score[may_leave]
        leaving = candidates[np.lexsort((-self.played[candidates], score))][: len(new)]
        self.active[leaving] = False
        for name in self.OF_LEVELS:
            getattr(self, name)[leaving] = 0
        self.evicted = np.bincount(self.levels.category[leaving], minlength=len(self.evictions))
        self.evictions += self.evicted
        entering = new[: len(leaving)]
        self.active[entering] = True
        self.entered[entering] = self.now

    def average(self, levels: np.ndarray, won: np.ndarray) -> None:
        """Add outcomes to the averages, vectorised: after k further values, the weight of a value is (1 - rate) ** k."""
        if not len(levels):
            return
        keys = np.sort(levels << 32 | np.arange(len(levels)))  # sorts by level, then time; faster than argsort
        value = won[keys & 0xFFFF_FFFF].astype(np.float64)
        first = np.flatnonzero(np.diff(keys >> 32, prepend=-1))  # index of the first episode of each level
        touched, added = keys[first] >> 32, np.diff(first, append=len(keys))
        row = np.repeat(np.arange(len(touched)), added)  # for each episode, index of its level in ``touched``
        number = np.arange(len(levels)) - first[row]  # number of the episode within its level
        remaining = added[row] - 1 - number  # number of later episodes of the level
        samples, played = self.preset.min_samples, self.played[touched]
        ordinal = played[row] + number
        total = self.first[touched] * np.minimum(played, samples)
        total += np.bincount(row, np.where(ordinal < samples, value, 0.0))
        self.first[touched] = total / np.minimum(played + added, samples)
        for average, rate, values in (
            (self.fast, self.preset.timescale, value),
            (self.slow, self.preset.timescale * self.preset.slow, value),
            (self.mean, BASIC_RATE, value),
            (self.square, BASIC_RATE, value**2),
        ):
            decayed = (1 - rate) ** np.arange(added.max() + 1)
            weight = rate * decayed[remaining]
            average[touched] = average[touched] * decayed[added] + np.bincount(row, weight * values)
        self.played[touched] += added

    # -----------------------------------------------------------------------------------------------------------------
    # Scores

    @property
    def pool(self) -> np.ndarray:
        """Levels int64[P] in the pool."""
        return np.flatnonzero(self.active)

    def scores(self) -> np.ndarray:
        """Learning progress float64[L] of each level; 0 for levels outside the pool and levels that were never played."""
        return self._to_all_levels(self.scores_of(self.pool))

    def weights(self) -> np.ndarray:
        """Relative weights float64[L] of the levels in the pool, before mixing with the uniform share."""
        return self._to_all_levels(self.weights_of(self.pool))

    def _to_all_levels(self, of_pool: np.ndarray) -> np.ndarray:
        values = np.zeros(len(self.levels))
        values[self.pool] = of_pool
        return values

    def scores_of(self, levels: np.ndarray) -> np.ndarray:
        """Return the scores float64[n] of some levels int64[n] of the pool."""
        if self.config.basic_progress:
            mean, square = (self._unbiased(x[levels], BASIC_RATE, levels) for x in (self.mean, self.square))
            return np.sqrt(np.maximum(square - mean**2, 0))
        baseline = np.minimum(self.first[levels], BASELINE_LIMIT)
        slow = self._unbiased(self.slow[levels], self.preset.timescale * self.preset.slow, levels)
        fast, slow = ((x - baseline) / (1 - baseline) for x in (self.success_of(levels), slow))
        bonus = self.preset.success_bonus * np.clip(fast, 0, 1)
        if self.preset.early < 0.5:
            fast, slow = (reweighted(np.clip(x, 0, 1), self.preset.early) for x in (fast, slow))
        return np.abs(fast - slow) + bonus

    def success_of(self, levels: np.ndarray) -> np.ndarray:
        return self._unbiased(self.fast[levels], self.preset.timescale, levels)

    def _unbiased(self, average: np.ndarray, rate: float, levels: np.ndarray) -> np.ndarray:
        """Correct an average for its initial value 0."""
        return average / np.maximum(1 - (1 - rate) ** self.played[levels], 1e-12)

    def weights_of(self, levels: np.ndarray) -> np.ndarray:
        scored, weights = self.played[levels] >= self.preset.min_samples, np.zeros(len(levels))
        if scored.any():
            weights[scored] = self.amplified(self.scores_of(levels)[scored], MIN_STD)
        weights[~scored] = weights[scored].mean() if scored.any() else 1.0
        return weights

    def amplified(self, score: np.ndarray, min_std: float) -> np.ndarray:
        """Return weights float64[n] that grow with the scores float64[n].  min_std: lower limit of their deviation."""
        if self.preset.temperature > 0:
            return np.exp((score - score.max()) / self.preset.temperature)
        z = (score - score.mean()) / max(score.std(), min_std) if len(score) > 2 else score
        return 1 / (1 + np.exp(-np.clip(self.preset.amplification * z, -50, 50)))

    def _update_weights(self) -> None:
        self.weigh(mixed(self.weights(), self.preset.uniform_share))

    # -----------------------------------------------------------------------------------------------------------------
    # Statistics

    def metrics(self) -> dict[str, float]:
        pool = self.pool
        scored = pool[self.played[pool] >= self.preset.min_samples]
        return {
            "lp/levels_in_pool": float(len(pool)),
            "lp/completions": float(self.played[pool].sum()),
            "lp/levels_with_score": float(len(scored)),
            "lp/mean_success": float(self.success_of(scored).mean()) if len(scored) else 0.0,
            "lp/mean_score": float(self.scores_of(scored).mean()) if len(scored) else 0.0,
            "lp/mean_draw_probability": float(self.probabilities()[pool].mean()),
            "lp/evictions": float(self.evictions.sum()),
        }

    def details(self) -> dict[str, float]:
        groups = () if self.config.performance_mode else DETAILED
        return {tag: value for group in groups for tag, value in group(self).items()}


def reweighted(p: np.ndarray, theta: float) -> np.ndarray:
    """Reweight probabilities: theta below 0.5 magnifies changes near 0; theta 0.5 returns ``p``."""
    if theta == 0.5:
        return p
    return p * (1 - theta) / (p + theta * (1 - 2 * p))


def _pools(strategy: LearningProgress) -> dict[str, float]:
    """Scalars per category: pool size, episodes, evictions, mean score and success of played levels."""
    names, category = strategy.levels.names, strategy.levels.category
    columns = {
        "pool_composition": np.bincount(category[strategy.pool], minlength=len(names)),
        "sampling_counts": strategy.draws,
        "eviction_counts": strategy.evictions,
        "env_curriculum_stats/per_label_evictions": strategy.evicted,
    }
    metrics = {f"{tag}/{name}": float(x) for tag, row in columns.items() for name, x in zip(names, row, strict=True)}
    played = _played(strategy)
    counts = np.bincount(category[played], minlength=len(names))
    for tag, values in (
        ("mean_lp_score", strategy.scores_of(played)),
        ("mean_reward_ema", strategy.success_of(played)),
    ):
        sums = np.bincount(category[played], values, minlength=len(names))
        metrics |= {f"per_label_stats/{tag}/{names[i]}": float(sums[i] / counts[i]) for i in np.flatnonzero(counts)}
    return metrics


def _played(strategy: LearningProgress) -> np.ndarray:
    """Return the played levels int64[n] of the pool; only these have a score."""
    return strategy.pool[strategy.played[strategy.pool] > 0]


def _raw_scores(strategy: LearningProgress) -> dict[str, float]:
    score = strategy.scores_of(_played(strategy))
    if not len(score):
        return {}
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
    """Gini coefficients of scores, weights and draws, and the decrease from each coefficient to the next."""
    pool, category, count = strategy.pool, strategy.levels.category, len(strategy.levels.names)
    score, weights, probabilities = strategy.scores_of(pool), strategy.weights_of(pool), strategy.probabilities()

    def by_label(values: np.ndarray) -> np.ndarray:
        return np.bincount(category[pool], values, minlength=count)

    ginis = {
        "pool_occupancy": gini(strategy.played[pool]),
        "task_age": gini(strategy.now - strategy.entered[pool]),
        "raw_lp_scores": gini(score),
        "raw_lp_by_label": gini(by_label(score)),
        "zscored_lp_scores": gini(weights),
        "sampling_probs": gini(probabilities[pool]),
        "sampling_probs_by_label": gini(np.bincount(category, probabilities, minlength=count)),
        "sampling_by_label": gini(strategy.draws),
        "evictions_by_label": gini(strategy.evictions),
        "pool_composition_by_label": gini(np.bincount(category[pool], minlength=count)),
    }
    ginis |= {
        "selectivity_loss_zscore": ginis["raw_lp_scores"] - ginis["zscored_lp_scores"],
        "selectivity_loss_sampling": ginis["zscored_lp_scores"] - ginis["sampling_probs"],
        "selectivity_loss_lp_to_label": ginis["raw_lp_by_label"] - ginis["sampling_probs_by_label"],
        "selectivity_loss_label_to_episodes": ginis["sampling_probs_by_label"] - ginis["sampling_by_label"],
    }
    return {f"curriculum_gini/{name}": value for name, value in ginis.items()}


DETAILED = (_pools, _raw_scores, _ginis)  # functions for statistics that need a pass over the pool
