"""Entries of each WebAssembly module, and the types of their arguments."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import from_dtype, typeof, types

from nppsim import decision
from nppsim.bank import _compute_paths
from nppsim.compile import LEVEL_DTYPE, PLACED_DTYPE, World, _compile
from nppsim.observe import layout
from nppsim.observe.foresight import allocate_branches
from nppsim.observe.foresight_settings import FORESIGHT, FORESIGHT_DTYPE
from nppsim.paths import compute_fields
from nppsim.physics.lasers import place_lasers
from nppsim.physics.shapes import SEGMENT_DTYPE
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE
from nppsim.planner import kernels
from nppsim.planner.goal_sequence import GoalSequence, path_lengths
from nppsim.reward import WEIGHTS_DTYPE
from nppsim.simulate import _run, play_on

RECORDS: dict[str, np.dtype] = {
    "ninja": NINJA_DTYPE,
    "entity": ENTITY_DTYPE,
    "mover": MOVER_DTYPE,
    "trail": TRAIL_DTYPE,
    "level": LEVEL_DTYPE,
    "placed": PLACED_DTYPE,
    "segment": SEGMENT_DTYPE,
    "progress": decision.PROGRESS_DTYPE,
    "weights": WEIGHTS_DTYPE,
    "foresight": FORESIGHT_DTYPE,
}


class Entry(NamedTuple):
    """A kernel to export, and the type of each argument."""

    kernel: Any  # a function with the decorator ``entry`` or ``allocating_entry``
    arguments: list[types.Type]


def array(dtype: Any, dimensions: int = 1, layout: Literal["C", "A"] = "C") -> types.Array:
    """Type of an array of numbers or records; layout "A": with strides."""
    item: Any = from_dtype(np.dtype(dtype))
    return types.Array(item, dimensions, layout)


def state_rows(dtype: Any, dimensions: int) -> types.Array:
    """Type of a part of the states of ``physics.state.allocate``."""
    return array(dtype, dimensions, "A")


def named_tuple(items: Sequence[types.Type], kind: Any) -> types.NamedTuple:
    """Type of a named tuple of the class ``kind``."""
    if len(items) != len(kind._fields):
        raise TypeError(f"{kind.__name__} has {len(kind._fields)} fields, but here {len(items)} types")
    return types.NamedTuple(items, kind)


WORLD = named_tuple(
    (
        array(LEVEL_DTYPE), array(PLACED_DTYPE), array(MOVER_DTYPE), array(SEGMENT_DTYPE), array("i4", 2), array("u1", 2),
        array("i4", 2), array("i2", 2), array("u1", 2),
    ),
    World,
)  # fmt: skip
NINJA, ENTITIES = state_rows(NINJA_DTYPE, 1), state_rows(ENTITY_DTYPE, 2)
MOVERS, TRAIL = state_rows(MOVER_DTYPE, 2), state_rows(TRAIL_DTYPE, 2)
# As ``decision.make_states``, without progress, terms and visited blocks.
STATE = named_tuple((NINJA, NINJA, array("u1", 2), ENTITIES, MOVERS, TRAIL, array("u1", 2)), decision.State)
BYTES, DISTANCES, STEPS = array("u1"), array("u2", 2), array("u1", 2)


def game() -> dict[str, Entry]:
    """Play levels with given inputs, compute path fields, compile levels."""
    return {
        "run": Entry(
            _run,
            [NINJA, ENTITIES, MOVERS, TRAIL, WORLD, BYTES, array("f8", 2), array("u1", 2), array("f8", 3), array("i2"),
             array("f8", 3)],
        ),
        "play_on": Entry(play_on, [STATE, WORLD, BYTES]),
        "compute_paths": Entry(
            _compute_paths,
            [WORLD, array("u1", 3), array("u2", 2), array("u2", 2), array("i8"), array("u2", 3), array("u1", 3),
             array("i8"), array("f4")],
        ),
        "compute_fields": Entry(
            compute_fields, [WORLD, array("u2"), array("u2", 2), types.int64, BYTES, BYTES, DISTANCES, STEPS]
        ),
        "compile": Entry(_compile, [array("u1", 2), array("u1", 2), types.int64, types.int64, types.int64, WORLD]),
        "place_lasers": Entry(place_lasers, [WORLD, state_rows(ENTITY_DTYPE, 1)]),
        "prepare_static": Entry(decision.prepare_static, [array("u1", 3), array("u1", 3), array("u1", 3)]),
    }  # fmt: skip


def agent() -> dict[str, Entry]:
    """Advance environments by one decision, with observations and look-ahead."""
    state = named_tuple(
        (
            NINJA,
            state_rows(decision.PROGRESS_DTYPE, 1),
            state_rows("f8", 2),
            ENTITIES,
            MOVERS,
            TRAIL,
            state_rows("u1", 2),
        ),
        decision.State,
    )
    fields = named_tuple(
        (array("u2", 2), array("u2", 2), array("i8"), array("u2", 3), array("u1", 3), array("i8"), array("i8"),
         array("u1", 2), array("u2", 3), array("u1", 3), array("i8")),
        decision.Fields,
    )  # fmt: skip
    static = named_tuple(
        (array("u1", 3), array("u1", 3), array("u1", 3), array("i4"), array("f4"), array("i8"), array(WEIGHTS_DTYPE)),
        decision.Static,
    )
    columns: Any = decision.EPISODE_DTYPE.fields
    episode = [state_rows(field.base, 1 + field.ndim) for field, _offset in columns.values()]
    out = named_tuple((array("f4"), array("?"), array("?"), *episode, array("i8", 2)), decision.Output)
    views = [array(spec.dtype, 1 + len(spec.shape)) for spec in layout.SPECS.values()]
    views += [array("f8", 2), typeof(allocate_branches(1, 1, 1, FORESIGHT))]
    return {
        "advance": Entry(
            decision.advance,
            [types.int64, types.int64, types.int64, array("i8"), array("i4"), types.boolean, types.int64, types.float64,
             state, WORLD, fields, static, out, named_tuple(views, decision.Views)],
        )
    }  # fmt: skip


def planner() -> dict[str, Entry]:
    """Search for runs that finish a level."""
    words = array("u8", 2)
    sequence = named_tuple(
        (array("i8"), array("f8"), WORLD, array("u2"), array("u2", 2), array("i8"), array("u2", 3), array("u1", 3)),
        GoalSequence,
    )
    params = named_tuple(
        (types.int64, types.float64, types.float64, types.float64, types.int64, types.float64), kernels.SearchParams
    )
    children = named_tuple((array("f8"), *4 * [array("i8")]), kernels.Children)
    queue = named_tuple((array("f8"), *5 * [array("i8")]), kernels.Queue)
    tree = named_tuple((array("i4"), array("i1"), array("i8")), kernels.Tree)
    return {
        "expand": Entry(
            kernels.expand,
            [STATE, STATE, words, words, array("i8"), array("i8"), types.int64, WORLD, sequence, types.int64, array("f8"),
             params, array("f8"), array("i4"), children],
        ),
        "best_first": Entry(
            kernels.best_first,
            [STATE, STATE, words, words, queue, tree, array("i8"), array("i4"), WORLD, sequence, types.int64, types.int64,
             params, array("f8", 2)],
        ),
        "rehash": Entry(kernels.rehash, [array("i8"), array("i8")]),
        "begin": Entry(kernels.begin, [STATE, WORLD]),
        "path_lengths": Entry(path_lengths, [types.int64, STATE, WORLD, sequence, array("f8", 2), array("f8")]),
    }  # fmt: skip


MODULES = {"game": game, "agent": agent, "planner": planner}
