"""Settings of distillation from a trained agent, between imitation and PPO."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from nppsim.settings import check_settings, require, setting

IMITATION = "imitation"  # heading of flags in the help
MAX_GRAD_NORM = 1.0

_setting = partial(setting, needs="teacher.name")


@dataclass(frozen=True)
class DistillationConfig:
    """Settings of distillation (docs/distillation.md), which ends after ``decisions`` or ``minutes``, whichever is first."""

    flag_prefix: ClassVar[str] = "teacher-"
    group: ClassVar[str] = IMITATION
    name: str | None = setting(
        None, "agent to distil into the BC policy: checkpoint, or first architecture", flag="teacher"
    )
    decisions: int = _setting(1_000_000, "number of decisions of the student in distillation", low=1)
    minutes: float | None = _setting(None, "limit in minutes, besides --teacher-decisions; default: none", above=0)
    learning_rate: float = _setting(2e-3, "highest learning rate; it begins and ends with a tenth", above=0, high=1)
    epochs: int = _setting(4, "passes over each rollout of distillation, every second one over mirror images", low=1)
    minibatch_size: int = _setting(1024, "decisions per gradient step of distillation", low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        require(self.name != "", "is empty; give a checkpoint or an architecture, or leave it out", "name")

    @property
    def file(self) -> Path | None:
        """The teacher's checkpoint; None without a teacher, or if ``name`` is an architecture."""
        return Path(self.name) if self.name and Path(self.name).suffix == ".safetensors" else None
