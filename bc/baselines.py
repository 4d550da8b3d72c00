"""Metrics of action prediction, and trivial predictors to compare a BC policy with.

Players mostly repeat their last input, so accuracy alone says little.  Each trivial predictor is a table from the previous
action to the predicted one.
"""

from dataclasses import dataclass

import numpy as np

from nppsim.actions import NUM_ACTIONS


@dataclass(frozen=True)
class Metrics:
    """Metrics of action prediction.

    loss: cross-entropy, unweighted, nats (None for predictors without probabilities).
    accuracy: over all decisions.
    change_accuracy: over decisions that differ from the previous one (None without any).
    recall: per action, None for actions that do not occur.
    """

    loss: float | None
    accuracy: float
    change_accuracy: float | None
    recall: tuple[float | None, ...]


def previous_actions(actions: np.ndarray) -> np.ndarray:
    """Previous action of each decision of a demonstration, int[decisions]; no-op before the first."""
    return np.concatenate([[0], actions[:-1]]).astype(actions.dtype)


def transition_counts(actions: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """Counts int64[6, 6] of actions (columns) after previous actions (rows); both int[decisions], 0..5."""
    pairs = previous.astype(np.int64) * NUM_ACTIONS + actions
    return np.bincount(pairs, minlength=NUM_ACTIONS**2).reshape(NUM_ACTIONS, NUM_ACTIONS)


def predictors(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Name -> int64[6], the predicted action for each previous action.

    counts: ``transition_counts`` of the training data.
    majority: the most frequent action.  transition: the most frequent next action.  transition_on_change: the most
    frequent next action that differs from the previous one.
    """
    changes = counts - np.diag(counts.diagonal() + 1)  # -1: never chosen
    return {
        "repeat_previous": np.arange(NUM_ACTIONS),
        "majority": np.full(NUM_ACTIONS, counts.sum(axis=0).argmax()),
        "transition": counts.argmax(axis=1),
        "transition_on_change": changes.argmax(axis=1),
    }


def score(predictions: np.ndarray, actions: np.ndarray, previous: np.ndarray, loss: float | None = None) -> Metrics:
    """Metrics of predictions, given actions and previous actions; each int[decisions], not empty."""
    right = predictions == actions
    changes = actions != previous

    def share(chosen: np.ndarray) -> float | None:
        return float(right[chosen].mean()) if chosen.any() else None

    recall = tuple(share(actions == action) for action in range(NUM_ACTIONS))
    return Metrics(loss, float(right.mean()), share(changes), recall)
