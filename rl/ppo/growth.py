"""What grows or gets slower without end: containers, memory, time; all found from plain numbers of successive updates."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

OURS = ("rl", "bc", "hardware", "nppsim")  # packages whose objects are looked into
SMALL = 64  # entries; larger containers are counted and not looked into
FEW = 64  # entries; smaller containers are let be
DEPTH = 6
CONTAINERS = (list, dict, set, deque, bytearray)
PAGE = 4096
FALL = 0.85  # of the speed at the start of the window, below which it has fallen
TAU = 0.55  # rank correlation with time, below minus which numbers fall steadily


def sizes(owner: object) -> dict[str, int]:
    """Entries of each container of FEW or more that can be reached from ``owner`` or is a global of our packages."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    _look(owner, type(owner).__name__, DEPTH, found, seen)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in OURS:
            for key, value in list(vars(module).items()):
                if isinstance(value, CONTAINERS) and not key.startswith("__"):
                    _look(value, f"{name}.{key}", 2, found, seen)
    return found


def _look(thing: object, name: str, depth: int, found: dict[str, int], seen: set[int]) -> None:
    if id(thing) in seen or depth < 0:
        return
    seen.add(id(thing))
    if isinstance(thing, CONTAINERS):
        if len(thing) >= FEW:
            found[name] = len(thing)
        if len(thing) <= SMALL and not isinstance(thing, bytearray):
            inside = list(thing.items()) if isinstance(thing, dict) else list(enumerate(thing))
            for key, value in inside:
                _look(value, f"{name}[{key}]", depth - 1, found, seen)
    elif type(thing).__module__.split(".")[0] in OURS:
        for key, value in list(getattr(thing, "__dict__", {}).items()):
            _look(value, f"{name}.{key}", depth - 1, found, seen)


def growing(history: Sequence[dict[str, int]]) -> Iterator[tuple[str, int]]:
    """(name, entries) of containers that never shrank and grew in nearly every one of the updates; the window is full."""
    if not isinstance(history, deque) or len(history) != history.maxlen:
        return
    for name, size in history[-1].items():
        counts = np.array([sizes.get(name, 0) for sizes in history])
        steps = np.diff(counts)
        if (steps >= 0).all() and (steps > 0).mean() >= 0.9:
            yield name, size


def falling(values: np.ndarray) -> bool:
    """Whether numbers fall steadily: in both halves of the window as well as over the whole, and clearly."""
    half = len(values) // 2
    parts = (values, values[:half], values[half:])
    return bool(values[-5:].mean() < FALL * values[:5].mean() and all(rank_correlation(part) < -TAU for part in parts))


def rank_correlation(values: np.ndarray) -> float:
    """Kendall's tau of the numbers with time, -1 to 1."""
    n = len(values)
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(signs.mean()) if n > 1 else 0.0


def memory_mib() -> float:
    """Resident memory of the process, MiB; NaN where this system does not tell in a file."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * PAGE / 2**20 if statm.exists() else float("nan")
