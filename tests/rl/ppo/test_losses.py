"""PPO's losses compared with the training step of Stable-Baselines3, and with values computed by hand."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from torch.distributions import Categorical
from torch.distributions import kl_divergence as torch_kl_divergence

from rl.ppo.losses import Losses, LossWeights, Samples, kl_divergence, normalized, ppo_losses

from learners import Scalars

SAMPLES = 64
ACTIONS = 6


pytestmark = pytest.mark.usefixtures("one_thread")


class Nowhere(gym.Env):
    """Environment without dynamics, for the construction of a network."""

    observation_space = spaces.Box(-5, 5, (3,))
    action_space = spaces.Discrete(ACTIONS)


def their_ppo(seed, **settings):
    """Stable-Baselines3's PPO whose buffer holds random data, for one step of plain gradient descent, and the
    log-probabilities of all actions behind that data."""
    ppo = PPO(
        "MlpPolicy",
        Nowhere(),
        learning_rate=0.1,
        n_steps=SAMPLES,
        batch_size=SAMPLES,
        n_epochs=1,
        policy_kwargs={"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {}},
        seed=seed,
        device="cpu",
        **settings,
    )
    with torch.no_grad():
        ppo.policy.action_net.weight *= 100  # a fresh actor is nearly indifferent
    buffer, rng = ppo.rollout_buffer, np.random.default_rng(seed)
    buffer.observations[:] = rng.normal(size=buffer.observations.shape)
    buffer.actions[:] = rng.integers(ACTIONS, size=buffer.actions.shape)
    for field in (buffer.advantages, buffer.returns, buffer.values):
        field[:] = rng.normal(size=field.shape)
    observations, actions = torch.from_numpy(buffer.observations[:, 0]), torch.from_numpy(buffer.actions[:, 0, 0])
    with torch.no_grad():
        logits = ppo.policy.get_distribution(observations).distribution.logits
    noise = torch.from_numpy(rng.normal(scale=0.2, size=logits.shape)).float()
    played = (logits + noise).log_softmax(dim=1)  # as if the policy had moved since
    buffer.log_probs[:, 0] = played.gather(1, actions[:, None].long())[:, 0].numpy()
    buffer.full = True
    return ppo, played


def measured(parts):
    """The losses as numbers."""
    return Losses(*torch.stack(parts).tolist())


def our_samples(ppo, played):
    buffer = ppo.rollout_buffer
    actions, advantages, returns = (
        torch.from_numpy(getattr(buffer, name).copy()).flatten() for name in ("actions", "advantages", "returns")
    )
    values = torch.from_numpy(buffer.values.copy()).flatten()
    return Samples(actions.long(), played, normalized(advantages), returns, values=values)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("clip_range", "clip_range_vf", "ent_coef", "vf_coef", "max_grad_norm"),
    [(0.2, None, 0, 0.5, 1e9), (0.1, None, 0.1, 2, 0.3), (0.2, 0.5, 0.01, 1, 1e9)],
)
def test_losses_and_optimiser_step_equal_stable_baselines3(
    seed, clip_range, clip_range_vf, ent_coef, vf_coef, max_grad_norm
):
    settings = {"clip_range": clip_range, "clip_range_vf": clip_range_vf, "ent_coef": ent_coef, "vf_coef": vf_coef}
    theirs, played = their_ppo(seed, max_grad_norm=max_grad_norm, **settings)
    policy, samples = copy.deepcopy(theirs.policy), our_samples(theirs, played)
    observations = torch.from_numpy(theirs.rollout_buffer.observations[:, 0].copy())
    logits, values = policy.get_distribution(observations).distribution.logits, policy.predict_values(observations)
    parts = ppo_losses(logits, values.flatten(), samples, LossWeights(**settings))
    parts.loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
    policy.optimizer.step()

    scalars = Scalars()
    theirs.set_logger(Logger(None, [scalars]))
    theirs.train()
    expected = theirs.logger.name_to_value
    for name in ("policy_gradient_loss", "value_loss", "entropy_loss", "loss", "clip_fraction"):
        assert getattr(measured(parts), name) == pytest.approx(expected[f"train/{name}"], rel=1e-4, abs=1e-6), name
    assert 0 < measured(parts).clip_fraction < 1, "some ratios are clipped"
    exact = torch_kl_divergence(Categorical(logits=played), Categorical(logits=logits)).mean().item()
    assert measured(parts).approx_kl == pytest.approx(exact, rel=1e-4)
    for ours, their in zip(policy.parameters(), theirs.policy.parameters(), strict=True):
        torch.testing.assert_close(ours, their, rtol=1e-4, atol=1e-6)


def by_hand(**changes):
    """Two actions with probabilities 3/4 and 1/4; one decision for the first action; other values can be changed."""
    given = {"old": 0.5, "advantage": 2.0, "value": 1.0, "ret": 4.0, "clip_range": 0.2} | changes
    logits = torch.tensor([[3.0, 1.0]]).log().requires_grad_()
    samples = Samples(
        torch.tensor([0]),
        torch.tensor([[given["old"], 1 - given["old"]]]).log(),
        torch.tensor([given["advantage"]]),
        torch.tensor([given["ret"]]),
    )
    settings = LossWeights(given["clip_range"], vf_coef=0.5, ent_coef=0.1)
    return measured(ppo_losses(logits, torch.tensor([given["value"]]), samples, settings)), logits


def test_losses_of_one_decision_computed_by_hand():
    parts, _ = by_hand()
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    # the ratio 0.75 / 0.5 = 1.5 is clipped to 1.2
    assert parts.policy_gradient_loss == pytest.approx(-2 * 1.2)
    assert parts.value_loss == pytest.approx(9)
    assert parts.entropy_loss == pytest.approx(-entropy)
    assert parts.loss == pytest.approx(-2.4 + 0.5 * 9 - 0.1 * entropy)
    assert parts.approx_kl == pytest.approx(0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25))
    assert parts.clip_fraction == 1
    assert parts.bc_kl == 0


@pytest.mark.parametrize(
    ("old", "advantage", "gain"),
    [
        (0.5, 2.0, 2 * 1.2),  # better than thought and more likely than allowed: no more of it
        (0.5, -2.0, -2 * 1.5),  # worse than thought: the whole ratio counts
        (0.95, 2.0, 2 * 0.75 / 0.95),  # good, and less likely than it was: the whole ratio counts
        (0.95, -2.0, -2 * 0.8),  # bad, and less likely than allowed: no more of it
        (0.7, 2.0, 2 * 0.75 / 0.7),  # inside the clip range
    ],
)
def test_ratio_clipped_only_if_surrogate_decreases(old, advantage, gain):
    assert by_hand(old=old, advantage=advantage)[0].policy_gradient_loss == pytest.approx(-gain)


def random_log_probs(seed):
    return torch.randn(SAMPLES, ACTIONS, generator=torch.Generator().manual_seed(seed)).log_softmax(dim=1)


def test_kl_divergence_equals_torch():
    cloned, present = random_log_probs(1), random_log_probs(2)
    expected = torch_kl_divergence(Categorical(logits=cloned), Categorical(logits=present))
    torch.testing.assert_close(kl_divergence(cloned, present), expected)


def pulled_samples(cloned):
    rng = torch.Generator().manual_seed(5)
    return Samples(
        torch.randint(ACTIONS, (SAMPLES,), generator=rng),
        torch.full((SAMPLES, ACTIONS), 1 / ACTIONS).log(),
        torch.randn(SAMPLES, generator=rng),
        torch.randn(SAMPLES, generator=rng),
        cloned,
    )


def pulled_losses(logits, cloned, **settings):
    values = torch.zeros(SAMPLES, requires_grad=True)
    return ppo_losses(logits, values, pulled_samples(cloned), LossWeights(0.2, 0.5, 0.01, **settings))


def test_kl_penalty_adds_coefficient_times_divergence():
    logits, cloned = random_log_probs(2), random_log_probs(1)
    free, pulled = (measured(pulled_losses(logits, c, bc_kl_coef=0.3)) for c in (None, cloned))
    expected = torch_kl_divergence(Categorical(logits=cloned), Categorical(logits=logits)).mean().item()
    assert (free.bc_kl, pulled.bc_kl) == (0, pytest.approx(expected))
    assert pulled.loss == pytest.approx(free.loss + 0.3 * expected)
    assert measured(pulled_losses(cloned, cloned, bc_kl_coef=0.3)).bc_kl == pytest.approx(0, abs=1e-6)


def test_kl_penalty_increases_probability_of_reference_actions():
    """The gradient of KL(reference || policy) with respect to the logits is policy minus reference, in probabilities."""
    logits, cloned = random_log_probs(2).requires_grad_(), random_log_probs(1)
    pulled_losses(logits, cloned).bc_kl.backward()
    torch.testing.assert_close(logits.grad, (logits.exp() - cloned.exp()).detach() / SAMPLES, rtol=1e-4, atol=1e-7)


def test_in_the_warm_up_only_the_value_loss_counts():
    logits = random_log_probs(2).requires_grad_()
    parts = pulled_losses(logits, None, critic_only=True)
    assert measured(parts).loss == pytest.approx(0.5 * measured(parts).value_loss)
    scaled = measured(pulled_losses(logits, None, critic_only=True, return_variance=4.0))
    assert scaled == measured(parts)._replace(loss=pytest.approx(measured(parts).loss / 4))
    parts.loss.backward()
    assert logits.grad is None or not logits.grad.any()


def test_taking_samples_keeps_decisions_together():
    numbers = torch.arange(6.0)
    of_all_actions = numbers[:, None] + torch.zeros(6, ACTIONS)
    whole = Samples(numbers.long(), of_all_actions + 10, numbers + 20, numbers + 30, of_all_actions)
    part = whole.take(torch.tensor([4, 1]))
    assert part.actions.tolist() == [4, 1]
    assert part.log_probs[:, 0].tolist() == [14, 11]
    assert part.advantages.tolist() == [24, 21]
    assert part.returns.tolist() == [34, 31]
    assert part.reference_log_probs[:, 0].tolist() == [4, 1]
    assert Samples(*[numbers] * 4).take(torch.tensor([0])).reference_log_probs is None


def test_advantages_are_normalised_as_a_whole():
    """By the unbiased standard deviation, as in Stable-Baselines3."""
    found = normalized(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(found, torch.tensor([-1.0, 0.0, 1.0]))
    assert not normalized(torch.full((5,), 7.0)).any()
