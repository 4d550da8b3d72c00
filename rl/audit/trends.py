"""Steadily falling figures."""

import numpy as np

FALL = 0.85  # share of the speed at the window's start below which it has fallen
TAU = 0.55  # rank correlation with time beyond which a trend is steady


def falling(values: np.ndarray) -> bool:
    """Return True for values that fall clearly, over the whole window and in both halves."""
    half = len(values) // 2
    parts = (values, values[:half], values[half:])
    return bool(values[-5:].mean() < FALL * values[:5].mean() and all(rank_correlation(part) < -TAU for part in parts))


def rank_correlation(values: np.ndarray) -> float:
    """Kendall's tau of the values with time, -1 to 1."""
    n = len(values)
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(signs.mean()) if n > 1 else 0.0
