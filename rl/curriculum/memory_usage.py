"""How much memory the containers of an object take: whatever could grow in a long run.

sizes_of(manager, strategy)["CurriculumManager._played"]    # Size(nbytes=8100, entries=1000)
"""

import sys
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

HEAD = 100  # bytes of an array or a container beside its entries, about
SLOT = {list: 8, tuple: 8, deque: 8, set: 33, dict: 45}  # bytes of a place for an entry in CPython, about
SAMPLE = 32  # entries that are looked at, evenly spread; the others are taken to be like them


class Size(NamedTuple):
    """Of a container with all that it holds.

    nbytes: exact for arrays, about right for all else.
    entries: numbers in arrays, and entries of Python's containers at all depths.
    """

    nbytes: int
    entries: int

    @staticmethod
    def sum(sizes: Iterable["Size"]) -> "Size":
        """Of all of them; nothing for none."""
        found = [*sizes]
        return Size(sum(one.nbytes for one in found), sum(one.entries for one in found))


def sizes_of(*owners: object) -> dict[str, Size]:
    """Of each attribute that is an array, a container, or an object of this package that holds some.

    By "<class>.<attribute>".  What two attributes share is told once; a simulator, a configuration and plain numbers are not.
    """
    told, found = {id(owner) for owner in owners}, {}
    for owner in owners:
        for name, value in vars(owner).items():
            if id(value) not in told and _holds(value):
                told |= {id(value), *(map(id, vars(value).values()) if _is_ours(value) else ())}
                found[f"{type(owner).__name__}.{name}"] = _size(value)
    return found


def _holds(value: object) -> bool:
    plain = isinstance(value, (np.ndarray, *SLOT))
    return plain or (_is_ours(value) and any(map(_holds, vars(value).values())))


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith(f"{__package__}.") and hasattr(value, "__dict__")


def _size(value: Any) -> Size:
    if isinstance(value, np.ndarray):
        return Size(HEAD + value.nbytes, value.size)
    if isinstance(value, tuple(SLOT)):
        return _of_entries(value)
    if _is_ours(value):
        return Size.sum(map(_size, vars(value).values()))
    return Size(sys.getsizeof(value), 0)


def _of_entries(container: Any) -> Size:
    count, step = len(container), len(container) // SAMPLE + 1
    if isinstance(container, dict):
        looked = [Size.sum(map(_size, pair)) for pair in islice(container.items(), 0, None, step)]
    else:
        looked = [_size(one) for one in islice(container, 0, None, step)]
    inside, scale = Size.sum(looked), count / max(1, len(looked))
    slot = next(slot for kind, slot in SLOT.items() if isinstance(container, kind))
    return Size(HEAD + count * slot + round(inside.nbytes * scale), count + round(inside.entries * scale))
