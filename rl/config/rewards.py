"""Settings of the rewards: a preset, and weights that differ from it.

RewardSettings(preset="legacy_october", win=4.0).weights      # RewardConfig, as the simulator takes it
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from nppsim.errors import ConfigError, did_you_mean
from nppsim.reward import PATH_SHAPING, PRESETS, STRAIGHT_LINE_SHAPING, RewardConfig
from nppsim.settings import check_settings, setting

POTENTIALS = {"path": PATH_SHAPING, "straight_line": STRAIGHT_LINE_SHAPING}
_SHIPPED = frozenset(PRESETS)


def register(name: str, weights: RewardConfig) -> None:
    """Register weights as a preset, replacing an earlier one of the same name.

    ConfigError for a shipped name.
    """
    if name in _SHIPPED:
        raise ConfigError(f"reward preset {name!r} is shipped with the project; register yours under another name")
    PRESETS[name] = weights


@dataclass(frozen=True)
class RewardSettings:
    """Reward weights; None means that of the preset.  ``nppsim.reward.RewardConfig`` describes the terms."""

    flag_prefix: ClassVar[str] = "reward-"
    preset: str = setting("default", f"reward terms and their sizes: {', '.join(PRESETS)}")
    win: float | None = setting(None, "for reaching the exit; default here and below: the preset's")
    death: float | None = setting(None, "for dying, below 0")
    switch: float | None = setting(None, "for the exit switch, once")
    time: float | None = setting(None, "per frame")
    shaping: float | None = setting(
        None, "size of the potential, which grows from the start of a level to its exit", low=0
    )
    potential: str | None = setting(
        None,
        "what that potential measures: the share of the path covered, or the straight distance to the objective",
        choices=tuple(POTENTIALS),
    )
    closest: float | None = setting(None, "per px by which the smallest distance to the objective shrinks")
    proximity: float | None = setting(None, "once per objective, within 50 px of it")
    exploration: float | None = setting(None, "for the first visit of a place")
    force: bool = setting(
        False, "train although dying pays with these weights: more than winning, or than staying alive", flag="force"
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.preset not in PRESETS:
            known = ", ".join(PRESETS) + did_you_mean(self.preset, PRESETS)
            raise ConfigError(f"no such preset; known: {known}", "preset", self.preset)
        if self.potential not in (None, *POTENTIALS):
            raise ConfigError(f"give {' or '.join(POTENTIALS)}", "potential", self.potential)
        if self.potential is not None and self.shaping == 0:
            raise ConfigError(
                "has no effect with --reward-shaping 0; leave one of them out", "potential", self.potential
            )

    @property
    def weights(self) -> RewardConfig:
        """The preset's weights, overridden by those given."""
        names = [one.name for one in fields(RewardConfig)]
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.potential is not None:
            given["potential"] = POTENTIALS[self.potential]
        return replace(PRESETS[self.preset], **given)

    @property
    def is_default(self) -> bool:
        """True for the weights of the default preset."""
        return self.weights == PRESETS["default"]

    def __str__(self) -> str:
        """The preset's name and what differs from it."""
        own = [
            f"{one.name} {value}"
            for one in fields(self)
            if one.name not in ("preset", "force") and (value := getattr(self, one.name)) is not None
        ]
        return ", ".join([self.preset, *own])
