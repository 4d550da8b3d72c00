"""Alarms of a training: each is reported once, can be silenced, and does not end the run."""

import math
import re

import numpy as np
import pytest

from nppsim.errors import ConfigError
from rl.config.command_line import resolve
from rl.config.experiment import WARNINGS
from rl.ppo.logs import ScalarLog
from rl.training.alarms import (
    LIMITS,
    WINDOW,
    Audit,
    UpdateMetrics,
    alarms,
    is_falling,
    missing_gradients,
    unusual_inputs,
)

from learners import AT_ONCE, make_ppo, roll_out
from places import ROOT

SEED = 3  # with levels like those of the statistics, which are from few episodes
USUAL = {
    "episodes": 50,
    "wins": 40,
    "rewarded": 10,
    "kl": 0.01,
    "clip_fraction": 0.1,
    "entropy": 1.0,
    "explained_variance": 0.5,
    "top_action": 0.4,
    "decisions_per_s": 1000.0,
    "memory_mib": 500.0,
}


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ({}, set()),
        ({"kl": 0.5}, {"kl"}),
        ({"kl": 1e-9}, {"kl"}),
        ({"kl": math.nan, "entropy": math.nan, "explained_variance": math.nan}, set()),
        ({"clip_fraction": 0.8}, {"clipping"}),
        ({"entropy": 0.001}, {"entropy"}),
        ({"entropy": np.log(6)}, {"entropy"}),
        ({"top_action": 0.99}, {"actions"}),
        ({"explained_variance": -2.0}, {"critic"}),
        ({"rewarded": 0}, {"unrewarded"}),
        ({"wins": 0}, {"wins", "progress"}),
        ({"wins": 10}, {"progress"}),
        ({"episodes": 20, "wins": 15}, {"episodes"}),
        ({"decisions_per_s": lambda n: 1000.0 - 20 * n}, {"speed"}),
        ({"memory_mib": lambda n: 500.0 + 20 * n}, {"memory"}),
    ],
)
def test_alarms_of_unusual_metrics_have_their_name(metrics, names):
    """metrics: a value, or a function of the update's number."""
    history = [
        UpdateMetrics(**USUAL | {name: one(number) if callable(one) else one for name, one in metrics.items()})
        for number in range(WINDOW)
    ]
    assert {name for name, _ in alarms(history, 0.5, 0.3)} == names
    assert {name for name, _ in alarms(history[:4], 0.5, 0.3)} == set()
    assert "progress" not in {name for name, _ in alarms(history, 0.5, math.nan)}


def test_all_alarms_can_be_silenced():
    source = (ROOT / "rl" / "training" / "alarms.py").read_text()
    names = {*re.findall(r'yield[\s(]+"(\w+)",', source), *(limit.name for limit in LIMITS)}
    assert len(names) > 10 and names <= set(WARNINGS)


def test_silence_of_an_unknown_name_raises_an_error_with_a_suggestion():
    given = ["--experiment-name", "x", "--architectures", "vision_free", "--silence"]
    with pytest.raises(ConfigError, match="--silence.*curve.*did you mean 'curves'"):
        resolve([*given, "curve"])


def test_is_falling_ignores_a_sudden_drop():
    assert is_falling(np.linspace(100, 50, WINDOW))
    assert not is_falling(np.r_[np.full(WINDOW // 2, 100.0), np.full(WINDOW // 2, 50.0)])


def reported(folder, *, level="first", silence=(), spoil=lambda ppo: None, updates=3):
    """Return the names of alarms in a training that ``spoil`` changes."""
    ppo, _ = make_ppo(total_timesteps=updates * 128, seed=SEED, **AT_ONCE)
    ppo.logger.output_formats = ScalarLog(folder).outputs
    spoil(ppo)
    names = []
    ppo.learn(updates * 128, callback=Audit(level, folder, lambda name, message: names.append(name), silence))
    assert ppo.updates == updates
    return names


@pytest.mark.parametrize("level", ["first", "all"])
def test_audit_of_a_sound_training_reports_nothing(tmp_path, level):
    assert reported(tmp_path, level=level) == []


def repeat_draws(ppo):
    update = ppo.update

    def update_and_reseed():
        update()
        ppo.action_rng.manual_seed(1)

    ppo.update = update_and_reseed


def repeat_levels(ppo):
    update = ppo.sampler.update

    def reseed_and_update(*arguments, **named):
        ppo.sampler.seed(1)
        update(*arguments, **named)

    ppo.sampler.update = reseed_and_update


def log_other_wins(ppo):
    record = ppo.record_rollout

    def record_wrong(seconds):
        record(seconds)
        ppo.episode_wins.extend([not win for win in list(ppo.episode_wins)])

    ppo.record_rollout = record_wrong


@pytest.mark.parametrize(
    ("spoil", "name"), [(repeat_draws, "random"), (repeat_levels, "levels"), (log_other_wins, "curves")]
)
def test_audit_reports_a_fault_once_unless_it_is_silenced(tmp_path, spoil, name):
    assert reported(tmp_path / "a", spoil=spoil).count(name) == 1
    assert name not in reported(tmp_path / "b", spoil=spoil, silence=(name,))


def test_audit_compares_counts_of_the_curriculum_with_the_episodes():
    ppo, _ = make_ppo(frame_skip=16, rollout_length=64)
    names = []
    audit = Audit("first", None, lambda name, message: names.append(name))
    audit.init_callback(ppo)
    metrics = ppo.sampler.metrics
    ppo.sampler.metrics = lambda: {name: 2 * value for name, value in metrics().items()}
    for _ in range(2):
        roll_out(ppo)
        audit._on_rollout_end()
        ppo.update()
    assert len(ppo.counted_episodes)
    assert names == ["curriculum"]


def test_missing_gradients_and_unusual_inputs_are_named():
    ppo, _ = make_ppo(seed=SEED)
    roll_out(ppo)
    ppo.update()
    assert not [*missing_gradients(ppo.policy), *unusual_inputs(ppo.policy, ppo.rollout_buffer)]
    ppo.policy.action_net.bias.grad.zero_()
    ((_, message),) = missing_gradients(ppo.policy)
    assert "action_net.bias" in message
    ppo.rollout_buffer.obs["game_state"] += 1e6
    ((_, message),) = unusual_inputs(ppo.policy, ppo.rollout_buffer)
    assert "--no-pretraining" in message
