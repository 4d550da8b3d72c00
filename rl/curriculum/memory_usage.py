"""Memory of the containers of an object, to find growth in long runs.

sizes_of(manager, strategy)["CurriculumManager._played"]    # Size(nbytes=8100, entries=1000)
"""

import sys
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

HEAD = 100  # approximate bytes of an array or a container without its entries
SLOT = {list: 8, tuple: 8, deque: 8, set: 33, dict: 45}  # approximate bytes per entry in CPython
SAMPLE = 32  # entries measured, evenly spread; the others are extrapolated


class Size(NamedTuple):
    """Size of a container with its content.

    nbytes: exact for arrays, approximate otherwise.
    entries: numbers in arrays, and entries of Python containers at all depths.
    """

    nbytes: int
    entries: int

    @staticmethod
    def sum(sizes: Iterable["Size"]) -> "Size":
        """Sum of sizes."""
        all_sizes = [*sizes]
        return Size(sum(one.nbytes for one in all_sizes), sum(one.entries for one in all_sizes))


def sizes_of(*owners: object) -> dict[str, Size]:
    """Sizes by "<class>.<attribute>" of arrays, containers, and objects of this package that have some.

    Shared objects are counted once; simulators, configurations and plain numbers are not counted.
    """
    seen, found = {id(owner) for owner in owners}, {}
    for owner in owners:
        for name, value in vars(owner).items():
            if id(value) not in seen and _holds(value):
                seen |= {id(value), *(map(id, vars(value).values()) if _is_ours(value) else ())}
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
