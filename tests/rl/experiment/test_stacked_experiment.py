"""An experiment with both kinds of stacks: imitation, PPO, evaluation, films, interrupted and gone on with."""

import json

import pytest

from bc.demonstrations import find_replays
from nppsim.levels.level_set import LevelSet
from nppsim.observe.stacking import Stacking
from nppsim.replays.replay_set import ReplayWriter
from rl.command_line import resolve
from rl.experiment.run import run
from rl.forensics.same_run import differences
from rl.judge.results import load_results
from rl.policy import checkpoint

from places import ROOT
from programs import load_script

CATEGORY = "simplest"
NAME = "mlp_baseline+visual2-state3-repeat"


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name, count in (("train", 4), ("test", 2)):
        levels = LevelSet.open(ROOT / "datasets" / name)
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in levels.indices(CATEGORY)[:count]])
    with ReplayWriter(folder / "replays.h5") as writer:
        for file in find_replays(ROOT / "datasets" / "demonstrations" / f"{CATEGORY}.h5")[:3]:
            writer.append(file.replay, category=CATEGORY)
    return [
        "--experiment-name", "tiny", "--architectures", "mlp_baseline", "--replay-data-dir", folder / "replays.h5",
        "--enable-visual-frame-stacking", "--visual-stack-size", "2", "--enable-state-stacking", "--state-stack-size", "3",
        "--frame-stack-padding", "repeat", "--mirror-demonstrations", "--train-dataset", folder / "train",
        "--test-dataset", folder / "test", "--bc-epochs", "1", "--total-timesteps", "384", "--num-envs", "8",
        "--rollout-length", "16", "--minibatch-size", "64", "--eval-freq", "0", "--save-freq", "128",
        "--num-eval-episodes", "1", "--record-eval-videos", "--max-videos-per-category", "1", "--device", "cpu",
        "--no-mixed-precision", "--critic-warmup-max-updates", "1", "--start-states",
    ]  # fmt: skip


class Killed(BaseException):
    """Stands for the end of the process."""


def test_an_experiment_with_stacks_runs_to_its_films_and_goes_on_bit_for_bit(flags, tmp_path, capsys):
    told = []
    whole = run(resolve([*map(str, flags), "--output-dir", str(tmp_path / "whole")]), told.append)
    assert sum("not expected to gain" in line for line in told) == 1
    (results,) = load_results(whole / "results.json")["architectures"].items()
    assert results[0] == NAME
    (film,) = whole.rglob("*.mp4")
    assert film.stat().st_size > 1000

    def interrupt(line):
        if "gradients everywhere" in line:
            raise Killed

    with pytest.raises(Killed):
        run(resolve([*map(str, flags), "--output-dir", str(tmp_path / "parts")]), interrupt)
    (folder,) = (tmp_path / "parts").glob("tiny_*")
    run(resolve(["--resume-from", str(folder)]), told.append)
    assert differences(whole, folder) == []

    agent = whole / NAME / "agent.safetensors"
    policy, facts = checkpoint.load_policy(agent)
    assert policy.stacking == Stacking(2, 3, "repeat")
    assert facts["layout"] != policy.statistics.fingerprint, "the stacks are part of it"
    levels = flags[flags.index("--test-dataset") + 1]
    load_script("evaluate").main([str(agent), "--levels", str(levels), "--output-dir", str(tmp_path / "judged")])
    (judged,) = (tmp_path / "judged").glob("evaluate_*/results.json")
    assert json.loads(judged.read_text())["suites"]["agent.safetensors"]
