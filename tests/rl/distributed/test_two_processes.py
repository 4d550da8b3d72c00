"""Two processes on this machine train together: results equal those of one process, and the failure of one ends both."""

import signal

import numpy as np
import pytest
import together
import torch

from nppsim.errors import ConfigError
from nppsim.io.signals import ENDING
from rl.distributed.launch import ProcessError, launch
from rl.distributed.ranks import TorchrunEnvironment, process_group

from learners import make_ppo


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder with the results of two processes; their continuation after a resume is compared with that of an
    uninterrupted run."""
    folder = tmp_path_factory.mktemp("together")
    assert launch(together.__file__, [str(folder)], 2) == 0
    return folder


def rollouts(folder):
    """Field -> values of both processes side by side, [T, 2 N, ...]."""
    one, other = (np.load(folder / f"rollout_{rank}.npz") for rank in (0, 1))
    return {name: torch.from_numpy(np.concatenate([one[name], other[name]], axis=1)) for name in one.files}


def test_ranks_play_different_episodes(trained):
    actions = rollouts(trained)["actions"]
    assert not torch.equal(actions[:, :4], actions[:, 4:])


def test_update_two_ranks_equals_one_process_with_all_environments(trained, one_thread):
    both, n = rollouts(trained), together.SIZES["num_envs"]
    (before, after, _), (_, other, _) = (
        torch.load(trained / f"update_{rank}.pt", weights_only=False) for rank in (0, 1)
    )
    assert all(torch.equal(other[name], tensor) for name, tensor in after.items())

    sizes = together.SIZES | {"num_envs": 2 * n, "minibatch_size": 2 * together.SIZES["minibatch_size"]}
    ppo, _ = make_ppo(**sizes)
    ppo.policy.load_state_dict(before)
    buffer = ppo.rollout_buffer
    for name in together.FIELDS:
        getattr(buffer, name).copy_(both[name])
    for key, values in buffer.obs.items():
        values.copy_(both[f"obs_{key}"])
    length = together.SIZES["rollout_length"]
    ppo.num_timesteps, size = 2 * n * length, together.SIZES["minibatch_size"]
    orders = [together.order(rank) for rank in (0, 1)]

    def minibatches(_, __):
        """Minibatches that contain the decisions of both processes' minibatches."""
        shuffled = [rng.permutation(n * length).reshape(-1, size) for rng in orders]
        for mine, theirs in zip(*shuffled, strict=True):
            index = np.concatenate([mine // n * 2 * n + mine % n, theirs // n * 2 * n + n + theirs % n])
            yield torch.from_numpy(index)

    buffer.minibatches = minibatches
    ppo.update()
    found = ppo.policy.state_dict()
    moved = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert moved > 1e-3
    for name, tensor in after.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5 + 1e-3 * moved, msg=name)


def test_curriculum_counts_episodes_of_all_ranks(trained):
    both = rollouts(trained)
    for rank in (0, 1):
        _, _, episodes = torch.load(trained / f"update_{rank}.pt", weights_only=False)
        assert episodes.sum() == both["episode_ends"].sum()


def test_joined_more_processes_than_gpus_raises(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with (
        pytest.raises(ConfigError, match="2 processes .* GPU each, and it has 1"),
        process_group(TorchrunEnvironment(rank=1, size=2, local_rank=1, local_size=2, restarts=0), None, None),
    ):
        pass


@pytest.mark.parametrize(("scenario", "left"), [("die", 0), ("fail_first", 1), ("fail_second", 0)])
def test_collective_after_end_of_other_process_raises(trained, scenario, left):
    message = (trained / scenario / "message").read_text()
    assert message.startswith(f"process {left} of 2: connection to the other processes lost")


ENDING_PROGRAM = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    while not os.path.exists("waits"):
        time.sleep(0.01)
    sys.stderr.write("broken on purpose")
    sys.exit(7) if sys.argv[1] == "fail" else os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(open("ended", "w").close()))
open("waits", "w").close()
time.sleep(120)
"""


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """Program whose second process fails or is killed while the first waits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(ENDING_PROGRAM)
    return tmp_path / "program.py"


def test_launch_error_ends_all_processes(ending, capfd):
    assert launch(ending, ["fail"], 2) == 7
    assert ending.with_name("ended").exists()
    assert "broken on purpose" in capfd.readouterr().err


def test_launch_killed_process_raises(ending):
    before = [signal.getsignal(number) for number in ENDING]
    with pytest.raises(ProcessError, match="process 1 of 2 was killed by SIGKILL"):
        launch(ending, ["die"], 2)
    assert ending.with_name("ended").exists()
    assert [signal.getsignal(number) for number in ENDING] == before
