"""Whether choices that were sampled are those of the probabilities that they are said to have."""

import numpy as np

MOST_SIGMAS = 6.0  # that sampled choices may be away from their probabilities
RARE = 20.0  # nats, beside these: one choice that comes once in 10^9


def sigmas_off(log_probs: np.ndarray, chosen: np.ndarray) -> float:
    """By how many standard deviations the choices' log-probabilities, summed, are from what is to be expected, less RARE.

    log_probs: float64[D, C].  chosen: int64[D].
    """
    probs, taken = np.exp(log_probs), log_probs[np.arange(len(chosen)), chosen]
    expected = (probs * log_probs).sum(axis=1)
    spread = np.sqrt(np.maximum((probs * log_probs**2).sum(axis=1) - expected**2, 1e-12).sum())
    return max(0.0, abs(float((taken - expected).sum())) - RARE) / float(spread)
