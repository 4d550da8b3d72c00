"""Settings of the rewards: a preset and weights that replace single weights of the preset.

RewardSettings(preset="default", win=4.0).weights      # RewardConfig of the simulator
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from nppsim.errors import ConfigError, did_you_mean
from nppsim.reward import PATH_SHAPING, PRESETS, STRAIGHT_LINE_SHAPING, RewardConfig
from nppsim.settings import check_settings, require, setting

POTENTIALS = {"path": PATH_SHAPING, "straight_line": STRAIGHT_LINE_SHAPING}
_BUILT_IN = frozenset(PRESETS)


def register(name: str, weights: RewardConfig) -> None:
    """Register a preset, or replace a registered one; ConfigError for the name of a built-in preset."""
    if name in _BUILT_IN:
        raise ConfigError(f"reward preset {name!r} is part of the project; register yours under another name")
    PRESETS[name] = weights


def _weight(help: str, **limits: Any) -> Any:
    return setting(None, f"{help}; default: the preset's", **limits)


@dataclass(frozen=True)
class RewardSettings:
    """Reward weights, as in ``nppsim.reward.RewardConfig``; None stands for the preset's weight."""

    flag_prefix: ClassVar[str] = "reward-"
    group: ClassVar[str] = "PPO"
    preset: str = setting("default", "preset of reward weights; --plugin registers others (docs/own_reward.md)")
    win: float | None = _weight("reward for reaching the exit")
    death: float | None = _weight("reward for dying, normally below 0")
    switch: float | None = _weight("reward for the exit switch, once")
    time: float | None = _weight("reward per frame")
    shaping: float | None = _weight("scale of the shaping potential, which grows from the spawn to the exit", low=0)
    potential: str | None = _weight(
        "basis of the shaping potential: share of the path covered, or straight distance to the objective",
        choices=tuple(POTENTIALS),
    )
    closest: float | None = _weight("reward per px by which the smallest distance to the objective shrinks")
    proximity: float | None = _weight("reward for coming within 50 px of an objective, once each")
    exploration: float | None = _weight("reward for the first visit of a cell")
    force: bool = setting(False, "do not warn that dying pays more than winning or surviving", flag="force")

    def __post_init__(self) -> None:
        check_settings(self)
        known = f"{', '.join(PRESETS)} and those of --plugin, e.g. examples/ablations.py{did_you_mean(self.preset, PRESETS)}"
        require(self.preset in PRESETS, f"is not a preset; known: {known}", "preset", self.preset)
        advice = "has no effect with --reward-shaping 0; leave one of them out"
        require(self.potential is None or self.shaping != 0, advice, "potential", self.potential)

    @property
    def weights(self) -> RewardConfig:
        """The preset's weights with the given deviations."""
        changed = {term.name: value for term in fields(RewardConfig) if (value := getattr(self, term.name)) is not None}
        if self.potential is not None:
            changed["potential"] = POTENTIALS[self.potential]
        return replace(PRESETS[self.preset], **changed)

    @property
    def is_default(self) -> bool:
        """True if the weights equal those of the default preset."""
        return self.weights == PRESETS["default"]

    def __str__(self) -> str:
        """Return the preset's name and the deviations from it."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        return ", ".join(
            [self.preset, *(f"{name} {value}" for name, value in values.items() if name not in ("preset", "force"))]
        )
