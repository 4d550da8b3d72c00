"""Settings of the curriculum, which chooses training levels."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

from nppsim.errors import ConfigError, did_you_mean
from nppsim.settings import check_settings, require, setting, settings_of

LP_PRESETS = ("default", "stable", "fast", "arena_legacy", "first")  # of learning_progress
CURRICULA = ["uniform", "stages", "learnability", "plr", "learning_progress"]  # rl.curriculum.register adds names
DEFAULT_STRATEGY = "learnability"  # for --use-curriculum without a strategy; docs/curriculum.md gives the reason
# PPO settings of single stages -> the fields of PPOConfig that they replace.
STAGE_SETTINGS = {
    "stage_gamma": ("gamma",),
    "stage_learning_rate": ("learning_rate",),
    "stage_ent_coef": ("ent_coef",),
    "stage_clip_range": ("clip_range", "clip_range_end"),
}
_STAGE_LIMITS = {  # setting -> (exclusive lower limit, upper limit)
    "stage_thresholds": (0.0, 1.0),
    "stage_gamma": (0.0, 1.0),
    "stage_learning_rate": (0.0, 1.0),
    "stage_ent_coef": (-math.ulp(0.0), 1000.0),
    "stage_clip_range": (0.0, 100.0),
}
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e-?\d+)?")
_STRATEGY = "curriculum.strategy="

_UNIFORM = f"{_STRATEGY}learnability|plr|learning_progress"

_starts = partial(setting, needs="curriculum.start_states")
_stages = partial(setting, needs=f"{_STRATEGY}stages")
_early = partial(setting, needs=f"{_STRATEGY}stages and curriculum.early_advancement")
_trend = partial(setting, needs=f"{_STRATEGY}stages and curriculum.trend_advancement")
_adjustment = partial(setting, needs=f"{_STRATEGY}stages and curriculum.auto_adjustment")
_of_stages = partial(setting, (), needs=f"{_STRATEGY}stages", metavar="STAGE=X")
_lp = partial(setting, needs=f"{_STRATEGY}learning_progress")
_plr = partial(setting, needs=f"{_STRATEGY}plr")


def _lp_preset(help: str, condition: str = "", **limits: Any) -> Any:
    """Return a setting of learning_progress that replaces a parameter of the preset.  condition: continues ``needs``."""
    needs = f"{_STRATEGY}learning_progress{condition}"
    return setting(None, f"learning_progress: {help}; default: set by the preset", needs=needs, **limits)


_lp_average = partial(_lp_preset, condition=" and not curriculum.basic_progress")


@dataclass(frozen=True)
class CurriculumConfig:
    """Settings of the curriculum; docs/curriculum.md compares the strategies.

    With ``use_curriculum`` alone, ``strategy`` becomes the only one that has the given settings, else DEFAULT_STRATEGY.
    """

    flag_prefix: ClassVar[str] = "curriculum-"
    group: ClassVar[str] = "curriculum"
    use_curriculum: bool = setting(
        False,
        f"choose levels by success; strategy: that of other given flags, else {DEFAULT_STRATEGY}",
        flag="use-curriculum",
    )
    strategy: str | None = setting(
        None, f"strategy: {', '.join(CURRICULA)}; implies --use-curriculum", flag="curriculum", metavar="NAME"
    )
    uniform_share: float | None = setting(
        None, "share of uniform draws; default: set by the strategy", low=0, high=1, needs=_UNIFORM
    )
    tracked_levels: int = setting(
        0, "number of levels with their own curves", flag="curriculum-track-levels", low=0, high=100
    )
    start_stage: str | None = _stages(None, "category of the first stage; default: the easiest", metavar="STAGE")
    stage_order: tuple[str, ...] = _stages(
        (), "categories from easy to hard; default: as in nppsim, then by name", metavar="STAGE"
    )
    threshold: float = _stages(0.7, "success rate at which training advances to the next stage", above=0, high=1)
    stage_thresholds: tuple[str, ...] = _of_stages("success rates of single stages instead of --curriculum-threshold")
    stage_gamma: tuple[str, ...] = _of_stages("discounts of single stages instead of --gamma")
    stage_learning_rate: tuple[str, ...] = _of_stages("initial learning rates of single stages instead of --initial-lr")
    stage_ent_coef: tuple[str, ...] = _of_stages("constant entropy coefficients of single stages")
    stage_clip_range: tuple[str, ...] = _of_stages("constant clip ranges of single stages")
    min_episodes: int = _stages(300, "episodes that must begin in a stage before it can end", low=1)
    window: int = setting(100, "latest episodes per category over which curves average", low=2, high=1_000_000)
    mixing_share: float | None = _stages(
        None, "share of draws from earlier stages; default: 0.40 to 0.05 by success", low=0.05, high=0.4
    )
    regression_threshold: float | None = _stages(
        None, "success below which the previous stage returns; default: never", above=0, below=1
    )
    next_share: float = _stages(0.05, "share of draws from the next stage", low=0, high=0.5)
    early_advancement: bool = _stages(
        True, "never end a stage early for high success (--curriculum-early-success)", flag="disable-early-advancement"
    )
    early_success: float = _early(0.9, "success that ends a stage at half of its episodes", above=0, high=1)
    trend_advancement: bool = _stages(
        True, "never end a stage early for rising success (--curriculum-trend-rise)", flag="disable-trend-advancement"
    )
    trend_rise: float = _trend(0.15, "rise in success that ends a stage which reaches its threshold", above=0, high=1)
    auto_adjustment: bool = _stages(
        True, "lower the threshold of a stage that does not end", flag="enable-auto-curriculum-adjustment", switch=True
    )
    adjustment_freq: int = _adjustment(2_000, "episodes in a stage between reductions of its threshold", low=1)
    adjustment_step: float = _adjustment(0.05, "amount by which the threshold is lowered", above=0, high=1)
    min_threshold: float = _adjustment(0.4, "lower limit of a lowered threshold", above=0, high=1)
    preset: str = _lp(
        "default", "parameters of learning_progress (docs/curriculum.md)", choices=LP_PRESETS, metavar="PRESET"
    )
    basic_progress: bool = _lp(False, "score levels by the spread of recent success, not by two moving averages")
    active_levels: int | None = _lp_preset("number of levels in the pool", low=1)
    lp_timescale: float | None = _lp_average("rate of the fast average, per episode", above=0, high=1)
    lp_slow: float | None = _lp_average("rate of the slow average, as a share of the fast one", above=0, below=1)
    lp_early: float | None = _lp_average(
        "theta of the reweighting; below 0.5 it favours levels of low success", above=0, high=0.5
    )
    lp_success_bonus: float | None = _lp_average("weight of the success rate in a score", low=0)
    lp_amplification: float | None = _lp_preset("factor of z-scores", " and not curriculum.lp_temperature", above=0)
    lp_temperature: float | None = _lp_preset("temperature of a softmax; 0 uses z-scores", low=0)
    lp_min_samples: int | None = _lp_preset("episodes of a level before its score counts", low=1)
    performance_mode: bool = _lp(False, "skip the detailed statistics of learning_progress")
    replay_score: str = _plr(
        "absolute", "score of a level: mean absolute or positive advantage", choices=("absolute", "positive")
    )
    replay_temperature: float = _plr(1.0, "temperature X of the rank weights 1 / rank ** (1 / X)", above=0)
    replay_staleness: float = _plr(0.1, "share of draws by the time since a level was last played", low=0, high=1)
    start_states: bool = setting(
        False, "on levels never won, start some episodes along a recorded run", flag="start-states"
    )
    start_share: float = _starts(
        0.25, "share of these episodes on levels never won", flag="start-states-share", above=0, high=0.25
    )
    start_threshold: float = _starts(
        0.2, "success above which these starts approach the spawn", flag="start-states-threshold", above=0, below=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.strategy is not None:
            object.__setattr__(self, "use_curriculum", True)
        elif self.use_curriculum:
            changed = (setting.name for setting in fields(self) if getattr(self, setting.name) != setting.default)
            object.__setattr__(self, "strategy", implied_strategy(changed))
        if self.strategy not in (None, *CURRICULA):
            near = did_you_mean(str(self.strategy), CURRICULA)
            raise ConfigError(f"known strategies are {', '.join(CURRICULA)}{near}", "strategy", self.strategy)
        for name, (above, at_most) in _STAGE_LIMITS.items():
            self._check_stages(name, above, at_most)
        advice = f"is above --curriculum-threshold {self.threshold}; lower it, or use "
        advice += "--no-enable-auto-curriculum-adjustment"
        lowered = self.auto_adjustment and self.min_threshold > self.threshold
        require(not lowered, advice, "min_threshold", self.min_threshold)
        lowest = min([self.threshold, *self._by_stage("stage_thresholds").values()])
        advice = f"a stage that ends at {lowest:g} would be left for the previous one; give less"
        below = self.regression_threshold is None or self.regression_threshold < lowest
        require(below, advice, "regression_threshold", self.regression_threshold)

    @property
    def chosen(self) -> str:
        """Name of the active strategy; "uniform" without a curriculum."""
        return self.strategy or "uniform"

    def threshold_of(self, stage: str) -> float:
        """Return the success rate that ends a stage, before automatic adjustment lowers it."""
        return self._by_stage("stage_thresholds").get(stage, self.threshold)

    @property
    def stages_named(self) -> dict[str, set[str]]:
        """Name of each setting with values per stage -> stages for which a value is given."""
        return {name: {*self._by_stage(name)} for name in _STAGE_LIMITS}

    def changes_in(self, stage: str) -> dict[str, float | None]:
        """Return the PPO settings that a stage overrides: field of PPOConfig -> value during the stage."""
        changes: dict[str, float | None] = {}
        for name, replaced in STAGE_SETTINGS.items():
            if (value := self._by_stage(name).get(stage)) is not None:
                changes |= dict.fromkeys(replaced, value)
        return changes | ({"pbrs_gamma": None} if "gamma" in changes else {})  # None: shaping uses ``gamma``

    def _by_stage(self, name: str) -> dict[str, float]:
        return {stage: float(value) for stage, value in (text.split("=") for text in getattr(self, name))}

    def _check_stages(self, name: str, above: float, at_most: float) -> None:
        """Raise ConfigError unless every value of a setting is STAGE=X with above < X <= at_most, once for each stage."""
        texts = getattr(self, name)
        for text in texts:
            stage, _, value = text.partition("=")
            limits = f"{f'above {above:g}' if above >= 0 else 'at least 0'} and at most {at_most:g}"
            valid = stage and _NUMBER.fullmatch(value) and above < float(value) <= at_most
            require(valid, f"give STAGE=X with X {limits}", name, text)
        once = len(self._by_stage(name)) == len(texts)
        require(once, "gives a stage twice; give each once", name, " ".join(texts))


def implied_strategy(names: Iterable[str]) -> str:
    """Return the only strategy that has one of these settings; DEFAULT_STRATEGY if no setting belongs to one strategy."""
    needs = (settings_of(CurriculumConfig)[name].needs for name in names)
    owners = (need.removeprefix(_STRATEGY).split()[0] for need in needs if need.startswith(_STRATEGY))
    return next((owner for owner in owners if "|" not in owner), DEFAULT_STRATEGY)
