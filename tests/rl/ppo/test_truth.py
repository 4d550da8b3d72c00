"""Results of training compared with a second computation of each from its definition: plain loops in float64,
distributions of torch, functions of Stable-Baselines3.

Only the network is shared with the tested code.
"""

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.utils import explained_variance as their_explained_variance
from torch.distributions import Categorical, kl_divergence

from nppsim.observe import layout
from nppsim.physics.outcomes import WON
from nppsim.reward import TERMS as TERMS_OF_REWARD
from rl.policy.policy import build_policy, observation_space
from rl.ppo.ppo import compute_gae
from rl.ppo.rollout_buffer import RolloutBuffer

from learners import AT_ONCE, CATEGORIES, logged, make_ppo, roll_out, statistics
from naive_ppo import plain_advantages

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------------------------------------------------------
# Advantages and returns


@settings(deadline=None, max_examples=40)
@given(
    steps=st.integers(1, 24),
    gamma=st.sampled_from([0.5, 0.99, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    end_share=st.sampled_from([0, 0.1, 0.5, 1]),
    seed=st.integers(0, 2**32 - 1),
)
def test_advantages_are_sums_of_discounted_td_errors(steps, gamma, gae_lambda, end_share, seed):
    rng = np.random.default_rng(seed)
    buffer = RolloutBuffer(steps, observation_space(("game_state",)), spaces.Discrete(6), n_envs=3)
    rewards, values = rng.normal(size=(2, steps, 3))
    last_values, ends = rng.normal(size=3), rng.random((steps, 3)) < end_share
    for name, array in (("rewards", rewards), ("values", values), ("episode_ends", ends)):
        getattr(buffer, name).copy_(torch.from_numpy(array))
    last = torch.from_numpy(last_values).float()
    found = compute_gae(buffer.rewards, buffer.values, buffer.episode_ends, last, gamma, gae_lambda)
    buffer.advantages, buffer.returns = found
    expected = plain_advantages(rewards, values, ends, last_values, gamma, gae_lambda)
    np.testing.assert_allclose(buffer.advantages.numpy(), expected, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(buffer.returns.numpy(), expected + values, rtol=1e-4, atol=2e-5)
    flat = buffer.returns.numpy().ravel()
    if len(flat) > 1:
        theirs = their_explained_variance(buffer.values.numpy().ravel(), flat)
        assert buffer.explained_variance() == pytest.approx(float(theirs), rel=1e-3, abs=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# A whole update


def naive_update(policy, buffer, config, weights, rng, *, epochs, size, reference):
    """Do an update by plain code; return the logged values of each gradient step as float64.

    weights: coefficients of the entropy bonus and of the KL penalty, and the divisor of the value loss.
    """
    actions, advantages, returns, old = (
        getattr(buffer, name).flatten(0, 1) for name in ("actions", "advantages", "returns", "log_probs")
    )
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    steps = []
    for _ in range(epochs):
        order = rng.permutation(len(actions))
        for first in range(0, len(order) - size + 1, size):
            index = torch.from_numpy(order[first : first + size])
            obs = {key: values.flatten(0, 1)[index] for key, values in buffer.obs.items()}
            logits, values = policy.logits_and_values(obs)
            with torch.no_grad():
                cloned = Categorical(logits=reference.logits_and_values(obs)[0])
            new, played = Categorical(logits=logits), Categorical(logits=old[index])
            ratio = torch.exp(new.log_prob(actions[index]) - played.log_prob(actions[index]))
            gains = torch.stack(
                [
                    scaled[index] * ratio,
                    scaled[index] * torch.clamp(ratio, 1 - config.clip_range, 1 + config.clip_range),
                ]
            )
            parts = {
                "policy_gradient_loss": -gains.min(dim=0).values.mean(),
                "value_loss": ((values - returns[index]) ** 2).mean(),
                "entropy_loss": -new.entropy().mean(),
                "bc_kl": kl_divergence(cloned, new).mean(),
            }
            loss = (
                parts["policy_gradient_loss"]
                + weights["entropy"] * parts["entropy_loss"]
                + config.vf_coef / weights["variance"] * parts["value_loss"]
                + weights["pull"] * parts["bc_kl"]
            )
            policy.optimizer.zero_grad()
            loss.backward()
            norm = math.sqrt(
                sum(float((p.grad.double() ** 2).sum()) for p in policy.parameters() if p.grad is not None)
            )
            for parameter in policy.parameters():
                if parameter.grad is not None:
                    parameter.grad *= min(1.0, config.max_grad_norm / (norm + 1e-6))
            policy.optimizer.step()
            parts |= {
                "loss": loss,
                "approx_kl": kl_divergence(played, new).mean(),
                "clip_fraction": ((ratio - 1).abs() > config.clip_range).double().mean(),
            }
            steps.append({name: float(value.detach()) for name, value in parts.items()} | {"grad_norm": norm})
    return steps


def test_update_equals_naive_computation():
    """Two epochs with minibatches of 64 of 128 decisions and all terms of the loss; the resulting weights are equal,
    too."""
    ppo, scalars = make_ppo(
        frame_skip=16, n_epochs=2, minibatch_size=64, target_kl=None, learning_rate=3e-3, ent_coef_start=0.05,
        clip_range=0.05, max_grad_norm=0.3, bc_kl_coef_start=0.3, **AT_ONCE,
    )  # fmt: skip
    ppo.set_reference(build_policy("vision_free", statistics()))
    roll_out(ppo)
    roll_out(ppo)  # episodes that began in the first one end here
    buffer = ppo.rollout_buffer
    twin, rng = copy.deepcopy(ppo.policy), copy.deepcopy(ppo.rng)
    twin.optimizer.param_groups[0]["lr"] = ppo.config.learning_rate_at(ppo.progress)
    progress = ppo.progress
    weights = {
        "entropy": 0.05 + (0.001 - 0.05) * progress,
        "pull": 0.3 * (1 - progress / 0.3),
        "variance": float(buffer.returns.double().var(unbiased=True)),
    }
    before = {name: value.clone() for name, value in ppo.policy.state_dict().items()}
    ppo.update()
    steps = naive_update(twin, buffer, ppo.config, weights, rng, epochs=2, size=64, reference=ppo.reference)
    assert len(steps) == 4
    row = logged(ppo, scalars)
    for name in steps[0]:
        expected = np.mean([step[name] for step in steps])
        assert row[f"train/{name}"] == pytest.approx(expected, rel=2e-4, abs=2e-6), name
    assert row["train/last_kl"] == pytest.approx(steps[-1]["approx_kl"], rel=1e-3, abs=1e-6)
    assert row["train/explained_variance"] == pytest.approx(
        1 - float((buffer.returns - buffer.values).double().var() / buffer.returns.double().var()), abs=1e-5
    )
    assert all(row[f"train/{name}"] != 0 for name in ("clip_fraction", "bc_kl"))
    for name, theirs in twin.state_dict().items():
        torch.testing.assert_close(ppo.policy.state_dict()[name], theirs, rtol=1e-3, atol=2e-5, msg=name)
    moved = max(float((before[name] - value).abs().max()) for name, value in twin.state_dict().items())
    assert moved > 100 * 2e-5, "the update changes the weights by more than the tolerance"


# ---------------------------------------------------------------------------------------------------------------------
# Statistics and logging


def test_network_inputs_are_z_scores():
    """Mean and standard deviation of all observations by numpy in float64.  Components whose deviation is below a
    tenth of their scale are divided by this tenth; values are clipped at 10."""
    ppo, _ = make_ppo()
    roll_out(ppo)
    normalize = ppo.policy.features_extractor.normalize
    gathered = statistics()
    obs = {key: ppo.rollout_buffer.flat_obs(key) for key in normalize.float_keys}
    expected = []
    for key in normalize.float_keys:
        scale = np.broadcast_to(np.asarray(layout.SPECS[key].scale, float), layout.SPECS[key].shape)
        spread = np.maximum(gathered.std[key], 0.1 * scale)
        expected.append(((obs[key].double().numpy() - gathered.mean[key]) / spread).reshape(len(obs[key]), -1))
    np.testing.assert_allclose(
        normalize(obs).numpy(), np.clip(np.concatenate(expected, axis=1), -10, 10), rtol=1e-3, atol=2e-4
    )


def test_logged_figures_are_means_over_episodes():
    ppo, scalars = make_ppo(frame_skip=16, rollout_length=64, seed=1)
    ended, begin_next = [], ppo.sampler.next_episodes

    def remember(sim):
        records = begin_next(sim)
        ended.extend(record.copy() for record in records)
        return records

    ppo.sampler.next_episodes = remember
    roll_out(ppo)
    ppo.dump_logs()
    row = scalars.rows[-1]
    returns = [float(record["ret"]) for record in ended]
    wins = [record["outcome"] == WON for record in ended]
    assert len(ended) > 4 and not all(wins)
    assert row["rollout/ep_rew_mean"] == pytest.approx(math.fsum(returns[-100:]) / len(returns[-100:]), rel=1e-6)
    assert row["rollout/ep_len_mean"] == pytest.approx(np.mean([record["decisions"] for record in ended[-100:]]))
    assert row["rollout/success_rate"] == pytest.approx(np.mean(wins[-100:]))
    assert row["reward/return"] == pytest.approx(np.mean(returns), rel=1e-5)
    assert row["sim/wins"] == sum(wins)
    assert row["sim/distinct_levels"] == len({int(record["level"]) for record in ended})
    for index, category in enumerate(CATEGORIES):
        of = [float(record["ret"]) for record in ended if record["level"] == index]
        assert row[f"env_task_reward/{category}"] == pytest.approx(np.mean(of[-100:]), rel=1e-5)
    for i, name in enumerate(TERMS_OF_REWARD):
        assert row[f"reward/{name}"] == pytest.approx(
            np.mean([record["terms"][i] for record in ended]), rel=1e-5, abs=1e-7
        )
    actions = ppo.rollout_buffer.actions.numpy().ravel().tolist()
    shares = [value for tag, value in row.items() if tag.startswith("actions/frequency/")]
    assert shares == pytest.approx([actions.count(action) / len(actions) for action in range(6)])
