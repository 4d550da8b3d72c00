"""The observation layout: shape, dtype, components and natural scale of every key.

Observations are raw (pixels, pixels per frame, frames, flags); the policy network normalises them.  The table in
``docs/observations.md`` is made from this file.  Datasets and checkpoints store the ``fingerprint`` of their layout, so that
data of one layout cannot be used with a network of another layout.
"""

import hashlib
import json
from collections import namedtuple
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nppsim.actions import NUM_ACTIONS

VERSION = 2  # increase when the meaning of a component changes but no shape does

NUM_DOORS = 5  # maximum number of locked doors in ``switch_states``
NUM_HAZARDS = 8  # maximum number of hazards in ``hazards``, the nearest ones
# Keys in ``foresight`` after the first decision: the same, none, jump inverted, left and right exchanged.
CONTINUATIONS = ("hold", "release", "jump", "turn")
SURROUNDINGS_SIZE = 19  # half-cells (12 px) per side of ``surroundings``
SURROUNDINGS_PLANES = ("solid", "deadly", "one_way")
PLAYER_FRAME_SIZE = 84  # pixels per side; one pixel is 2 x 2 px of the level
GLOBAL_VIEW_SHAPE = (176, 100)  # pixels, x first; one pixel is 6 x 6 px of the level
GRAPH_WORDS = 8  # words of ``graph_state``: the level's number, then 64 flags of doors, exits and mines per word


@dataclass(frozen=True)
class ObservationSpec:
    """One key of the observation dictionary.

    name: short name, as in ``observations=("state", ...)``.
    key: key in the dictionary.
    shape: shape of one environment's array.
    dtype: "float32" for vectors, "uint8" for pictures and ``surroundings``, "int64" for ``graph_state``.
    components: names of the entries along the last axis (float32 only).
    scale: typical magnitude of each component, in its own unit.  The network's divisor is at least a tenth of this scale.
    low, high: bounds of Gymnasium's Box (integer keys only).
    """

    name: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    components: tuple[str, ...] = ()
    scale: tuple[float, ...] = ()
    low: float = -np.inf
    high: float = np.inf

    @property
    def bytes(self) -> int:
        """Bytes of one observation of this key."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


_STATE = (
    [("x", 528.0), ("y", 300.0), ("vx", 3.3), ("vy", 3.3)]
    + [(f"state_{name}", 1.0) for name in ("standing", "running", "braking", "jumping", "falling", "wall_sliding")]
    + [("airborne", 1.0), ("walled", 1.0), ("ceiling_contact", 1.0), ("wall_normal", 1.0)]
    + [("floor_normal_x", 1.0), ("floor_normal_y", 1.0), ("gravity", 0.06), ("drag", 0.1), ("jump_hold", 45.0)]
    + [(f"{name}_buffer", 5.0) for name in ("jump", "floor", "wall", "pad")]
    + [("jump_held", 1.0), ("pad_direction_x", 1.0), ("pad_direction_y", 1.0)]
)
_REACHABILITY = [("path_to_objective", 300.0), ("path_to_exit", 600.0), ("waypoint1_dx", 36.0), ("waypoint1_dy", 36.0)]
_REACHABILITY += [("waypoint2_dx", 120.0), ("waypoint2_dy", 120.0), ("switch_collected", 1.0), ("reachable", 1.0)]
_REACHABILITY += [("path_from_start", 600.0)]
_ENTITIES = [
    (f"{name}_{axis}", size) for name in ("ninja", "switch", "exit") for axis, size in (("x", 528.0), ("y", 300.0))
]
_DOOR = [("switch_x", 528.0), ("switch_y", 300.0), ("door_x", 528.0), ("door_y", 300.0), ("open", 1.0)]
_HAZARD = [("dx", 120.0), ("dy", 120.0), ("vx", 3.0), ("vy", 3.0), ("radius", 4.0)]
_AHEAD = [("death", 1.0), ("win", 1.0), ("dx", 36.0), ("dy", 36.0), ("vx", 3.3), ("vy", 3.3), ("progress", 36.0)]
_AHEAD += [(name, 1.0) for name in ("airborne", "switch", "gold", "doors")]
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def _vector(
    name: str, key: str, components: Sequence[tuple[str, float]], shape: tuple[int, ...] | None = None
) -> ObservationSpec:
    names, scale = zip(*components, strict=True)
    return ObservationSpec(name, key, shape or (len(names),), "float32", names, scale)


def _image(name: str, key: str, shape: tuple[int, ...]) -> ObservationSpec:
    return ObservationSpec(name, key, shape, "uint8", low=0, high=255)


SPECS: dict[str, ObservationSpec] = {
    spec.key: spec
    for spec in (
        _vector("state", "game_state", _STATE),
        _vector("reachability", "reachability_features", _REACHABILITY),
        _vector("entities", "entity_positions", _ENTITIES),
        _vector("switches", "switch_states", [(f"door{i}_{n}", s) for i in range(NUM_DOORS) for n, s in _DOOR]),
        _vector("hazards", "hazards", _HAZARD, (NUM_HAZARDS, len(_HAZARD))),
        _vector("foresight", "foresight", _AHEAD, (NUM_ACTIONS, len(CONTINUATIONS), len(_AHEAD))),
        _image("surroundings", "surroundings", (len(SURROUNDINGS_PLANES), SURROUNDINGS_SIZE, SURROUNDINGS_SIZE)),
        _image("player_frame", "player_frame", (PLAYER_FRAME_SIZE, PLAYER_FRAME_SIZE, 1)),
        _image("global_view", "global_view", (*GLOBAL_VIEW_SHAPE, 1)),
        ObservationSpec("graph_state", "graph_state", (GRAPH_WORDS,), "int64", low=_LEAST, high=_MOST),
    )
}
VISION_FREE = ("game_state", "reachability_features", "entity_positions", "switch_states", "hazards", "surroundings")
IMAGES = ("player_frame", "global_view")
ALL = tuple(SPECS)


def slots(names: Sequence[str]) -> Any:
    """Return the index of each name as a named tuple: ``slots(SPECS["game_state"].components).vx`` is 2.

    Assign the result to a module global: Numba treats globals as constants, so kernels can use components by name.
    """
    slots_type: Any = namedtuple("slots", names)  # type: ignore[misc]  # mypy requires literal names
    return slots_type(*range(len(names)))


def observation_keys(observations: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of short names or keys, in the order of SPECS.  Raises ValueError for an unknown name."""
    by_name = {spec.name: spec.key for spec in SPECS.values()}
    wanted = set()
    for item in observations:
        key = by_name.get(item, item)
        if key not in SPECS:
            raise ValueError(f"unknown observation {item!r}; known: {', '.join(by_name)}")
        wanted.add(key)
    if not wanted:
        raise ValueError(f"no observation chosen; known: {', '.join(by_name)}")
    return tuple(key for key in SPECS if key in wanted)


def component_name(key: str, index: Sequence[int]) -> str:
    """Return the name of a number of an observation: "game_state.vx", or "hazards[3].dx" for a key with several axes."""
    rows = "".join(f"[{i}]" for i in index[:-1])
    return f"{key}{rows}.{SPECS[key].components[index[-1]]}"


def fingerprint(keys: Iterable[str], *settings: str) -> str:
    """Return a hex digest (16 characters) of VERSION and the names, shapes, dtypes and components of these keys.

    settings: names of settings that change observations (``Stacking.name``, ``Foresight.name``); "" for the defaults.
    """
    layout = [(s.key, s.shape, s.dtype, s.components) for s in (SPECS[k] for k in observation_keys(keys))]
    single = hashlib.sha256(json.dumps([VERSION, layout]).encode()).hexdigest()[:16]
    changed = " ".join(filter(None, (single, *settings)))
    return single if changed == single else hashlib.sha256(changed.encode()).hexdigest()[:16]
