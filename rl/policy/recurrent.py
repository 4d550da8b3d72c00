"""GRU memory of a recurrent policy, between encoder and heads.

    memory = Memory(features=256, size=64)
    features, states = memory(features, observations)       # float[N, 256] for the heads, new states float32[N, 64]

The state before a decision is an observation, MEMORY: float32[N, size], zero at the start of an episode.  It is therefore
stored with each decision, which can be evaluated alone.  FOLLOWS, bool[N], defines sequences: the state before such a row is
that after the previous row instead of MEMORY, with gradients.  Without MEMORY, sequences start with zeros.
Source: Cho et al. 2014 (GRU); Kapturowski et al. 2019 (stored states, burn-in).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

MEMORY = "memory"  # key of the observation: the state before the decision
FOLLOWS = "follows"  # key of the observation: the row continues the previous row

Observations = Mapping[str, torch.Tensor]


class Memory(nn.Module):
    """Adds a projection of the new recurrent state to the features.

    features: size of the encoder's output.
    size: of the state.
    """

    def __init__(self, features: int, size: int):
        super().__init__()
        self.size = size
        self.cell = nn.GRU(features, size, batch_first=True)
        self.told = nn.Linear(size, features, bias=False)  # projection; its name is part of checkpoints

    def forward(self, features: torch.Tensor, observations: Observations) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features for the heads, float[N, F], and states after each row, float32[N, size]."""
        states = observations[MEMORY] if MEMORY in observations else features.new_zeros((len(features), self.size))
        # float32, as errors accumulate over hundreds of steps
        with torch.autocast(features.device.type, enabled=False):
            after = self._after(features.float(), states.float(), observations.get(FOLLOWS))
        return features + self.told(after), after

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
    """Order of rows for a PackedSequence, longest sequence first: all first rows, all second rows, ...

    follows: bool[N]; False for the first row.
    Returns the rows in that order, int64[N]; how many sequences have a first, second, ... row, int64[L]; and the first row
    of each sequence in the same order, int64[S].
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


def with_memory(obs: Mapping[str, np.ndarray], states: np.ndarray) -> dict[str, np.ndarray]:
    """Add the states before the decisions, float32[N, size], to observations."""
    return {**obs, MEMORY: states}


def initial_states(policy: Any, num_envs: int) -> np.ndarray | None:
    """Return the zero states float32[num_envs, size] at the start of episodes; None for a feed-forward policy."""
    memory = getattr(policy, "memory", None)
    return None if memory is None else np.zeros((num_envs, memory.size), np.float32)
