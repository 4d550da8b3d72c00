"""Evaluations in a process of their own: they are those of this process, and nothing is left of them."""

import time

import pytest
import torch

from nppsim.signals import Asked
from rl.command_line import resolve
from rl.experiment import evaluator as evaluation
from rl.experiment.evaluator import DevTask, EvaluatorError, evaluator, prepare
from rl.judge.history import read_history
from rl.policy import checkpoint
from rl.policy.policy import build_policy

from learners import CATEGORIES, LEVELS, statistics

NETWORK = "vision_free"
DEADLINE_S = 120


def task(network=NETWORK, **changes):
    flags = ["--experiment-name", "x", "--architectures", network, "--eval-episodes-per-category", "3"]
    levels = list(zip(LEVELS, CATEGORIES, strict=True))
    return DevTask(resolve(flags), levels, network, "cpu", torch.get_num_threads(), 1, **changes)


def policy_of(network, seed=0):
    torch.manual_seed(seed)
    return build_policy(network, statistics(architecture=network))


def await_failure(remote):
    """The error that the process ends with."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            remote.check()
        except EvaluatorError as error:
            return error
        time.sleep(0.05)
    pytest.fail("nobody has noticed")


def same(one, other):
    return one.rows == other.rows and (one.levels == other.levels).all()


def test_another_process_finds_the_same_and_ends_with_whoever_asks_it(tmp_path):
    made = task()
    here = prepare(made)
    with evaluator(made, tmp_path, here.suite, Asked()) as remote:
        for seed in (0, 1):
            policy = policy_of(NETWORK, seed)
            remote.order(policy, 100 * (seed + 1))
            found, seconds = remote.result()
            assert same(found, here.play(policy).evaluation) and seconds > 0
        assert read_history(tmp_path).decisions.tolist() == [100, 200]
        remote.process.stdin.close()  # as when this process is killed
        assert remote.process.wait(DEADLINE_S) == 0
        assert "died (exit status 0). Go on with --resume-from" in str(await_failure(remote))
    assert [path.name for path in tmp_path.iterdir()] == ["dev_levels.jsonl"]


def test_what_goes_wrong_there_is_one_error_here(tmp_path, monkeypatch):
    """A checkpoint that is not there, a process that is killed, somebody who asks for the end while it is waited for."""
    suite, policy = prepare(task()).suite, policy_of(NETWORK)
    with evaluator(task(), tmp_path, suite, Asked("SIGTERM")) as remote:
        remote.order(policy, 100)
        with pytest.raises(KeyboardInterrupt, match="by SIGTERM"):
            remote.result()
        remote.process.kill()
        told = str(await_failure(remote))
        assert told.startswith(
            "the process that evaluates beside training died (signal 9, perhaps for lack of memory). "
        )
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(evaluation, "write", lambda *arguments, **options: None)
    with evaluator(task(), tmp_path, suite, Asked()) as remote:
        remote.order(policy, 100)
        with pytest.raises(
            EvaluatorError, match=r"failed: .*in_evaluation\.safetensors: no such checkpoint.*Go on with"
        ):
            remote.result()
        with pytest.raises(EvaluatorError, match="no such checkpoint"):
            remote.check()


@pytest.mark.parametrize("network", ["vision_free+gru", "vision_free+subtasks5", "vision_free_foresight+state3"])
def test_a_policy_plays_the_same_from_its_checkpoint(network, tmp_path):
    """What is handed to the other process is all that there is to these policies."""
    policy, dev = policy_of(network), prepare(task(network))
    path = checkpoint.save(tmp_path / "x.safetensors", policy, frame_skip=4)
    one, other = dev.play(policy), dev.play(checkpoint.load_policy(path)[0])
    assert same(one.evaluation, other.evaluation)
    assert one.wins.wins.tolist() == other.wins.wins.tolist()
