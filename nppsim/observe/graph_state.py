"""``graph_state``: which graph of a level holds now, as the level's number and a flag for everything that can change in it.

The graph itself is built on demand (``nppsim.observe.graph``): it belongs to a level and a state of its doors,
exits and mines, which many decisions share, and a stored observation takes 64 bytes whatever the level's size.
"""

import numpy as np

from nppsim._kernel import inlined, kernel
from nppsim.levels import kinds
from nppsim.observe.layout import GRAPH_WORDS
from nppsim.physics.entities import ARMED

WORD = 64  # flags in an int64
NUM_FLAGS = WORD * (GRAPH_WORDS - 1)  # what comes after the last one is shown as at the start


@kernel
def graph_state(entities, world, level, level_id, out):
    """int64[8]: the level's number; then flags, the first in the lowest bit.

    In this order: exits and their switches (open, taken), doors with a switch (closed), toggle mines (armed).
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
    """Set a flag if there is room for it; returns the number of the next one."""
    if is_set and flag < NUM_FLAGS:
        out[1 + flag // WORD] |= np.int64(1) << np.int64(flag % WORD)
    return flag + 1


def flags(state: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    """The flags of a state int64[8], as bool[count], and how many of them it has room for (the others are False)."""
    words = np.ascontiguousarray(state[1:], "<i8").view(np.uint8)
    bits = np.unpackbits(words, bitorder="little")[:count].astype(bool)
    return np.concatenate([bits, np.zeros(count - len(bits), bool)]), len(bits)
