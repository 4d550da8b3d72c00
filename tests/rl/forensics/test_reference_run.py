"""A tiny training reaches what trainings like it have reached, and one that is broken does not."""

import pytest
import torch

from rl.forensics.reference import hold_against, load_reference
from rl.train import ppo as ppo_module

from tiny_run import REFERENCE, SEEDS, train

pytestmark = pytest.mark.usefixtures("one_thread")

NEW_SEED = 11  # none of the reference's


def test_a_new_seed_is_within_the_reference(tmp_path):
    assert NEW_SEED not in SEEDS
    report = hold_against(train(tmp_path, NEW_SEED), load_reference(REFERENCE))
    assert not report.alarms, report.text()
    assert {row.tag for row in report.rows} >= {
        "rollout/success_rate",
        "rollout/ep_rew_mean",
        "train/explained_variance",
    }
    assert not [note for note in report.notes if note.startswith("setting")], (
        "a default that this depends on has changed"
    )


def test_a_flipped_advantage_alarms(tmp_path, monkeypatch):
    monkeypatch.setattr(
        ppo_module, "normalised", lambda advantages: -(advantages - advantages.mean()) / advantages.std()
    )
    report = hold_against(train(tmp_path, NEW_SEED), load_reference(REFERENCE))
    assert {row.tag for row in report.alarms} >= {"rollout/success_rate", "rollout/ep_rew_mean"}, report.text()
    assert torch.get_num_threads() == 1
