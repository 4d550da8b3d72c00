"""What is in a checkpoint is what it was written from, or the writing is an error."""

import numpy as np
import pytest
import torch

from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.ppo import training_state
from rl.ppo.written import check_same, differences, write

from learners import make_ppo, roll_out


@pytest.fixture(scope="module")
def ppo():
    ppo, _ = make_ppo()
    roll_out(ppo)
    ppo.update()
    return ppo


def test_a_checkpoint_is_read_back(ppo, tmp_path):
    path = write(tmp_path / "it.safetensors", ppo.policy, frame_skip=4, training=training_state.training_state(ppo))
    state = training_state.training_state(ppo)
    moments = next(iter(state["optimizer"]["state"].values()))["exp_avg"]
    moments.flatten()[0].add_(1e-6)
    with pytest.raises(CheckpointError, match=r"it\.safetensors.*training\.optimizer.*exp_avg"):
        check_same(checkpoint.load(path)["training"], state, path, "training.")


def test_weights_that_are_rounded_on_the_way_are_noticed(ppo, tmp_path, monkeypatch):
    save = checkpoint.save

    def rounding(path, policy, **named):
        with torch.no_grad():
            policy.action_net.bias.copy_(policy.action_net.bias.bfloat16().float())
            made = save(path, policy, **named)
            policy.action_net.bias.add_(1e-7)
        return made

    monkeypatch.setattr(checkpoint, "save", rounding)
    with pytest.raises(CheckpointError, match=r"weights\.action_net\.bias"):
        write(tmp_path / "it.safetensors", ppo.policy, frame_skip=4)


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
