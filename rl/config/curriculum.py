"""Settings of the curriculum: the strategy that chooses training levels, and its parameters."""

import math
import re
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from nppsim.errors import ConfigError
from nppsim.settings import check_settings, setting

CURRICULA = ["uniform", "stages", "learnability", "plr", "learning_progress"]  # rl.curriculum.register adds to them
DEFAULT_STRATEGY = "learnability"  # of --use-curriculum alone; why: docs/curriculum.md
# Fields of CurriculumConfig that only some strategies have; all others belong to every strategy.
_OF_STAGES = (
    *(
        "start_stage",
        "stage_order",
        "threshold",
        "stage_thresholds",
        "min_episodes",
        "mixing_share",
        "regression_threshold",
    ),
    *("stage_gamma", "stage_learning_rate", "stage_ent_coef"),
    *("next_share", "early_advancement", "early_success", "trend_advancement", "trend_rise"),
    *("auto_adjustment", "adjustment_freq", "adjustment_step", "min_threshold"),
)
_OF_TWO_AVERAGES = ("lp_timescale", "lp_slow", "lp_early", "lp_exploration_bonus", "lp_success_bonus")
_OF_LEARNING_PROGRESS = (
    *("preset", "formulas", "basic_progress", "active_levels", "performance_mode"),
    *_OF_TWO_AVERAGES,
    *("lp_amplification", "lp_temperature", "lp_min_samples"),
)
STRATEGIES_WITH = {  # field -> strategies
    **dict.fromkeys(_OF_STAGES, ("stages",)),
    **dict.fromkeys(_OF_LEARNING_PROGRESS, ("learning_progress",)),
    **dict.fromkeys(("replay_score", "replay_temperature", "replay_staleness"), ("plr",)),
    "uniform_share": ("learnability", "plr", "learning_progress"),
}
STAGE_SETTINGS = ("stage_gamma", "stage_learning_rate", "stage_ent_coef")  # of PPO
_STAGE_LIMITS = {  # (above, at most)
    "stage_thresholds": (0.0, 1.0),
    "stage_gamma": (0.0, 1.0),
    "stage_learning_rate": (0.0, math.inf),
    "stage_ent_coef": (-math.ulp(0.0), math.inf),
}
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e-?\d+)?")
_CURRICULUM = "use-curriculum"
_STARTS = "start-states"
_setting = partial(setting, needs=_CURRICULUM)


@dataclass(frozen=True)
class CurriculumConfig:
    """Settings of the curriculum.  Strategies are the modules of ``rl.curriculum``; docs/curriculum.md compares them."""

    flag_prefix: ClassVar[str] = "curriculum-"
    use_curriculum: bool = setting(
        False,
        f"choose levels by success: by --curriculum, else the strategy that alone has what is given, else {DEFAULT_STRATEGY}",
        flag=_CURRICULUM,
    )
    strategy: str | None = setting(
        None,
        f"choose levels by this strategy (gives --use-curriculum, too): {', '.join(CURRICULA)}",
        flag="curriculum",
        metavar="STRATEGY",
    )
    uniform_share: float | None = _setting(
        None,
        "of the draws are spread evenly over all levels (learnability, plr, learning_progress); default: the strategy's own",
        low=0,
        high=1,
    )
    tracked_levels: int = setting(
        0, "first levels of the dataset with curves of their own", flag="curriculum-track-levels", low=0, high=100
    )
    start_stage: str | None = _setting(None, "first stage; default: the easiest there is", metavar="STAGE")
    stage_order: tuple[str, ...] = _setting(
        (),
        "categories from easy to hard, ahead of all others; default: those that nppsim generates in their order, then others "
        "by name",
        metavar="STAGE",
    )
    threshold: float = _setting(0.7, "success that opens the next stage", above=0, high=1)
    stage_thresholds: tuple[str, ...] = _setting((), "of single stages, STAGE=X", metavar="STAGE=X")
    stage_gamma: tuple[str, ...] = _setting(
        (), "discount while the named stage is trained, STAGE=X; other stages use --gamma", metavar="STAGE=X"
    )
    stage_learning_rate: tuple[str, ...] = _setting(
        (),
        "learning rate while single stages are learned, STAGE=X, before annealing; in the others --initial-lr",
        metavar="STAGE=X",
    )
    stage_ent_coef: tuple[str, ...] = _setting(
        (),
        "weight of the entropy bonus while single stages are learned, STAGE=X; in the others from --ent-coef-start to "
        "--ent-coef-end",
        metavar="STAGE=X",
    )
    min_episodes: int = _setting(300, "episodes that began in a stage, before it can end", low=1)
    window: int = setting(100, "latest episodes of a category that its curves are taken over", low=2, high=1_000_000)
    mixing_share: float | None = _setting(
        None,
        "of the levels drawn come from earlier stages; default: 0.40 to 0.05, less with more success",
        low=0.05,
        high=0.4,
    )
    regression_threshold: float | None = _setting(
        None, "success below which a stage goes back to the one before; default: none does", above=0, below=1
    )
    next_share: float = _setting(0.05, "of the levels drawn come from the next stage already", low=0, high=0.5)
    early_advancement: bool = _setting(
        True, "no earlier end for a stage with success of 90 % or more", flag="disable-early-advancement"
    )
    early_success: float = _setting(
        0.9, "success that ends a stage after half of --curriculum-min-episodes", above=0, high=1
    )
    trend_advancement: bool = _setting(
        True, "no earlier end for a stage that is improving fast", flag="disable-trend-advancement"
    )
    trend_rise: float = _setting(
        0.15,
        "rise of success from the first to the second half of a stage's latest episodes; then the second half alone counts",
        above=0,
        high=1,
    )
    auto_adjustment: bool = _setting(
        True, "lower the threshold of a stage that is stuck", flag="enable-auto-curriculum-adjustment", switch=True
    )
    adjustment_freq: int = _setting(
        2_000, "episodes in a stage until it counts as stuck, and between two lowerings", low=1
    )
    adjustment_step: float = _setting(0.05, "amount by which the threshold is lowered", above=0, high=1)
    min_threshold: float = _setting(0.4, "the threshold is never lowered below this", above=0, high=1)
    preset: str = _setting(
        "default",
        "numbers of the strategy learning_progress",
        choices=("default", "stable", "fast", "arena_legacy", "first"),
        metavar="PRESET",
    )
    formulas: str = _setting(
        "mended", "formulas of learning_progress, as they should be or as they were", choices=("mended", "original")
    )
    basic_progress: bool = _setting(False, "learning_progress by the spread of recent success, not by two averages")
    active_levels: int | None = _setting(None, "levels in the pool of learning_progress; default: the preset's", low=1)
    lp_timescale: float | None = _setting(
        None,
        "of learning_progress: rate of the fast average of success, per episode; default, as in those below: the preset's",
        above=0,
        high=1,
    )
    lp_slow: float | None = _setting(
        None, "of learning_progress: rate of the slow average is that of the fast one times this", above=0, below=1
    )
    lp_early: float | None = _setting(
        None,
        "of learning_progress: theta of its reweighting; below 0.5, progress counts more where success is low, 0.5: none",
        above=0,
        high=0.5,
    )
    lp_exploration_bonus: float | None = _setting(
        None, "of learning_progress, original formulas: no score is below this", low=0
    )
    lp_success_bonus: float | None = _setting(
        None, "of learning_progress: score for the success itself, times this", low=0
    )
    lp_amplification: float | None = _setting(
        None, "of learning_progress: z-scores are multiplied by this before the logistic function", above=0
    )
    lp_temperature: float | None = _setting(
        None, "of learning_progress: weights are a softmax of scores / X in place of z-scores; 0: they are not", low=0
    )
    lp_min_samples: int | None = _setting(
        None, "of learning_progress: episodes of a level before its score counts", low=1
    )
    performance_mode: bool = _setting(False, "no detailed statistics of learning_progress")
    replay_score: str = _setting(
        "absolute",
        "what plr ranks levels by: mean absolute advantage, or positive advantage",
        choices=("absolute", "positive"),
    )
    replay_temperature: float = _setting(1.0, "temperature of plr's rank weights, 1 / rank ** (1 / X)", above=0)
    replay_staleness: float = _setting(
        0.1, "share of plr's draws by the time since a level was last played", low=0, high=1
    )

    start_states: bool = setting(
        False,
        "on levels that are never won, begin a part of the episodes along demonstrations or the agent's own best runs",
        flag=_STARTS,
    )
    start_share: float = setting(
        0.25,
        "share of such a level's episodes that begin there; the others begin at its spawn",
        flag="start-states-share",
        needs=_STARTS,
        above=0,
        high=0.25,
    )
    start_threshold: float = setting(
        0.2,
        "success of these episodes above which they begin earlier and earlier",
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
            raise ConfigError(
                f"is above --curriculum-threshold {self.threshold}; lower it, or use "
                "--no-enable-auto-curriculum-adjustment",
                "min_threshold",
                self.min_threshold,
            )

    @property
    def chosen(self) -> str:
        """Name of the active strategy.

        ``use_curriculum`` without ``strategy``: the strategy whose own settings were given, else DEFAULT_STRATEGY.
        """
        if self.strategy or not self.use_curriculum:
            return self.strategy or "uniform"
        given = (STRATEGIES_WITH.get(one.name, ()) for one in fields(self) if getattr(self, one.name) != one.default)
        return next((owners[0] for owners in given if len(owners) == 1), DEFAULT_STRATEGY)

    def threshold_of(self, stage: str) -> float:
        """Success that ends this stage, before anything is lowered."""
        return self._of_stages("stage_thresholds").get(stage, self.threshold)

    @property
    def stages_named(self) -> set[str]:
        """Stages that have settings of PPO of their own."""
        return {stage for name in STAGE_SETTINGS for stage in self._of_stages(name)}

    def changes_in(self, stage: str) -> dict[str, float | None]:
        """Settings of PPO, by their names, that are others while this stage is learned."""
        own = {name: self._of_stages(name).get(stage) for name in STAGE_SETTINGS}
        changes: dict[str, float | None] = {}
        if own["stage_gamma"] is not None:
            changes |= {"gamma": own["stage_gamma"], "pbrs_gamma": None}  # shaping uses the same discount
        if own["stage_learning_rate"] is not None:
            changes["learning_rate"] = own["stage_learning_rate"]
        if own["stage_ent_coef"] is not None:
            changes |= dict.fromkeys(("ent_coef_start", "ent_coef_end"), own["stage_ent_coef"])
        return changes

    def _of_stages(self, name: str) -> dict[str, float]:
        return {stage: float(value) for stage, value in (text.split("=") for text in getattr(self, name))}

    def _check_strategy(self) -> None:
        """Raise ConfigError for a setting that the active strategy does not have."""
        if self.chosen not in CURRICULA:
            raise ConfigError(f"known strategies are {', '.join(CURRICULA)}", "strategy", self.strategy)
        for one in fields(self):
            owners = STRATEGIES_WITH.get(one.name, CURRICULA)
            if self.chosen not in owners and getattr(self, one.name) != one.default:
                advice = f"has no effect with --curriculum {self.chosen}, only with {', '.join(owners)}; leave it out"
                raise ConfigError(advice, one.name, getattr(self, one.name))

    def _check_formulas(self) -> None:
        """Raise ConfigError for a given learning-progress setting that the chosen formulas do not use."""
        unused = {}
        if self.formulas == "mended":
            unused["lp_exploration_bonus"] = "has no effect without --curriculum-formulas original"
        if self.basic_progress:
            unused |= dict.fromkeys(_OF_TWO_AVERAGES, "has no effect with --curriculum-basic-progress")
        if self.lp_temperature:
            unused["lp_amplification"] = "has no effect with --curriculum-lp-temperature, a softmax without z-scores"
        for name, advice in unused.items():
            if getattr(self, name) is not None:
                raise ConfigError(f"{advice}; leave it out", name, getattr(self, name))

    def _check_stages(self, name: str, above: float, at_most: float) -> None:
        """ConfigError unless a setting of single stages is STAGE=X, with X within its limits."""
        for text in getattr(self, name):
            stage, _, value = text.partition("=")
            if not (stage and _NUMBER.fullmatch(value) and above < float(value) <= at_most):
                limits = f"above {above:g}" if above >= 0 else "at least 0"
                limits += f" and at most {at_most:g}" if at_most < math.inf else ""
                raise ConfigError(f"give STAGE=X with X {limits}", name, text)
