"""Options of updates: accumulated gradients, targets of current values, V-trace, sampled minibatches; each compared
with plain code, and without effect by default."""

import copy
import functools
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bc.thread_pool import ThreadPool
from nppsim.errors import ConfigError
from rl.config.ppo import PPOConfig
from rl.policy.policy import build_policy
from rl.ppo.losses import LossWeights, Samples, evaluate_rollout, ppo_losses, set_gradients
from rl.ppo.ppo import compute_gae
from rl.ppo.variants.off_policy import draw, importance_weights, priorities, vtrace

from learners import AT_ONCE, logged, make_ppo, roll_out, statistics, weights
from naive_ppo import plain_advantages, plain_losses

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = (
    {"gradient_accumulation": 3},  # of 4 minibatches in a pass: the last step has one
    {"returns_from": "current"},
    {"returns_from": "current", "vtrace_rho_clip": 1.0, "vtrace_c_clip": 0.9},
    {"prioritised_alpha": 0.6, "prioritised_beta": 0.5},
    {"clip_range_vf": 0.05, "clip_range_vf_end": 0.02, "clip_range_end": 0.05, "target_kl": None},
    {"schedules": False},
    {"gradient_statistics_freq": 2},
)


def plain_trace(rewards, values, ends, last, gamma, lam, ratios, rho_clip, c_clip):
    """(advantages, returns) float64[T, N] by the definition: weighted sums of later TD errors."""
    length, count = rewards.shape
    following = np.vstack([values[1:], last[None]])
    deltas = rewards + gamma * following * ~ends - values
    rho, c = np.minimum(ratios, rho_clip), np.minimum(ratios, c_clip)
    advantages, returns = np.zeros_like(values), np.zeros_like(values)
    for i in range(count):
        for t in range(length):
            advantages[t, i], returns[t, i] = deltas[t, i], values[t, i] + rho[t, i] * deltas[t, i]
            weight, own = 1.0, c[t, i]
            for later in range(t + 1, length):
                if ends[later - 1, i]:
                    break
                weight *= gamma * lam
                error = weight * np.prod(c[t + 1 : later, i]) * rho[later, i] * deltas[later, i]
                advantages[t, i] += error
                returns[t, i] += own * error
    return advantages, returns


@settings(deadline=None, max_examples=40)
@given(
    steps=st.integers(1, 9),
    envs=st.integers(1, 3),
    gamma=st.floats(0.1, 1),
    lam=st.floats(0, 1),
    clips=st.tuples(st.floats(0.3, 3), st.floats(0.3, 3)),
    seed=st.integers(0, 2**32 - 1),
)
def test_vtrace_equals_its_definition_and_gae_for_ratios_of_1(steps, envs, gamma, lam, clips, seed):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, steps, envs))
    last, ratios, ends = rng.normal(size=envs), rng.lognormal(0, 0.7, (steps, envs)), rng.random((steps, envs)) < 0.2
    tensors = [torch.from_numpy(array) for array in (rewards, values, ends, last)]
    found = vtrace(*tensors, torch.from_numpy(ratios), gamma=gamma, gae_lambda=lam, clips=clips)
    for ours, plain in zip(found, plain_trace(rewards, values, ends, last, gamma, lam, ratios, *clips), strict=True):
        np.testing.assert_allclose(ours.numpy(), plain, rtol=1e-6, atol=1e-6)
    usual = plain_advantages(rewards, values, ends, last, gamma, lam)
    on_policy = vtrace(*tensors, torch.ones(steps, envs), gamma=gamma, gae_lambda=lam)
    for advantages, returns in (on_policy, compute_gae(*tensors, gamma, lam)):
        np.testing.assert_allclose(advantages.numpy(), usual, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(returns.numpy(), usual + values, rtol=1e-6, atol=1e-6)


def test_later_epochs_use_targets_of_current_values_including_time_outs():
    """The critic is moved by hand between two passes; the targets of the second are those of its values, those of the first
    and the rollout itself are unchanged."""
    ppo, _ = make_ppo(frame_skip=16, rollout_length=64, returns_from="current", n_epochs=2)
    roll_out(ppo)
    buffer = ppo.rollout_buffer
    samples = ppo.samples(ppo.loss_weights())
    assert len(ppo.timeouts.index), "the rollout contains time-outs"
    before = copy.deepcopy(vars(buffer))
    assert torch.equal(samples.returns, buffer.flat("returns"))
    then = evaluate_rollout(ppo.policy, buffer, ThreadPool(1), 64)[1].view(buffer.shape)
    torch.testing.assert_close(then, buffer.values, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        ppo.policy.value_net.bias += 2.0
    samples = ppo.reestimate(samples)
    # each value is larger by 2, and so is what a time-out adds
    rewards = buffer.rewards.double().flatten()
    rewards[ppo.timeouts.index] += ppo.gamma * 2.0
    last = ppo.predict_values(ppo.observations).double()
    plain = plain_advantages(
        rewards.view(buffer.shape).numpy(),
        buffer.values.double().numpy() + 2.0,
        buffer.episode_ends.numpy(),
        last.numpy(),
        ppo.gamma,
        ppo.gae_lambda,
    )
    wanted = plain + buffer.values.double().numpy() + 2.0
    np.testing.assert_allclose(samples.returns.view(buffer.shape).numpy(), wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        samples.advantages.numpy(), ((plain - plain.mean()) / plain.std(ddof=1)).ravel(), atol=2e-3
    )
    for name, value in before.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(buffer, name), value), f"{name} of the rollout has changed"


def test_accumulated_gradients_equal_one_large_minibatch():
    """Weights of the decisions and all losses included."""
    ppo, _ = make_ppo()
    roll_out(ppo)
    clone = build_policy("vision_free", statistics())
    ppo.reference = clone
    rng = np.random.default_rng(0)
    weighed = torch.from_numpy(rng.uniform(0.5, 2, len(ppo.rollout_buffer))).float()
    everything = ppo.samples(LossWeights(0.2, 0.5, 0.01, bc_kl_coef=0.2))
    samples = everything.take(torch.arange(len(weighed)))
    samples = Samples(**{**vars(samples), "weights": weighed})
    index = torch.from_numpy(rng.permutation(len(weighed)))[:100]
    loss_settings = LossWeights(0.2, 0.5, 0.01, bc_kl_coef=0.2)

    def found(size):
        minibatches = index.split(size or len(index))
        parts = set_gradients(
            ppo.policy,
            ThreadPool(1),
            ppo.rollout_buffer.observations,
            samples,
            minibatches,
            lambda obs, part: ppo.minibatch_losses(obs, part, loss_settings),
        )
        return parts, [parameter.grad.clone() for parameter in ppo.policy.parameters() if parameter.grad is not None]

    whole, gradients = found(None)
    for size in (100, 25, 32):
        parts, accumulated = found(size)
        assert parts == pytest.approx(whole, rel=1e-4, abs=1e-6)
        for ours, wanted in zip(accumulated, gradients, strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-3, atol=1e-6)
    assert not torch.equal(found(25)[1][0], torch.zeros_like(gradients[0]))


def test_accumulated_minibatches_equal_larger_minibatches():
    def trained(**sizes):
        ppo, _ = make_ppo(n_epochs=2, seed=3, **sizes)
        roll_out(ppo)
        ppo.update()
        return ppo, torch.cat([parameter.flatten() for parameter in ppo.policy.parameters()])

    accumulating, small = trained(minibatch_size=16, gradient_accumulation=4)
    large, one = trained(minibatch_size=64)
    other, _ = trained(minibatch_size=16)
    torch.testing.assert_close(small, one, rtol=1e-3, atol=1e-4)

    def steps(ppo):
        return {int(state["step"]) for state in ppo.policy.optimizer.state.values()}

    assert steps(accumulating) == steps(large) == {4} and steps(other) == {16}


def test_fault_last_accumulated_minibatch_equals_every_fourth_minibatch():
    """Subclasses can choose the minibatches whose gradients are accumulated."""

    def trained(last_only=False, ablated=False, **options):
        ppo, _ = make_ppo(n_epochs=1, seed=3, minibatch_size=16, target_kl=None, **options)
        backward = ppo._backward
        if ablated:
            ppo._backward = lambda samples, minibatches, weights: backward(samples, minibatches[-1:], weights)
        roll_out(ppo)
        if last_only:  # a twin: it never sees the minibatches whose gradients are discarded
            minibatches = ppo.rollout_buffer.minibatches
            ppo.rollout_buffer.minibatches = lambda *arguments: islice(minibatches(*arguments), 3, None, 4)
        ppo.update()
        return torch.cat([parameter.flatten() for parameter in ppo.policy.parameters()])

    zeroing = trained(gradient_accumulation=4, ablated=True)
    assert torch.equal(zeroing, trained(last_only=True))
    assert not torch.equal(zeroing, trained(gradient_accumulation=4))


def test_minibatches_are_drawn_in_proportion_to_the_advantages():
    advantages = torch.tensor([0.0, 1.0, -2.0, 4.0])
    chances = priorities(advantages, 0.5)
    sizes = [abs(x) ** 0.5 for x in advantages.tolist()]
    assert chances == pytest.approx([size / sum(sizes) for size in sizes])
    batches = list(draw(np.tile(chances, 5000) / 5000, 8, np.random.default_rng(0)))
    assert len(batches) == 4 * 5000 // 8 and all(batch.shape == (8,) for batch in batches)
    counts = np.bincount(torch.cat(batches).numpy() % 4, minlength=4)
    assert counts / counts.sum() == pytest.approx(chances, abs=0.02)
    assert priorities(torch.zeros(4), 0.5).tolist() == [0.25] * 4


@settings(deadline=None, max_examples=30)
@given(alpha=st.floats(0.1, 2), seed=st.integers(0, 2**32 - 1))
def test_importance_weights_correct_for_the_sampling(alpha, seed):
    """With beta 1, the expected weighed sum is the plain mean, whatever alpha; with beta 0 there are no weights."""
    rng = np.random.default_rng(seed)
    advantages, values = rng.normal(size=(2, 50))
    chances = priorities(torch.from_numpy(advantages), alpha)
    assert (chances * importance_weights(chances, 1.0).numpy() * values).sum() == pytest.approx(values.mean(), abs=1e-5)
    assert importance_weights(chances, 0.0).tolist() == [1.0] * 50


def test_weighted_losses_and_clipped_values_match_their_formulas():
    rng = np.random.default_rng(1)
    rows = 60

    def log_probs():
        return np.log(rng.dirichlet(np.ones(6), rows))

    samples = {
        "actions": rng.integers(0, 6, rows),
        "log_probs": log_probs(),
        "advantages": rng.normal(size=rows),
        "returns": rng.normal(size=rows),
        "reference_log_probs": log_probs(),
        "values": rng.normal(size=rows),
        "weights": rng.uniform(0, 2, rows),
    }
    loss_settings = LossWeights(0.2, 0.5, 0.01, 0.3, return_variance=1.4, clip_range_vf=0.3)
    logits, values = rng.normal(size=(rows, 6)), samples["values"] + rng.normal(size=rows)
    found = ppo_losses(
        torch.from_numpy(logits),
        torch.from_numpy(values),
        Samples(**{name: torch.from_numpy(array) for name, array in samples.items()}),
        loss_settings,
    )
    wanted = plain_losses(logits, values, samples, loss_settings)
    assert {name: float(value) for name, value in found._asdict().items()} == pytest.approx(wanted, rel=1e-5)
    free = ppo_losses(
        torch.from_numpy(logits),
        torch.from_numpy(values),
        Samples(**{name: torch.from_numpy(array) for name, array in samples.items() if name != "weights"}),
        LossWeights(0.2, 0.5, 0.01),
    )
    assert abs(float(free.value_loss) - float(found.value_loss)) > 0.1, "clipping changes the value loss"


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
def test_run_with_option_resumes_bit_for_bit(options):
    settings = AT_ONCE | {"n_epochs": 2, "rollout_length": 32} | options
    ppo, _ = make_ppo(**settings)
    ppo.set_reference(ppo.policy)
    for _ in range(2):
        roll_out(ppo)
        ppo.update()
        ppo.logger.dump()
    other, _ = make_ppo(**settings, seed=4)
    other.load_training_state(*copy.deepcopy((ppo.policy.state_dict(), ppo.training_state())))
    for one in (ppo, other):
        roll_out(one)
        one.update()
    ours, theirs = weights(ppo.policy), weights(other.policy)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    usual = trained_as_usual()
    same = all(torch.equal(ours[name], usual[name]) for name in ours)
    assert same == (options == {"gradient_statistics_freq": 2}), "an option has no effect, or an unset option has one"


@functools.cache
def trained_as_usual():
    """Weights after three updates without any option."""
    ppo, _ = make_ppo(**AT_ONCE, n_epochs=2, rollout_length=32)
    ppo.set_reference(ppo.policy)
    for _ in range(3):
        roll_out(ppo)
        ppo.update()
    return weights(ppo.policy)


def test_gradient_statistics_are_correct_and_do_not_change_training():
    def trained(freq):
        ppo, scalars = make_ppo(n_epochs=1, minibatch_size=128, gradient_statistics_freq=freq)
        roll_out(ppo)
        ppo.max_grad_norm = 1e9
        ppo.update()
        return ppo, logged(ppo, scalars)

    (plain, without), (described, row) = trained(0), trained(1)
    ours, theirs = weights(plain.policy), weights(described.policy)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not any(name.startswith("gradients/") for name in without)
    assert not any(name.startswith("gradients/") for name in trained(2)[1]), "not in the first of two updates"
    everything = torch.cat([p.grad.flatten() for p in described.policy.parameters() if p.grad is not None])
    assert row["train/grad_norm"] > described.config.max_grad_norm
    scale = row["train/grad_norm"] / float(everything.norm())  # they have been shortened since
    assert row["gradients/norm/all"] == pytest.approx(row["train/grad_norm"], rel=1e-4)
    assert row["gradients/mean/all"] == pytest.approx(float(everything.mean()) * scale, rel=1e-3, abs=1e-8)
    assert row["gradients/variance/all"] == pytest.approx(float(everything.var(correction=0)) * scale**2, rel=1e-3)
    assert {"gradients/norm/action_net", "gradients/variance/value_net"} <= row.keys()


def test_ppo_config_contradicting_options_raise():
    with pytest.raises(ConfigError, match="vtrace_rho_clip 1.0: .*add --returns-from current"):
        PPOConfig(vtrace_rho_clip=1.0)
    with pytest.raises(ConfigError, match="returns_from later: give one of collected, current"):
        PPOConfig(returns_from="later")


def test_clip_ranges_are_lines_and_schedules_can_be_off():
    clips = {"clip_range": 0.2, "clip_range_end": 0.1, "clip_range_vf": 2.0, "clip_range_vf_end": 0.5}
    config = PPOConfig(learning_rate=1e-3, **clips)
    assert config.clip_range_at(0) == 0.2 and config.clip_range_at(0.5) == pytest.approx(0.15)
    assert config.clip_range_vf_at(0) == 2.0 and config.clip_range_vf_at(0.5) == pytest.approx(1.25)
    assert (PPOConfig().clip_range_at(0.7), PPOConfig().clip_range_vf_at(0.7)) == (0.2, None)
    assert PPOConfig(clip_range_vf=0.3).clip_range_vf_at(0.7) == 0.3
    still = PPOConfig(learning_rate=1e-3, schedules=False, **clips)
    assert (still.clip_range_at(1), still.clip_range_vf_at(1)) == (0.2, 2.0)
    assert (still.ent_coef_at(1), still.learning_rate_at(1)) == (still.ent_coef_start, 1e-3)


def test_value_clip_range_follows_schedule_and_is_logged():
    ppo, scalars = make_ppo(clip_range_vf=0.8, clip_range_vf_end=0.2, total_timesteps=256)
    for wanted in (0.5, 0.2):  # after 128 and 256 decisions
        roll_out(ppo)
        ppo.update()
        assert logged(ppo, scalars)["train/clip_range_vf"] == pytest.approx(wanted)
    ppo, scalars = make_ppo()
    roll_out(ppo)
    ppo.update()
    assert "train/clip_range_vf" not in logged(ppo, scalars)
