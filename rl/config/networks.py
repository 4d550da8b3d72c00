"""Settings that change every network of an experiment: deep heads, frame stacks, subtasks."""

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
    """Deep heads for every network of the experiment; ``--architectures NAME NAME+deep2`` compares with and without."""

    deep: bool = setting(
        False, "residual blocks in the heads of actor and critic, as NAME+deepN has them", flag=DEEP, switch=True
    )
    blocks: int = setting(
        2, "residual blocks in each head", flag="deep-resnet-blocks", needs=DEEP, low=1, high=MOST_BLOCKS
    )
    residual: bool = setting(
        True, "a block adds to what it is given", flag="deep-resnet-use-residual", needs=DEEP, switch=True
    )
    layer_norm: bool = setting(
        True, "layer norm before each block", flag="deep-resnet-use-layer-norm", needs=DEEP, switch=True
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """The name of an architecture with these heads."""
        blocks = ResidualBlocks(self.blocks, self.residual, self.layer_norm)
        return f"{architecture}+{blocks.name}" if self.deep else architecture


@dataclass(frozen=True)
class StackingConfig:
    """Stacks of frames for every network of the experiment; ``--architectures NAME NAME+state4`` compares both."""

    visual: bool = setting(False, "show the latest images together, as NAME+visualN has them", flag=VISUAL, switch=True)
    visual_size: int = setting(4, "images in a stack", flag="visual-stack-size", needs=VISUAL, low=1, high=MOST_FRAMES)
    state: bool = setting(
        False, "show the latest state vectors together, as NAME+stateN has them", flag=STATE, switch=True
    )
    state_size: int = setting(
        4, "state vectors in a stack", flag="state-stack-size", needs=STATE, low=1, high=MOST_FRAMES
    )
    padding: str = setting(
        PADDINGS[0],
        "padding before an episode's first frame: zeros, or that frame repeated",
        flag="frame-stack-padding",
        choices=PADDINGS,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.padding not in PADDINGS:
            raise ConfigError(f"give {' or '.join(PADDINGS)}", "padding", self.padding)
        if self.padding != PADDINGS[0] and max(self.sizes) == 1:
            raise ConfigError(
                f"pads stacks of several frames; give --{VISUAL} or --{STATE}, too",
                "--frame-stack-padding",
                self.padding,
            )

    @property
    def sizes(self) -> tuple[int, int]:
        """Images and state vectors in a stack."""
        return self.visual_size if self.visual else 1, self.state_size if self.state else 1

    def named(self, architecture: str) -> str:
        """The name of an architecture with these stacks."""
        stacks = Stacking(*self.sizes, self.padding).name
        return f"{architecture}+{stacks}" if stacks else architecture


@dataclass(frozen=True)
class HierarchyConfig:
    """Hierarchical PPO; see ``rl.ppo.hierarchy``."""

    hierarchical: bool = setting(
        False,
        "hierarchical PPO: a high level chooses subtasks, a low level acts on them (docs/architectures.md)",
        flag=HIERARCHICAL,
        switch=True,
    )
    update_freq: int = setting(
        50,
        "decisions after which a new subtask is chosen at the latest; when it is completed, and with each episode, sooner",
        flag="high-level-update-freq",
        needs=HIERARCHICAL,
        low=1,
        high=MOST_DECISIONS,
    )
    from_stage: str | None = setting(
        None,
        "category of levels, e.g. medium: plain PPO until the curriculum has come to it, without a jump in the policy then",
        flag="hierarchical-from-stage",
        needs=HIERARCHICAL,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """The name of an architecture with these subtasks."""
        return f"{architecture}+{WITH_SUBTASKS}{self.update_freq}" if self.hierarchical else architecture
