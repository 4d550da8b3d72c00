"""What happens between updates: checks, evaluations, checkpoints, uploads, and the end of training."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

from rl.config import EvaluationConfig, ExperimentConfig, PPOConfig, UploadConfig
from rl.policy import checkpoint
from rl.train.monitor import EarlyStopping, Evaluation, TrainingMonitor, check_gradients, check_inputs
from rl.train.ppo import DivergedError
from rl.upload import UploadError

from learners import CATEGORIES, make_ppo, roll_out

ROLLOUT = 128  # decisions of an update


class Store:
    """Stands for an uploader; refuses the first upload."""

    def __init__(self):
        self.folders = []

    def sync(self, folder):
        self.folders.append(folder)
        if len(self.folders) == 1:
            raise UploadError("the network is down")


def half_won(policy):
    """Stands for an evaluation: what it finds does not change."""
    return Evaluation(0.5, {**dict.fromkeys(CATEGORIES, 0.5), "all": 0.5}, np.full(len(CATEGORIES), 0.5))


def train(root, updates=3, **evaluation):
    """(monitor, PPO, log lines, store) after some updates."""
    ppo, _ = make_ppo(total_timesteps=updates * ROLLOUT)
    folder = root / "vision_free"
    ppo.set_logger(Logger(str(folder), [TensorBoardOutputFormat(str(folder / "tensorboard"))]))
    config = ExperimentConfig(
        experiment_name="x",
        architectures=("vision_free",),
        save_freq=2 * ROLLOUT,
        ppo=PPOConfig(total_timesteps=updates * ROLLOUT),
        evaluation=EvaluationConfig(eval_freq=ROLLOUT, **evaluation),
        upload=UploadConfig(bucket="somewhere", sync_freq=ROLLOUT),
    )
    lines, store = [], Store()
    monitor = TrainingMonitor(config, root, folder, half_won, store, lines.append)
    ppo.learn(updates * ROLLOUT, callback=monitor)
    return monitor, ppo, lines, store


def test_between_updates_it_evaluates_saves_and_uploads(tmp_path):
    monitor, ppo, lines, store = train(tmp_path)
    assert ppo.updates == 3
    assert [event["at"] for event in monitor.events] == [ROLLOUT, 2 * ROLLOUT]
    assert set(monitor.events[0]["evaluation"]) == {*CATEGORIES, "all"}
    assert [path.name for path in (tmp_path / "vision_free" / "checkpoints").iterdir()] == [
        f"checkpoint_{2 * ROLLOUT}.pt"
    ]
    assert store.folders == [tmp_path, tmp_path], "the experiment's folder, not the run's"
    assert any("first update checked" in line and "gradients everywhere" in line for line in lines)
    assert any("upload failed and will be tried again: the network is down" in line for line in lines)


def test_training_goes_on_from_the_newest_checkpoint(tmp_path):
    monitor, ppo, lines, _ = train(tmp_path)
    path = monitor.save(ppo, "final")
    assert checkpoint.load(path)["training"]["updates"] == 3
    fresh, _ = make_ppo(seed=1)
    monitor.resume(fresh)
    assert (fresh.updates, fresh.num_timesteps) == (3, 3 * ROLLOUT)
    assert lines[-1] == f"resuming from {path} at {3 * ROLLOUT} decisions"
    for ours, theirs in zip(ppo.policy.parameters(), fresh.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_nothing_to_resume_from_is_said(tmp_path):
    monitor, ppo, _, _ = train(tmp_path, updates=1)
    with pytest.raises(checkpoint.CheckpointError, match="no checkpoint to resume from"):
        monitor.resume(ppo)


def test_training_ends_where_evaluations_no_longer_improve(tmp_path):
    monitor, ppo, _, _ = train(
        tmp_path, updates=9, early_stopping=True, early_stopping_patience=1, early_stopping_min_evaluations=1,
        early_stopping_improvement=2.0,
    )  # fmt: skip
    assert ppo.updates == 2, "the first evaluation is the best so far, the second is no better"
    assert monitor.events[-1] == {"at": 2 * ROLLOUT, "stopped": "no improvement"}


def test_early_stopping_waits_for_patience_and_for_enough_evaluations():
    config = EvaluationConfig(early_stopping=True, early_stopping_patience=3)
    stopping = EarlyStopping(config)
    assert [stopping.update(success) for success in (0.5, 0.505, 0.5, 0.5, 0.5)] == [False] * 4 + [True]
    improving = EarlyStopping(config)
    assert not any(improving.update(n / 20) for n in range(20))
    off = EarlyStopping(EvaluationConfig())
    assert not any(off.update(0.0) for _ in range(50))


def test_a_tensor_that_no_gradient_reaches_is_named():
    ppo, _ = make_ppo()
    roll_out(ppo)
    ppo.train()
    check_gradients(ppo.policy)
    ppo.policy.action_net.bias.grad.zero_()
    ppo.policy.value_net.bias.grad[0] = torch.nan
    with pytest.raises(DivergedError, match=r"no gradient reaches action_net\.bias, value_net\.bias;"):
        check_gradients(ppo.policy)


def test_inputs_far_from_their_statistics_are_refused():
    ppo, _ = make_ppo()
    roll_out(ppo)
    assert check_inputs(ppo.policy, ppo.rollout_buffer) < 4
    ppo.rollout_buffer.obs["game_state"] += 1e6
    with pytest.raises(DivergedError, match="the demonstrations do not look like these levels"):
        check_inputs(ppo.policy, ppo.rollout_buffer)
