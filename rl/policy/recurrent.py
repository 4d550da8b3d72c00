"""GRU of a recurrent policy, between encoder and heads.

    memory = RecurrentLayer(features=256, size=64)
    features, states = memory(features, observations)       # float[N, 256] for the heads, new states float32[N, 64]

The state before a decision is the observation RECURRENT_STATE: float32[N, size], zero at the start of an episode.  A rollout
stores it with each decision, so a decision can be evaluated alone.  The observation FOLLOWS, bool[N], defines sequences.  A
row with FOLLOWS starts from the state after the previous row, with gradients, instead of from RECURRENT_STATE.  Without
RECURRENT_STATE, sequences start with zeros.
Source: Cho et al. 2014 (GRU); Kapturowski et al. 2019 (stored states).
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

RECURRENT_STATE = "recurrent_state"  # key of the observation: the state before the decision
FOLLOWS = "follows"  # key of the observation: True if the row continues the sequence of the previous row

Observations = Mapping[str, torch.Tensor]


class RecurrentLayer(nn.Module):
    """GRU layer that adds a projection of its new state to the features.

    features: number of features of the encoder.
    size: size of the recurrent state.
    """

    def __init__(self, features: int, size: int):
        super().__init__()
        self.size = size
        self.cell = nn.GRU(features, size, batch_first=True)
        self.projection = nn.Linear(size, features, bias=False)

    def forward(self, features: torch.Tensor, observations: Observations) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features for the heads, float[N, F], and the states after each row, float32[N, size]."""
        states = (
            observations[RECURRENT_STATE]
            if RECURRENT_STATE in observations
            else features.new_zeros((len(features), self.size))
        )
        # float32, as rounding errors accumulate over hundreds of steps
        with torch.autocast(features.device.type, enabled=False):
            after = self._after(features.float(), states.float(), observations.get(FOLLOWS))
        return features + self.projection(after), after

    def _after(self, features: torch.Tensor, states: torch.Tensor, follows: torch.Tensor | None) -> torch.Tensor:
        if follows is None:
            return self.cell(features[:, None], states[None])[0][:, 0]
        order, batch_sizes, begins = packed(follows)
        rows = order.to(features.device)
        packed_states, _ = self.cell(
            PackedSequence(features[rows], torch.from_numpy(batch_sizes)), states[begins.to(features.device)][None]
        )
        after = torch.empty_like(packed_states.data)
        after[rows] = packed_states.data
        return after


def packed(follows: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Return the order of rows in a PackedSequence, with the longest sequence first.

    follows: bool[N], True for rows that continue the previous row.
    Returns the rows in this order int64[N], the batch sizes int64[L] of the L steps, and the first row of each sequence
    int64[S].  Raises ValueError if the first row of the batch continues a sequence.
    """
    begins = np.flatnonzero(~follows.cpu().numpy())
    if not len(begins) or begins[0]:
        raise ValueError("the first row of a batch cannot follow another one; split batches where sequences begin")
    lengths = np.diff(np.append(begins, len(follows)))
    longest_first = np.argsort(-lengths, kind="stable")
    begins, lengths = begins[longest_first], lengths[longest_first]
    batch_sizes = np.searchsorted(-lengths, -np.arange(lengths[0]), side="left")
    order = np.concatenate([begins[:count] + step for step, count in enumerate(batch_sizes)])
    return torch.from_numpy(order), batch_sizes, torch.from_numpy(begins)
