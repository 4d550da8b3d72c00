"""The audit of a training: problems are reported once, can be silenced, and never end the run."""

import re
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from nppsim.errors import ConfigError
from rl.audit import ALARMS, WINDOW, Audit, Figures, falling, missing_gradients, unusual_inputs
from rl.config.command_line import resolve
from rl.config.experiment import WARNINGS
from rl.ppo.callbacks import PPOCallback
from rl.ppo.logs import ScalarLog

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
    names = set(re.findall(r'yield[\s(]+"(\w+)",', (ROOT / "rl" / "audit.py").read_text()))
    assert len(names) > 10
    assert names <= set(WARNINGS)


def test_an_unknown_name_is_an_error_that_names_the_nearest():
    given = ["--experiment-name", "x", "--architectures", "vision_free", "--silence"]
    with pytest.raises(ConfigError, match="--silence.*gradient.*did you mean 'gradients'"):
        resolve([*given, "gradient"])


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


def stop_learning(ppo):
    step = ppo.policy.optimizer.step

    def step_without_gradients():
        ppo.policy.action_net.bias.grad.zero_()
        step()

    ppo.policy.optimizer.step = step_without_gradients


def test_a_problem_is_reported_once_and_can_be_silenced(tmp_path):
    assert audited(tmp_path / "a", level="all", spoil=stop_learning).count("gradients") == 1
    assert "gradients" not in audited(tmp_path / "b", level="all", spoil=stop_learning, silence=("gradients",))


class Recorder(PPOCallback):
    """Records the episodes that the curriculum counts, and what the next random draws depend on."""

    def __init__(self):
        super().__init__()
        self.counts, self.draws = [], []

    def _on_rollout_end(self):
        ppo = self.model
        counted = ppo.logger.name_to_value["curriculum/episodes"]
        self.counts.append((counted, len(ppo.counted_episodes)))
        states = (ppo.rng.bit_generator.state, ppo.sampler.strategy.rng.bit_generator.state)
        self.draws.append((ppo.action_rng.get_state().numpy().tobytes(), *map(str, states)))


def test_random_draws_do_not_repeat_and_the_curriculum_counts_all_episodes():
    ppo, _ = make_ppo(frame_skip=16, rollout_length=64)
    recorder = Recorder()
    ppo.learn(4 * 64 * ppo.sim.num_envs, callback=recorder)
    assert all(len(set(states)) == 4 for states in zip(*recorder.draws, strict=True))
    totals, ended = zip(*recorder.counts, strict=True)
    assert np.diff(totals, prepend=0).tolist() == list(ended)
    assert sum(ended)


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
