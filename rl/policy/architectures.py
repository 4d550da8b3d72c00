"""The architectures: which observations each network reads, and the sizes of its parts.

This table is the only one: flags, the hardware plan and the networks themselves (``rl.policy.networks``) read it.
"""

from dataclasses import dataclass, replace

from nppsim.errors import UserError, did_you_mean
from nppsim.observe import layout
from rl.policy.heads import ResidualBlocks


class ArchitectureError(UserError, ValueError):
    """An architecture name that is unknown or not built yet."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of one network; 0 switches an encoder off.

    vectors: one MLP per entry, ((float keys, neighbours in layout order), (layer sizes)).
    player_frame, global_view, surroundings: output size of the encoder of that uint8 key.
    fusion: layers after the concatenation, shared by actor and critic; the last is the feature size.
    heads: layers of the actor and, separately, of the critic, before their output layers.
    deep: residual blocks in their place, as wide as the last of them; None: plain layers.
    """

    name: str
    description: str
    vectors: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...]
    player_frame: int = 0
    global_view: int = 0
    surroundings: int = 0
    fusion: tuple[int, ...] = (256,)
    heads: tuple[int, ...] = (64,)
    deep: ResidualBlocks | None = None

    @property
    def observations(self) -> tuple[str, ...]:
        """Keys that the network reads, in canonical order."""
        images = [key for key in ("player_frame", "global_view", "surroundings") if getattr(self, key)]
        return layout.observation_keys([key for keys, _ in self.vectors for key in keys] + images)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the layout of ``observations``."""
        return layout.fingerprint(self.observations)


def _with_foresight(plain: Architecture) -> Architecture:
    """The same, asking the simulator what each action leads to."""
    return replace(
        plain,
        name=f"{plain.name}_foresight",
        description=f"{plain.name}, and what the simulator says each action leads to",
        vectors=(*plain.vectors, (("foresight",), (128,))),
    )


_PLAIN = (
    Architecture(
        name="mlp_baseline",
        description="all observations: a CNN for each image, an MLP for each group of vectors, concatenation",
        vectors=(
            (("game_state",), (128, 128)),
            (("reachability_features",), (64, 64)),
            (("entity_positions", "switch_states", "hazards"), (64, 64)),
        ),
        player_frame=256,
        global_view=128,
        surroundings=128,
        fusion=(256,),
        heads=(128,),
    ),
    Architecture(
        name="vision_free",
        description="no images: vectors and the surroundings through a small MLP; the fast one",
        vectors=((("game_state", "reachability_features", "entity_positions", "switch_states", "hazards"), (64,)),),
        surroundings=128,
        fusion=(256,),
        heads=(64,),
    ),
)
ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture for plain in _PLAIN for architecture in (plain, _with_foresight(plain))
}

_GRAPH = "it reads the graph observation"
_STACKED = "it stacks frames"
# Names of the predecessor's architectures that this project does not have yet, and why.
LATER = {
    "full_hgt": _GRAPH,
    "simplified_hgt": _GRAPH,
    "gat": _GRAPH,
    "gcn": _GRAPH,
    "vision_free_gat": _GRAPH,
    "vision_free_gcn": _GRAPH,
    "vision_free_simplified": _GRAPH,
    "no_global_view": _GRAPH,
    "attention": _GRAPH,
    "full_hgt_frame_stacked": f"{_GRAPH} and stacks frames",
    "visual_frame_stacked_only": f"{_GRAPH} and stacks frames",
    "vision_free_frame_stacked": _STACKED,
}


def get_architecture(name: str) -> Architecture:
    """The architecture of that name; ArchitectureError says what to write instead.

    ``NAME+deepN`` is the architecture NAME with N residual blocks in each head (``rl.policy.heads``).
    """
    plain, plus, heads = name.partition("+")
    if plus:
        known = get_architecture(plain)
        try:
            return replace(known, name=name, deep=ResidualBlocks.named(heads))
        except ValueError as error:
            raise ArchitectureError(f"architecture {name!r}, behind the +: {error}") from error
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    available = ", ".join(ARCHITECTURES)
    if name in LATER:
        raise ArchitectureError(
            f"architecture {name!r} is not built yet: {LATER[name]}, and graph architectures and frame stacking come "
            f"in a later version; available now: {available}"
        )
    near = did_you_mean(name, [*ARCHITECTURES, *LATER], cutoff=0.4)
    raise ArchitectureError(f"unknown architecture {name!r}{near}; available: {available}")
