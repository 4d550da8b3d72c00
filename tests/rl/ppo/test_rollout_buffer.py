"""The rollout buffer: advantages against Stable-Baselines3's own and by hand, minibatches."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common import buffers as sb3

from rl.policy.policy import observation_space
from rl.ppo.ppo import compute_gae
from rl.ppo.rollout_buffer import RolloutBuffer


def buffers(steps, envs, gamma=0.99, gae_lambda=0.95):
    """(ours, theirs), both empty."""
    actions = spaces.Discrete(6)
    theirs = {"gamma": gamma, "gae_lambda": gae_lambda, "n_envs": envs, "device": "cpu"}
    return (
        RolloutBuffer(steps, observation_space(("game_state", "surroundings")), actions, n_envs=envs),
        sb3.RolloutBuffer(steps, spaces.Box(-1, 1, (1,)), actions, **theirs),
    )


def estimate(buffer, last_values, gamma, gae_lambda):
    """Fill advantages and returns."""
    found = compute_gae(buffer.rewards, buffer.values, buffer.episode_ends, last_values, gamma, gae_lambda)
    buffer.advantages, buffer.returns = found


@settings(deadline=None, max_examples=60)
@given(
    steps=st.integers(1, 12),
    envs=st.integers(1, 4),
    gamma=st.floats(0.01, 1),
    gae_lambda=st.floats(0, 1),
    end_share=st.sampled_from([0, 0.1, 0.5, 1]),
    seed=st.integers(0, 2**32 - 1),
)
def test_advantages_and_returns_equal_stable_baselines3(steps, envs, gamma, gae_lambda, end_share, seed):
    ours, theirs = buffers(steps, envs, gamma, gae_lambda)
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, steps, envs)).astype(np.float32)
    last_values = rng.normal(size=envs).astype(np.float32)
    ends = rng.random((steps, envs)) < end_share

    theirs.rewards[:], theirs.values[:] = rewards, values
    theirs.episode_starts[1:] = ends[:-1]  # they note where an episode starts, we where one ends
    theirs.compute_returns_and_advantage(torch.from_numpy(last_values), dones=ends[-1])
    for name, array in (("rewards", rewards), ("values", values), ("episode_ends", ends)):
        getattr(ours, name).copy_(torch.from_numpy(array))
    estimate(ours, torch.from_numpy(last_values), gamma, gae_lambda)
    np.testing.assert_allclose(ours.advantages.numpy(), theirs.advantages, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.returns.numpy(), theirs.returns, rtol=1e-4, atol=1e-5)


def test_advantages_solved_by_hand():
    """gamma 1/2, lambda 1/2; the second decision ends its episode, the third one's continues."""
    buffer, _ = buffers(3, 1, gamma=0.5, gae_lambda=0.5)
    buffer.rewards[:, 0] = torch.tensor([1.0, 2.0, 3.0])
    buffer.values[:, 0] = torch.tensor([4.0, 8.0, 16.0])
    buffer.episode_ends[1, 0] = True
    estimate(buffer, torch.tensor([32.0]), 0.5, 0.5)
    third = 3 + 0.5 * 32 - 16  # 3
    second = 2 - 8  # -6: nothing comes after an end
    first = (1 + 0.5 * 8 - 4) + 0.5 * 0.5 * second  # 1 - 1.5
    assert buffer.advantages[:, 0].tolist() == [first, second, third] == [-0.5, -6, 3]
    assert buffer.returns[:, 0].tolist() == [3.5, 2, 19]


def test_minibatches_partition_decisions_and_drop_short_last():
    buffer, _ = buffers(5, 4)
    drawn = [index.tolist() for index in buffer.minibatches(6, np.random.default_rng(0))]
    assert [len(index) for index in drawn] == [6, 6, 6]
    assert len({i for index in drawn for i in index}) == 18
    again = [index.tolist() for index in buffer.minibatches(6, np.random.default_rng(0))]
    other = [index.tolist() for index in buffer.minibatches(6, np.random.default_rng(1))]
    assert drawn == again != other


def test_flattened_fields_and_observations_belong_together():
    buffer, _ = buffers(3, 2)
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
    assert getattr(buffers(2, 2)[0], name).dtype == dtype
