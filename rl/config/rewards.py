"""Settings of the rewards: a preset and weights that replace single weights of the preset.

RewardSettings(preset="legacy_october", win=4.0).weights      # RewardConfig of the simulator
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from nppsim.errors import ConfigError, did_you_mean
from nppsim.reward import PATH_SHAPING, PRESETS, STRAIGHT_LINE_SHAPING, RewardConfig
from nppsim.settings import check_settings, setting

POTENTIALS = {"path": PATH_SHAPING, "straight_line": STRAIGHT_LINE_SHAPING}
_SHIPPED = frozenset(PRESETS)


def register(name: str, weights: RewardConfig) -> None:
    """Register a preset, or replace a registered one; ConfigError for the name of a built-in preset."""
    if name in _SHIPPED:
        raise ConfigError(f"reward preset {name!r} is part of the project; register yours under another name")
    PRESETS[name] = weights


@dataclass(frozen=True)
class RewardSettings:
    """Reward weights, as in ``nppsim.reward.RewardConfig``; None stands for the preset's weight."""

    flag_prefix: ClassVar[str] = "reward-"
    preset: str = setting("default", f"preset of reward terms and weights: {', '.join(PRESETS)}")
    win: float | None = setting(None, "reward for reaching the exit; default: the preset's")
    death: float | None = setting(None, "reward for dying, normally below 0; default: the preset's")
    switch: float | None = setting(None, "reward for the exit switch, once; default: the preset's")
    time: float | None = setting(None, "reward per frame; default: the preset's")
    shaping: float | None = setting(
        None, "scale of the shaping potential, which grows from the spawn to the exit; default: the preset's", low=0
    )
    potential: str | None = setting(
        None,
        "basis of the shaping potential: share of the path covered, or straight distance to the objective; default: "
        "the preset's",
        choices=tuple(POTENTIALS),
    )
    closest: float | None = setting(
        None, "reward per px by which the smallest distance to the objective shrinks; default: the preset's"
    )
    proximity: float | None = setting(
        None, "reward for coming within 50 px of an objective, once each; default: the preset's"
    )
    exploration: float | None = setting(None, "reward for the first visit of a cell; default: the preset's")
    force: bool = setting(
        False, "do not warn that dying pays more than winning or staying alive under these rewards", flag="force"
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.preset not in PRESETS:
            known = ", ".join(PRESETS) + did_you_mean(self.preset, PRESETS)
            raise ConfigError(f"is not a preset; known: {known}", "preset", self.preset)
        if self.potential is not None and self.shaping == 0:
            raise ConfigError(
                "has no effect with --reward-shaping 0; leave one of them out", "potential", self.potential
            )

    @property
    def weights(self) -> RewardConfig:
        """The preset's weights with the given deviations."""
        names = [one.name for one in fields(RewardConfig)]
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.potential is not None:
            given["potential"] = POTENTIALS[self.potential]
        return replace(PRESETS[self.preset], **given)

    @property
    def is_default(self) -> bool:
        """True if the weights equal those of the default preset."""
        return self.weights == PRESETS["default"]

    def __str__(self) -> str:
        """Return the preset's name and the deviations from it."""
        own = [
            f"{one.name} {value}"
            for one in fields(self)
            if one.name not in ("preset", "force") and (value := getattr(self, one.name)) is not None
        ]
        return ", ".join([self.preset, *own])
