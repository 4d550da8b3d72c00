"""Minibatches of demonstrations: single decisions in random order, or segments of consecutive decisions.

    batches = batches_of(policy, dataset, device)
    for rows in batches.epoch(training, size, rng):         # training
        observations, actions = batches.observe(rows)
    for rows in batches.parts(validation):                  # evaluation
        observations, actions = batches.observe_whole(rows)

Graph networks and recurrent policies train on segments of SEGMENT decisions.
The decisions of a segment nearly always have the same graph, so the network encodes it only once.
Before each epoch, a recurrent policy plays all demonstrations to compute the initial state of each segment.
Gradients flow within a segment only.
Source: Kapturowski et al. 2019 (stored states).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from bc.dataset import GRAPH, BCDataset

EVALUATION_BATCH = 1024
SEGMENT = 32  # decisions per segment; about two seconds with the default frame skip

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]  # observations [B, ...], actions int64[B]


class Batches:
    """Minibatches of single decisions, for a feed-forward policy."""

    def __init__(self, dataset: BCDataset, device: str | torch.device):
        self.dataset, self.device = dataset, device

    def steps(self, rows: np.ndarray, size: int) -> int:
        """Return the number of batches of one epoch over these rows."""
        return -(-len(rows) // size)

    def epoch(self, rows: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield all rows once in random order, in batches of ``size`` rows."""
        order = rng.permutation(rows)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def parts(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows in order, in parts small enough for the memory."""
        for start in range(0, len(rows), EVALUATION_BATCH):
            yield rows[start : start + EVALUATION_BATCH]

    def begins(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the indices int64[S] at which threads may split a batch; None if they may split it anywhere."""
        return None

    def observe(self, rows: np.ndarray) -> Batch:
        """Return observations and actions of a training batch."""
        arrays = self.dataset.observe(rows)
        observations = {key: torch.from_numpy(values).to(self.device) for key, values in arrays.items()}
        return observations, torch.from_numpy(self.dataset.actions[rows]).to(self.device, torch.int64)

    def observe_whole(self, rows: np.ndarray) -> Batch:
        """Return observations and actions of an evaluation batch."""
        return self.observe(rows)


class Segments(Batches):
    """Minibatches of segments, for a graph network.  The last segment of a demonstration may be shorter."""

    def __init__(self, dataset: BCDataset, device: str | torch.device):
        super().__init__(dataset, device)
        lengths = np.bincount(dataset.demonstration)
        first = np.cumsum(lengths) - lengths
        # number of earlier decisions in the same demonstration, by row
        self._age = np.arange(len(dataset)) - first[dataset.demonstration]

    def steps(self, rows: np.ndarray, size: int) -> int:
        return -(-len(self.begins(rows)) // max(1, size // SEGMENT))

    def epoch(self, rows: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield all segments once, in random order, in batches of about ``size`` decisions."""
        segments, count = np.split(rows, self.begins(rows)[1:]), max(1, size // SEGMENT)
        order = rng.permutation(len(segments))
        for start in range(0, len(order), count):
            yield np.concatenate([segments[number] for number in order[start : start + count]])

    def begins(self, rows: np.ndarray) -> np.ndarray:
        return np.flatnonzero(self._age[rows] % SEGMENT == 0)


class Sequences(Segments):
    """Minibatches of segments with stored initial states.  policy: a policy with ``step`` and ``in_sequences``."""

    def __init__(self, policy: Any, dataset: BCDataset, device: str | torch.device):
        super().__init__(dataset, device)
        self.policy = policy
        self._states: dict[int, torch.Tensor] = {}  # first row of a segment -> recurrent state before it

    def epoch(self, rows: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Update the initial states, then yield segments as the base class does."""
        self._store_states(rows)
        yield from super().epoch(rows, size, rng)

    def parts(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield whole demonstrations in order."""
        firsts = np.flatnonzero(self._age[rows] == 0)
        sizes = np.diff(np.append(firsts, len(rows)))
        whole = np.bincount(self.dataset.demonstration)[self.dataset.demonstration[rows[firsts]]]
        if firsts[0] or not np.array_equal(sizes, whole):
            raise ValueError(
                "rows for a recurrent policy must be whole demonstrations, from the first decision to the last"
            )
        part = np.cumsum(sizes) // EVALUATION_BATCH
        return iter(np.split(rows, firsts[1:][part[1:] != part[:-1]]))

    def observe(self, rows: np.ndarray) -> Batch:
        follows = self._age[rows] % SEGMENT != 0
        return self._observe(rows, follows, torch.stack([self._states[row] for row in rows[~follows].tolist()]))

    def observe_whole(self, rows: np.ndarray) -> Batch:
        return self._observe(rows, self._age[rows] != 0, None)

    def _observe(self, rows: np.ndarray, follows: np.ndarray, states: torch.Tensor | None) -> Batch:
        observations, actions = super().observe(rows)
        before = None
        if states is not None:
            before = states.new_zeros((len(rows), states.shape[1]))
            before[torch.from_numpy(~follows).to(states.device)] = states
        return self.policy.in_sequences(observations, torch.from_numpy(follows).to(self.device), before), actions

    @torch.no_grad()
    def _store_states(self, rows: np.ndarray) -> None:
        """Compute and store the recurrent state before each segment."""
        self._states = {}
        for part in self.parts(rows):
            states = self.policy.step(self.observe_whole(part)[0])[2]
            for row in self.begins(part).tolist():
                begins = self._age[part[row]] == 0
                self._states[int(part[row])] = torch.zeros_like(states[0]) if begins else states[row - 1]


def batches_of(policy: Any, dataset: BCDataset, device: str | torch.device) -> Batches:
    """Return ``Sequences`` for a recurrent policy, ``Segments`` for a dataset with graphs, else ``Batches``."""
    if getattr(policy, "memory", None) is not None:
        return Sequences(policy, dataset, device)
    return Segments(dataset, device) if GRAPH in dataset.observations else Batches(dataset, device)
