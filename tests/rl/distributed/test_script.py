"""Training in several processes from the command line; one process is killed during it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl.events import event_folders
from rl.experiment import train
from rl.training.digests import read_trail

from excerpt import excerpt
from places import ROOT
from programs import load_script

SCRIPT = ROOT / "scripts" / "train_and_compare.py"
LONGEST = 300  # seconds


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A tiny experiment on a few shipped levels."""
    folder = excerpt(tmp_path_factory.mktemp("data"), "simplest", train=4, dev=2, test=2, demonstrations=4)
    return [
        "--experiment-name", "both", "--architectures", "vision_free", "--device", "cpu",
        "--train-dataset", folder / "train", "--dev-dataset", folder / "dev", "--test-dataset", folder / "test",
        "--num-envs", "8", "--rollout-length", "32", "--minibatch-size", "64", "--n-epochs", "1",
        "--eval-freq", "0", "--num-eval-episodes", "1", "--no-mixed-precision",
    ]  # fmt: skip


def test_script_num_processes_launches_processes(flags, monkeypatch):
    """What they do is tested below, and what the launcher does in test_two_processes.py."""
    started = []
    monkeypatch.setattr(train, "launch", lambda *given: started.append(given) or 7)
    arguments = [*map(str, flags), "--num-gpus", "0", "--num-processes", "2"]
    assert load_script("train_and_compare").main(arguments) == 7
    assert started == [(str(SCRIPT), arguments, 2)]


def test_torchrun_restart_after_kill_resumes_from_newest_checkpoint(flags, tmp_path):
    """Imitation in one process, then PPO in both, with KL penalty, start states and a strategy that needs advantages."""
    learning = "--bc-epochs 1 --critic-warmup-max-updates 1 --curriculum plr --start-states"
    demonstrations = flags[flags.index("--train-dataset") + 1].with_name("demonstrations")
    more = ["--replay-data-dir", demonstrations, *learning.split(), "--total-timesteps", "2048", "--save-freq", "256"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    command = [sys.executable, *launcher, SCRIPT, *flags, "--output-dir", tmp_path, *more]
    with open(tmp_path / "printed.txt", "w") as output:
        process = subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(process, lambda: [*tmp_path.glob("both_*/vision_free/checkpoints/checkpoint_*")])
        os.kill(of_rank(process.pid, 1), signal.SIGKILL)
        status = process.wait(timeout=LONGEST)
    finally:
        process.kill()
    printed = (tmp_path / "printed.txt").read_text()
    assert status == 0, printed
    assert "resumes with its stored plan" in printed
    assert printed.count("report: ") == 1
    (folder,) = tmp_path.glob("both_*")
    assert (folder / "vision_free" / "finished.json").exists()
    assert len(event_folders(folder)) == 1, "one process writes"
    assert [row["update"] for row in read_trail(folder / "vision_free")] == [*range(9)]


def until(process, condition):
    """Wait until a condition that depends on the processes is met."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)


def of_rank(launcher, rank):
    """Return the process to which torchrun gave this rank."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (path / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has just ended, or belongs to another user
        if parent == launcher and f"RANK={rank}".encode() in environment:
            return int(path.name)
    raise AssertionError(f"no process of rank {rank}")
