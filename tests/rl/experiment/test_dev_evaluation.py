"""Evaluation in a separate process."""

import time
from contextlib import closing

import pytest
import torch

from nppsim.io.signals import StopRequest
from rl.config.command_line import resolve
from rl.evaluation.results import read_history
from rl.experiment import dev_evaluation as evaluation
from rl.experiment.dev_evaluation import (
    DevEvaluatorSettings,
    Evaluator,
    EvaluatorError,
    make_dev_suite,
    play_dev_levels,
)
from rl.policy import checkpoint
from rl.policy.policy import build_policy

from learners import CATEGORIES, LEVELS, statistics

NETWORK = "vision_free"
DEADLINE_S = 120


def task(network=NETWORK, **changes):
    flags = ["--experiment-name", "x", "--architectures", network, "--eval-episodes-per-category", "3"]
    levels = list(zip(LEVELS, CATEGORIES, strict=True))
    return DevEvaluatorSettings(resolve(flags), levels, network, "cpu", 1, **changes)


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
    pytest.fail("the failure was not noticed")


def same(one, other):
    return one.rows == other.rows and (one.levels == other.levels).all()


@pytest.mark.usefixtures("whole_evaluations")
def test_evaluator_same_result_as_training_process(tmp_path, monkeypatch):
    made, policy = task(), policy_of(NETWORK)
    here = make_dev_suite(made)
    with closing(Evaluator(made, tmp_path, StopRequest())) as remote:
        remote.submit(policy, 100)
        found, seconds = remote.result()
        assert same(found, play_dev_levels(here, policy, made.config.evaluation.deterministic)[0]) and seconds > 0
        assert read_history(tmp_path).decisions.tolist() == [100]
        assert [path.name for path in tmp_path.iterdir()] == ["dev_levels.jsonl"]
        monkeypatch.setattr(evaluation.checkpoint, "save", lambda *arguments, **options: None)
        remote.submit(policy, 200)
        message = r"--remote-evaluation failed: .*in_evaluation\.safetensors: no such checkpoint.*--resume-from"
        with pytest.raises(EvaluatorError, match=message):
            remote.result()
        with pytest.raises(EvaluatorError, match=message):
            remote.check()
        remote.process.join(DEADLINE_S)
        assert remote.process.exitcode == 0


def test_evaluator_stop_request_or_killed_process_raises(tmp_path):
    with closing(Evaluator(task(), tmp_path, StopRequest("SIGTERM"))) as remote:
        remote.submit(policy_of(NETWORK), 100)
        with pytest.raises(KeyboardInterrupt, match="by SIGTERM"):
            remote.result()
        remote.process.kill()
        message = str(await_failure(remote))
        assert message.startswith("the process of --remote-evaluation died (signal 9, perhaps out of memory). ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("network", ["vision_free_foresight+state3+gru", "vision_free+subtasks5"])
def test_play_dev_levels_restored_policy_same_result(network, tmp_path):
    """The policy sent to the other process is complete."""
    policy, suite = policy_of(network), make_dev_suite(task(network))
    path = checkpoint.save(tmp_path / "x.safetensors", policy, frame_skip=4)
    restored, _ = checkpoint.load_policy(path)
    (one, wins), (other, same_wins) = (play_dev_levels(suite, player, True) for player in (policy, restored))
    assert same(one, other)
    assert wins.wins.tolist() == same_wins.wins.tolist()
