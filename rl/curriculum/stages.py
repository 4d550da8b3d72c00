"""Stage curriculum: categories of levels in order of difficulty, the next one opened by success in the present one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nppsim.errors import ConfigError
from rl.config import CurriculumConfig
from rl.curriculum.sampler import Sampler

# (success in the stage below which, share of draws that come from earlier stages)
MIXING = ((0.50, 0.40), (0.65, 0.25), (0.80, 0.15), (np.inf, 0.05))
EARLY_SHARE = 0.5  # of min_episodes, for an early advancement
TREND_SHARE = 0.8  # of min_episodes, for an advancement by trend
TREND_MARGIN = 0.05  # below the threshold, likewise
MASTERED_FLOOR = 0.1  # once all is mastered, categories are drawn in proportion to failures plus this


class StageCurriculum(Sampler):
    """One stage after the other; earlier ones stay mixed in, a little of the next one is tried already.

    A stage ends when its success over the latest ``config.window`` episodes since it began reaches the threshold, and
    at least ``config.min_episodes`` of its episodes have ended; earlier if success is very high or rising steeply.  A
    stage that does not end within ``config.adjustment_freq`` episodes has its own threshold lowered, step by step, down
    to ``config.min_threshold``.  When the last stage has ended, all are drawn, the difficult ones more often.
    """

    def __init__(self, categories: Sequence[str], config: CurriculumConfig, seed: int):
        super().__init__(categories, config.window, seed)
        self.config = config
        self._stage = 0
        if config.start_stage is not None:
            if config.start_stage not in self.stages:
                raise ConfigError(
                    f"the training dataset has no such levels, only {', '.join(self.stages)}",
                    "--curriculum-start-stage",
                    config.start_stage,
                )
            self._stage = self.stages.index(config.start_stage)
        self._threshold = config.threshold
        self._in_stage = 0  # episodes of the stage since it began
        self._since_change = 0  # ... since it began or its threshold was lowered
        self._mastered = False

    @property
    def stage(self) -> str:
        """Category that the curriculum is at."""
        return self.stages[self._stage]

    @property
    def threshold(self) -> float:
        """Success that ends the present stage; below ``config.threshold`` once it was lowered."""
        return self._threshold

    def shares(self) -> np.ndarray:
        now, count = self._stage, len(self.stages)
        if self._mastered:
            failure = np.array([1 - window.mean if window.count else 1.0 for window in self._windows])
            return (failure + MASTERED_FLOOR) / (failure + MASTERED_FLOOR).sum()
        shares = np.zeros(count)
        earlier = self._earlier_share()
        if earlier:  # half to the stage just left, half to all of them
            shares[:now] += earlier / 2 / now
            shares[now - 1] += earlier / 2
        if now + 1 < count:
            shares[now + 1] = self.config.next_share
        shares[now] = 1 - shares.sum()
        return shares

    def metrics(self) -> dict[str, float]:
        result = super().metrics()
        window = self._windows[self._stage]
        result |= {
            "curriculum/current_stage_idx": float(self._stage),
            "curriculum/episodes_in_stage": float(self._in_stage),
            "curriculum/advancement_threshold": float(self._threshold),
            "curriculum/can_advance": float(self._may_end() is not None),
            "curriculum/earlier_share": float(self._earlier_share()),
            "curriculum/mastered": float(self._mastered),
        }
        if window.count:
            result["curriculum/success_rate"] = window.mean
        return result

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "stage": self.stage,
            "threshold": self._threshold,
            "in_stage": self._in_stage,
            "since_change": self._since_change,
            "mastered": self._mastered,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._stage = self.stages.index(state["stage"])
        self._threshold = state["threshold"]
        self._in_stage = state["in_stage"]
        self._since_change = state["since_change"]
        self._mastered = state["mastered"]

    def _earlier_share(self) -> float:
        if self._stage == 0:
            return 0.0
        window = self._windows[self._stage]
        success = window.mean if window.count else 0.0
        return next(share for limit, share in MIXING if success < limit)

    def _after_episode(self, stage: int) -> None:
        if stage != self._stage or self._mastered:
            return
        self._in_stage += 1
        self._since_change += 1
        reason = self._may_end()
        if reason is not None:
            self._end_stage(reason)
        elif self.config.auto_adjustment and self._since_change >= self.config.adjustment_freq:
            self._lower_threshold()

    def _may_end(self) -> str | None:
        """Why the present stage may end now: "threshold", "early" or "trend"; None if it may not."""
        config, window, episodes = self.config, self._windows[self._stage], self._in_stage
        if not episodes or self._mastered:
            return None
        if episodes >= config.min_episodes and window.mean >= self._threshold:
            return "threshold"
        early = config.early_advancement and episodes >= EARLY_SHARE * config.min_episodes
        if early and window.mean >= max(config.early_success, self._threshold):
            return "early"
        rising = config.trend_advancement and episodes >= TREND_SHARE * config.min_episodes
        if rising and window.mean >= self._threshold - TREND_MARGIN and window.rise() > config.trend_rise:
            return "trend"
        return None

    def _end_stage(self, reason: str) -> None:
        last = self._stage + 1 == len(self.stages)
        self._log("mastered" if last else "advance", reason=reason)
        if last:
            self._mastered = True
            return
        self._stage += 1
        self._windows[self._stage].fill([])  # a stage is judged by what was played since it began
        self._threshold = self.config.threshold
        self._in_stage = self._since_change = 0

    def _lower_threshold(self) -> None:
        self._since_change = 0
        floor = self.config.min_threshold
        if self._threshold <= floor:
            if not any(e["event"] == "stuck_at_floor" and e["stage"] == self.stage for e in self.events):
                self._log("stuck_at_floor")
            return
        self._threshold = max(floor, round(self._threshold - self.config.adjustment_step, 6))
        self._log("threshold_lowered")

    def _log(self, event: str, **details) -> None:
        self.events.append(
            {
                "event": event,
                "stage": self.stage,
                "episode": sum(self._episodes),
                "episodes_in_stage": self._in_stage,
                "success": self._windows[self._stage].mean,
                "threshold": self._threshold,
                **details,
            }
        )
