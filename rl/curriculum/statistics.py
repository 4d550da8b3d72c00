"""Small statistics that curricula share: windows, confidence bounds, inequality, and arrays as JSON values."""

import base64
import json
import math
from typing import Any

import numpy as np

ONE_SIDED_95 = 1.645  # standard errors


class Windows:
    """The latest values of each of several series, at most ``size`` of each; adding costs O(1) per value.

    counts: int64[S], values in each window.
    """

    def __init__(self, series: int, size: int):
        self.size = size
        self._values = np.zeros((series, size), np.float32)  # rings
        self._next = np.zeros(series, np.int64)  # where the next value goes
        self.counts = np.zeros(series, np.int64)

    def extend(self, series: np.ndarray, values: np.ndarray) -> None:
        """Add values in their order.  series: int[k], where each belongs.  values: [k]."""
        count = np.bincount(series, minlength=len(self.counts))
        # As small integers, which numpy sorts by their digits, in linear time.
        order = np.argsort(series.astype(np.min_scalar_type(len(count))), kind="stable")
        ends = np.cumsum(count)
        for one in np.flatnonzero(count).tolist():
            new = values[order[ends[one] - min(count[one], self.size) : ends[one]]]
            place = (self._next[one] + np.arange(len(new))) % self.size
            self._values[one, place] = new
            self._next[one] = (self._next[one] + len(new)) % self.size
            self.counts[one] = min(self.size, self.counts[one] + len(new))

    def values(self, series: int) -> np.ndarray:
        """float32[count], oldest first."""
        count = self.counts[series]
        return self._values[series, (self._next[series] - count + np.arange(count)) % self.size]

    def means(self) -> np.ndarray:
        """float64[S]; NaN for an empty window."""
        found = [self.values(one) for one in range(len(self.counts))]
        return np.array([one.mean(dtype=np.float64) if len(one) else math.nan for one in found])

    def fill(self, series: int, values: np.ndarray) -> None:
        """Begin a window anew with these values, oldest first."""
        self._next[series] = self.counts[series] = 0
        self.extend(np.full(len(values), series), np.asarray(values, np.float32))


def wilson(wins: float, episodes: int, z: float) -> float:
    """End of Wilson's interval for a probability: the lower one for z < 0, the upper one for z > 0, z standard errors away.

    Source: Wilson 1927.
    """
    if not episodes:
        return 0.0 if z < 0 else 1.0
    p, n = wins / episodes, episodes
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (centre + spread) / (1 + z * z / n)


def gini(values: np.ndarray) -> float:
    """Gini coefficient of numbers >= 0: 0 where all are equal, towards 1 where one has everything; 0 for none."""
    total, n = float(values.sum()), len(values)
    if total <= 0:
        return 0.0
    if values.dtype.kind == "i" and values.max() <= 4 * n:  # counts: no need to sort them
        size = np.bincount(values).astype(np.float64)  # of the group of each value
        ranks = size * (2 * np.cumsum(size) - size + 1) / 2  # their sum
        weighted = ranks @ np.arange(len(size))
    else:
        weighted = np.arange(1, n + 1, dtype=np.float64) @ np.sort(values)
    return float(2 * weighted / (n * total) - (n + 1) / n)


def joined(*groups: dict[str, float]) -> dict[str, float]:
    """Scalars by tag of several groups; TypeError for what is no single number, or told twice."""
    found: dict[str, float] = {}
    for group in groups:
        for tag, value in group.items():
            if type(value) is not float:
                raise TypeError(f"{tag} is {value!r}; a statistic is one float: take the mean, or one tag for each")
            if tag in found:
                raise TypeError(f"{tag} is told by two parts of the curriculum; give one of them another name")
            found[tag] = value
    return found


def as_json(state: dict[str, Any]) -> str:
    """A state of plain values and arrays as text; what ``json.loads`` makes of it, ``load_state_dict`` understands."""
    return json.dumps(state, default=packed)


def packed(values: np.ndarray) -> dict[str, Any]:
    """An array as a JSON value; ``unpacked`` gives it back, bit for bit."""
    data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {"dtype": values.dtype.str, "shape": list(values.shape), "base64": data}


def unpacked(state: dict[str, Any] | np.ndarray) -> np.ndarray:
    """The array that was ``packed``, or a copy of one that was not."""
    if isinstance(state, np.ndarray):
        return state.copy()
    return np.frombuffer(base64.b64decode(state["base64"]), state["dtype"]).reshape(state["shape"]).copy()
