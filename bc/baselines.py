"""Trivial predictors of the next decision, and how well any prediction does: what a BC policy's accuracy stands beside.

A player mostly repeats his last input, so accuracy alone proves nothing.  All trivial predictors look at the previous
action only, and are tables from it to their answer.
"""

from dataclasses import dataclass

import numpy as np

from nppsim.actions import NUM_ACTIONS


@dataclass(frozen=True)
class Metrics:
    """How well decisions are predicted.

    loss: cross-entropy, unweighted, nats (None for predictors without probabilities).
    accuracy: over all decisions.
    change_accuracy: over those that differ from the one before (None where there are none).
    recall: per action, None for actions that do not occur.
    """

    loss: float | None
    accuracy: float
    change_accuracy: float | None
    recall: tuple[float | None, ...]


def previous_actions(actions: np.ndarray) -> np.ndarray:
    """The decision before each one of a demonstration, int[decisions]; no-op before the first."""
    return np.concatenate([[0], actions[:-1]]).astype(actions.dtype)


def transition_counts(actions: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """int64[6, 6]: how often an action (column) follows a previous one (row); both int[decisions], 0..5."""
    pairs = previous.astype(np.int64) * NUM_ACTIONS + actions
    return np.bincount(pairs, minlength=NUM_ACTIONS**2).reshape(NUM_ACTIONS, NUM_ACTIONS)


def predictors(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Name -> int64[6], the answer to each previous action; counts: ``transition_counts`` of what they may learn from.

    majority: the most frequent action.  repeat_previous.  transition: what most often follows.  transition_on_change:
    what most often follows among the other actions; it is never right where the action stays.
    """
    others = counts - np.diag(counts.diagonal() + 1)  # -1: never chosen
    return {
        "repeat_previous": np.arange(NUM_ACTIONS),
        "majority": np.full(NUM_ACTIONS, counts.sum(axis=0).argmax()),
        "transition": counts.argmax(axis=1),
        "transition_on_change": others.argmax(axis=1),
    }


def score(predictions: np.ndarray, actions: np.ndarray, previous: np.ndarray, loss: float | None = None) -> Metrics:
    """Metrics of predicted actions against the actions and those before them; each int[decisions], not empty."""
    right = predictions == actions
    changes = actions != previous

    def share(chosen):
        return float(right[chosen].mean()) if chosen.any() else None

    recall = tuple(share(actions == action) for action in range(NUM_ACTIONS))
    return Metrics(loss, float(right.mean()), share(changes), recall)
