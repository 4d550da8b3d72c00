"""PPO with callbacks of Stable-Baselines3, and the methods that they need."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import (
    CheckpointCallback,
    EvalCallback,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.evaluation import evaluate_policy

from nppsim.errors import ConfigError
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError, load_policy
from rl.ppo import PPO, HierarchicalPPO, RecurrentPPO

from learners import make_env, make_ppo, weights

pytestmark = pytest.mark.usefixtures("one_thread")

ROLLOUT = 128  # decisions of an update of make_ppo()
SHORT = {"frame_skip": 16}  # episodes of a few dozen decisions


def test_eval_callback_evaluates_logs_and_saves_the_best_model(tmp_path):
    ppo, scalars = make_ppo(**SHORT)
    callback = EvalCallback(
        make_env(2, **SHORT),
        n_eval_episodes=2,
        eval_freq=32,
        log_path=tmp_path,
        best_model_save_path=tmp_path,
        verbose=0,
    )
    ppo.learn(2 * ROLLOUT, callback=callback)
    assert callback.evaluations_timesteps == [ROLLOUT, 2 * ROLLOUT]
    logged = [row["eval/mean_reward"] for row in scalars.rows if "eval/mean_reward" in row]
    assert len(logged) == 2 and logged[-1] == callback.last_mean_reward
    policy, fields = load_policy(tmp_path / f"best_model{checkpoint.SUFFIX}")
    assert (policy.architecture, fields["frame_skip"]) == ("vision_free", 16)


def test_stop_training_on_reward_threshold_ends_training_after_the_evaluation():
    ppo, _ = make_ppo(**SHORT)
    stop = StopTrainingOnRewardThreshold(reward_threshold=-1e9)
    callback = EvalCallback(make_env(2, **SHORT), callback_on_new_best=stop, n_eval_episodes=1, eval_freq=40, verbose=0)
    ppo.learn(10 * ROLLOUT, callback=callback)
    assert ppo.num_timesteps == 40 * 4


def test_stop_training_on_max_episodes_counts_the_ends_of_episodes():
    ppo, _ = make_ppo(**SHORT)
    stop = StopTrainingOnMaxEpisodes(max_episodes=2)
    ppo.learn(100 * ROLLOUT, callback=[stop])
    assert 2 * 4 <= stop.n_episodes < 2 * 4 + 4 and ppo.num_timesteps < 100 * ROLLOUT


def test_progress_bar_counts_the_decisions_of_this_call():
    ppo, _ = make_ppo()
    ppo.learn(ROLLOUT)
    bar = ProgressBarCallback()
    ppo.learn(2 * ROLLOUT, callback=bar, reset_num_timesteps=False)
    assert (bar.pbar.n, bar.pbar.total) == (2 * ROLLOUT, 2 * ROLLOUT)
    ppo.learn(ROLLOUT, progress_bar=True)


def test_functions_as_callbacks_read_actions_rewards_and_dones():
    ppo, _ = make_ppo()
    steps = []

    def callback(locals_, globals_):
        steps.append(locals_)
        return len(steps) < 5

    ppo.learn(ROLLOUT, callback=callback)
    assert len(steps) == 5 and ppo.num_timesteps == 20
    assert {name: steps[-1][name].shape for name in ("actions", "rewards", "dones")} == dict.fromkeys(
        ("actions", "rewards", "dones"), (4,)
    )


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        (PPO, "vision_free"),
        (PPO, "vision_free+state3-repeat"),
        (PPO, "mlp_baseline+visual2-state3"),
        (RecurrentPPO, "vision_free+gru"),
        (HierarchicalPPO, "vision_free+subtasks5"),
    ],
)
def test_load_of_a_checkpoint_callback_continues_bit_for_bit(kind, architecture, tmp_path):
    ppo, _ = make_ppo(architecture=architecture, rollout_length=8, **SHORT)
    ppo.learn(64, callback=CheckpointCallback(8, tmp_path, name_prefix="ppo"))
    assert {path.name for path in tmp_path.iterdir()} == {"ppo_32_steps.zip", "ppo_64_steps.zip"}
    ppo.save(tmp_path / "last")
    loaded = kind.load(tmp_path / f"last{checkpoint.SUFFIX}", make_env(architecture=architecture, **SHORT, seed=7))
    assert (loaded.num_timesteps, loaded.config, loaded.updates) == (64, ppo.config, 2)
    for one in (ppo, loaded):
        one.learn(32, reset_num_timesteps=False)
    ours, theirs = weights(ppo.policy), weights(loaded.policy)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_load_refuses_policies_without_training_and_other_environments(tmp_path):
    ppo, _ = make_ppo()
    checkpoint.save(tmp_path / "policy.safetensors", ppo.policy, frame_skip=4)
    with pytest.raises(CheckpointError, match=r"PPO\.save\(\) has not written it"):
        PPO.load(tmp_path / "policy.safetensors", make_env())
    ppo.save(tmp_path / "ppo")
    with pytest.raises(CheckpointError, match="4 frames per decision, this run has 16"):
        PPO.load(tmp_path / "ppo.safetensors", make_env(**SHORT))
    with pytest.raises(ConfigError, match="4 environments of .* 2 of"):
        PPO.load(tmp_path / "ppo.safetensors", make_env(2))


def test_learn_trains_n_more_decisions_with_schedules_over_this_call():
    ppo, scalars = make_ppo(learning_rate=1e-3)

    def rates():
        return [row["train/learning_rate"] for row in scalars.rows[1:] if "train/learning_rate" in row]

    for _ in range(2):
        scalars.rows.clear()
        ppo.learn(4 * ROLLOUT)
        ppo.logger.dump()
        assert (ppo.num_timesteps, ppo.progress) == (4 * ROLLOUT, 1.0)
        assert rates() == pytest.approx([1e-3 * (1 - 0.9 * share) for share in (0.25, 0.5, 0.75, 1.0)])
    scalars.rows.clear()
    ppo.learn(4 * ROLLOUT, reset_num_timesteps=False)
    ppo.logger.dump()
    assert (ppo.num_timesteps, ppo.progress, ppo.updates) == (8 * ROLLOUT, 1.0, 12)
    assert rates() == pytest.approx([1e-3 * (1 - 0.9 * share) for share in (0.625, 0.75, 0.875, 1.0)])


@pytest.mark.parametrize("architecture", ["vision_free", "vision_free+gru", "vision_free+subtasks5"])
def test_evaluate_policy_of_sb3_plays_a_ppo(architecture):
    ppo, _ = make_ppo(architecture=architecture, **SHORT)
    assert ppo.get_env() is ppo.env and ppo.get_vec_normalize_env() is None
    returns, lengths = evaluate_policy(
        ppo, make_env(2, architecture=architecture, **SHORT), n_eval_episodes=3, return_episode_rewards=True
    )
    assert len(returns) == 3 and np.isfinite(returns).all() and min(lengths) > 0
