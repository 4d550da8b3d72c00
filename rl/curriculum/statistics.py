"""Sliding windows and Gini coefficients, for curricula."""

import math
from collections import deque

import numpy as np


class Windows:
    """Sliding windows of ``size`` values over several series of values."""

    def __init__(self, series: int, size: int):
        self._windows: list[deque[float]] = [deque(maxlen=size) for _ in range(series)]

    def extend(self, series: np.ndarray, values: np.ndarray) -> None:
        """Append each value to the window of its series, in order.

        series: int[k], index of the series of each value.
        values: [k], any numeric dtype.
        """
        for number in np.unique(series).tolist():
            self._windows[number].extend(values[series == number].astype(np.float32).tolist())

    def values(self, series: int) -> np.ndarray:
        """Return the values float32[count] in a window, oldest first."""
        return np.array(self._windows[series], np.float32)

    def means(self) -> np.ndarray:
        """Return the mean float64[S] of each window; NaN if it is empty."""
        windows = map(self.values, range(len(self._windows)))
        return np.array([window.mean(dtype=np.float64) if len(window) else math.nan for window in windows])

    def fill(self, series: int, values: np.ndarray) -> None:
        """Replace the contents of a window by values, oldest first."""
        self._windows[series].clear()
        self._windows[series].extend(values.astype(np.float32).tolist())


def gini(values: np.ndarray) -> float:
    """Return the Gini coefficient of numbers >= 0: 0 if all are equal or none is given, near 1 if all but one are 0."""
    total, n = float(values.sum()), len(values)
    if total <= 0:
        return 0.0
    weighted = np.arange(1, n + 1, dtype=np.float64) @ np.sort(values)
    return float(2 * weighted / (n * total) - (n + 1) / n)
