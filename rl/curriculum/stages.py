"""Stage curriculum: categories of levels in order of difficulty, the next one opened by success in the present one.

    sampler = make_sampler(categories, config, seed)    # categories[i]: category of level i
    levels = sampler.draw(512)                          # int32[512], what to play next
    sampler.record(played, won)                         # when episodes end: the level *played* gets the credit

Cost: O(1) per episode and per draw, whatever the number of levels; memory is one bounded window per category.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from rl.config import ConfigError, CurriculumConfig
from rl.flags import STAGES

# (success in the stage below which, share of draws that come from earlier stages)
MIXING = ((0.50, 0.40), (0.65, 0.25), (0.80, 0.15), (np.inf, 0.05))
EARLY_SHARE = 0.5  # of min_episodes, for an early advancement
TREND_SHARE = 0.8  # of min_episodes, for an advancement by trend
TREND_MARGIN = 0.05  # below the threshold, likewise
MASTERED_FLOOR = 0.1  # once all is mastered, categories are drawn in proportion to failures plus this


class _Sampler(ABC):
    """What both samplers share: levels by category, outcomes by category, the random generator.

    stages: categories that occur, in the curriculum's order.  stage_of: int32[L], place of each level's category there.
    """

    def __init__(self, categories: Sequence[str], window: int, seed: int):
        names = np.asarray(categories, dtype=str)
        if names.ndim != 1 or not len(names):
            raise ConfigError("a curriculum needs at least one level; the training dataset is empty")
        present = set(names.tolist())
        self.stages = (*(s for s in STAGES if s in present), *sorted(present - set(STAGES)))
        place = {name: index for index, name in enumerate(self.stages)}
        self.stage_of = np.array([place[name] for name in names.tolist()], np.int32)
        self._order = np.argsort(self.stage_of, kind="stable").astype(np.int32)
        self._counts = np.bincount(self.stage_of, minlength=len(self.stages))
        self._first = np.cumsum(self._counts) - self._counts
        self._windows = [_Window(window) for _ in self.stages]
        self._episodes = [0] * len(self.stages)  # all told
        self._seen = np.zeros(len(names), bool)
        self._rng = np.random.default_rng(seed)
        self.events: list[dict] = []  # what happened, oldest first: a handful per stage

    def seed(self, seed: int) -> None:
        """Begin the sequence of draws anew from this seed; what was recorded stays."""
        self._rng = np.random.default_rng(seed)

    def draw(self, n: int) -> np.ndarray:
        """int32[n]: indices of the levels to play next."""
        cumulative = np.cumsum(self.shares())
        stage = np.searchsorted(cumulative, self._rng.random(n) * cumulative[-1], side="right")
        stage = np.minimum(stage, len(self.stages) - 1)
        within = (self._rng.random(n) * self._counts[stage]).astype(np.int64)
        return self._order[self._first[stage] + within]

    def record(self, levels: Sequence[int] | np.ndarray, wins: Sequence[bool] | np.ndarray) -> None:
        """Take note of episodes that ended.  levels: int[k], the levels played.  wins: bool[k].  Once per episode."""
        levels, wins = np.asarray(levels, np.int64), np.asarray(wins, bool)
        if levels.shape != wins.shape:
            raise ValueError(f"levels and wins differ in shape: {levels.shape}, {wins.shape}")
        self._seen[levels] = True
        for stage, won in zip(self.stage_of[levels].tolist(), wins.tolist(), strict=True):
            self._windows[stage].append(won)
            self._episodes[stage] += 1
            self._after_episode(stage)

    def metrics(self) -> dict[str, float]:
        """Scalars by TensorBoard tag; the success of a stage is missing until an episode of it has ended."""
        result = {"curriculum/episodes": float(sum(self._episodes)), "curriculum/levels_seen": float(self._seen.sum())}
        for name, window, episodes in zip(self.stages, self._windows, self._episodes, strict=True):
            result[f"curriculum_stages/{name}_episodes"] = float(episodes)
            if window.count:
                result[f"curriculum_stages/{name}_success_rate"] = window.mean
        return result

    def state_dict(self) -> dict:
        """Everything that the future depends on, as plain JSON values."""
        return {
            "stages": list(self.stages),
            "level_counts": self._counts.tolist(),
            "windows": [window.values() for window in self._windows],
            "episodes": list(self._episodes),
            "seen": np.packbits(self._seen).tobytes().hex(),
            "rng": self._rng.bit_generator.state,
            "events": [dict(event) for event in self.events],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where ``state_dict`` was taken; ConfigError if that was with other levels."""
        mine = dict(zip(self.stages, self._counts.tolist(), strict=True))
        theirs = dict(zip(state["stages"], state["level_counts"], strict=True))
        if mine != theirs:
            raise ConfigError(
                f"the saved curriculum has levels {theirs}, this dataset {mine}; go on with the same dataset"
            )
        for window, values in zip(self._windows, state["windows"], strict=True):
            window.fill(values)
        self._episodes = list(state["episodes"])
        packed = np.frombuffer(bytes.fromhex(state["seen"]), np.uint8)
        self._seen = np.unpackbits(packed, count=len(self._seen)).astype(bool)
        self._rng.bit_generator.state = state["rng"]
        self.events = [dict(event) for event in state["events"]]

    @abstractmethod
    def shares(self) -> np.ndarray:
        """float64[stages], sums to 1: how the next draws are spread over the categories."""

    @abstractmethod
    def _after_episode(self, stage: int) -> None:
        """What follows from an outcome that was recorded for ``stage``."""


class UniformSampler(_Sampler):
    """Every level is equally likely, always; success is recorded by category, as in the curriculum."""

    def __init__(self, categories: Sequence[str], config: CurriculumConfig, seed: int):
        super().__init__(categories, config.window, seed)

    def shares(self) -> np.ndarray:
        return self._counts / self._counts.sum()

    def _after_episode(self, stage: int) -> None:
        pass


class StageCurriculum(_Sampler):
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
                    f"--curriculum-start-stage {config.start_stage}: the training dataset has no such levels, "
                    f"only {', '.join(self.stages)}"
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
    def mastered(self) -> bool:
        """Whether the last stage has ended."""
        return self._mastered

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

    def state_dict(self) -> dict:
        return super().state_dict() | {
            "stage": self.stage,
            "threshold": self._threshold,
            "in_stage": self._in_stage,
            "since_change": self._since_change,
            "mastered": self._mastered,
        }

    def load_state_dict(self, state: dict) -> None:
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


def make_sampler(categories: Sequence[str], config: CurriculumConfig, seed: int) -> StageCurriculum | UniformSampler:
    """The sampler that the configuration asks for.  categories: category of each level.  Raises ConfigError."""
    return (StageCurriculum if config.use_curriculum else UniformSampler)(categories, config, seed)


class _Window:
    """The latest outcomes, at most ``size`` of them, with a running sum."""

    def __init__(self, size: int):
        self._ring = bytearray(size)
        self.count, self._next, self._sum = 0, 0, 0

    def append(self, won: bool) -> None:
        if self.count == len(self._ring):
            self._sum -= self._ring[self._next]
        else:
            self.count += 1
        self._ring[self._next] = won
        self._sum += won
        self._next = (self._next + 1) % len(self._ring)

    @property
    def mean(self) -> float:
        return self._sum / self.count if self.count else 0.0

    def rise(self) -> float:
        """Success of the newer half minus that of the older half; 0 with fewer than two outcomes."""
        values, half = self.values(), self.count // 2
        return sum(values[self.count - half :]) / half - sum(values[:half]) / half if half else 0.0

    def values(self) -> list[int]:
        """Outcomes, oldest first."""
        start = self._next if self.count == len(self._ring) else 0
        return list(self._ring[start : self.count]) + list(self._ring[:start])

    def fill(self, values: Sequence[int]) -> None:
        self.count = self._next = self._sum = 0
        for value in values:
            self.append(value)
