"""Metrics of action prediction, and trivial predictors to compare a BC policy with.

Players mostly repeat their last input, so even a trivial predictor has a high accuracy.  Each trivial predictor is a table
from the previous action to the predicted one.
"""

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


def transition_counts(actions: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """Count each action (column) after each previous action (row), int64[6, 6].  Both arguments are int[decisions], 0..5."""
    pairs = previous.astype(np.int64) * NUM_ACTIONS + actions
    return np.bincount(pairs, minlength=NUM_ACTIONS**2).reshape(NUM_ACTIONS, NUM_ACTIONS)


def predictors(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return trivial predictors by name: int64[6], the predicted action for each previous action.

    counts: ``transition_counts`` of the training data.
    ``repeat_previous`` predicts the previous action, and ``majority`` the most frequent action of all.  ``transition``
    predicts the most frequent action after the previous one; ``transition_on_change`` the most frequent one that differs.
    """
    changes = counts - np.diag(counts.diagonal() + 1)  # -1 on the diagonal, below all counts
    return {
        "repeat_previous": np.arange(NUM_ACTIONS),
        "majority": np.full(NUM_ACTIONS, counts.sum(axis=0).argmax()),
        "transition": counts.argmax(axis=1),
        "transition_on_change": changes.argmax(axis=1),
    }


def score(predictions: np.ndarray, actions: np.ndarray, previous: np.ndarray, loss: float | None = None) -> Metrics:
    """Compute the metrics of predictions.  All arrays are int[decisions] and not empty."""
    right = predictions == actions
    changes = actions != previous

    def share(chosen: np.ndarray) -> float | None:
        return float(right[chosen].mean()) if chosen.any() else None

    recall = tuple(share(actions == action) for action in range(NUM_ACTIONS))
    return Metrics(loss, float(right.mean()), share(changes), recall)
