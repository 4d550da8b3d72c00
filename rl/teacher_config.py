"""The settings of lessons: what a policy learns from a trained agent, between imitation and PPO."""

from dataclasses import dataclass
from pathlib import Path

from nppsim.errors import ConfigError
from nppsim.settings import check_settings, setting

MAX_GRAD_NORM = 1.0  # longer gradients of a lesson are shortened to this norm
_TEACHER = "teacher"


@dataclass(frozen=True)
class TeacherConfig:
    """Who teaches, and for how long; docs/distillation.md says what it is for.

    Decisions and minutes are limits, both: whichever is reached first ends the lessons.
    """

    name: str | None = setting(
        None,
        "an agent that the cloned policy learns from before PPO: a checkpoint, or an architecture of this experiment that "
        "comes before the others",
        flag=_TEACHER,
    )
    decisions: int = setting(
        1_000_000, "of the pupil, that the teacher judges", flag="teacher-decisions", needs=_TEACHER, low=1
    )
    minutes: float | None = setting(
        None,
        "after which lessons end, however few those decisions are",
        flag="teacher-minutes",
        needs=_TEACHER,
        above=0,
    )
    learning_rate: float = setting(
        1e-3,
        "at the start of the lessons; falls to a tenth",
        flag="teacher-learning-rate",
        needs=_TEACHER,
        above=0,
        high=1,
    )
    epochs: int = setting(2, "passes over a lesson", flag="teacher-epochs", needs=_TEACHER, low=1)
    minibatch_size: int = setting(
        1024, "decisions per gradient step of a lesson", flag="teacher-minibatch-size", needs=_TEACHER, low=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.name is not None and not self.name:
            raise ConfigError("is empty; give a checkpoint or an architecture, or leave it out", "name", self.name)

    @property
    def file(self) -> Path | None:
        """The checkpoint that teaches, where one was given."""
        return Path(self.name) if self.name and Path(self.name).suffix == ".safetensors" else None
