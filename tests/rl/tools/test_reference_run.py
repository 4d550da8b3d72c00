"""Tiny trainings: a new seed is within the reference bands, a broken one raises an alarm, and a divergence is
explained."""

import pytest
import torch

from rl.ppo import ppo as module
from rl.tools.reference import check_run, load_reference

from programs import load_script
from tiny_run import REFERENCE, SEEDS, train

pytestmark = pytest.mark.usefixtures("one_thread")

NEW_SEED = 11  # none of the reference's


def test_new_seed_within_reference_bands(tmp_path):
    assert NEW_SEED not in SEEDS
    report = check_run(train(tmp_path, NEW_SEED), load_reference(REFERENCE))
    assert not report.alarms, report.text()
    assert {row.tag for row in report.rows} >= {
        "rollout/success_rate",
        "rollout/ep_rew_mean",
        "train/explained_variance",
    }
    assert not [note for note in report.notes if note.startswith("setting")], (
        "a default that this depends on has changed"
    )


def test_flipped_advantage_raises_alarm(tmp_path, monkeypatch):
    normalised = module.normalized
    monkeypatch.setattr(module, "normalized", lambda *arguments: -normalised(*arguments))
    report = check_run(train(tmp_path, NEW_SEED), load_reference(REFERENCE))
    assert {row.tag for row in report.alarms} >= {"rollout/success_rate", "rollout/ep_rew_mean"}, report.text()
    assert torch.get_num_threads() == 1


def test_divergence_explained_by_changed_setting(tmp_path, capsys):
    small = {"updates": 2, "num_envs": 4, "rollout_length": 16, "minibatch_size": 64}
    for name, changes in (("old", {}), ("again", {}), ("new", {"gae_lambda": 0.92})):
        train(tmp_path / name, 1, **(small | changes))
    compare_runs = load_script("compare_runs")
    assert compare_runs.main([str(tmp_path / "old"), str(tmp_path / "again"), "--exact"]) == 0
    assert "digests are equal in all 3 common records" in capsys.readouterr().out
    assert compare_runs.main([str(tmp_path / "old"), str(tmp_path / "new"), "--exact"]) == 1
    assert "first divergence at update 1: advantages, because ppo.gae_lambda 0.95 → 0.92" in capsys.readouterr().out
