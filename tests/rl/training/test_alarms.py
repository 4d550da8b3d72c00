"""The audit of a training: problems are reported once, can be silenced, and never end the run."""

import re
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from nppsim.errors import ConfigError
from rl.config.command_line import resolve
from rl.config.experiment import WARNINGS
from rl.ppo.logs import ScalarLog
from rl.training.alarms import ALARMS, WINDOW, Audit, Figures, falling, missing_gradients, unusual_inputs

from learners import AT_ONCE, make_ppo, roll_out
from places import ROOT

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


def alarms(**figures):
    """Names of the alarms after WINDOW updates; figures: a value, or a function of the update's number."""
    rows = [
        {name: value(number) if callable(value) else value for name, value in figures.items()}
        for number in range(WINDOW)
    ]
    model = SimpleNamespace(progress=0.5, sampler=SimpleNamespace(config=SimpleNamespace(chosen="uniform")))
    history = deque(Figures(**USUAL | row) for row in rows)
    audit = SimpleNamespace(history=history, model=model, updates=5 * WINDOW, start_success=0.3)
    return {name for alarm in ALARMS for name, _ in alarm(audit)}


@pytest.mark.parametrize(
    ("figures", "names"),
    [
        ({}, set()),
        ({"kl": 0.5}, {"kl"}),
        ({"kl": 1e-9}, {"kl"}),
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
def test_each_problem_has_its_alarm(figures, names):
    assert alarms(**figures) == names


def test_every_problem_has_a_name_that_can_be_silenced():
    source = (ROOT / "rl" / "training" / "alarms.py").read_text()
    names = set(re.findall(r'yield[\s(]+"(\w+)",', source))
    assert len(names) > 10
    assert names <= set(WARNINGS)


def test_an_unknown_name_is_an_error_that_names_the_nearest():
    given = ["--experiment-name", "x", "--architectures", "vision_free", "--silence"]
    with pytest.raises(ConfigError, match="--silence.*curve.*did you mean 'curves'"):
        resolve([*given, "curve"])


def test_a_sudden_drop_is_no_steady_fall():
    assert falling(np.linspace(100, 50, WINDOW))
    assert not falling(np.r_[np.full(WINDOW // 2, 100.0), np.full(WINDOW // 2, 50.0)])


def audited(folder, *, level="first", silence=(), spoil=lambda ppo: None, updates=3):
    """Names that are reported in a training that ``spoil`` changes."""
    ppo, _ = make_ppo(total_timesteps=updates * 128, **AT_ONCE)
    ppo.logger.output_formats = ScalarLog(folder).outputs
    spoil(ppo)
    reported = []
    ppo.learn(updates * 128, callback=Audit(level, folder, lambda name, text: reported.append(name), silence))
    assert ppo.updates == updates
    return reported


@pytest.mark.parametrize("level", ["first", "all"])
def test_a_sound_training_has_no_warning(tmp_path, level):
    assert audited(tmp_path, level=level) == []


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


def miscount(ppo):
    metrics = ppo.sampler.metrics
    ppo.sampler.metrics = lambda: {name: 2 * value for name, value in metrics().items()}


def log_other_wins(ppo):
    record = ppo.record_rollout

    def record_wrong(seconds):
        record(seconds)
        ppo.episode_wins.extend([not win for win in list(ppo.episode_wins)])

    ppo.record_rollout = record_wrong


@pytest.mark.parametrize(
    ("spoil", "name"), [(repeat_draws, "random"), (repeat_levels, "levels"), (log_other_wins, "curves")]
)
def test_a_problem_is_reported_once_and_can_be_silenced(tmp_path, spoil, name):
    assert audited(tmp_path / "a", spoil=spoil).count(name) == 1
    assert name not in audited(tmp_path / "b", spoil=spoil, silence=(name,))


def test_tensors_without_gradient_and_unusual_inputs_are_named():
    ppo, _ = make_ppo()
    roll_out(ppo)
    ppo.update()
    assert not [*missing_gradients(ppo.policy), *unusual_inputs(ppo.policy, ppo.rollout_buffer)]
    ppo.policy.action_net.bias.grad.zero_()
    ((_, text),) = missing_gradients(ppo.policy)
    assert "action_net.bias" in text
    ppo.rollout_buffer.obs["game_state"] += 1e6
    ((_, text),) = unusual_inputs(ppo.policy, ppo.rollout_buffer)
    assert "--no-pretraining" in text


def test_counts_of_the_curriculum_are_compared_with_the_episodes():
    ppo, _ = make_ppo(frame_skip=16, rollout_length=64)
    reported = []
    audit = Audit("first", None, lambda name, text: reported.append(name))
    audit.init_callback(ppo)
    miscount(ppo)
    for _ in range(2):
        roll_out(ppo)
        audit._on_rollout_end()
        ppo.update()
    assert len(ppo.counted_episodes)
    assert reported == ["curriculum"]
