"""Settings of evaluations on dev and test levels, and of their films."""

import math
from dataclasses import dataclass
from typing import ClassVar

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import ConfigError, needed
from nppsim.generate import CATEGORIES
from nppsim.settings import check_settings, setting
from rl.seeds import LARGEST_SEED

FILM_BYTES = 2 << 20  # of one film and its picture; generous
MOST_EPISODES = 1_000_000  # of an evaluation; the records of all are in memory
EVALUATIONS = 20  # during a training, by default
EVALUATIONS_IN_BUDGET = 10  # of a training that ends by the clock
_VIDEOS = "record-eval-videos"
_STOPPING = "enable-early-stopping"


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation on dev levels during training and on test levels at its end, with the same seed each time."""

    flag_prefix: ClassVar[str] = ""
    eval_freq: int | None = setting(
        None, "decisions between evaluations during training; 0: none; default: a twentieth of --total-timesteps", low=0
    )
    eval_every_minutes: float | None = setting(
        None,
        "minutes between them, whatever the speed; with --eval-freq, too, whichever comes first; default: a tenth of "
        "--time-budget-minutes where neither is given",
        above=0,
    )
    periodic_episodes_per_category: int = setting(
        20,
        "episodes of each category in those evaluations",
        flag="eval-episodes-per-category",
        low=1,
        high=MOST_EPISODES,
    )
    num_eval_episodes: int = setting(
        250, "episodes of the final evaluation, spread evenly over the categories", low=1, high=MOST_EPISODES
    )
    skip_final_eval: bool = setting(False, "no final evaluation")
    deterministic: bool = setting(  # off: sampled actions do not repeat the same mistake forever
        False,
        "evaluate the deterministic actions instead of sampled ones",
        flag="deterministic-eval",
        aliases=("deterministic",),
        switch=True,
    )
    seed: int = setting(20_251, "of the evaluations' sampled actions", flag="eval-seed", low=0, high=LARGEST_SEED)
    remote: bool = setting(
        False,
        "evaluate in a separate process while training continues; a result takes effect when the next evaluation is due "
        "(docs/evaluate.md)",
        flag="remote-evaluation",
        switch=True,
    )
    retention_guard: bool = setting(
        True,
        "neither go back to better weights when dev success falls clearly below the BC policy's, nor deliver the "
        "best ones: the last weights are delivered, whatever they can do",
        flag="no-retention-guard",
    )
    early_stopping: bool = setting(False, "end PPO when evaluations no longer improve", flag=_STOPPING)
    early_stopping_patience: int = setting(
        10, "evaluations without improvement before training ends", needs=_STOPPING, low=1
    )
    early_stopping_improvement: float = setting(
        0.01, "rise of the success that counts as improvement", needs=_STOPPING, low=0, below=1
    )
    early_stopping_min_evaluations: int = setting(
        5, "evaluations before training can end early", needs=_STOPPING, low=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.eval_every_minutes is not None and self.eval_freq == 0:
            raise ConfigError(
                "--eval-freq 0 means none; leave one of them out", "eval_every_minutes", self.eval_every_minutes
            )
        if self.remote and not self.in_training:
            advice = (
                "--remote-evaluation is about evaluations during training; give an --eval-freq above 0, or leave it out"
            )
            raise ConfigError(advice, "eval_freq", self.eval_freq)
        if self.early_stopping and not self.in_training:
            advice = "--enable-early-stopping needs evaluations during training; give an --eval-freq above 0"
            raise ConfigError(advice, "eval_freq", self.eval_freq)

    @property
    def in_training(self) -> bool:
        """True if there are evaluations during training."""
        return self.eval_freq != 0

    def periods(self, total_timesteps: int, time_budget_minutes: float | None) -> tuple[int, float]:
        """(decisions, seconds) between evaluations, settled for a training of that length; 0: never for this reason."""
        if not self.in_training:
            return 0, 0.0
        by_time = 60 * (self.eval_every_minutes or 0.0)
        if self.eval_freq is not None or by_time:
            return self.eval_freq or 0, by_time
        if time_budget_minutes is not None:
            return 0, 60 * time_budget_minutes / EVALUATIONS_IN_BUDGET
        return math.ceil(total_timesteps / EVALUATIONS), 0.0

    def episodes_per_category(self, categories: int) -> int:
        """Episodes of each category in the final evaluation: ``num_eval_episodes`` shared out, rounded up."""
        return math.ceil(self.num_eval_episodes / categories)


@dataclass(frozen=True)
class VideoConfig:
    """Films of the final evaluation."""

    flag_prefix: ClassVar[str] = ""
    record_eval_videos: bool = setting(False, "film the final evaluation", flag=_VIDEOS, aliases=("record-videos",))
    max_videos_per_category: int = setting(10, "films of each category", needs=_VIDEOS, low=1)
    video_fps: int = setting(
        30, f"film frames per second; the game has {FRAMES_PER_SECOND}", needs=_VIDEOS, low=1, high=FRAMES_PER_SECOND
    )

    ghost: bool = setting(
        False, "films show a run of the planner, too, pale, where it finds one", flag="video-ghost", needs=_VIDEOS
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def check_packages(self) -> None:
        """MissingPackageError if films are wanted and what makes them is not installed."""
        if self.record_eval_videos:
            needed("av", "video")
            needed("PIL", "video")

    def expected_bytes(self) -> int:
        """Disk space that the films of one evaluation may take."""
        return FILM_BYTES * self.max_videos_per_category * len(CATEGORIES) if self.record_eval_videos else 0
