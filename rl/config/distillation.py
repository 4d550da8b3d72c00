"""Settings of distillation from a trained agent, between imitation and PPO."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nppsim.errors import ConfigError
from nppsim.settings import check_settings, setting

MAX_GRAD_NORM = 1.0
_TEACHER = "teacher"


@dataclass(frozen=True)
class DistillationConfig:
    """Settings of distillation (docs/distillation.md); the first limit reached, decisions or minutes, ends it."""

    flag_prefix: ClassVar[str] = "teacher-"
    name: str | None = setting(
        None,
        "distil this agent into the BC policy before PPO: a checkpoint, or the first architecture of this experiment",
        flag=_TEACHER,
    )
    decisions: int = setting(1_000_000, "of the student, on which the teacher is evaluated", needs=_TEACHER, low=1)
    minutes: float | None = setting(
        None, "limit of the duration, in addition to --teacher-decisions", needs=_TEACHER, above=0
    )
    learning_rate: float = setting(
        1e-3, "of distillation, at the start; falls to a tenth", needs=_TEACHER, above=0, high=1
    )
    epochs: int = setting(2, "distillation passes over each rollout", needs=_TEACHER, low=1)
    minibatch_size: int = setting(1024, "decisions per gradient step of distillation", needs=_TEACHER, low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.name is not None and not self.name:
            raise ConfigError("is empty; give a checkpoint or an architecture, or leave it out", "name", self.name)

    @property
    def file(self) -> Path | None:
        """Checkpoint of the teacher, if a file was given."""
        return Path(self.name) if self.name and Path(self.name).suffix == ".safetensors" else None
