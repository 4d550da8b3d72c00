"""An interrupted run that is gone on with ends as one that was never interrupted, bit for bit."""

import pytest

from bc.demonstrations import find_replays
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay_set import ReplayWriter
from rl.command_line import resolve
from rl.experiment.run import run
from rl.forensics.same_run import differences

from places import ROOT

CATEGORY = "simplest"


class Killed(BaseException):
    """Stands for the end of the process; nothing in the program catches it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A few shipped levels, with demonstrations."""
    folder = tmp_path_factory.mktemp("data")
    for name, count in (("train", 6), ("dev", 3), ("test", 2)):
        levels = LevelSet.open(ROOT / "datasets" / name)
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in levels.indices(CATEGORY)[:count]])
    files = find_replays(ROOT / "datasets" / "demonstrations" / f"{CATEGORY}.h5")[:4]
    with ReplayWriter(folder / "replays.h5") as writer:
        for file in files:
            writer.append(file.replay, category=CATEGORY)
    return folder


@pytest.fixture(scope="module")
def flags(data):
    return [
        "--experiment-name", "tiny", "--architectures", "vision_free", "--replay-data-dir", data / "replays.h5",
        "--train-dataset", data / "train", "--dev-dataset", data / "dev", "--test-dataset", data / "test",
        "--bc-epochs", "2", "--total-timesteps", "2048", "--num-envs", "16", "--rollout-length", "32",
        "--minibatch-size", "128", "--eval-freq", "1000", "--num-eval-episodes", "2", "--device", "cpu",
        "--no-mixed-precision", "--critic-warmup-max-updates", "2",
    ]  # fmt: skip


def begin(flags, out, *more):
    """(the configuration, the folder that a run of it makes)"""
    return resolve([*map(str, flags), "--output-dir", str(out), *more])


def folder_in(out):
    (folder,) = out.glob("tiny_*")
    return folder


@pytest.fixture(scope="module")
def uninterrupted(flags, tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    lines = []
    return run(begin(flags, out), lines.append), lines


def killed_at(config, moments):
    """Run, and end where a line says one of these; then go on, and so on."""
    lines = []
    for moment in moments:

        def log(line, moment=moment):
            lines.append(line)
            if moment in line:
                raise Killed

        with pytest.raises(Killed):
            run(config, log)
        folder = folder_in(config.output_dir)
        config = resolve(["--resume-from", str(folder)])
    run(config, lines.append)
    return folder, lines


def test_it_ends_the_same(uninterrupted, flags, tmp_path):
    moments = ("imitation, epoch 1", "evaluation at 0", "evaluation at 1,024", "resuming from", "after PPO")
    folder, lines = killed_at(begin(flags, tmp_path), moments[:4])
    print("\n".join(uninterrupted[1]))
    print("\n".join(lines))
    assert differences(uninterrupted[0], folder) == []
