"""An experiment with both kinds of stacks: imitation, PPO, resume, evaluation, a film, the script."""

import json

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback

from nppsim.actions import ACTION_INPUT
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.observe.stacking import ADVICE, Stacking
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.simulate import simulate
from rl.config.command_line import resolve
from rl.events import read_scalars
from rl.experiment.run import run
from rl.policy import checkpoint
from rl.ppo.logs import CSV_FILE, read_table

from interruptions import configuration, run_until
from programs import load_script
from worlds import RIGHT, straight

NAME = "mlp_baseline+visual2-state3-repeat"
pytestmark = pytest.mark.usefixtures("blank_charts")


def winning(level, seed):
    """Input bytes that go to and fro and jump for a while, then to the right, up to the win."""
    actions = np.full(200, RIGHT)
    actions[:30] = np.random.default_rng(seed).integers(0, 6, 30)
    inputs = np.repeat(ACTION_INPUT[actions], 4)
    played = simulate(level, inputs)
    assert played.won
    return inputs[: played.frames]


def flags(folder):
    """Corridors, some with demonstrations."""
    shapes = {"train": (14, 16, 18, 20), "test": (15,)}
    for name, lengths in shapes.items():
        levels = [straight(length=length, name=f"straight {length}") for length in lengths]
        entries = [LevelEntry("simplest") for _ in levels]
        LevelSet.write(folder / name, list(zip(levels, entries, strict=True)))
    with ReplayWriter(folder / "replays.h5") as writer:
        for length in (14, 18):
            level = straight(length=length, name=f"straight {length}")
            for seed in range(3):
                writer.append(Replay(level, winning(level, seed)), category="simplest")
    return [
        "--experiment-name", "tiny", "--architectures", "mlp_baseline", "--replay-data-dir", folder / "replays.h5",
        "--enable-visual-frame-stacking", "--visual-stack-size", "2", "--enable-state-stacking", "--state-stack-size", "3",
        "--frame-stack-padding", "repeat", "--mirror-demonstrations", "--train-dataset", folder / "train",
        "--test-dataset", folder / "test", "--bc-epochs", "1", "--total-timesteps", "384", "--num-envs", "8",
        "--rollout-length", "16", "--minibatch-size", "64", "--eval-freq", "0", "--save-freq", "128",
        "--num-eval-episodes", "1", "--record-eval-videos", "--max-videos-per-category", "1", "--device", "cpu",
        "--no-mixed-precision", "--critic-warmup-max-updates", "1", "--start-states",
    ]  # fmt: skip


class Counter(BaseCallback):
    rollouts = 0

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.rollouts += 1


def check_metrics(metrics, folder):
    """``on_metrics`` has received the latest rows of the table once per step, and all tags of PPO's events."""
    table = read_table(folder / CSV_FILE)
    rows = [{name: float(text) for name, text in row.items() if text} for row in table]
    assert metrics == [(256, rows[-3]), (384, rows[-2] | rows[-1])]
    tags = {tag for tag in read_scalars(folder / "tensorboard") if not tag.startswith("bc/")}
    assert tags <= set(table[0])


def test_run_with_stacks_resumes_and_films(tmp_path):
    messages, metrics = run_until(configuration(flags(tmp_path), tmp_path / "out"), "first update:"), []
    assert sum(ADVICE in line for line in messages) == 1
    (folder,) = (tmp_path / "out").glob("tiny_*")
    counter = Counter()
    again = resolve(["--resume-from", str(folder)])
    run(again, messages.append, on_metrics=lambda *row: metrics.append(row), callbacks=[counter])
    check_metrics(metrics, folder / NAME)
    assert counter.rollouts == 2
    assert any("resuming from" in line for line in messages)
    assert list(json.loads((folder / "results.json").read_text())["architectures"]) == [NAME]
    (film,) = folder.rglob("*.mp4")
    assert film.stat().st_size > 1000
    agent = folder / NAME / "agent.safetensors"
    policy, facts = checkpoint.load_policy(agent)
    assert policy.stacking == Stacking(2, 3, "repeat")
    assert facts["layout"] != policy.statistics.fingerprint, "the stacks are part of it"
    evaluated = tmp_path / "evaluated"
    load_script("evaluate").main([str(agent), "--levels", str(tmp_path / "test"), "--output-dir", str(evaluated)])
    (results,) = evaluated.glob("evaluate_*/results.json")
    assert json.loads(results.read_text())["suites"]["agent.safetensors"]
