"""A training killed at any moment and resumed gives the results of an undisturbed one; part of ``make chaos``."""

import subprocess
import sys
import time

import pytest

from tests.chaos.same_run import differences
from tests.chaos.targets import ROOT, make_world

KILLS = 20
FLAGS = (
    "--experiment-name tiny --architectures vision_free --train-dataset {world}/levels --test-dataset {world}/test "
    "--replay-data-dir {world}/demonstrations --bc-epochs 20 --bc-patience 20 --total-timesteps 8192 --num-envs 32 "
    "--rollout-length 32 --minibatch-size 256 --eval-freq 3000 --num-eval-episodes 8 --critic-warmup-max-updates 3 "
    "--device cpu --no-mixed-precision --torch-threads 1 --record-eval-videos --max-videos-per-category 2"
)


def train(*arguments):
    """Start a training in a process of its own."""
    command = [sys.executable, "scripts/train_and_compare.py", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return FLAGS.format(world=make_world(tmp_path_factory.mktemp("world"))).split()


@pytest.fixture(scope="module")
def usual(flags, tmp_path_factory):
    """The folder and the duration of an undisturbed training."""
    out, begin = tmp_path_factory.mktemp("usual"), time.monotonic()
    assert train(*flags, "--output-dir", out).wait() == 0
    (folder,) = out.glob("tiny_*")
    return folder, time.monotonic() - begin


@pytest.mark.parametrize("kill", range(KILLS))
def test_training_killed_and_resumed_equals_undisturbed(kill, flags, usual, tmp_path):
    folder, seconds = usual
    process = train(*flags, "--output-dir", tmp_path)
    try:
        assert process.wait(seconds * (kill + 0.5) / KILLS) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    resumable = list(tmp_path.glob("tiny_*/config.json"))
    arguments = ["--resume-from", resumable[0].parent] if resumable else [*flags, "--output-dir", tmp_path / "again"]
    assert train(*arguments).wait() == 0
    (resumed,) = [path.parent for path in tmp_path.rglob("results.json")]
    assert differences(folder, resumed) == []
