"""Observation spaces of the Gymnasium and Stable-Baselines3 environments.

Pictures are [H, W, 1].  Arrays of all other keys are flattened, because libraries treat any uint8 array with three axes as
a picture.  ``values.reshape(layout.SPECS[key].shape)`` restores the axes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

from nppsim.levels.level import MAX_RECORDS, POSITION_UNIT
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH
from nppsim.observe import layout
from nppsim.observe.foresight import PROGRESS_LIMIT
from nppsim.observe.graph import EDGE_TYPES, FEATURES, graph_of
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.observe.vectors import NO_HAZARD
from nppsim.paths import MAX_PATH

Bounds = tuple[float, float]
GRAPH = "graph"  # an observation that only Gymnasium environments have

_FLAG, _UNIT = (0.0, 1.0), (-1.0, 1.0)
_SPEED = (-300.0, 300.0)  # px per frame: highest speed with a boost pad in every frame; below 10 without pads
_BUFFER = (-1.0, 5.0)  # frames
_PATH = (0.0, MAX_PATH)
_AWAY = {"x": (-STAGE_WIDTH, STAGE_WIDTH), "y": (-STAGE_HEIGHT, STAGE_HEIGHT)}  # px between two positions on the stage
_PLACE = {"x": (0.0, STAGE_WIDTH), "y": (0.0, STAGE_HEIGHT)}
_RECORD = (-12.0, 255.0 * POSITION_UNIT + 12.0)  # px: positions that a level file can contain, plus half a door
_WINDOW = (-125.0, 125.0)  # px: 114 to the edge of the hazards' window, plus 11 from a thwump's centre to its face
_COUNT = (0.0, float(MAX_RECORDS))
_STATES = ("standing", "running", "braking", "jumping", "falling", "wall_sliding")
_DOOR_PLACES = ("switch_x", "switch_y", "door_x", "door_y")
_UNLIMITED = (-np.inf, np.inf)

# Key -> component -> bounds.
_BOUNDS: dict[str, dict[str, Bounds]] = {
    "game_state": {
        **_PLACE,
        **dict.fromkeys(("vx", "vy"), _SPEED),
        **dict.fromkeys(
            ("wall_normal", "floor_normal_x", "floor_normal_y", "pad_direction_x", "pad_direction_y"), _UNIT
        ),
        **dict.fromkeys(("jump_buffer", "floor_buffer", "wall_buffer", "pad_buffer"), _BUFFER),
        **dict.fromkeys((f"state_{name}" for name in _STATES), _FLAG),
        **dict.fromkeys(("airborne", "walled", "ceiling_contact", "gravity", "drag", "jump_held"), _FLAG),
        "jump_hold": (0.0, 46.0),
    },
    "reachability_features": {
        **dict.fromkeys(("path_to_objective", "path_to_exit", "path_from_start"), _PATH),
        **{f"waypoint{n}_d{axis}": _AWAY[axis] for n in (1, 2) for axis in "xy"},
        **dict.fromkeys(("switch_collected", "reachable"), _FLAG),
    },
    "entity_positions": {
        **{f"ninja_{axis}": _PLACE[axis] for axis in "xy"},
        **{f"{name}_{axis}": _RECORD for name in ("switch", "exit") for axis in "xy"},
    },
    "switch_states": {
        **{f"door{n}_{name}": _RECORD for n in range(layout.NUM_DOORS) for name in _DOOR_PLACES},
        **{f"door{n}_open": _FLAG for n in range(layout.NUM_DOORS)},
    },
    "hazards": {
        "dx": _WINDOW,
        "dy": (_WINDOW[0], NO_HAZARD),
        **dict.fromkeys(("vx", "vy"), _SPEED),
        "radius": (0.0, 8.0),
    },
    "foresight": {
        **{f"d{axis}": _AWAY[axis] for axis in "xy"},
        **dict.fromkeys(("vx", "vy"), _SPEED),
        "progress": (-PROGRESS_LIMIT, PROGRESS_LIMIT),
        **dict.fromkeys(("death", "win", "airborne", "switch"), _FLAG),
        **dict.fromkeys(("gold", "doors"), _COUNT),
    },
}


def observation_space(observations: Sequence[str], stacking: Stacking = NO_STACKS) -> spaces.Dict:
    """Return the space of one environment's observations.  observations: names or keys of ``layout``.

    Stacked pictures are [frames, H, W, 1]; stacked vectors are concatenated.  The bounds hold if the ninja spawns inside
    the stage.  On a damaged level it may spawn outside and fall without limit.
    """
    keys = layout.observation_keys(observations)
    return spaces.Dict({key: _box(key, stacking) for key in keys})


def environment_space(observations: Sequence[str], stacking: Stacking = NO_STACKS) -> spaces.Dict:
    """Return ``observation_space``; if ``graph`` is among the observations, its Graph space is added."""
    keys = shown_keys(observations)
    space = observation_space(keys, stacking) if keys else spaces.Dict()
    if GRAPH in observations:
        nodes, edges = spaces.Box(-np.inf, np.inf, (len(FEATURES),), np.float32), spaces.Discrete(len(EDGE_TYPES))
        space[GRAPH] = spaces.Graph(nodes, edges)
    return space


def shown_keys(observations: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of all observations except ``graph``."""
    named = [name for name in observations if name != GRAPH]
    return layout.observation_keys(named) if named or GRAPH not in observations else ()


def simulated_keys(observations: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that the simulator must compute; ``graph`` is built from ``graph_state``."""
    named = ["graph_state" if name == GRAPH else name for name in observations]
    return layout.observation_keys(named)


def graph_instance(state: np.ndarray) -> spaces.GraphInstance:
    """Return a copy of the graph that a ``graph_state`` int64[8] identifies.

    nodes: float32[N, 45], ``observe.graph.FEATURES``.
    edges: int64[E], indices into EDGE_TYPES.
    edge_links: int32[E, 2], source and target node.
    """
    graph = graph_of(state)
    links, types = graph.edges
    return spaces.GraphInstance(graph.features.copy(), types.copy(), links.copy())  # copies, because graphs are cached


def flatten_vectors(observations: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reshape the simulator's observations of N environments to the shapes of ``observation_space``, as views."""
    return {
        key: values if key in layout.IMAGES else values.reshape(len(values), -1) for key, values in observations.items()
    }


def _box(key: str, stacking: Stacking) -> spaces.Box:
    spec, shape = layout.SPECS[key], stacking.shape(key)
    if key not in layout.IMAGES:
        shape = (int(np.prod(shape)),)
    if not spec.components:
        return spaces.Box(int(spec.low), int(spec.high), shape, np.dtype(spec.dtype).type)
    limits = _BOUNDS.get(key, {})
    bounds = np.array([limits.get(name, _UNLIMITED) for name in spec.components], np.float32)
    if stacking.frames(key) > 1 and stacking.padding == "zero":
        bounds = np.stack([bounds[:, 0].clip(max=0), bounds[:, 1].clip(min=0)], axis=1)
    times = shape[0] // len(bounds)
    return spaces.Box(np.tile(bounds[:, 0], times), np.tile(bounds[:, 1], times), dtype=np.float32)
