"""Steadily falling figures, and the memory of the process."""

from pathlib import Path

import numpy as np

PAGE = 4096
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


def memory_mib() -> float:
    """Resident memory of the process, MiB; NaN without /proc."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * PAGE / 2**20 if statm.exists() else float("nan")
