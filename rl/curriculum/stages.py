"""Strategy "stages": one stage per category, in order of difficulty; success in a stage starts the next.

A stage is evaluated once per update, on episodes that began in it.  Unfinished episodes count as not won, since otherwise
short episodes would be over-represented.  The criterion is the lower confidence bound of the success rate.  The rate itself
would exceed the threshold by chance in one of the thousands of evaluations.
"""

import math
from typing import ClassVar

import numpy as np

from nppsim.errors import ConfigError
from nppsim.measure.intervals import wilson
from rl.config.curriculum import CurriculumConfig
from rl.curriculum.strategy import Levels, Outcomes, Strategy

# (upper limit of success in the current stage, share of draws from earlier stages below that limit)
MIXING = ((0.50, 0.40), (0.65, 0.25), (0.80, 0.15), (np.inf, 0.05))
FLOOR = 0.03  # smallest probability of a category
RECENT = 1000  # number of latest episodes of a stage that are evaluated
EARLY_SHARE = 0.5  # fraction of ``min_episodes`` needed for an early advancement
MASTERED_FLOOR = 0.1  # added to the failure rate of each category, for the draws after the last stage
ONE_SIDED_95 = 1.645  # 95 % quantile of the standard normal distribution
HALF_LIFE = 200.0  # number of episodes of a category after which the weight of an outcome has halved


class Stages(Strategy):
    """Draws mostly levels of the current stage, and some of all other categories.

    Whenever a stage has not ended after another ``config.adjustment_freq`` episodes, its threshold is lowered by a step, down
    to ``config.min_threshold``.  After the last stage all categories are drawn, difficult ones more often.

    place: index of the current stage.
    threshold: value that the lower confidence bound of success must reach.
    began: update at which the stage began.
    now: number of updates so far.
    recent: uint8[n <= RECENT], outcomes of the latest episodes that began in the stage; 1: win.
    running: number of unfinished episodes of the stage.
    in_stage, since_change: episodes since the stage began, and since its threshold last changed.
    mastered: True after the last stage.
    won, played: float64[C], decaying counts of wins and episodes of each category.
    """

    saved: ClassVar[tuple[str, ...]] = (
        *("place", "threshold", "began", "now", "recent", "running", "in_stage", "since_change", "mastered"),
        *("episodes", "won", "played"),
    )

    recent: np.ndarray
    in_stage: int
    since_change: int

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        start = config.start_stage
        if start is not None and start not in levels.names:
            present = ", ".join(levels.names)
            raise ConfigError(
                f"no training level has this category; the categories are {present}", "--curriculum-start-stage", start
            )
        for setting, stages in config.stages_named.items():
            if absent := sorted(stages - set(levels.names)):
                raise ConfigError(
                    f"the training dataset has no levels of {', '.join(absent)}; its categories are "
                    f"{', '.join(levels.names)}",
                    f"--curriculum-{setting.replace('_', '-')}",
                )
        self.place = 0 if start is None else levels.names.index(start)
        self.now = self.episodes = 0
        self.mastered = False
        self.won, self.played = np.zeros(len(levels.names)), np.zeros(len(levels.names))
        self._start_stage()
        self._update_weights()

    @property
    def stage(self) -> str:
        return self.levels.names[self.place]

    @property
    def success(self) -> float:
        """Success rate of the latest episodes of the stage; unfinished episodes count as not won."""
        return int(self.recent.sum()) / max(1, len(self.recent) + self.running)

    def update(self, outcomes: Outcomes) -> None:
        self.now += 1
        self.episodes += len(outcomes.levels)
        self._count(outcomes)
        mine = (self.levels.category[outcomes.levels] == self.place) & (outcomes.began >= self.began)
        self.recent = np.concatenate([self.recent, outcomes.won[mine].astype(np.uint8)])[-RECENT:]
        here = self.levels.category[outcomes.running] == self.place
        self.running = int((here & (outcomes.running_began >= self.began)).sum())
        self.in_stage += int(mine.sum())
        self.since_change += int(mine.sum())
        if not self.mastered:
            self._change_stage()
        self._update_weights()

    def _count(self, outcomes: Outcomes) -> None:
        category, count = self.levels.category[outcomes.levels], len(self.levels.names)
        played = np.bincount(category, minlength=count)
        decay = 0.5 ** (played / HALF_LIFE)
        self.played = self.played * decay + played
        self.won = self.won * decay + np.bincount(category, outcomes.won, minlength=count)

    def _change_stage(self) -> None:
        """Go to the next or previous stage, or lower the threshold, if the criteria are met."""
        reason = self.reason_to_end()
        if reason:
            last = self.place + 1 == len(self.levels.names)
            self._log("mastered" if last else "advance", reason=reason)
            self.mastered = last
            if not last:
                self.place += 1
                self._start_stage()
        elif self._should_regress():
            self._log("regress", reason="success is below the regression threshold")
            self.place -= 1
            self._start_stage()
        elif self.config.auto_adjustment:
            while self.since_change >= self.config.adjustment_freq:
                self.since_change -= self.config.adjustment_freq
                self._lower_threshold()

    def reason_to_end(self) -> str:
        """Return the reason to end the current stage ("threshold", "early" or "trend"), or ""."""
        config, n = self.config, self.in_stage + self.running
        if n >= config.min_episodes and self.bounds(self.recent, self.running)[0] >= self.threshold:
            return "threshold"
        early = config.early_advancement and n >= EARLY_SHARE * config.min_episodes
        goal = max(config.early_success, self.threshold)
        if early and self.success >= goal and self.bounds(self.recent, self.running)[0] >= self.threshold:
            return "early"
        newer, older = self.recent[len(self.recent) // 2 :], self.recent[: len(self.recent) // 2]
        if config.trend_advancement and n >= config.min_episodes and len(older):
            rising = newer.mean() - older.mean() > config.trend_rise
            if rising and self.bounds(newer, self.running)[0] >= self.threshold:
                return "trend"
        return ""

    def bounds(self, outcomes: np.ndarray, running: int) -> tuple[float, float]:
        """Return the lower and the upper one-sided 95 % confidence bound of the success rate.

        outcomes: uint8[n], outcomes of finished episodes; 1: win.
        running: number of unfinished episodes, which count as not won.
        """
        return wilson(int(outcomes.sum()), len(outcomes) + running, ONE_SIDED_95)

    def _should_regress(self) -> bool:
        """Return True if the upper confidence bound of success is below the regression threshold."""
        limit = self.config.regression_threshold
        enough = self.place > 0 and self.in_stage >= self.config.min_episodes
        return limit is not None and enough and self.bounds(self.recent, 0)[1] < limit

    def _start_stage(self) -> None:
        self.threshold = self.config.threshold_of(self.stage)
        self.began = self.now
        self.recent = np.empty(0, np.uint8)
        self.running = self.in_stage = self.since_change = 0

    def _lower_threshold(self) -> None:
        floor = self.config.min_threshold
        if self.threshold <= floor:
            if not any(e["event"] == "stuck_at_floor" and e["stage"] == self.stage for e in self.events):
                self._log("stuck_at_floor", reason=f"{self.in_stage} episodes did not reach the lowest threshold")
            return
        self.threshold = max(floor, round(self.threshold - self.config.adjustment_step, 6))
        self._log("threshold_lowered", reason=f"{self.config.adjustment_freq} episodes did not reach it")

    def _log(self, event: str, reason: str) -> None:
        self.events.append(
            {
                "event": event,
                "stage": self.stage,
                "reason": reason,
                "update": self.now,
                "episode": self.episodes,
                "episodes_in_stage": self.in_stage,
                "success": self.success,
                "surely_above": self.bounds(self.recent, self.running)[0],
                "threshold": self.threshold,
            }
        )

    def updates_to_minimum(self) -> int:
        """Estimate the number of updates until the stage has enough episodes to be evaluated."""
        missing = max(0, self.config.min_episodes - self.in_stage - self.running)
        return math.ceil(missing * max(1, self.now - self.began) / max(1, self.in_stage))

    def earlier_share(self) -> float:
        """Return the fraction of draws from earlier stages, before FLOOR is applied."""
        if self.place == 0:
            return 0.0
        if self.config.mixing_share is not None:
            return self.config.mixing_share
        return next(share for limit, share in MIXING if self.success < limit)

    def shares(self) -> np.ndarray:
        """Return the probability float64[C] of each category."""
        now, count = self.place, len(self.levels.names)
        if self.mastered:
            failure = 1 - (self.won + 1) / (self.played + 2) + MASTERED_FLOOR
            shares = failure / failure.sum()
        else:
            shares = np.zeros(count)
            earlier = self.earlier_share()
            if earlier:  # half of this share for the previous stage, half for all earlier stages
                shares[:now] += earlier / 2 / now
                shares[now - 1] += earlier / 2
            if now + 1 < count:
                shares[now + 1] = self.config.next_share
            shares[now] += 1 - shares.sum()
        floor = min(FLOOR, 0.5 / count)
        return floor + (1 - floor * count) * shares

    def _update_weights(self) -> None:
        """Set the weights of all levels by the shares of their categories."""
        self.weigh((self.shares() / self.levels.counts)[self.levels.category])

    def metrics(self) -> dict[str, float]:
        advanced = any(e["update"] == self.now and e["event"] in ("advance", "mastered") for e in self.events[-1:])
        return {
            "curriculum/current_stage_idx": float(self.place),
            "curriculum/episodes_in_stage": float(self.in_stage),
            "curriculum/advancement_threshold": float(self.threshold),
            "curriculum/can_advance": float(advanced),
            "curriculum/updates_to_minimum": float(self.updates_to_minimum()),
            "curriculum/earlier_share": float(self.shares()[: self.place].sum()),
            "curriculum/mastered": float(self.mastered),
            "curriculum/success_rate": self.success,
            "curriculum/success_surely_above": self.bounds(self.recent, self.running)[0],
        }
