"""PPO on the batch simulator: rollouts and updates compared with Stable-Baselines3, and additional features."""

import copy

import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger

from nppsim.actions import ACTION_TAGS
from nppsim.errors import ConfigError
from nppsim.physics.outcomes import DIED, TIMEOUT, WON
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.policy.policy import build_policy
from rl.policy.sb3 import SB3Policy
from rl.ppo import ppo as ppo_module
from rl.ppo.losses import DivergedError
from rl.ppo.ppo import PPO
from rl.seeds import spawn_seeds

from learners import (
    AT_ONCE,
    Patient,
    Scalars,
    as_text,
    logged,
    make_env,
    make_plan,
    make_ppo,
    roll_out,
    statistics,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def their_ppo(ours, frame_skip=4, seed=0, **settings):
    """Stable-Baselines3's PPO with the same weights, in environments of the same levels."""
    env = make_env(ours.sim.num_envs, frame_skip=frame_skip, gamma=ours.gamma)
    env.seed(spawn_seeds(seed, 4)[1])  # the levels of ``ours``
    theirs = stable_baselines3.PPO(
        SB3Policy,
        env,
        n_steps=ours.n_steps,
        **{"batch_size": len(ours.rollout_buffer)} | settings,
        gamma=ours.gamma,
        gae_lambda=ours.gae_lambda,
        policy_kwargs={"architecture": "vision_free", "statistics": statistics()},
        device="cpu",
    )
    theirs.policy.load_state_dict(ours.policy.state_dict())
    theirs.set_logger(Logger(None, [Scalars()]))
    theirs._setup_learn(10_000, Patient())
    return theirs


def changed(before, policy):
    """Names of the tensors that are not bitwise equal to earlier values."""
    return {name for name, tensor in policy.state_dict().items() if not torch.equal(tensor, before[name])}


def of_actions(buffer):
    """Log-probabilities of the taken actions, float32[T, N]."""
    return buffer.log_probs.gather(2, buffer.actions[..., None])[..., 0]


def actor_and_trunk(policy):
    return {name for name, _ in policy.named_parameters() if "value_net" not in name}


# ------------------------------------------------------------------ rollouts


def test_collect_rollouts_equals_stable_baselines3_for_equal_actions():
    """Rewards including the bootstrap value at time-outs, values, log-probabilities, advantages and returns."""
    ours, scalars = make_ppo(frame_skip=16, rollout_length=120, seed=1)
    outcomes, store = set(), ours.sampler.next_episodes
    ours.sampler.next_episodes = lambda sim: outcomes.update((ended := store(sim))["outcome"].tolist()) or ended
    roll_out(ours)
    assert outcomes == {WON, DIED, TIMEOUT}, "all fields were compared"
    assert int(ours.rollout_buffer.wins.sum()) == logged(ours, scalars)["sim/wins"] > 0

    theirs = their_ppo(ours, frame_skip=16, seed=1)
    recorded = iter(ours.rollout_buffer.actions)

    def act(obs, deterministic=False):
        actions = next(recorded)
        values, log_probs, _ = theirs.policy.evaluate_actions(obs, actions)
        return actions, values, log_probs

    theirs.policy.forward = act
    callback = Patient()
    callback.init_callback(theirs)
    theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, theirs.n_steps)
    buffer = ours.rollout_buffer
    found = {name: getattr(buffer, name) for name in ("rewards", "values", "advantages", "returns")}
    found["log_probs"] = of_actions(buffer)
    for name, values in found.items():
        expected = getattr(theirs.rollout_buffer, name)
        np.testing.assert_allclose(values.numpy(), expected, rtol=1e-4, atol=1e-4, err_msg=name)
    ends = ours.rollout_buffer.episode_ends.numpy()
    np.testing.assert_array_equal(ends[:-1], theirs.rollout_buffer.episode_starts[1:].astype(bool))
    assert ours.num_timesteps == theirs.num_timesteps == 480


def test_time_outs_are_bootstrapped_and_other_ends_are_not(monkeypatch):
    """Without inputs every episode times out; the value is replaced by 10 plus one of the inputs."""
    ours, _ = make_ppo(frame_skip=16, rollout_length=64)
    monkeypatch.setattr(ppo_module, "sample_actions", lambda logits, rng: torch.zeros(len(logits), dtype=torch.int64))
    monkeypatch.setattr(
        ours.policy,
        "logits_and_values",
        lambda obs: (torch.zeros(len(obs["game_state"]), 6), 10 + obs["game_state"][:, 2]),
    )
    played, step = [], ours.sim.step

    def remember(actions):
        step(actions)
        last = ours.sim.final_obs["game_state"][:, 2].copy()
        played.append((ours.sim.rewards.copy(), ours.sim.truncated.copy(), ours.sim.terminated.copy(), last))

    monkeypatch.setattr(ours.sim, "step", remember)
    roll_out(ours)
    rewards, truncated, terminated, last = (np.array(part) for part in zip(*played, strict=True))
    assert truncated.sum() >= 4 and not terminated.any()
    expected = np.where(truncated, rewards + ours.gamma * (10 + last), rewards)
    np.testing.assert_allclose(ours.rollout_buffer.rewards.numpy(), expected, rtol=1e-5)
    # ... and nothing of the next episode reaches back over the end
    values = 10 + ours.rollout_buffer.obs["game_state"][..., 2]
    advantages = ours.rollout_buffer.advantages.numpy()
    np.testing.assert_allclose(advantages[truncated], (expected - values.numpy())[truncated], rtol=1e-4, atol=1e-5)


def test_sampler_and_logs_receive_all_episodes():
    ours, scalars = make_ppo(frame_skip=16, rollout_length=64)
    roll_out(ours)
    row = logged(ours, scalars)
    ended = int(ours.rollout_buffer.episode_ends.sum())
    assert row["sim/episodes"] == row["curriculum/episodes"] == ended > 0
    assert len(ours.episode_returns) == len(ours.episode_wins) == min(ended, 100)
    assert sum(row[f"actions/frequency/{name}"] for name in ACTION_TAGS) == pytest.approx(1)
    terms = [value for tag, value in row.items() if tag.startswith("reward/") and tag != "reward/return"]
    assert sum(terms) == pytest.approx(row["reward/return"], abs=1e-4)


@pytest.mark.parametrize("reseeded", [False, True])
def test_actions_and_minibatches_are_independent_between_rollouts(reseeded):
    """Actions of a uniform policy, and orders of minibatches; a generator that is reseeded would repeat both."""
    ppo, _ = make_ppo(num_envs=16, minibatch_size=128)
    played, orders, minibatches = [], [], ppo.rollout_buffer.minibatches

    def remember(*arguments):
        drawn = [*minibatches(*arguments)]
        orders.append(torch.cat(drawn))
        return iter(drawn)

    ppo.rollout_buffer.minibatches = remember
    for _ in range(2):
        for parameter in ppo.policy.action_net.parameters():
            torch.nn.init.zeros_(parameter)
        if reseeded:
            ppo.action_rng.manual_seed(0)
            ppo.rng = np.random.default_rng(0)
        roll_out(ppo)
        played.append(ppo.rollout_buffer.actions.clone())
        ppo.update()

    def alike(one, other):
        return float((one == other).float().mean())

    assert alike(played[0][1:], played[0][:-1]) == pytest.approx(1 / 6, abs=0.08)
    assert alike(*played) == pytest.approx(1 if reseeded else 1 / 6, abs=0.08)
    assert alike(*orders) == pytest.approx(1 if reseeded else 1 / 512, abs=0.02)


def test_logged_speed_is_decisions_per_second_of_rollout():
    ours, scalars = make_ppo()
    roll_out(ours)
    assert logged(ours, scalars)["sim/decisions_per_s"] == pytest.approx(ours.num_timesteps / ours.seconds)


def test_collect_rollouts_callback_returns_false_ends_the_rollout():
    ours, _ = make_ppo()
    callback = Patient()
    callback.init_callback(ours)
    callback._on_step = lambda: ours.num_timesteps < 12
    assert not ours.collect_rollouts(callback)
    assert ours.num_timesteps == 12


# ------------------------------------------------------------------ updates


@pytest.mark.parametrize("max_grad_norm", [0.05, 1e6])
def test_update_equals_stable_baselines3(max_grad_norm):
    """Three passes over one minibatch; the order of its decisions does not matter then."""
    settings = {"learning_rate": 1e-3, "n_epochs": 3, "clip_range": 0.1, "target_kl": None, "vf_coef": 0.7}
    settings |= {"max_grad_norm": max_grad_norm}
    ours, scalars = make_ppo(
        minibatch_size=128,
        anneal_learning_rate=False,
        ent_coef_start=0.03,
        ent_coef_end=0.03,
        scale_value_loss=False,
        **settings,
    )
    roll_out(ours)
    before = weights(ours.policy)
    theirs = their_ppo(ours, batch_size=128, ent_coef=0.03, **settings)
    source, target = ours.rollout_buffer, theirs.rollout_buffer
    for key, values in source.obs.items():
        target.observations[key][:] = values.numpy().reshape(target.observations[key].shape)
    target.actions[:] = source.actions[..., None].numpy()
    for name in ("values", "advantages", "returns"):
        getattr(target, name)[:] = getattr(source, name).numpy()
    target.log_probs[:] = of_actions(source).numpy()
    target.full = True

    ours.update()
    theirs.train()
    assert actor_and_trunk(ours.policy) < changed(before, ours.policy)
    for name, their in theirs.policy.state_dict().items():
        torch.testing.assert_close(ours.policy.state_dict()[name], their, rtol=1e-3, atol=2e-5, msg=name)
    row, expected = logged(ours, scalars), theirs.logger.name_to_value
    for name in ("policy_gradient_loss", "value_loss", "entropy_loss", "clip_fraction", "explained_variance"):
        assert row[f"train/{name}"] == pytest.approx(expected[f"train/{name}"], rel=1e-3, abs=1e-5), name
    assert row["train/approx_kl"] > 0


def test_critic_warm_up_does_not_change_actor():
    ours, scalars = make_ppo(critic_warmup_max_updates=2, n_epochs=2, scale_value_loss=False)
    ours.set_reference(build_policy("vision_free", statistics()))
    before = weights(ours.policy)
    obs = {key: tensor.clone() for key, tensor in ours.policy.to_tensors(ours.sim.obs).items()}
    logits, values = ours.policy.logits_and_values(obs)
    for update in (1, 2):
        roll_out(ours)
        assert ours.critic_only
        ours.update()
        critic = {name for name, _ in ours.policy.named_parameters() if "value_net" in name}
        assert changed(before, ours.policy) == critic, update
    present_logits, present_values = ours.policy.logits_and_values(obs)
    assert torch.equal(present_logits, logits) and not torch.equal(present_values, values)
    row = logged(ours, scalars)
    assert (row["train/bc_kl"], row["train/stopped_early"]) == (0, 0)
    assert row["train/loss"] == pytest.approx(0.5 * row["train/value_loss"], rel=1e-5)
    roll_out(ours)
    assert not ours.critic_only
    ours.update()
    assert actor_and_trunk(ours.policy) <= changed(before, ours.policy)
    assert logged(ours, scalars)["train/bc_kl"] > 0


def test_no_bc_policy_no_warm_up_no_kl_penalty():
    ours, scalars = make_ppo(learning_rate=1e-3)
    roll_out(ours)
    assert not ours.critic_only
    ours.update()
    row = logged(ours, scalars)
    assert (row["train/bc_kl"], row["train/learning_rate"]) == (0, pytest.approx(1e-3, rel=0.02))


@pytest.mark.parametrize(
    ("explained", "alone"),
    [  # of the returns of each rollout; updates of the critic alone
        ([0.1, 0.4, 0.5, 0.4], 2),
        ([0.9, 0.9, 0.9, 0.9], 1),  # the minimum
        ([float("nan"), -2.0, 0.1, 0.4], 3),  # the maximum
    ],
)
def test_critic_warm_up_ends_at_explained_variance_of_half(monkeypatch, explained, alone):
    ours, _ = make_ppo(critic_warmup_min_updates=1, critic_warmup_max_updates=3)
    ours.set_reference(build_policy("vision_free", statistics()))
    rollouts = iter(explained)
    monkeypatch.setattr(ours.rollout_buffer, "explained_variance", lambda: next(rollouts))
    warming_up = []
    for _ in explained:
        roll_out(ours)
        warming_up.append(ours.critic_only)
        ours.update()
    assert warming_up == [update < alone for update in range(4)], "and it never begins again"
    assert ours.actor_updates == 4 - alone


def test_learning_rate_warms_up_with_first_actor_updates():
    ours, scalars = make_ppo(
        critic_warmup_max_updates=1, critic_warmup_min_updates=1, learning_rate_warmup_updates=3, learning_rate=1e-3,
        anneal_learning_rate=False,
    )  # fmt: skip
    ours.set_reference(build_policy("vision_free", statistics()))
    rates = []
    for _ in range(6):
        roll_out(ours)
        ours.update()
        rates.append(logged(ours, scalars)["train/learning_rate"])
    assert rates == pytest.approx([1e-3, 0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3])


def test_value_loss_divided_by_variance_of_returns():
    """Ten times the rewards: the same loss for the actor, and one that is 100 times as large for the critic."""

    def update(factor, scaled):
        ours, scalars = make_ppo(scale_value_loss=scaled, minibatch_size=128, learning_rate=1e-4)
        roll_out(ours)
        buffer = ours.rollout_buffer
        with torch.no_grad():
            ours.policy.value_net.weight *= factor
            ours.policy.value_net.bias *= factor
        for name in ("values", "returns", "advantages"):
            getattr(buffer, name).mul_(factor)
        ours.update()
        row = logged(ours, scalars)
        return row["train/loss"], row["train/value_loss"]

    loss, value_loss = update(1, True)
    assert update(10, True) == (pytest.approx(loss, rel=1e-4), pytest.approx(100 * value_loss, rel=1e-4))
    plain = update(1, False)[0]
    assert update(10, False)[0] - plain == pytest.approx(0.5 * 99 * value_loss, rel=1e-3)


def test_kl_penalty_reduces_distance_to_bc_policy():
    def distance_after(**settings):
        ours, scalars = make_ppo(**AT_ONCE, n_epochs=10, learning_rate=1e-3, target_kl=None, **settings)
        torch.manual_seed(9)
        clone = build_policy("vision_free", statistics())
        with torch.no_grad():
            clone.action_net.weight *= 100  # a fresh actor is nearly indifferent
        ours.set_reference(clone)
        roll_out(ours)
        ours.update()
        obs = ours.rollout_buffer.observations(torch.arange(len(ours.rollout_buffer)))
        with torch.no_grad():
            of, to = (policy.logits_and_values(obs)[0].log_softmax(1) for policy in (clone, ours.policy))
        return (of.exp() * (of - to)).sum(1).mean().item(), logged(ours, scalars)["train/bc_kl_coef"]

    free, coefficient = distance_after(bc_kl_coef_start=0.0)
    pulled, pull = distance_after(bc_kl_coef_start=5.0)
    assert (coefficient, pull) == (0, pytest.approx(5.0, rel=0.1))
    assert pulled < 0.8 * free


def test_target_kl_ends_an_update_before_the_next_step():
    """A learning rate of 0.1 changes the policy so much that the second minibatch is not used."""
    ours, scalars = make_ppo(learning_rate=0.1, target_kl=0.01, n_epochs=4)
    roll_out(ours)
    ours.update()
    row = logged(ours, scalars)
    assert row["train/stopped_early"] == 1
    assert row["train/n_updates"] == 1, "the pass that was broken off"
    assert row["train/last_kl"] > 0.015, "the update ended early"
    assert row["train/approx_kl"] == pytest.approx(0, abs=1e-6), "the step after which it ended is not in the means"
    steps = {int(state["step"]) for state in ours.policy.optimizer.state.values()}
    assert steps == {1}, "the first step is always taken: only then is there a distance"
    free, scalars = make_ppo(learning_rate=0.1, target_kl=None, n_epochs=4)
    roll_out(free)
    free.update()
    row = logged(free, scalars)
    assert (row["train/stopped_early"], row["train/n_updates"]) == (0, 4)
    assert {int(state["step"]) for state in free.policy.optimizer.state.values()} == {16}


def test_gradients_are_clipped_and_logged_before_clipping():
    ours, scalars = make_ppo(minibatch_size=128, max_grad_norm=0.01)
    roll_out(ours)
    ours.update()
    norm = torch.stack([p.grad.norm() for p in ours.policy.parameters()]).norm().item()
    assert norm == pytest.approx(0.01, rel=1e-3)
    assert logged(ours, scalars)["train/grad_norm"] > 0.02


@pytest.mark.parametrize(("done", "share"), [(0, 0.0), (2_500, 0.25), (10_000, 1.0), (20_000, 1.0)])
def test_schedules_follow_the_progress_of_training(done, share):
    ours, scalars = make_ppo(
        **AT_ONCE,
        learning_rate=1e-3,
        ent_coef_start=0.02,
        ent_coef_end=0.01,
        bc_kl_coef_start=0.4,
        bc_kl_share=0.5,
    )
    ours.set_reference(ours.policy)
    roll_out(ours)
    ours.num_timesteps = done
    ours.update()
    row = logged(ours, scalars)
    assert row["train/learning_rate"] == pytest.approx(1e-3 * (1 - 0.9 * share))
    assert {group["lr"] for group in ours.policy.optimizer.param_groups} == {row["train/learning_rate"]}
    assert row["train/ent_coef"] == pytest.approx(0.02 - 0.01 * share)
    assert row["train/bc_kl_coef"] == pytest.approx(0.4 * max(0, 1 - share / 0.5))


def test_progress_follows_time_budget_if_larger():
    ours, _ = make_ppo(time_budget_minutes=1)
    ours.num_timesteps = 1_000
    assert ours.progress == pytest.approx(0.1)
    ours.elapsed_before_s = 30
    assert ours.progress == pytest.approx(0.5, abs=0.1)
    ours.reserved_s = 20  # for the evaluation at the end
    assert ours.progress == pytest.approx(0.75, abs=0.1)
    ours.elapsed_before_s = 90
    assert ours.progress == 1


def test_non_finite_numbers_end_training_with_an_error():
    ours, _ = make_ppo()
    roll_out(ours)
    ours.rollout_buffer.returns[3] = torch.nan
    with pytest.raises(DivergedError, match=r"update 1: the loss is not finite \(.*value_loss nan.*lower --initial-lr"):
        ours.update()


def test_non_finite_gradient_raises_after_last_step():
    ours, _ = make_ppo(**AT_ONCE, minibatch_size=128, n_epochs=1)
    roll_out(ours)
    ours.policy.action_net.bias.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(DivergedError, match=r"update 1: a gradient is not finite; lower --initial-lr"):
        ours.update()


@pytest.mark.parametrize(("strategy", "start_states"), [(CURRICULA[0], False), *((name, True) for name in CURRICULA)])
def test_training_resumes_from_its_state(strategy, start_states):
    """Weights, optimiser, shuffling, sampling, counters, curriculum, and environments in the middle of their episodes."""
    curriculum = CurriculumConfig(strategy=strategy, start_states=start_states)
    ours, _ = make_ppo(**AT_ONCE, curriculum=curriculum)
    ours.set_reference(build_policy("vision_free", statistics()))
    roll_out(ours)
    ours.update()
    other, _ = make_ppo(**AT_ONCE, seed=5, curriculum=curriculum)
    other.load_training_state(*copy.deepcopy((ours.policy.state_dict(), ours.training_state())))
    assert (other.updates, other.num_timesteps) == (1, 128)
    assert (other.sim.state.progress["decisions"] > 0).any()
    for ppo in (ours, other):
        roll_out(ppo)
        ppo.update()
    assert not changed(weights(ours.policy), other.policy)
    assert (ours.sim.snapshot(slice(None)) == other.sim.snapshot(slice(None))).all()
    assert as_text(ours.sampler.state_dict()) == as_text(other.sampler.state_dict())
    assert list(ours.episode_returns) == list(other.episode_returns)


def test_states_of_other_environments_are_an_error():
    ours, _ = make_ppo()
    roll_out(ours)
    state = ours.training_state()
    other, _ = make_ppo(num_envs=2)
    with pytest.raises(ConfigError, match="4 environments of .* 2 of"):
        other.load_training_state(ours.policy.state_dict(), state)
    state["environments"]["levels"] = "another"
    with pytest.raises(ConfigError, match="of other levels, or in another order"):
        ours.load_training_state(ours.policy.state_dict(), state)


# ------------------------------------------------------------------ construction


def test_ppo_contradicting_settings_raise():
    ours, _ = make_ppo()
    with pytest.raises(ValueError, match=r"the simulator shapes with gamma=0\.9, PPO discounts with 0\.995"):
        PPO(make_env(gamma=0.9), "vision_free", ours.config, make_plan(), statistics=statistics())
    unsettled = type(ours.config)()
    with pytest.raises(ValueError, match=r"pass config.settled\(plan\)"):
        PPO(make_env(), "vision_free", unsettled, make_plan(), statistics=statistics())


def test_next_levels_are_drawn_again_after_each_update():
    ppo, scalars = make_ppo(num_envs=8)
    roll_out(ppo)
    ended, updates = ppo.sampler.metrics()["curriculum/episodes"], ppo.sampler.updates
    ppo.sampler.strategy.weigh(np.array([0.0, 0.0, 1.0]))
    ppo.update()
    assert ppo.sampler.updates == updates + 1
    assert (ppo.sim.next_level == 2).all()
    assert ppo.sampler.metrics()["curriculum/episodes"] == ended
    assert logged(ppo, scalars)["sim/curriculum_s"] >= 0


def test_first_episodes_can_have_random_lengths():
    """Without inputs, episodes end by time: all together, or evenly distributed over time; later episodes have the
    whole time."""

    def ends(**settings):
        ppo, _ = make_ppo(num_envs=64, **settings)
        sim, found, limit = ppo.sim, [], int(ppo.sim.bank.time_limit.max())
        first = np.full(64, -1)
        for t in range(2 * limit // sim.frame_skip + 2):
            sim.step(np.zeros(64, np.int64))
            for env in sim.finished.tolist():
                if first[env] < 0:
                    first[env] = t
                else:
                    found.append((t - first[env]) * sim.frame_skip)
                    first[env] = t
        return first, found, ppo.sim.bank.time_limit

    together, spread = ends(), ends(desync_episodes=True)
    assert len(set(together[1])) <= 3
    limits = {-(-int(limit) // 4) * 4 for limit in spread[2]}
    assert set(spread[1]) <= limits, "later episodes are whole"
    assert len(set(spread[0].tolist())) > 4 * len(set(together[0].tolist()))
