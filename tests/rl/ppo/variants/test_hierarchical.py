"""Hierarchical PPO: choices of several decisions, their loss, the switch from plain PPO, and the audit."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.errors import ConfigError
from rl.config.curriculum import CurriculumConfig
from rl.evaluation.suite import EvaluationSuite
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.policy.subtasks import EXPLORE, NO_SUBTASK, SUBTASK, SUBTASKS
from rl.policy.weight_map import WeightTransferError, check_same_policy, transfer
from rl.ppo.losses import LossWeights
from rl.ppo.ppo import compute_gae
from rl.ppo.variants.hierarchical import compute_smdp_gae

from learners import AT_ONCE, CATEGORIES, LEVELS, logged, make_ppo, roll_out, statistics, weights

NAME = "vision_free+subtasks5"
STAGES = CurriculumConfig(strategy="stages")


def hierarchical(**changes):
    return make_ppo(**{"architecture": NAME, "rollout_length": 64} | AT_ONCE | changes)


# ------------------------------------------------------------------ returns


def naive_semi_markov(rewards, values, chooses, ends, last, gamma, decay):
    """Advantages of one environment, choice by choice."""
    advantages, returns = np.zeros(len(rewards)), np.zeros(len(rewards))
    following, trace = last, 0.0
    for t in reversed(np.flatnonzero(chooses)):
        earned, discount, i = 0.0, 1.0, t
        while True:
            earned += discount * rewards[i]
            discount *= gamma
            if ends[i]:
                discount = 0.0
                break
            i += 1
            if i == len(rewards) or chooses[i]:
                break
        delta = earned + discount * following - values[t]
        advantages[t] = delta + discount * decay * trace
        returns[t] = advantages[t] + values[t]
        following, trace = values[t], advantages[t]
    return advantages, returns


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000), steps=st.integers(1, 12), gamma=st.sampled_from([0.5, 1.0]), decay=st.floats(0.0, 1.0)
)
def test_semi_markov_equals_naive_computation(seed, steps, gamma, decay):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, steps, 3)).astype(np.float32)
    ends, last = rng.random((steps, 3)) < 0.3, rng.normal(size=3).astype(np.float32)
    chooses = rng.random((steps, 3)) < 0.4
    chooses[1:] |= ends[:-1]
    given_ = (torch.from_numpy(part) for part in (rewards, values, chooses, ends, last))
    found = compute_smdp_gae(*given_, gamma, decay)
    for env in range(3):
        columns = (part[:, env] for part in (rewards, values, chooses, ends))
        wanted = naive_semi_markov(*columns, last[env], gamma, decay)
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have[:, env], want, atol=1e-5)


def test_returns_of_choices_by_hand():
    """Choices before decisions 1 (lasts 2 decisions), 3 (lasts 1, the last of its episode) and 4 (continues after the
    rollout)."""
    column = lambda *values: torch.tensor(values)[:, None]  # noqa: E731
    advantages, returns = compute_smdp_gae(
        column(1.0, 2.0, 4.0, 8.0, 16.0),
        column(10.0, 99.0, 20.0, 30.0, 99.0),
        column(True, False, True, True, False),
        column(False, False, True, False, False),
        torch.tensor([40.0]),
        0.5,
        0.5,
    )
    # the last: 8 + 16/2 + 40/4 - 30; the one before, whose episode ends: 4 - 20; the first: 1 + 2/2 + 20/4 - 10 + .5 * -16/4
    assert advantages[:, 0].tolist() == [1 + 1 + 5 - 10 - 2, 0, -16, 8 + 8 + 10 - 30, 0]
    assert returns[:, 0].tolist() == [-5 + 10, 0, 4, 26, 0]


def test_choices_before_every_decision_have_the_usual_advantages():
    rng = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 9, 4, generator=rng)
    ends, last = torch.rand(9, 4, generator=rng) < 0.3, torch.randn(4, generator=rng)
    wanted = compute_gae(rewards, values, ends, last, 0.9, 0.8)
    found = compute_smdp_gae(rewards, values, torch.ones_like(ends), ends, last, 0.9, 0.8)
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have, want)


# ------------------------------------------------------------------ training


@pytest.mark.parametrize(
    "changes",
    [
        {"n_epochs": 2, "gradient_accumulation": 3, "architecture": "vision_free+deep2+subtasks5"},
        {"n_epochs": 2, "returns_from": "current", "architecture": "vision_free+subtasks1000"},
        {"prioritised_alpha": 0.5, "architecture": "vision_free+subtasks1"},
    ],
)
def test_audits_do_not_warn_about_sound_training(changes):
    ppo, _ = hierarchical(**changes)
    before = weights(ppo.policy)
    for _ in range(3):
        roll_out(ppo)
        ppo.update()
        ppo.logger.dump()
    assert all(not torch.equal(tensor, before[name]) for name, tensor in ppo.policy.named_parameters())


def test_ratios_are_1_before_first_step():
    """With the stored subtask and time, all ratios are 1 before the first step, whatever subtask is active then."""
    ppo, _ = hierarchical()
    roll_out(ppo)
    ppo.update()
    roll_out(ppo)
    ppo.active_subtasks.active[:] = (EXPLORE, 3)
    samples = ppo.samples(ppo.loss_weights())
    rows = torch.arange(4, len(ppo.rollout_buffer))  # choices before the first decisions are older than the weights
    seen, some = ppo.rollout_buffer.observations(rows), samples.take(rows)
    logits, values = ppo.policy.logits_and_values(seen)
    weighing = LossWeights(clip_range=0.2, vf_coef=0.0, ent_coef=0.0)
    losses = ppo.minibatch_losses(seen, some, weighing)
    assert abs(float(losses.high_level_kl)) < 1e-6
    torch.testing.assert_close(torch.log_softmax(logits, 1), some.log_probs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values, ppo.rollout_buffer.flat("values")[rows], atol=1e-5, rtol=1e-5)
    gradient = torch.autograd.grad(losses.loss, ppo.policy.high_level.policy_net[2].bias)[0]
    chosen = some.chooses.nonzero()[:, 0]
    with torch.no_grad():
        probs = ppo.policy.choose_subtasks({key: tensor[chosen] for key, tensor in seen.items()})[0].softmax(1)
    picked = torch.nn.functional.one_hot(seen[SUBTASK][chosen, 0], len(SUBTASKS))
    wanted = -(some.high_level_advantages[chosen, None] * (picked - probs)).sum(0) / len(rows)  # the score function's
    torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-4)


def test_shares_and_durations_are_logged():
    ppo, scalars = hierarchical()
    roll_out(ppo)
    ppo.update()
    row = logged(ppo, scalars)
    assert sum(row[f"hierarchy/share/{name}"] for name in SUBTASKS) == pytest.approx(1)
    assert row["hierarchy/share/locked_door"] == 0  # no level has one
    assert 1 <= row["hierarchy/decisions/explore"] <= 5
    assert row["train/high_level_value_loss"] > 0


# ------------------------------------------------------------------ from plain PPO, and from imitation


def test_before_its_stage_hierarchical_ppo_equals_ppo():
    ppo, scalars = hierarchical(from_stage="simpler", curriculum=STAGES)

    def once():
        roll_out(ppo)
        probe = ppo.rollout_buffer.observations(torch.arange(64))
        ppo.update()
        return probe, logged(ppo, scalars)

    fresh = weights(ppo.policy.high_level)
    for _ in range(2):
        probe, row = once()
        assert (probe[SUBTASK][:, 0] == NO_SUBTASK).all()
        assert "hierarchy/share/explore" not in row
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in weights(ppo.policy.high_level).items())
    plain = build_policy("vision_free", statistics())
    plain.load_state_dict(
        {name: one for name, one in weights(ppo.policy).items() if not name.startswith("high_level.")}
    )
    with torch.no_grad():
        wanted = plain.logits_and_values(probe)
        for number in (NO_SUBTASK, *range(len(SUBTASKS))):  # plain, and under every subtask
            conditioned = {**probe, SUBTASK: torch.tensor([[number, 2]]).repeat(64, 1)}
            for one, other in zip(ppo.policy.logits_and_values(conditioned), wanted, strict=True):
                assert torch.equal(one, other)
    assert check_same_policy(plain, ppo.policy, {key: values.numpy() for key, values in probe.items()}) == 1.0
    ppo.sampler.strategy.place = 1  # the curriculum has come to the stage
    probe, row = once()
    assert ppo.high_level_active
    assert (probe[SUBTASK][:, 0] != NO_SUBTASK).all()
    assert "hierarchy/share/explore" in row
    assert all(not torch.equal(tensor, fresh[name]) for name, tensor in weights(ppo.policy.high_level).items())
    other, _ = hierarchical(from_stage="simpler", curriculum=STAGES)
    other.load_training_state(ppo.policy.state_dict(), ppo.training_state())
    assert other.high_level_active


def test_unknown_stage_raises():
    with pytest.raises(ConfigError, match=r"--hierarchical-from-stage medium: .*only simplest, simpler, mined"):
        make_ppo(architecture=NAME, from_stage="medium")


def test_bc_policy_initialises_low_level_only():
    torch.manual_seed(3)
    clone = build_policy("vision_free", statistics())
    with torch.no_grad():
        clone.action_net.weight.mul_(100)
    ppo, _ = hierarchical(critic_warmup_min_updates=1, critic_warmup_max_updates=1)
    moved = transfer(clone.state_dict(), ppo.policy, fresh=("high_level.",))
    assert moved.tensors + len(moved.fresh) == len(ppo.policy.state_dict())
    assert moved.fresh[0] == "high_level.condition"
    with pytest.raises(WeightTransferError, match=r"neither copied nor listed in fresh: high_level\.condition"):
        transfer(clone.state_dict(), ppo.policy)
    probe = {key: values.copy() for key, values in ppo.sim.obs.items()}
    assert check_same_policy(clone, ppo.policy, probe) == 1.0
    ppo.set_reference(ppo.policy)
    for _ in range(3):
        roll_out(ppo)
        ppo.update()
        ppo.logger.dump()
    other, _ = hierarchical()
    transfer(clone.state_dict(), other.policy, fresh=("high_level.",))
    with torch.no_grad():
        other.policy.high_level.condition[:, 5] += 1.0  # under one subtask of the five
    with pytest.raises(WeightTransferError, match="logits of the two policies differ"):
        check_same_policy(clone, other.policy, probe)


# ------------------------------------------------------------------ play


def test_evaluation_uses_subtasks(tmp_path):
    ppo, _ = hierarchical(learning_rate=3e-3, target_kl=None)
    for _ in range(3):
        roll_out(ppo)
        ppo.update()
    checkpoint.save(tmp_path / "agent.safetensors", ppo.policy, frame_skip=4)
    policy, _ = checkpoint.load_policy(tmp_path / "agent.safetensors")
    assert (policy.architecture, policy.high_level.max_decisions) == (NAME, 5)
    levels = list(zip(LEVELS, CATEGORIES, strict=True))
    suite = EvaluationSuite(levels, episodes_per_category=1, seed=1, num_envs=3)
    sequences = set()
    for deterministic in (False, True):
        episodes = suite.run(policy, deterministic=deterministic)
        again = suite.run(policy, deterministic=deterministic)
        for one, other in zip(episodes, again, strict=True):
            assert (one.inputs == other.inputs).all()
            assert (one.subtasks == other.subtasks).all()
            assert len(one.subtasks) == one.decisions
            subtask, age = one.subtasks.T
            assert age[0] == 0
            assert age.max() < 5
            changed = subtask[1:] != subtask[:-1]
            assert (age[1:][changed] == 0).all()
            assert ((age[1:] == 0) | (age[1:] == age[:-1] + 1)).all()
            sequences.add(tuple(subtask))
    assert len(sequences) > 2


def test_missing_subtask_observation_uses_most_probable_subtask():
    """As at the start of an episode: for tools that look at single states, such as the search of ``solve``."""
    ppo, _ = hierarchical(learning_rate=3e-2, target_kl=None)
    roll_out(ppo)
    ppo.update()
    seen = ppo.rollout_buffer.observations(torch.arange(32))
    with torch.no_grad():
        chosen = ppo.policy.choose_subtasks(seen)[0].argmax(1)
        conditioned = {**seen, SUBTASK: torch.stack([chosen, torch.zeros_like(chosen)], 1)}
        alone = {key: values for key, values in seen.items() if key != SUBTASK}
        pairs = zip(ppo.policy.logits_and_values(alone), ppo.policy.logits_and_values(conditioned), strict=True)
        assert all(itertools.starmap(torch.equal, pairs))
