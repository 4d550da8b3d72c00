"""Settings for all networks of an experiment: look-ahead, deep heads, frame stacks, subtasks."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from nppsim.observe.foresight_settings import Foresight
from nppsim.observe.stacking import MOST_FRAMES, PADDINGS, Stacking
from nppsim.settings import check_settings, same_setting, setting
from rl.policy.architectures import (
    MAX_BLOCKS,
    MAX_SUBTASK_DECISIONS,
    SHIELDS,
    UNSHIELDED,
    WITH_SUBTASKS,
    ResidualBlocks,
    get_architecture,
)

DEEP = "use-deep-resnet-policy"
VISUAL, STATE = "enable-visual-frame-stacking", "enable-state-stacking"
HIERARCHICAL = "use-hierarchical-ppo"

_deep = partial(setting, needs="heads.deep")
_hierarchical = partial(setting, needs="hierarchy.hierarchical")


@dataclass(frozen=True)
class ForesightConfig:
    """Look-ahead of all networks that observe it.  A name such as NAME+horizon20+unshielded sets that of one network."""

    group: ClassVar[str] = "networks"
    horizon: int = same_setting(Foresight, "horizon")
    branches: int = same_setting(Foresight, "branches")
    escapes: int = same_setting(Foresight, "escapes")
    noise: float = same_setting(Foresight, "noise")
    shield: str = setting(
        SHIELDS[0],
        "penalty: lower the logits of actions that look-ahead calls deadly; off: as NAME+unshielded",
        flag="foresight-shield",
        choices=SHIELDS,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        Foresight(self.horizon, self.branches, self.escapes, self.noise)  # ConfigError for invalid values

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of an architecture's name for these settings; () for the defaults."""
        name = Foresight(self.horizon, self.branches, self.escapes, self.noise).name
        return tuple(filter(None, (name, UNSHIELDED if self.shield == "off" else "")))

    def named(self, architecture: str) -> str:
        """Return the name of an architecture with these settings; the same name if it does not observe look-ahead."""
        if not self.suffixes or "foresight" not in get_architecture(architecture).observations:
            return architecture
        plain, *others = architecture.split("+")
        return "+".join((plain, *self.suffixes, *others))


@dataclass(frozen=True)
class HeadsConfig:
    """Deep heads for all networks of an experiment.  An architecture name such as NAME+deep2 gives one network deep heads."""

    group: ClassVar[str] = "networks"
    deep: bool = setting(False, "residual blocks in actor and critic, as NAME+deepN", flag=DEEP, switch=True)
    blocks: int = _deep(2, "residual blocks in each head", flag="deep-resnet-blocks", low=1, high=MAX_BLOCKS)
    residual: bool = _deep(True, "add each block's input to its output", flag="deep-resnet-use-residual", switch=True)
    layer_norm: bool = _deep(True, "apply layer norm before each block", flag="deep-resnet-use-layer-norm", switch=True)

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """Return the name of an architecture with these heads."""
        blocks = ResidualBlocks(self.blocks, self.residual, self.layer_norm)
        return f"{architecture}+{blocks.name}" if self.deep else architecture


@dataclass(frozen=True)
class StackingConfig:
    """Frame stacks for all networks of an experiment.  An architecture name such as NAME+state4 gives one network a stack."""

    group: ClassVar[str] = "networks"
    visual: bool = setting(False, "stack the latest images, as in NAME+visualN", flag=VISUAL, switch=True)
    visual_size: int = setting(
        4, "images in a stack", flag="visual-stack-size", needs="stacking.visual", low=1, high=MOST_FRAMES
    )
    state: bool = setting(False, "stack the latest state vectors, as in NAME+stateN", flag=STATE, switch=True)
    state_size: int = setting(
        4, "state vectors in a stack", flag="state-stack-size", needs="stacking.state", low=1, high=MOST_FRAMES
    )
    padding: str = setting(
        PADDINGS[0],
        "padding before an episode's first frame: zeros, or that frame",
        flag="frame-stack-padding",
        needs="stacking.visual or stacking.state",
        choices=PADDINGS,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def sizes(self) -> tuple[int, int]:
        """(number of images, number of state vectors) in a stack; 1 without stacking."""
        return self.visual_size if self.visual else 1, self.state_size if self.state else 1

    def named(self, architecture: str) -> str:
        """Return the name of an architecture with these stacks."""
        stacks = Stacking(*self.sizes, self.padding).name
        return f"{architecture}+{stacks}" if stacks else architecture


@dataclass(frozen=True)
class HierarchyConfig:
    """Settings of hierarchical PPO (``rl.ppo.variants.hierarchical``)."""

    group: ClassVar[str] = "networks"
    hierarchical: bool = setting(
        False, "hierarchical PPO: subtasks, then actions (docs/architectures.md)", flag=HIERARCHICAL, switch=True
    )
    update_freq: int = _hierarchical(
        50, "largest number of decisions per subtask", flag="high-level-update-freq", low=1, high=MAX_SUBTASK_DECISIONS
    )
    from_stage: str | None = _hierarchical(
        None, "category from which subtasks are used; default: from the start", flag="hierarchical-from-stage"
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """Return the name of an architecture with these subtasks."""
        return f"{architecture}+{WITH_SUBTASKS}{self.update_freq}" if self.hierarchical else architecture
