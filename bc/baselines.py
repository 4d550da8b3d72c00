"""Metrics of action prediction, for the policy and for trivial predictors (``bc.train``)."""

from dataclasses import dataclass

import numpy as np

from nppsim.actions import NUM_ACTIONS


@dataclass(frozen=True)
class Metrics:
    """Metrics of action prediction.

    loss: unweighted cross-entropy in nats; None for predictors without probabilities.
    accuracy: share of correct predictions over all decisions.
    change_accuracy: accuracy over decisions whose action differs from the previous one; None if there are none.
    recall: share of correct predictions for each action; None for actions that do not occur.
    """

    loss: float | None
    accuracy: float
    change_accuracy: float | None
    recall: tuple[float | None, ...]


def previous_actions(actions: np.ndarray) -> np.ndarray:
    """Return the previous action of each decision of a demonstration, int[decisions]; no-op for the first decision."""
    return np.concatenate([[0], actions[:-1]]).astype(actions.dtype)


def score(predictions: np.ndarray, actions: np.ndarray, previous: np.ndarray, loss: float | None = None) -> Metrics:
    """Compute the metrics of predictions.  All arrays are int[decisions] and not empty."""
    right = predictions == actions
    changes = actions != previous

    def share(chosen: np.ndarray) -> float | None:
        return float(right[chosen].mean()) if chosen.any() else None

    recall = tuple(share(actions == action) for action in range(NUM_ACTIONS))
    return Metrics(loss, float(right.mean()), share(changes), recall)
