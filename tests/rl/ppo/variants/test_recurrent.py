"""PPO with a recurrent policy: stored states and updates compared with single steps, resumption, evaluation, audit."""

import numpy as np
import pytest
import torch

from bc.thread_pool import ThreadPool
from nppsim.errors import ConfigError
from rl.config.ppo import PPOConfig
from rl.evaluation.suite import EvaluationSuite
from rl.policy.player import RecurrentPlayer
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import FOLLOWS, RECURRENT_STATE
from rl.ppo.losses import Losses, evaluate_rollout, ppo_losses, set_gradients
from rl.ppo.ppo import PPO
from rl.ppo.variants.recurrent import RecurrentPPO, segment_length

from learners import AT_ONCE, CATEGORIES, LEVELS, make_plan, make_ppo, roll_out, statistics, weights

NAME = "vision_free+gru"
pytestmark = pytest.mark.usefixtures("one_thread")


def recurrent(**changes):
    return make_ppo(**{"architecture": NAME, "rollout_length": 64, "minibatch_size": 64} | AT_ONCE | changes)[0]


def outputs_step_by_step(ppo: PPO, policy: NppPolicy, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and values of a policy for whole segments, one decision after the other."""
    if not isinstance(ppo, RecurrentPPO):
        return policy.logits_and_values(ppo.rollout_buffer.observations(rows))
    buffer, envs = ppo.rollout_buffer, ppo.sim.num_envs
    length = buffer.segment
    steps, of = rows // envs, rows % envs
    order = torch.argsort(of * buffer.shape[0] + steps)  # by environment, then by decision
    if len(rows) % length or not bool((steps[order].view(-1, length) % length == torch.arange(length).to(rows)).all()):
        return policy.logits_and_values(_alone(ppo, rows))
    segments = rows[order].view(-1, length)
    state, ends = buffer.flat_obs(RECURRENT_STATE)[segments[:, 0]], buffer.flat("episode_ends")
    logits, values = [], []
    for step in range(length):
        index = segments[:, step]
        some_logits, some_values, after = policy.step({**_alone(ppo, index), RECURRENT_STATE: state})
        assert after is not None
        state = after * ~ends[index][:, None]
        logits.append(some_logits)
        values.append(some_values)
    places = torch.argsort(order)
    return torch.stack(logits, dim=1).flatten(0, 1)[places], torch.stack(values, dim=1).flatten()[places]


def _alone(ppo: RecurrentPPO, index: torch.Tensor) -> dict[str, torch.Tensor]:
    """Observations of single decisions."""
    return {key: values for key, values in ppo.rollout_buffer.observations(index).items() if key != FOLLOWS}


def train(ppo, updates=2):
    for _ in range(updates):
        roll_out(ppo)
        ppo.update()
        ppo.logger.dump()


# ------------------------------------------------------------------ rollouts


def test_states_are_stored_and_reset_at_the_start_of_episodes():
    """Over two rollouts, compared with a separate player that gets the same observations."""
    ppo, ends = recurrent(desync_episodes=True), 0
    player, all_envs = RecurrentPlayer(ppo.policy, 4), np.arange(4)
    for _ in range(2):
        roll_out(ppo)
        buffer = ppo.rollout_buffer
        for t in range(64):
            torch.testing.assert_close(buffer.obs[RECURRENT_STATE][t], torch.from_numpy(player.states))
            seen = {key: values[t].numpy() for key, values in buffer.obs.items() if key != RECURRENT_STATE}
            player.act(seen, all_envs, deterministic=True, rng=None)
            player.begin(np.flatnonzero(buffer.episode_ends[t].numpy()))
        ends += int(buffer.episode_ends.sum())
    assert ends > 0
    np.testing.assert_allclose(ppo.states, player.states, atol=1e-6)


def test_minibatches_are_complete_segments_and_sequences_end_with_episodes():
    ppo = recurrent(memory_segment=8)
    roll_out(ppo)
    buffer, rng = ppo.rollout_buffer, np.random.default_rng(0)
    buffer.episode_ends[3, 1] = True
    minibatches = list(buffer.minibatches(64, rng))
    assert sorted(torch.cat(minibatches).tolist()) == list(range(256))
    for index in minibatches:
        follows = buffer.observations(index)[FOLLOWS]
        for place, number in enumerate(index.tolist()):
            t, env = divmod(number, 4)
            begins = t % 8 == 0 or bool(buffer.episode_ends[t - 1, env])
            assert follows[place] == (not begins)
            assert t % 8 == place % 8
    assert FOLLOWS not in buffer.observations(torch.arange(0, 256, 5))


def test_sequences_and_single_steps_give_equal_outputs():
    ppo = recurrent()
    roll_out(ppo)
    buffer = ppo.rollout_buffer
    log_probs, values = evaluate_rollout(ppo.policy, buffer, ThreadPool(2), 64)
    torch.testing.assert_close(log_probs, buffer.flat("log_probs"), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values, buffer.flat("values"), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ updates


@pytest.mark.parametrize(("threads", "size"), [(1, 128), (3, 128), (2, 64)])
def test_gradients_equal_manual_steps(threads, size):
    """After an update, so that stored states are not those of the present weights; by threads, and accumulated."""
    ppo = recurrent(memory_segment=16)
    roll_out(ppo)
    ppo.update()
    ppo.policy.optimizer.zero_grad()
    settings = ppo.loss_weights()
    samples, index = ppo.samples(settings), next(ppo.rollout_buffer.minibatches(128, np.random.default_rng(0)))
    numbers = set_gradients(
        ppo.policy,
        ThreadPool(threads),
        ppo.rollout_buffer.observations,
        samples,
        index.split(size),
        lambda obs, part: ppo.minibatch_losses(obs, part, settings),
        segment=16,
    )
    found = {name: parameter.grad.clone() for name, parameter in ppo.policy.named_parameters()}
    logits, values = outputs_step_by_step(ppo, ppo.policy, index)
    loss = ppo_losses(logits, values, samples.take(index), settings).loss
    wanted = torch.autograd.grad(loss, list(ppo.policy.parameters()))
    assert Losses(*numbers).loss == pytest.approx(loss.item(), rel=1e-4)
    for (name, mine), theirs in zip(found.items(), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6, msg=name)
    assert found["memory.cell.weight_hh_l0"].abs().max() > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"desync_episodes": True},
        {"memory_segment": 8, "n_epochs": 2, "gradient_accumulation": 3},
        {"n_epochs": 2, "returns_from": "current", "vtrace_rho_clip": 1.0},
        {"architecture": "vision_free+state3+gru"},
    ],
)
def test_all_parameters_trained(changes):
    ppo = recurrent(**changes)
    before = weights(ppo.policy)
    train(ppo)
    assert all(not torch.equal(tensor, before[name]) for name, tensor in ppo.policy.named_parameters())


def test_kl_penalty_uses_sequences():
    ppo = recurrent(n_epochs=2, memory_segment=16)
    ppo.set_reference(ppo.policy)
    train(ppo)
    assert ppo.logger is not None and ppo.actor_updates == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_segment": 7}, "--memory-segment 7: segments divide rollouts .64 .* give one of 1, 2, 4, 8, 16, 32"),
    ],
)
def test_incompatible_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        segment_length(PPOConfig(**changes), make_plan(4, 64, 32))
    assert segment_length(PPOConfig(), make_plan(4, 24, 48)) == 24


# Checkpoints and evaluation


def test_evaluation_carries_the_recurrent_state():
    policy = recurrent().policy
    with torch.no_grad():
        policy.memory.projection.weight.mul_(30)  # so that the state matters
    levels = list(zip(LEVELS, CATEGORIES, strict=True))
    suite = EvaluationSuite(levels, episodes_per_category=2, seed=1, num_envs=4)
    for deterministic in (False, True):
        episodes = suite.run(policy, deterministic=deterministic)
        again = suite.run(policy, deterministic=deterministic)
        assert all((one.inputs == other.inputs).all() for one, other in zip(episodes, again, strict=True))
    assert statistics().fingerprint == policy.statistics.fingerprint
