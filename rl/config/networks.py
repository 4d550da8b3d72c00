"""Settings for all networks of an experiment: deep heads, frame stacks, subtasks."""

from dataclasses import dataclass

from nppsim.errors import ConfigError
from nppsim.observe.stacking import MOST_FRAMES, PADDINGS, Stacking
from nppsim.settings import check_settings, setting
from rl.policy.architectures import MOST_BLOCKS, MOST_DECISIONS, WITH_SUBTASKS, ResidualBlocks

DEEP = "use-deep-resnet-policy"
VISUAL, STATE = "enable-visual-frame-stacking", "enable-state-stacking"
HIERARCHICAL = "use-hierarchical-ppo"


@dataclass(frozen=True)
class HeadsConfig:
    """Deep heads for all networks of an experiment.  An architecture name such as NAME+deep2 gives one network deep heads."""

    deep: bool = setting(
        False, "residual blocks in the heads of actor and critic, as NAME+deepN", flag=DEEP, switch=True
    )
    blocks: int = setting(
        2, "number of residual blocks in each head", flag="deep-resnet-blocks", needs=DEEP, low=1, high=MOST_BLOCKS
    )
    residual: bool = setting(
        True, "add each block's input to its output", flag="deep-resnet-use-residual", needs=DEEP, switch=True
    )
    layer_norm: bool = setting(
        True, "apply layer norm before each block", flag="deep-resnet-use-layer-norm", needs=DEEP, switch=True
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """Return the name of an architecture with these heads."""
        blocks = ResidualBlocks(self.blocks, self.residual, self.layer_norm)
        return f"{architecture}+{blocks.name}" if self.deep else architecture


@dataclass(frozen=True)
class StackingConfig:
    """Frame stacks for all networks of an experiment.  An architecture name such as NAME+state4 gives one network a stack."""

    visual: bool = setting(False, "stack the latest images, as in NAME+visualN", flag=VISUAL, switch=True)
    visual_size: int = setting(4, "images in a stack", flag="visual-stack-size", needs=VISUAL, low=1, high=MOST_FRAMES)
    state: bool = setting(False, "stack the latest state vectors, as in NAME+stateN", flag=STATE, switch=True)
    state_size: int = setting(
        4, "number of state vectors in a stack", flag="state-stack-size", needs=STATE, low=1, high=MOST_FRAMES
    )
    padding: str = setting(
        PADDINGS[0],
        "padding before an episode's first frame: zeros, or that frame",
        flag="frame-stack-padding",
        choices=PADDINGS,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.padding != PADDINGS[0] and max(self.sizes) == 1:
            advice = f"needs stacks of several frames; add --{VISUAL} or --{STATE}"
            raise ConfigError(advice, "--frame-stack-padding", self.padding)

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

    hierarchical: bool = setting(
        False,
        "hierarchical PPO: a high level chooses subtasks, and a low level chooses actions (docs/architectures.md)",
        flag=HIERARCHICAL,
        switch=True,
    )
    update_freq: int = setting(
        50,
        "largest number of decisions per subtask. A completed subtask and a new episode end it sooner",
        flag="high-level-update-freq",
        needs=HIERARCHICAL,
        low=1,
        high=MOST_DECISIONS,
    )
    from_stage: str | None = setting(
        None,
        "category, e.g. medium, from which subtasks are used; earlier stages of the curriculum train with plain PPO. "
        "Default: from the start",
        flag="hierarchical-from-stage",
        needs=HIERARCHICAL,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """Return the name of an architecture with these subtasks."""
        return f"{architecture}+{WITH_SUBTASKS}{self.update_freq}" if self.hierarchical else architecture
