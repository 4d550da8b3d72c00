"""Settings of evaluations and films."""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import import_optional
from nppsim.generate import CATEGORIES
from nppsim.pictures.schemes import CLASSIC, SCHEMES
from nppsim.settings import check_settings, require, setting
from rl.policy.constants import PATIENCE
from rl.seeds import LARGEST_SEED

FILM_BYTES = 2 << 20  # upper estimate of the size of one film and its picture
MOST_EPISODES = 1_000_000  # maximum number per evaluation; their records are all in memory
EVALUATIONS = 20  # default number of evaluations per training without a time budget
EVALUATIONS_IN_BUDGET = 10  # default number of evaluations per training with a time budget

_video = partial(setting, needs="video.record_eval_videos")
_stopping = partial(setting, needs="evaluation.early_stopping")


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluations on dev levels during training and on test levels afterwards, all with the same seed."""

    flag_prefix: ClassVar[str] = ""
    group: ClassVar[str] = "evaluation"
    eval_freq: int | None = setting(
        None, "decisions between evaluations; 0: none; default: --total-timesteps / 20", low=0
    )
    eval_every_minutes: float | None = setting(
        None, "minutes between evaluations; default: --time-budget-minutes / 10, without --eval-freq", above=0
    )
    periodic_episodes_per_category: int = setting(
        20, "episodes per category during training", flag="eval-episodes-per-category", low=1, high=MOST_EPISODES
    )
    num_eval_episodes: int = setting(
        250, "episodes of the final evaluation, over all categories", low=1, high=MOST_EPISODES
    )
    skip_final_eval: bool = setting(False, "skip the final evaluation")
    deterministic: bool = setting(  # off by default: sampled actions escape from endless repetitions
        False,
        "evaluate greedy, not sampled actions",
        flag="deterministic-eval",
        aliases=("deterministic",),
        switch=True,
    )
    exploration_patience: int = setting(
        PATIENCE, "decisions without progress before evaluated agents explore; 0: never", low=0
    )
    seed: int = setting(20_251, "random seed of sampled actions", flag="eval-seed", low=0, high=LARGEST_SEED)
    remote: bool = setting(
        False, "evaluate in a separate process, in parallel (docs/evaluate.md)", flag="remote-evaluation", switch=True
    )
    retention_guard: bool = setting(
        True,
        "deliver the last weights instead of the best on the dev levels, and never restore the best during training",
        flag="no-retention-guard",
    )
    early_stopping: bool = setting(False, "end PPO when evaluations no longer improve", flag="enable-early-stopping")
    early_stopping_patience: int = _stopping(10, "evaluations without improvement after which training ends", low=1)
    early_stopping_improvement: float = _stopping(
        0.01, "smallest rise of success that is an improvement", low=0, below=1
    )
    early_stopping_min_evaluations: int = _stopping(5, "evaluations before training can end early", low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        advice = "--eval-freq 0 disables evaluations; leave one of them out"
        require(self.in_training or not self.eval_every_minutes, advice, "eval_every_minutes", self.eval_every_minutes)
        for flag, requested in (("remote-evaluation", self.remote), ("enable-early-stopping", self.early_stopping)):
            advice = f"--{flag} needs evaluations during training; give an --eval-freq above 0"
            require(self.in_training or not requested, advice, "eval_freq", self.eval_freq)

    @property
    def in_training(self) -> bool:
        """True if policies are evaluated during training."""
        return self.eval_freq != 0

    def periods(self, total_timesteps: int, time_budget_minutes: float | None) -> tuple[int, float]:
        """Return (decisions, seconds) between evaluations during training; 0 for a period that is not used."""
        if not self.in_training:
            return 0, 0.0
        by_time = 60 * (self.eval_every_minutes or 0.0)
        if self.eval_freq is not None or by_time:
            return self.eval_freq or 0, by_time
        if time_budget_minutes is not None:
            return 0, 60 * time_budget_minutes / EVALUATIONS_IN_BUDGET
        return math.ceil(total_timesteps / EVALUATIONS), 0.0

    def episodes_per_category(self, categories: int) -> int:
        """Return the number of episodes per category in the final evaluation.  categories: number of categories."""
        return math.ceil(self.num_eval_episodes / categories)


@dataclass(frozen=True)
class VideoConfig:
    """Films of the final evaluation."""

    flag_prefix: ClassVar[str] = ""
    group: ClassVar[str] = "evaluation"
    record_eval_videos: bool = setting(False, "film the final evaluation", aliases=("record-videos",))
    max_videos_per_category: int = _video(10, "largest number of films per category", low=1)
    video_fps: int = _video(30, f"frames per second; the game: {FRAMES_PER_SECOND}", low=1, high=FRAMES_PER_SECOND)
    video_colours: str = _video(CLASSIC, "colour scheme of films and route pictures", choices=tuple(SCHEMES))
    ghost: bool = _video(False, "films also show a run of the planner, if found", flag="video-ghost")

    def __post_init__(self) -> None:
        check_settings(self)

    def check_packages(self) -> None:
        """Raise MissingPackageError if films are enabled and their packages are missing."""
        if self.record_eval_videos:
            import_optional("av", "video")
            import_optional("PIL", "video")

    def expected_bytes(self) -> int:
        """Return an upper estimate of the disk space of the films of one evaluation."""
        return FILM_BYTES * self.max_videos_per_category * len(CATEGORIES) if self.record_eval_videos else 0
