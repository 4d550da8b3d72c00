"""Settings of the curriculum, which chooses training levels."""

import math
import re
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from nppsim.errors import ConfigError
from nppsim.settings import check_settings, setting

CURRICULA = ["uniform", "stages", "learnability", "plr", "learning_progress"]  # rl.curriculum.register adds names
DEFAULT_STRATEGY = "learnability"  # for --use-curriculum without a strategy; docs/curriculum.md gives the reason
# Fields of CurriculumConfig that only some strategies have.
_OF_STAGES = (
    "start_stage stage_order threshold stage_thresholds stage_gamma stage_learning_rate stage_ent_coef "
    "stage_clip_range min_episodes mixing_share regression_threshold next_share early_advancement early_success "
    "trend_advancement trend_rise auto_adjustment adjustment_freq adjustment_step min_threshold"
)
_OF_TWO_AVERAGES = "lp_timescale lp_slow lp_early lp_exploration_bonus lp_success_bonus"
_OF_LEARNING_PROGRESS = (
    f"preset formulas basic_progress active_levels performance_mode {_OF_TWO_AVERAGES} lp_amplification lp_temperature "
    "lp_min_samples"
)
STRATEGIES_WITH = {  # field -> strategies
    **dict.fromkeys(_OF_STAGES.split(), ("stages",)),
    **dict.fromkeys(_OF_LEARNING_PROGRESS.split(), ("learning_progress",)),
    **dict.fromkeys(("replay_score", "replay_temperature", "replay_staleness"), ("plr",)),
    "uniform_share": ("learnability", "plr", "learning_progress"),
}
# PPO settings of single stages.
STAGE_SETTINGS = ("stage_gamma", "stage_learning_rate", "stage_ent_coef", "stage_clip_range")
_STAGE_LIMITS = {  # setting -> (exclusive lower limit, upper limit)
    "stage_thresholds": (0.0, 1.0),
    "stage_gamma": (0.0, 1.0),
    "stage_learning_rate": (0.0, 1.0),
    "stage_ent_coef": (-math.ulp(0.0), 1000.0),
    "stage_clip_range": (0.0, 100.0),
}
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e-?\d+)?")
_CURRICULUM = "use-curriculum"
_STARTS = "start-states"
_setting = partial(setting, needs=_CURRICULUM)


@dataclass(frozen=True)
class CurriculumConfig:
    """Settings of the curriculum; docs/curriculum.md compares the strategies."""

    flag_prefix: ClassVar[str] = "curriculum-"
    use_curriculum: bool = setting(
        False,
        "choose training levels by success, with the strategy to which the other curriculum flags belong, else "
        f"{DEFAULT_STRATEGY}",
        flag=_CURRICULUM,
    )
    strategy: str | None = setting(
        None,
        f"strategy that chooses training levels: {', '.join(CURRICULA)}. It implies --use-curriculum",
        flag="curriculum",
        metavar="STRATEGY",
    )
    uniform_share: float | None = _setting(
        None,
        "share of draws that are uniform over all levels (learnability, plr, learning_progress); default: set by the "
        "strategy",
        low=0,
        high=1,
    )
    tracked_levels: int = setting(
        0,
        "number of levels, from the first on, with curves of their own",
        flag="curriculum-track-levels",
        low=0,
        high=100,
    )
    start_stage: str | None = _setting(None, "category of the first stage; default: the easiest", metavar="STAGE")
    stage_order: tuple[str, ...] = _setting(
        (), "categories from easy to hard, before all others; default: as in nppsim, then by name", metavar="STAGE"
    )
    threshold: float = _setting(0.7, "success rate at which training advances to the next stage", above=0, high=1)
    stage_thresholds: tuple[str, ...] = _setting(
        (), "success rates of single stages; other stages use --curriculum-threshold", metavar="STAGE=X"
    )
    stage_gamma: tuple[str, ...] = _setting(
        (), "discounts of single stages; other stages use --gamma", metavar="STAGE=X"
    )
    stage_learning_rate: tuple[str, ...] = _setting(
        (), "initial learning rates of single stages; other stages use --initial-lr", metavar="STAGE=X"
    )
    stage_ent_coef: tuple[str, ...] = _setting(
        (),
        "entropy bonus of single stages; other stages use --ent-coef-start and --ent-coef-end",
        metavar="STAGE=X",
    )
    stage_clip_range: tuple[str, ...] = _setting(
        (),
        "clip ranges of single stages; other stages use --clip-range and --clip-range-end",
        metavar="STAGE=X",
    )
    min_episodes: int = _setting(300, "episodes that must begin in a stage before it can end", low=1)
    window: int = setting(100, "latest episodes per category over which curves average", low=2, high=1_000_000)
    mixing_share: float | None = _setting(
        None, "share of draws from earlier stages; default: from 0.40 down to 0.05 as success rises", low=0.05, high=0.4
    )
    regression_threshold: float | None = _setting(
        None, "success rate below which training returns to the previous stage; default: never", above=0, below=1
    )
    next_share: float = _setting(0.05, "share of draws from the next stage", low=0, high=0.5)
    early_advancement: bool = _setting(
        True, "never end a stage early for high success (--curriculum-early-success)", flag="disable-early-advancement"
    )
    early_success: float = _setting(
        0.9, "success that ends a stage after half of --curriculum-min-episodes", above=0, high=1
    )
    trend_advancement: bool = _setting(
        True, "never end a stage early for rising success (--curriculum-trend-rise)", flag="disable-trend-advancement"
    )
    trend_rise: float = _setting(
        0.15,
        "rise in success, between the halves of a stage's latest episodes, that ends the stage if the second half "
        "reaches the threshold",
        above=0,
        high=1,
    )
    auto_adjustment: bool = _setting(
        True, "lower the threshold of a stage that does not end", flag="enable-auto-curriculum-adjustment", switch=True
    )
    adjustment_freq: int = _setting(
        2_000, "episodes in a stage before its threshold is lowered, and between further reductions", low=1
    )
    adjustment_step: float = _setting(0.05, "amount by which the threshold is lowered", above=0, high=1)
    min_threshold: float = _setting(0.4, "lower limit of a lowered threshold", above=0, high=1)
    preset: str = _setting(
        "default",
        "parameters of learning_progress (docs/curriculum.md)",
        choices=("default", "stable", "fast", "arena_legacy", "first"),
        metavar="PRESET",
    )
    formulas: str = _setting(
        "mended", "formulas of learning_progress: corrected (mended) or as published", choices=("mended", "original")
    )
    basic_progress: bool = _setting(
        False, "score levels in learning_progress by the spread of recent success, not by two moving averages"
    )
    active_levels: int | None = _setting(
        None, "levels in the pool of learning_progress; default: set by the preset", low=1
    )
    lp_timescale: float | None = _setting(
        None, "learning_progress: rate of the fast average, per episode; default: set by the preset", above=0, high=1
    )
    lp_slow: float | None = _setting(
        None,
        "learning_progress: rate of the slow average, as a share of the fast one; default: set by the preset",
        above=0,
        below=1,
    )
    lp_early: float | None = _setting(
        None,
        "learning_progress: theta of the reweighting. Values below 0.5 favour levels with low success; default: set "
        "by the preset",
        above=0,
        high=0.5,
    )
    lp_exploration_bonus: float | None = _setting(
        None, "learning_progress, original formulas: lower limit of a score; default: set by the preset", low=0
    )
    lp_success_bonus: float | None = _setting(
        None, "learning_progress: weight of the success rate in a score; default: set by the preset", low=0
    )
    lp_amplification: float | None = _setting(
        None, "learning_progress: factor of z-scores before the logistic function; default: set by the preset", above=0
    )
    lp_temperature: float | None = _setting(
        None, "learning_progress: softmax temperature; 0 uses z-scores; default: set by the preset", low=0
    )
    lp_min_samples: int | None = _setting(
        None, "learning_progress: episodes of a level before its score counts; default: set by the preset", low=1
    )
    performance_mode: bool = _setting(False, "skip the detailed statistics of learning_progress")
    replay_score: str = _setting(
        "absolute",
        "score of a level in plr: mean absolute or mean positive advantage",
        choices=("absolute", "positive"),
    )
    replay_temperature: float = _setting(1.0, "temperature X of plr's rank weights 1 / rank ** (1 / X)", above=0)
    replay_staleness: float = _setting(
        0.1, "share of plr's draws that depend on the time since a level was last played", low=0, high=1
    )

    start_states: bool = setting(
        False, "on levels never won, start some episodes along a demonstration or the agent's best run", flag=_STARTS
    )
    start_share: float = setting(
        0.25,
        "share of episodes, on levels never won, that start along a run",
        flag="start-states-share",
        needs=_STARTS,
        above=0,
        high=0.25,
    )
    start_threshold: float = setting(
        0.2,
        "success rate of these episodes above which their start moves back towards the spawn",
        flag="start-states-threshold",
        needs=_STARTS,
        above=0,
        below=1,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.strategy is not None:
            object.__setattr__(self, "use_curriculum", True)
        if self.use_curriculum:
            self._check_strategy()
            self._check_formulas()
        for name, (above, at_most) in _STAGE_LIMITS.items():
            self._check_stages(name, above, at_most)
        if self.auto_adjustment and self.min_threshold > self.threshold:
            advice = f"is above --curriculum-threshold {self.threshold}; lower it, or use "
            advice += "--no-enable-auto-curriculum-adjustment"
            raise ConfigError(advice, "min_threshold", self.min_threshold)
        lowest = min([self.threshold, *self._of_stages("stage_thresholds").values()])
        if self.regression_threshold is not None and self.regression_threshold >= lowest:
            advice = f"a stage that ends at {lowest:g} would be left for the previous one; give less"
            raise ConfigError(advice, "regression_threshold", self.regression_threshold)

    @property
    def chosen(self) -> str:
        """Name of the active strategy.

        With ``use_curriculum`` alone: the only strategy that has the given settings, else DEFAULT_STRATEGY.
        """
        if self.strategy or not self.use_curriculum:
            return self.strategy or "uniform"
        given = (STRATEGIES_WITH.get(one.name, ()) for one in fields(self) if getattr(self, one.name) != one.default)
        return next((owners[0] for owners in given if len(owners) == 1), DEFAULT_STRATEGY)

    def threshold_of(self, stage: str) -> float:
        """Return the success rate that ends a stage, before automatic adjustment lowers it."""
        return self._of_stages("stage_thresholds").get(stage, self.threshold)

    @property
    def stages_named(self) -> dict[str, set[str]]:
        """Name of each setting with values per stage -> stages for which a value is given."""
        return {name: {*self._of_stages(name)} for name in _STAGE_LIMITS}

    def changes_in(self, stage: str) -> dict[str, float | None]:
        """Return the PPO settings that a stage overrides: field of PPOConfig -> value during the stage."""
        own = {name: self._of_stages(name).get(stage) for name in STAGE_SETTINGS}
        changes: dict[str, float | None] = {}
        if own["stage_gamma"] is not None:
            changes |= {"gamma": own["stage_gamma"], "pbrs_gamma": None}  # None: shaping uses gamma, too
        if own["stage_learning_rate"] is not None:
            changes["learning_rate"] = own["stage_learning_rate"]
        if own["stage_ent_coef"] is not None:
            changes |= dict.fromkeys(("ent_coef_start", "ent_coef_end"), own["stage_ent_coef"])
        if own["stage_clip_range"] is not None:
            changes |= dict.fromkeys(("clip_range", "clip_range_end"), own["stage_clip_range"])
        return changes

    def _of_stages(self, name: str) -> dict[str, float]:
        return {stage: float(value) for stage, value in (text.split("=") for text in getattr(self, name))}

    def _check_strategy(self) -> None:
        """Raise ConfigError for a setting without effect on the active strategy."""
        if self.chosen not in CURRICULA:
            raise ConfigError(f"known strategies are {', '.join(CURRICULA)}", "strategy", self.strategy)
        for one in fields(self):
            owners = STRATEGIES_WITH.get(one.name, CURRICULA)
            if self.chosen not in owners and getattr(self, one.name) != one.default:
                advice = f"has no effect with --curriculum {self.chosen}, only with {', '.join(owners)}; leave it out"
                raise ConfigError(advice, one.name, getattr(self, one.name))

    def _check_formulas(self) -> None:
        """Raise ConfigError for a learning-progress setting that the chosen formulas do not use."""
        unused: dict[str, str] = {}
        if self.formulas == "mended":
            unused["lp_exploration_bonus"] = "has no effect without --curriculum-formulas original"
        if self.basic_progress:
            unused |= dict.fromkeys(_OF_TWO_AVERAGES.split(), "has no effect with --curriculum-basic-progress")
        if self.lp_temperature:
            unused["lp_amplification"] = "has no effect with --curriculum-lp-temperature, a softmax without z-scores"
        for name, advice in unused.items():
            if getattr(self, name) is not None:
                raise ConfigError(f"{advice}; leave it out", name, getattr(self, name))

    def _check_stages(self, name: str, above: float, at_most: float) -> None:
        """Raise ConfigError unless every value of a setting is STAGE=X with above < X <= at_most, once for each stage."""
        for text in getattr(self, name):
            stage, _, value = text.partition("=")
            if not (stage and _NUMBER.fullmatch(value) and above < float(value) <= at_most):
                limits = f"above {above:g}" if above >= 0 else "at least 0"
                limits += f" and at most {at_most:g}" if at_most < math.inf else ""
                raise ConfigError(f"give STAGE=X with X {limits}", name, text)
        if len(self._of_stages(name)) < len(getattr(self, name)):
            raise ConfigError("gives a stage twice; give each once", name, " ".join(getattr(self, name)))
