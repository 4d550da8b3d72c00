"""Table of architectures: the observations of each network and the sizes of its parts.

``rl.policy.networks`` builds networks from the table.  ``register`` adds an architecture, e.g. in a ``--plugin`` file
(docs/own_network.md).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from nppsim.errors import UserError, did_you_mean
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.foresight_settings import NAME_SYNTAX as FORESIGHT_SYNTAX
from nppsim.observe.stacking import NAME_SYNTAX, NO_STACKS, Stacking

SHIELDS = ("penalty", "off")
SUBTASK_OBSERVATIONS = ("reachability_features", "entity_positions", "switch_states", "hazards")
HIGH_LEVEL = "high_level."  # prefix of the tensor names of the high-level policy
# Bytes per decision of a rollout: for each number of a recurrent state, and for a subtask.  The latter are index and
# age (16), flags for choice and completion (2), five log-probabilities (20), and value, advantage and return (12).
STATE_BYTES = 4
SUBTASK_BYTES = 50
MAX_BLOCKS = 16  # largest number of residual blocks in a head
_BLOCKS_NAME = re.compile(r"deep([1-9]\d?)(-no_residual)?(-no_layer_norm)?")


class ArchitectureError(UserError, ValueError):
    """An architecture that is unknown or invalid."""


@dataclass(frozen=True)
class GraphNetwork:
    """Sizes of a graph network.

    kind: "gcn", "gat", "hgt" or "simplified_hgt" (``rl.policy.graph_network``).
    layers: number of message-passing layers.
    width: number of features of a node.
    heads: number of attention heads, a divisor of the width; 0 for GCN.
    out: number of output features.
    """

    kind: str
    layers: int
    width: int
    heads: int
    out: int


@dataclass(frozen=True)
class ResidualBlocks:
    """Residual blocks of deep heads.

    count: number of blocks in each head.
    residual: True to add the input of a block to its output.
    layer_norm: True for layer norm before each block and before the output layer.
    """

    count: int
    residual: bool = True
    layer_norm: bool = True

    @property
    def name(self) -> str:
        """Suffix of the architecture's name for these blocks."""
        without = ("" if self.residual else "-no_residual", "" if self.layer_norm else "-no_layer_norm")
        return f"deep{self.count}{''.join(without)}"

    @classmethod
    def named(cls, name: str) -> "ResidualBlocks":
        """Parse a suffix.  Raises ValueError if it is invalid."""
        match = _BLOCKS_NAME.fullmatch(name)
        if match is None or int(match[1]) > MAX_BLOCKS:
            raise ValueError(f"give deepN with N from 1 to {MAX_BLOCKS}, then -no_residual, -no_layer_norm or both")
        return cls(int(match[1]), not match[2], not match[3])


@dataclass(frozen=True)
class Architecture:
    """Sizes of one network.  A custom network has ``module`` and ``reads``.

    vectors: (keys, layer sizes) of each MLP over float observations; the keys must be adjacent in the layout.
    player_frame, global_view, surroundings: output size of the encoder of this uint8 observation; 0: no encoder.
    graph: sizes of the graph network, or None.
    attention: number of heads of the attention over modalities before concatenation; 0: no attention.
    fusion: sizes of the layers after concatenation, which actor and critic share.
    module: function that returns a torch.nn.Module in place of encoders and fusion.  The module maps the observations in
        ``reads``, {key: float32[N, *shape]}, to features [N, fusion[-1]].  Vectors are normalised, bytes scaled to 0..1.
    reads: observation keys of the module in any order; () without a module.
    heads: sizes of the hidden layers of the actor; the critic has separate layers of the same sizes.
    deep: residual blocks of width heads[-1] in place of these hidden layers; None: plain hidden layers.
    stacking: number of frames per observation.
    subtasks: largest number of decisions of a subtask (``rl.policy.subtasks``); 0: no subtasks.
    memory: size of the GRU state (``rl.policy.recurrent``); 0: not recurrent.
    mirror: True to average the outputs for an observation and its mirror image (``rl.policy.mirror``).
    foresight: settings of the observation ``foresight``.
    shield: "penalty" lowers the logits of actions that lead to death in all branches of ``foresight``
        (``rl.policy.policy.death_penalty``); "off": the outputs of the network are not changed.
    """

    name: str
    description: str
    vectors: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = ()
    player_frame: int = 0
    global_view: int = 0
    surroundings: int = 0
    graph: GraphNetwork | None = None
    attention: int = 0
    fusion: tuple[int, ...] = (256,)
    heads: tuple[int, ...] = (64,)
    deep: ResidualBlocks | None = None
    module: Callable[[], Any] | None = None
    reads: tuple[str, ...] = ()
    stacking: Stacking = NO_STACKS
    subtasks: int = 0
    memory: int = 0
    mirror: bool = False
    foresight: Foresight = FORESIGHT
    shield: str = SHIELDS[0]

    @property
    def imitated(self) -> "Architecture":
        """Architecture for imitation, without subtasks, as demonstrations contain no subtasks."""
        return replace(self, name=self.name.rpartition("+")[0], subtasks=0) if self.subtasks else self

    @property
    def fresh(self) -> tuple[str, ...]:
        """Name prefixes of the tensors that imitation does not train, i.e. those that do not exist in ``imitated``."""
        return (HIGH_LEVEL,) if self.subtasks else ()

    @property
    def observations(self) -> tuple[str, ...]:
        """Observation keys of the network, in canonical order."""
        images = [key for key in ("player_frame", "global_view", "surroundings") if getattr(self, key)]
        graph = ["graph_state"] if self.graph else []
        vectors = [key for keys, _ in self.vectors for key in keys]
        return layout.observation_keys([*vectors, *images, *graph, *self.reads])

    @property
    def carried_bytes(self) -> int:
        """Bytes per decision of a rollout for state that is carried from decision to decision: recurrent or of subtasks."""
        return STATE_BYTES * self.memory + (SUBTASK_BYTES if self.subtasks else 0)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of observation layout, frame stacking and settings of look-ahead."""
        return layout.fingerprint(self.observations, self.stacking.name, self.foresight.name)

    @property
    def shielded(self) -> bool:
        """True if the logits of deadly actions are lowered."""
        return "foresight" in self.observations and self.shield != "off"


def _with_foresight(plain: Architecture) -> Architecture:
    """Add the ``foresight`` observation (simulator look-ahead for each action)."""
    return replace(
        plain,
        name=f"{plain.name}_foresight",
        description=f"{plain.name}, with simulator look-ahead for each action",
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
        player_frame=128,
        global_view=64,
        surroundings=128,
        fusion=(256,),
        heads=(128,),
    ),
    Architecture(
        name="vision_free",
        description="no images: a small MLP for the vectors and one for the surroundings; the fastest network",
        vectors=((("game_state", "reachability_features", "entity_positions", "switch_states", "hazards"), (64,)),),
        surroundings=128,
        fusion=(256,),
        heads=(64,),
    ),
)
_ALL, _VISION_FREE = _PLAIN[:2]
_WITHOUT_PATHS = (  # exact path lengths are privileged information (docs/benchmark.md)
    Architecture(
        name="state_no_paths",
        description="vision_free without path lengths",
        vectors=((("game_state",), (64,)), (("entity_positions", "switch_states", "hazards"), (64,))),
        surroundings=128,
        fusion=(256,),
        heads=(64,),
    ),
    Architecture(
        name="pixels_only",
        description="the two images alone: a CNN for each",
        player_frame=128,
        global_view=64,
        fusion=(256,),
        heads=(128,),
    ),
)
_GCN = GraphNetwork("gcn", layers=2, width=64, heads=0, out=128)
_GAT = GraphNetwork("gat", layers=2, width=64, heads=4, out=128)
_HGT = GraphNetwork("hgt", layers=3, width=64, heads=8, out=128)
_SIMPLIFIED_HGT = GraphNetwork("simplified_hgt", layers=2, width=32, heads=4, out=64)
_GRAPHS = (
    replace(
        _ALL,
        name="full_hgt",
        description="all observations and the graph: transformer with node and edge types, attention over modalities",
        graph=_HGT,
        attention=8,
    ),
    replace(
        _ALL,
        name="simplified_hgt",
        description="full_hgt with smaller layers; each edge type adds one number to the attention scores",
        player_frame=64,
        global_view=32,
        graph=_SIMPLIFIED_HGT,
        attention=1,
    ),
    replace(
        _ALL,
        name="gat",
        description="all observations and the graph: graph attention, attention over modalities with one head",
        graph=_GAT,
        attention=1,
    ),
    replace(
        _ALL, name="gcn", description="all observations and the graph: graph convolution, concatenation", graph=_GCN
    ),
    replace(
        _ALL,
        name="no_global_view",
        description="all observations except the image of the level, and the graph: graph convolution",
        global_view=0,
        graph=_GCN,
        attention=8,
    ),
    replace(_VISION_FREE, name="vision_free_gat", description="vision_free and graph attention", graph=_GAT),
    replace(_VISION_FREE, name="vision_free_gcn", description="vision_free and graph convolution", graph=_GCN),
    replace(
        _VISION_FREE,
        name="vision_free_simplified",
        description="vision_free and the graph network of simplified_hgt",
        graph=_SIMPLIFIED_HGT,
    ),
    replace(
        _VISION_FREE,
        name="attention",
        description="vision_free and graph convolution, with attention over modalities",
        graph=_GCN,
        attention=8,
    ),
)
ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        *(version for plain in _PLAIN for version in (plain, _with_foresight(plain))),
        *_WITHOUT_PATHS,
        *_GRAPHS,
    )
}
ALIASES = {  # names of these networks in other training projects
    "graph_attention": "attention",
    "full_hgt_frame_stacked": "full_hgt+visual4-state4",
    "visual_frame_stacked_only": "full_hgt+visual4",
    "vision_free_frame_stacked": "vision_free+state4",
}
_SHIPPED = frozenset(ARCHITECTURES)


UNSHIELDED = "unshielded"  # suffix of an architecture's name after "+"
FORESIGHT_FIELDS = tuple(one.name for one in fields(Foresight))  # beginnings of a suffix for look-ahead
WITH_SUBTASKS = "subtasks"  # suffix of an architecture's name after "+", followed by a number
MAX_SUBTASK_DECISIONS = 10_000  # largest number of decisions of a subtask
WITH_MEMORY = "gru"  # suffix of an architecture's name after "+"
WITH_MIRROR = "mirror"  # suffix of an architecture's name after "+"
MEMORY_SIZE = 64  # size of the GRU state; the GRU then takes a third of the time of the other layers


def _decisions(architecture: Architecture, suffix: str) -> int:
    """Parse K of +subtasksK.  Raises ValueError for an invalid K, or a network without all SUBTASK_OBSERVATIONS."""
    number = suffix.removeprefix(WITH_SUBTASKS)
    if not (
        number.isascii() and number.isdecimal() and not number.startswith("0") and int(number) <= MAX_SUBTASK_DECISIONS
    ):
        raise ValueError(f"give {WITH_SUBTASKS}K with K from 1 to {MAX_SUBTASK_DECISIONS}")
    if absent := [key for key in SUBTASK_OBSERVATIONS if key not in architecture.observations]:
        raise ValueError(f"subtasks need {', '.join(absent)}, which {architecture.name} does not observe")
    return int(number)


def _memory_size(base: Architecture) -> int:
    """Return the size of the GRU state.  Raises ArchitectureError for a graph network."""
    if base.graph:
        raise ArchitectureError(
            f"architecture {base.name!r}: minibatches of graph networks are sorted by graph, those of recurrent networks "
            f"are sequences; give +{WITH_MEMORY} to a network without a graph"
        )
    return MEMORY_SIZE


def _mirrored(base: Architecture) -> bool:
    """Return True.  Raises ArchitectureError for stacks, and for observations without a mirror image."""
    if base.stacking or base.graph:
        raise ArchitectureError(
            f"architecture {base.name!r}: neither stacked frames nor graphs have mirror images; leave out +{WITH_MIRROR}"
        )
    return True


def get_architecture(name: str) -> Architecture:
    """Look up an architecture by name, with optional suffixes.

    ``+horizonN-branchesN-escapesN-noiseX`` sets some fields of ``Foresight``; ``+unshielded`` switches off the shield.
    ``+visualN-stateM`` stacks N frames of images and M frames of vectors (``nppsim.observe.stacking``).
    ``+deepN`` replaces the hidden layers of each head by N residual blocks (``ResidualBlocks``).
    ``+mirror`` averages the outputs for an observation and its mirror image (``rl.policy.mirror``); no stacks, ``+gru`` or
    ``+subtasksK``.
    ``+gru`` adds a recurrent state (``rl.policy.recurrent``).
    ``+subtasksK`` adds subtasks of at most K decisions (``rl.policy.subtasks``); it excludes ``+gru``.
    Several suffixes must be given in this order.  Raises ArchitectureError for an unknown name or an invalid suffix.
    """
    plain, *suffixes = name.split("+")
    if plain not in ARCHITECTURES and plain not in ALIASES:
        near = did_you_mean(plain, [*ARCHITECTURES, *ALIASES], cutoff=0.4)
        available, own = ", ".join(ARCHITECTURES), "one of your own: name its file with --plugin"
        raise ArchitectureError(f"unknown architecture {plain!r}{near}; available: {available}; {own}")
    architecture = get_architecture(ALIASES[plain]) if plain in ALIASES else ARCHITECTURES[plain]
    for suffix in suffixes:
        architecture = _with(architecture, suffix, name)
    return architecture


def _with(base: Architecture, suffix: str, name: str) -> Architecture:
    """Apply one suffix of a name to an architecture."""
    full = f"{base.name}+{suffix}"
    last = bool(base.memory or base.subtasks)  # no other suffix may follow
    try:
        first = not (base.deep or base.stacking or base.mirror or last)
        if suffix.startswith(FORESIGHT_FIELDS) and first and not base.foresight and base.shield != "off":
            return replace(_with_look_ahead(base), name=full, foresight=Foresight.named(suffix))
        if suffix == UNSHIELDED and first and base.shield != "off":
            return replace(_with_look_ahead(base), name=full, shield="off")
        if suffix == WITH_MIRROR and not (base.mirror or last):
            return replace(base, name=full, mirror=_mirrored(base))
        if base.mirror and not suffix.startswith("deep"):
            raise ArchitectureError(
                f"architecture {name!r}: +{WITH_MIRROR} can be combined with +deepN only; leave out +{suffix}"
            )
        if suffix == WITH_MEMORY and not last:
            return replace(base, name=full, memory=_memory_size(base))
        if suffix.startswith(WITH_SUBTASKS) and base.memory:
            raise ArchitectureError(
                f"architecture {name!r}: subtasks and a GRU cannot be combined; leave out +{WITH_MEMORY} or +{suffix}"
            )
        if suffix.startswith(WITH_SUBTASKS) and not last:
            return replace(base, name=full, subtasks=_decisions(base, suffix))
        if suffix.startswith("deep") and base.deep is None and not last:
            return replace(base, name=full, deep=ResidualBlocks.named(suffix))
        if suffix.startswith(("visual", "state")) and not (base.deep or base.stacking or last):
            return replace(base, name=full, stacking=_stacking(base, suffix, name))
    except ValueError as error:
        if isinstance(error, ArchitectureError):
            raise
        raise ArchitectureError(f"architecture {name!r}, suffix: {error}") from error
    raise ArchitectureError(
        f"architecture {name!r}: {suffix!r} is not possible there; suffixes are look-ahead ({FORESIGHT_SYNTAX}), then "
        f"{UNSHIELDED}, then stacks ({NAME_SYNTAX}), then deep heads (deepN), then {WITH_MIRROR}, a GRU ({WITH_MEMORY}) "
        f"or subtasks ({WITH_SUBTASKS}K), each once"
    )


def _with_look_ahead(base: Architecture) -> Architecture:
    """Return the architecture.  Raises ArchitectureError if it does not observe look-ahead."""
    if "foresight" not in base.observations:
        raise ArchitectureError(f"architecture {base.name!r} does not observe look-ahead: leave out its settings")
    return base


def _stacking(base: Architecture, suffix: str, name: str) -> Stacking:
    """Parse a suffix for frame stacking.  Raises ArchitectureError for a network that cannot use it."""
    stacking = Stacking.named(suffix)
    if base.module:
        raise ArchitectureError(
            f"architecture {name!r}: the module of {base.name} reads single frames; leave out +{suffix}"
        )
    if inapplicable := stacking.inapplicable(base.observations):
        raise ArchitectureError(
            f"architecture {name!r} stacks {' and '.join(inapplicable)} frames, but {base.name} only observes "
            f"{', '.join(base.observations)}: leave that out, or choose another network"
        )
    return stacking


def register(architecture: Architecture) -> None:
    """Register an architecture; it replaces an earlier one with the same name.

    Raises ArchitectureError for an unknown shield, the name of a shipped architecture, a name that is not a valid folder
    name, and a module without ``reads`` or with a graph observation.
    """
    name = architecture.name
    if name in _SHIPPED or name in ALIASES:
        raise ArchitectureError(f"{name!r} is a shipped architecture; register yours under another name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ArchitectureError(f"architecture {name!r} cannot name a folder; use letters, digits and . _ -")
    if architecture.shield not in SHIELDS:
        raise ArchitectureError(f"architecture {name!r}: shield {architecture.shield!r}; give {' or '.join(SHIELDS)}")
    if (architecture.module is None) != (not architecture.reads):
        raise ArchitectureError(f"architecture {name!r}: give both module and reads, or neither")
    if architecture.module and (architecture.vectors or architecture.graph or architecture.attention):
        raise ArchitectureError(
            f"architecture {name!r}: its module replaces vectors, graph and attention; leave these out"
        )
    kinds = {layout.SPECS[key].dtype for key in architecture.observations}
    if architecture.module and not {"float32"} <= kinds <= {"float32", "uint8"}:
        raise ArchitectureError(f"architecture {name!r}: its module must read vectors, may read images, but no graph")
    ARCHITECTURES[name] = architecture
