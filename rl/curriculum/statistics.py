"""Sliding windows, Gini coefficients, and merging of scalars, for curricula."""

import math

import numpy as np


class Windows:
    """Sliding windows of ``size`` values over several series of values."""

    def __init__(self, series: int, size: int):
        self.size = size
        self._values = np.zeros((series, size), np.float32)  # ring buffers
        self._next = np.zeros(series, np.int64)  # position of the next value
        self.counts = np.zeros(series, np.int64)  # current number of values in each window

    def extend(self, series: np.ndarray, values: np.ndarray) -> None:
        """Append each value to the window of its series, in order.

        series: int[k], index of the series of each value.
        values: [k], any numeric dtype.
        """
        count = np.bincount(series, minlength=len(self.counts))
        # numpy sorts small integer types by radix sort, in linear time
        order = np.argsort(series.astype(np.min_scalar_type(len(count))), kind="stable")
        ends = np.cumsum(count)
        for one in np.flatnonzero(count).tolist():
            new = values[order[ends[one] - min(count[one], self.size) : ends[one]]]
            slot = (self._next[one] + np.arange(len(new))) % self.size
            self._values[one, slot] = new
            self._next[one] = (self._next[one] + len(new)) % self.size
            self.counts[one] = min(self.size, self.counts[one] + len(new))

    def values(self, series: int) -> np.ndarray:
        """Return the values float32[count] in a window, oldest first."""
        count = self.counts[series]
        return self._values[series, (self._next[series] - count + np.arange(count)) % self.size]

    def means(self) -> np.ndarray:
        """Return the mean float64[S] of each window; NaN if it is empty."""
        found = [self.values(one) for one in range(len(self.counts))]
        return np.array([one.mean(dtype=np.float64) if len(one) else math.nan for one in found])

    def fill(self, series: int, values: np.ndarray) -> None:
        """Replace the contents of a window by values, oldest first."""
        self._next[series] = self.counts[series] = 0
        self.extend(np.full(len(values), series), np.asarray(values, np.float32))


def gini(values: np.ndarray) -> float:
    """Return the Gini coefficient of numbers >= 0: 0 if all are equal or none is given, near 1 if all but one are 0."""
    total, n = float(values.sum()), len(values)
    if total <= 0:
        return 0.0
    if values.dtype.kind == "i" and values.max() <= 4 * n:  # small integers are counted instead of sorted
        size = np.bincount(values).astype(np.float64)  # number of entries with each value
        ranks = size * (2 * np.cumsum(size) - size + 1) / 2  # sum of the ranks of entries with each value
        weighted = ranks @ np.arange(len(size))
    else:
        weighted = np.arange(1, n + 1, dtype=np.float64) @ np.sort(values)
    return float(2 * weighted / (n * total) - (n + 1) / n)


def joined(*groups: dict[str, float]) -> dict[str, float]:
    """Merge dictionaries of scalars.  Raises TypeError for a value that is not a float, and for a repeated tag."""
    found: dict[str, float] = {}
    for group in groups:
        for tag, value in group.items():
            if type(value) is not float:
                raise TypeError(f"{tag} is {value!r}; return a single float for each tag")
            if tag in found:
                raise TypeError(f"{tag} is reported by two parts of the curriculum; rename one of them")
            found[tag] = value
    return found
