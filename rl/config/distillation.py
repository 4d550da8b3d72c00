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
    """Settings of distillation (docs/distillation.md), which ends after ``decisions`` or ``minutes``, whichever is first."""

    flag_prefix: ClassVar[str] = "teacher-"
    name: str | None = setting(
        None, "distil an agent into the BC policy: a checkpoint, or the first of --architectures", flag=_TEACHER
    )
    decisions: int = setting(1_000_000, "number of decisions of the student in distillation", needs=_TEACHER, low=1)
    minutes: float | None = setting(
        None, "limit in minutes, besides --teacher-decisions; default: none", needs=_TEACHER, above=0
    )
    learning_rate: float = setting(
        2e-3, "highest learning rate of distillation; it begins and ends with a tenth", needs=_TEACHER, above=0, high=1
    )
    epochs: int = setting(
        4, "passes over each rollout of distillation, every second one over mirror images", needs=_TEACHER, low=1
    )
    minibatch_size: int = setting(1024, "decisions per gradient step of distillation", needs=_TEACHER, low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.name is not None and not self.name:
            raise ConfigError("is empty; give a checkpoint or an architecture, or leave it out", "name", self.name)

    @property
    def file(self) -> Path | None:
        """The teacher's checkpoint; None without a teacher, or if ``name`` is an architecture."""
        return Path(self.name) if self.name and Path(self.name).suffix == ".safetensors" else None
