"""The checklist of a run: each criterion is met, missed or undecided."""

import numpy as np
import pytest

from rl.checks.checklist import DEV_SUCCESS, checklist, checklist_table
from rl.evaluation.results import DevHistory, LevelWins
from rl.events import open_events

STEPS = np.arange(1, 61) * 10_000
RISING = np.linspace(0.05, 0.6, len(STEPS))
NOISE = np.random.default_rng(0).normal(size=len(STEPS))


def curves_of_a_good_run(last=60, **changes):
    """Return tag -> (steps, values) up to the update ``last``.  changes: other values, by the tag with _ for /."""
    values = {
        "rollout/success_rate": RISING,
        "curriculum_stages/simplest_success_rate": RISING,
        "rollout/ep_rew_mean": RISING,
        "train/policy_gradient_loss": -RISING,
        "train/approx_kl": np.full(len(STEPS), 0.01),
        "sim/update_s": np.full(len(STEPS), 2.0),
        "sim/decisions_per_s": np.full(len(STEPS), 5_000.0),
        "time/fps": np.full(len(STEPS), 2_500.0),
        "curriculum/current_stage_idx": (STEPS > 300_000).astype(float),
    }
    return {tag: (STEPS[:last], changes.get(tag.replace("/", "_"), one)[:last]) for tag, one in values.items()}


def write(folder, curves, *evaluations, levels=200):
    """Write event files, and evaluations on the dev levels: success of the BC policy, then of later policies."""
    with open_events(folder / "tensorboard") as writer:
        for tag, (steps, values) in curves.items():
            for step, value in zip(steps, values, strict=True):
                writer.add_scalar(tag, value, step)
    names, history = tuple(f"level {i}" for i in range(levels)), DevHistory(folder)
    for i, success in enumerate(evaluations):
        won = np.random.default_rng(i).permutation(levels) < success * levels
        counts = np.ones(levels, np.int64)
        history.add(1000 * i, LevelWins(names, ("simple",) * levels, counts, won[None].astype(np.int64)))


def marks(folder):
    return {item.criterion: item.mark for item in checklist(folder)}


def test_checklist_of_a_good_run_is_met(tmp_path):
    write(tmp_path, curves_of_a_good_run(), 0.2, 0.5, 0.6)
    items = checklist(tmp_path)
    assert [item.mark for item in items] == ["✓"] * 9, checklist_table(items)
    figures = " ".join(item.figure for item in items)
    assert "4.0 s, including 2.0 s for the rollout" in figures
    assert "after 310,000 decisions" in figures


def test_checklist_of_a_run_that_does_not_learn_is_missed(tmp_path):
    zeros = np.zeros(len(STEPS))
    changes = {
        **dict.fromkeys(
            ("rollout_success_rate", "curriculum_stages_simplest_success_rate", "curriculum_current_stage_idx"), zeros
        ),
        "rollout_ep_rew_mean": -RISING,
        "train_policy_gradient_loss": RISING,
        "sim_update_s": np.full(len(STEPS), 900.0),
        "time_fps": np.full(len(STEPS), 5.0),
    }
    write(tmp_path, curves_of_a_good_run(**changes), 0.6, 0.2, 0.1)
    items = checklist(tmp_path)
    assert [item.mark for item in items] == ["✗"] * 9, checklist_table(items)


def test_checklist_of_a_short_run_is_undecided(tmp_path):
    write(tmp_path, curves_of_a_good_run(last=5))
    found = marks(tmp_path)
    assert list(found.values()).count("undecided") == 7
    assert found["an update takes less than 30 s"] == found["100,000 decisions take less than 2 h"] == "✓"


def test_checklist_without_scalars_is_undecided(tmp_path):
    items = checklist(tmp_path)
    assert {item.mark for item in items} == {"undecided"}
    assert "no TensorBoard event files" in items[-1].figure


@pytest.mark.parametrize(
    ("evaluations", "mark"),
    [
        ((0.6, 0.7, 0.8), "✓"),
        ((0.6, 0.5, 0.4), "✗"),
        ((0.6, 0.4, 0.8), "✓"),  # the second half counts
        ((0.60, 0.61, 0.61), "undecided"),
        ((0.6,), "undecided"),
        ((0.0, 0.0, 1.0), "✓"),  # the same on all levels: no interval
    ],
)
def test_dev_success_is_compared_with_that_of_the_bc_policy(tmp_path, evaluations, mark):
    write(tmp_path, {}, *evaluations)
    assert marks(tmp_path)[DEV_SUCCESS] == mark


@pytest.mark.parametrize(
    ("returns", "mark"),
    [
        (RISING, "✓"),
        (-RISING, "✗"),
        (3.05 - 0.02 * RISING + 0.1 * NOISE, "undecided"),  # +3.05 -> +3.04, as of a good run
        (3.0 + RISING + 0.05 * NOISE, "✓"),
    ],
)
def test_returns_rise_is_undecided_within_noise(tmp_path, returns, mark):
    one_stage = np.zeros(len(STEPS))
    write(tmp_path, curves_of_a_good_run(rollout_ep_rew_mean=returns, curriculum_current_stage_idx=one_stage))
    assert marks(tmp_path)["returns rise"] == mark


@pytest.mark.parametrize(("updates", "mark"), [(60, "undecided"), (53, "undecided"), (30, "✗")])
def test_loss_counts_only_updates_of_the_actor(tmp_path, updates, mark):
    """While the critic is trained alone, loss and KL divergence are rounding errors.  updates: their number."""
    critic = np.arange(len(STEPS)) < updates
    loss = np.where(critic, -1e-8 * (1 + RISING), RISING)
    kl = np.where(critic, 1e-9, 0.01)
    write(tmp_path, curves_of_a_good_run(train_policy_gradient_loss=loss, train_approx_kl=kl))
    assert marks(tmp_path)["the policy's loss falls"] == mark


def test_returns_rise_is_undecided_after_a_change_of_stage(tmp_path):
    write(tmp_path, curves_of_a_good_run(rollout_ep_rew_mean=-RISING))
    assert marks(tmp_path)["returns rise"] == "undecided"


@pytest.mark.parametrize("tag", ["rollout/success_rate", "time/fps"])
def test_checklist_names_a_missing_scalar(tmp_path, tag):
    curves = curves_of_a_good_run()
    del curves[tag]
    write(tmp_path, curves)
    assert any(f"no curve {tag}" in item.figure for item in checklist(tmp_path))
