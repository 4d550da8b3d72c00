"""A run that goes on stands where its checkpoint was written, or is refused."""

import copy

import numpy as np
import pytest
import torch

from rl.policy.checkpoint import CheckpointError
from rl.train.restored import check_restored, differences

from learners import make_ppo, roll_out


def test_what_was_restored_is_compared_bit_for_bit():
    ppo, _ = make_ppo()
    roll_out(ppo)
    ppo.train()
    state, weights = copy.deepcopy(ppo.training_state()), copy.deepcopy(ppo.policy.state_dict())
    other, _ = make_ppo(seed=1)
    other.load_training_state(weights, copy.deepcopy(state))  # the optimiser keeps what it is given
    check_restored(other, weights, state, "here.safetensors")
    next(iter(other.policy.optimizer.state.values()))["exp_avg"].flatten()[0].add_(1e-6)
    with pytest.raises(CheckpointError, match=r"here.*optimizer.*exp_avg"):
        check_restored(other, weights, state, "here.safetensors")


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        ({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3]}, ["b.1"]),
        ({"a": 1}, {"b": 1}, ["a", "b"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": np.zeros(2)}, {"a": -np.zeros(2)}, ["a"]),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2)}, []),
        ({"a": float("nan")}, {"a": float("nan")}, []),
    ],
)
def test_differences_are_named_by_their_place(one, other, places):
    assert list(differences(one, other)) == places
