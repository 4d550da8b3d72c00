"""The rollout buffer: advantages by hand, minibatches; test_truth.py compares advantages with their definition."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl.policy.policy import observation_space
from rl.ppo.ppo import compute_gae
from rl.ppo.rollout_buffer import RolloutBuffer


def buffer_of(steps, envs):
    """An empty buffer."""
    observations = observation_space(("game_state", "surroundings"))
    return RolloutBuffer(steps, observations, spaces.Discrete(6), n_envs=envs)


def test_advantages_solved_by_hand():
    """gamma 1/2, lambda 1/2; the second decision ends its episode, the third one's continues."""
    buffer = buffer_of(3, 1)
    buffer.rewards[:, 0] = torch.tensor([1.0, 2.0, 3.0])
    buffer.values[:, 0] = torch.tensor([4.0, 8.0, 16.0])
    buffer.episode_ends[1, 0] = True
    last = torch.tensor([32.0])
    advantages, returns = compute_gae(buffer.rewards, buffer.values, buffer.episode_ends, last, 0.5, 0.5)
    third = 3 + 0.5 * 32 - 16  # 3
    second = 2 - 8  # -6: nothing comes after an end
    first = (1 + 0.5 * 8 - 4) + 0.5 * 0.5 * second  # 1 - 1.5
    assert advantages[:, 0].tolist() == [first, second, third] == [-0.5, -6, 3]
    assert returns[:, 0].tolist() == [3.5, 2, 19]


def test_minibatches_partition_decisions_and_drop_short_last():
    buffer = buffer_of(5, 4)
    drawn = [index.tolist() for index in buffer.minibatches(6, np.random.default_rng(0))]
    assert [len(index) for index in drawn] == [6, 6, 6]
    assert len({i for index in drawn for i in index}) == 18
    again = [index.tolist() for index in buffer.minibatches(6, np.random.default_rng(0))]
    other = [index.tolist() for index in buffer.minibatches(6, np.random.default_rng(1))]
    assert drawn == again != other


def test_flattened_fields_and_observations_belong_together():
    buffer = buffer_of(3, 2)
    number = torch.arange(6).reshape(3, 2)
    buffer.actions.copy_(number)
    buffer.obs["game_state"][..., 0] = number.float()
    buffer.obs["surroundings"][..., 0, 0, 0] = number
    index = torch.tensor([5, 0, 3])
    assert buffer.flat("actions")[index].tolist() == [5, 0, 3]
    part = buffer.observations(index)
    assert part["game_state"][:, 0].tolist() == [5, 0, 3]
    assert part["surroundings"][:, 0, 0, 0].tolist() == [5, 0, 3]
    assert part["surroundings"].dtype == torch.uint8, "images stay bytes until the network"


@pytest.mark.parametrize(("name", "dtype"), [("actions", torch.int64), ("episode_ends", torch.bool)])
def test_dtypes(name, dtype):
    assert getattr(buffer_of(2, 2), name).dtype == dtype
