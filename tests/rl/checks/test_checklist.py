"""The checklist of a run: each criterion is met, missed, or undecided where its step was not reached."""

import numpy as np
import pytest

from rl.checks.run import checklist, checklist_table
from rl.events import open_events


def write(folder, curves):
    """Event files of a run.  curves: tag -> (steps, values)."""
    with open_events(folder / "tensorboard") as writer:
        for tag, (steps, values) in curves.items():
            for step, value in zip(steps, values, strict=True):
                writer.add_scalar(tag, value, step)


def verdicts(folder):
    return {item.criterion: item.mark for item in checklist(folder)}


STEPS = np.arange(1, 61) * 10_000


def sound(last=60):
    """Curves of a run that learns, to its update ``last``."""
    steps, share = STEPS[:last], np.linspace(0.05, 0.6, len(STEPS))[:last]
    return {
        "rollout/success_rate": (steps, share),
        "curriculum_stages/simplest_success_rate": (steps, share),
        "rollout/ep_rew_mean": (steps, share),
        "train/policy_gradient_loss": (steps, -share),
        "sim/update_s": (steps, np.full(last, 2.0)),
        "sim/decisions_per_s": (steps, np.full(last, 5_000.0)),
        "time/fps": (steps, np.full(last, 2_500.0)),
        "curriculum/current_stage_idx": (steps, (steps > 300_000).astype(float)),
    }


def test_a_sound_run_meets_every_criterion(tmp_path):
    write(tmp_path, sound())
    items = checklist(tmp_path)
    assert [item.mark for item in items] == ["✓"] * 8, checklist_table(items)
    figures = " ".join(item.figure for item in items)
    assert "4.0 s, including 2.0 s for the rollout" in figures
    assert "after 310,000 decisions" in figures


def test_a_run_that_does_not_learn_misses_every_criterion(tmp_path):
    flat = dict(sound())
    for tag in ("rollout/success_rate", "curriculum_stages/simplest_success_rate", "curriculum/current_stage_idx"):
        flat[tag] = (STEPS, np.zeros(len(STEPS)))
    for tag in ("rollout/ep_rew_mean", "train/policy_gradient_loss"):
        flat[tag] = (STEPS, -np.array(flat[tag][1]))
    flat["sim/update_s"] = (STEPS, np.full(len(STEPS), 900.0))
    flat["time/fps"] = (STEPS, np.full(len(STEPS), 5.0))
    write(tmp_path, flat)
    items = checklist(tmp_path)
    assert [item.mark for item in items] == ["✗"] * 8, checklist_table(items)


def test_criteria_that_a_short_run_does_not_reach_are_undecided(tmp_path):
    write(tmp_path, sound(last=5))
    found = verdicts(tmp_path)
    assert list(found.values()).count("undecided") == 6
    assert found["an update takes less than 30 s"] == found["100,000 decisions take less than 2 h"] == "✓"


def test_without_scalars_all_criteria_are_undecided(tmp_path):
    items = checklist(tmp_path)
    assert {item.mark for item in items} == {"undecided"}
    assert "no TensorBoard event files" in items[0].figure


@pytest.mark.parametrize("tag", ["rollout/success_rate", "time/fps"])
def test_a_missing_scalar_is_named(tmp_path, tag):
    curves = sound()
    del curves[tag]
    write(tmp_path, curves)
    assert any(f"no curve {tag}" in item.figure for item in checklist(tmp_path))


def test_falling_returns_after_a_change_of_stage_are_undecided(tmp_path):
    curves = sound()
    curves["rollout/ep_rew_mean"] = (STEPS, -np.array(curves["rollout/ep_rew_mean"][1]))
    write(tmp_path, curves)
    assert verdicts(tmp_path)["returns rise"] == "undecided"
