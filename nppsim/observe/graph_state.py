"""``graph_state``: key of a level's current graph, made of the level's number and one flag per changing entity.

``nppsim.observe.graph`` builds the graph when it is needed.  Many decisions share a graph, and an observation of any level
takes 64 bytes.
"""

import numpy as np

from nppsim._numba.decorators import inlined, kernel
from nppsim.levels import kinds
from nppsim.observe.layout import GRAPH_WORDS
from nppsim.physics.entities import ARMED

WORD = 64  # flags in an int64
NUM_FLAGS = WORD * (GRAPH_WORDS - 1)  # maximum number of flags; entities beyond it always appear in their initial state


@kernel
def graph_state(entities, world, level, level_id, out):
    """Write int64[8]: the level's number (``level_ids`` of its bank), then flags, beginning with the lowest bit.

    Order of the flags: exits (open) and their switches (taken), doors with a switch (closed), toggle mines (armed).
    """
    out[:] = 0
    out[0] = level_id
    record = world.level[level]
    base, flag = record["entity_first"], 0
    for k in range(record["exits_first"], record["exits_end"]):
        is_exit = world.entity[k]["type"] == kinds.EXIT
        is_set = entities[k - base]["clock"] > 0 if is_exit else entities[k - base]["active"] == 0
        flag = _put(out, flag, is_set)
    for k in range(record["switches_first"], record["switches_end"]):
        flag = _put(out, flag, entities[k - base]["closed"] != 0)
    for k in range(record["toggles_first"], record["toggles_end"]):
        flag = _put(out, flag, entities[k - base]["state"] == ARMED)


@inlined
def _put(out, flag, is_set):
    """Set bit ``flag`` if ``is_set`` and ``flag`` is below NUM_FLAGS; return ``flag`` + 1."""
    if is_set and flag < NUM_FLAGS:
        out[1 + flag // WORD] |= np.int64(1) << np.int64(flag % WORD)
    return flag + 1


def flags(state: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the flags of a state int64[8] as bool[F].  start: bool[F], initial flags, which apply beyond NUM_FLAGS."""
    words = np.ascontiguousarray(state[1:], "<i8").view(np.uint8)
    bits = np.unpackbits(words, bitorder="little")[: len(start)].astype(bool)
    return np.concatenate([bits, start[len(bits) :]])
