"""Settings for all networks of an experiment: deep heads, frame stacks, subtasks."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from nppsim.observe.stacking import MOST_FRAMES, PADDINGS, Stacking
from nppsim.settings import check_settings, setting
from rl.policy.architectures import MAX_BLOCKS, MAX_SUBTASK_DECISIONS, WITH_SUBTASKS, ResidualBlocks

DEEP = "use-deep-resnet-policy"
VISUAL, STATE = "enable-visual-frame-stacking", "enable-state-stacking"
HIERARCHICAL = "use-hierarchical-ppo"

_deep = partial(setting, needs="heads.deep")
_hierarchical = partial(setting, needs="hierarchy.hierarchical")


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
