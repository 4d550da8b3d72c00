"""Search in the simulator: runs that finish, recordings on the decision grid, and the demonstrations made of them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nppsim
from bc.make import make_demonstrations
from nppsim.__main__ import main
from nppsim.generate import generate
from nppsim.level import Level
from nppsim.levelset import LevelSet
from nppsim.planner import par_frames, plan, retime
from nppsim.replay import Replay, on_grid


@pytest.mark.parametrize(("category", "seed"), [("simplest", 1), ("simpler", 2), ("simple", 3)])
def test_a_plan_wins_on_its_last_frame_and_is_a_pure_function(category, seed):
    level = generate(category, seed)[0]
    found = plan(level, seed=7)
    run = nppsim.simulate(level, found.inputs)
    assert run.outcome == "won"
    assert run.frames == len(found.inputs) == found.frames
    assert on_grid(found.inputs, 4)
    again = plan(level, seed=7)
    assert again.inputs.tobytes() == found.inputs.tobytes()


def test_a_plan_acts_every_frame_skip_frames():
    level = generate("simplest", 1)[0]
    for frame_skip in (1, 3):
        assert on_grid(plan(level, frame_skip).inputs, frame_skip)


def test_no_way_and_no_budget_give_no_plan():
    walled_in = np.ones((23, 42), np.uint8)
    walled_in[5:8, 5:8] = walled_in[5:8, 20:23] = 0
    level = Level.build(walled_in, (28, 30), exits=[((88, 30), (84, 30))])
    assert plan(level) is None
    assert par_frames(level) is None
    assert plan(generate("simple", 3)[0], budget=10) is None


def test_a_recording_off_the_grid_is_moved_onto_it_and_still_finishes():
    level = generate("simpler", 2)[0]
    recorded = Replay(level, plan(level, 3).inputs)
    assert not on_grid(recorded.inputs, 4)
    moved = retime(recorded, 4)
    assert on_grid(moved.inputs, 4)
    assert nppsim.simulate(level, moved.inputs).outcome == "won"
    assert 0 <= moved.deviation_px < 30


def test_a_recording_that_does_not_finish_is_not_retimed():
    assert retime(Replay(generate("simple", 3)[0], np.zeros(20, np.uint8)), 4) is None


def test_demonstrations_are_made_once_and_each_wins(tmp_path):
    LevelSet.write(tmp_path / "levels", [generate("simplest", seed) for seed in range(3)])
    made = make_demonstrations(tmp_path / "levels", tmp_path / "out", workers=1)
    assert (made.written, made.found, made.unfinished) == (3, 0, ())
    for path in (tmp_path / "out").rglob("*.replay"):
        replay = Replay.load(path)
        assert nppsim.simulate(replay.level, replay.inputs).outcome == "won"
    assert make_demonstrations(tmp_path / "levels", tmp_path / "out", workers=1).found == 3


def test_the_command_writes_a_replay_or_says_why_not(tmp_path, capsys):
    generate("simplest", 1)[0].save(tmp_path / "level.map")
    assert main(["plan", str(tmp_path / "level.map"), str(tmp_path / "run.replay")]) == 0
    assert Replay.load(tmp_path / "run.replay").success
    assert main(["plan", str(tmp_path / "level.map"), str(tmp_path / "none.replay"), "--budget", "10"]) == 2
    assert "raise --budget" in capsys.readouterr().err
    assert not (tmp_path / "none.replay").exists()


def test_the_script_makes_demonstrations_and_names_a_folder_that_is_not_there(tmp_path):
    script = Path(__file__).parents[1] / "scripts" / "make_demonstrations.py"

    def call(levels):
        command = [sys.executable, script, "--levels", levels, "--out", tmp_path / "out", "--workers", "1"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    LevelSet.write(tmp_path / "levels", [generate("simplest", 1)])
    done = call(tmp_path / "levels")
    assert done.returncode == 0, done.stderr
    assert "1 demonstrations written" in done.stdout
    missing = call(tmp_path / "nowhere")
    assert missing.returncode == 2
    assert missing.stderr.startswith("error: ")
    assert "nowhere" in missing.stderr
