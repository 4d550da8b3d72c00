"""Evaluation on the dev levels in a separate process during training (``--remote-evaluation``).

    with closing(Evaluator(settings, folder, stop)) as remote:
        remote.submit(policy, decisions)     # starts an evaluation and returns immediately
        ...                                 # train
        found, seconds = remote.result()    # waits for the result

Policies are sent as checkpoint files.  The evaluating process ends with the training, and ignores Ctrl-C.
"""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import hardware
from nppsim.errors import UserError
from nppsim.io.signals import StopRequest
from nppsim.parallel.workers import begin_work, without_main_guard
from rl import plugins
from rl.config import ExperimentConfig
from rl.evaluation.levels import Pairs
from rl.evaluation.results import ALL, DevHistory, LevelWins, aggregate
from rl.evaluation.suite import EvaluationSuite
from rl.experiment.data import make_suite
from rl.experiment.setup import TrainingSetup
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.training.model_selection import Evaluate, Evaluation

SUBMITTED = f"in_evaluation{checkpoint.SUFFIX}"  # policy to evaluate, in the run's folder
POLL_S = 0.2  # seconds between checks for a request to stop
END_S = 10.0  # seconds to wait for the exit status of a process that closed its pipe


def raise_if_stopped(stop: StopRequest) -> None:
    """Raise KeyboardInterrupt after a signal that requests the end of the program."""
    if stop.by:
        raise KeyboardInterrupt(f"by {stop.by}")


def play_dev_levels(
    suite: EvaluationSuite, policy: NppPolicy, deterministic: bool, progress: Callable[[int], None] | None = None
) -> tuple[Evaluation, LevelWins]:
    """Evaluate a policy on the dev levels; return (success overall and per category, wins on each level).

    progress: as in ``EvaluationSuite.run``.
    """
    episodes = suite.run(policy, deterministic=deterministic, progress=progress)
    rows = {category: stats["success"] for category, stats in aggregate(episodes).items()}
    wins = LevelWins.count(episodes)
    return Evaluation(rows[ALL], rows, wins.success[0]), wins


def dev_evaluation(setup: TrainingSetup, stop: StopRequest) -> Evaluate:
    """Return a function that evaluates a policy on the dev levels; a stop request interrupts the evaluation."""
    history = DevHistory(setup.folder)

    def play(policy: NppPolicy, decisions: int) -> Evaluation:
        evaluation, wins = play_dev_levels(
            setup.suites.periodic, policy, setup.config.evaluation.deterministic, lambda _: raise_if_stopped(stop)
        )
        history.add(decisions, wins)
        return evaluation

    return play


def remote_evaluator(
    setup: TrainingSetup, plan: hardware.Plan, stop: StopRequest
) -> "AbstractContextManager[Evaluator | None]":
    """Return a context manager that runs the process of --remote-evaluation during its block; None without the flag."""
    if not setup.config.evaluation.remote:
        return nullcontext()
    threads = plan.evaluator_threads or 1  # the plan has None if --resume-override added the evaluator
    settings = DevEvaluatorSettings(setup.config, setup.data.dev, setup.architecture.name, plan.device, threads)
    return closing(Evaluator(settings, setup.folder, stop))


class EvaluatorError(UserError, RuntimeError):
    """The evaluating process has failed or died."""


@dataclass(frozen=True)
class DevEvaluatorSettings:
    """Settings of the evaluating process.

    levels: dev levels with their categories.
    architecture, device: of the policies to evaluate.
    """

    config: ExperimentConfig
    levels: Pairs
    architecture: str
    device: str
    simulator_threads: int


@dataclass(frozen=True)
class _Failure:
    """Error of the evaluating process.  trace: traceback of the error, which ``--debug`` shows."""

    message: str
    trace: str


class Evaluator:
    """Interface of the training process to the evaluating process.

    folder: folder of the run, for checkpoints and the history of evaluations.
    stop: request to stop the program; it interrupts ``result``, which waits for the evaluating process.
    """

    def __init__(self, settings: DevEvaluatorSettings, folder: Path, stop: StopRequest):
        self.path = folder / SUBMITTED
        self.history = DevHistory(folder)
        self.stop = stop
        self._frame_skip = settings.config.frame_skip
        self._decisions = 0  # training decisions of the policy in evaluation
        self._arrived: tuple[Evaluation, LevelWins, float] | None = None  # result, wins and duration in seconds
        self._failed: _Failure | None = None
        context = multiprocessing.get_context("spawn")  # the training's threads would not survive a fork
        self._pipe, child_end = context.Pipe()
        self.process = context.Process(target=_evaluate_policies, args=(settings, child_end), daemon=True)
        self.process.start()
        child_end.close()

    def submit(self, policy: NppPolicy, decisions: int) -> None:
        """Start the evaluation of a policy.  decisions: training decisions of the policy."""
        self.check()
        checkpoint.save(self.path, policy, frame_skip=self._frame_skip)
        self._decisions = decisions
        with suppress(BrokenPipeError):  # reported by the next ``check``
            self._pipe.send(self.path)

    def check(self) -> None:
        """Raise EvaluatorError if the process has failed or died."""
        self._listen(0.0)

    def result(self) -> tuple[Evaluation, float]:
        """Wait for the evaluation, add its result to the run's history, and return (result, duration in seconds).

        Raises EvaluatorError if the process fails or dies, and KeyboardInterrupt at a request to stop.
        """
        while self._arrived is None:
            raise_if_stopped(self.stop)
            self._listen(POLL_S)
        (evaluation, wins, seconds), self._arrived = self._arrived, None
        self.path.unlink()
        self.history.add(self._decisions, wins)
        return evaluation, seconds

    def _listen(self, seconds: float) -> None:
        """Wait up to ``seconds`` for a result; after a failure of the process, raise EvaluatorError at every call."""
        if self._failed is None:
            try:
                if not self._pipe.poll(seconds):
                    return
                result = self._pipe.recv()
            except (EOFError, OSError):
                result = self._death()
            if not isinstance(result, _Failure):
                self._arrived = result
                return
            self._failed = result
        raise EvaluatorError(
            f"{self._failed.message}. Resume with --resume-from to repeat the evaluation; add --resume-override "
            "remote-evaluation=off to evaluate in the training process"
        ) from _RemoteTraceback(self._failed.trace)

    def _death(self) -> _Failure:
        """Return the reason for which the process has ended without a message."""
        self.process.join(END_S)
        status = self.process.exitcode or 0
        if fault := without_main_guard():
            return _Failure(fault, "no traceback")
        reason = f"signal {-status}, perhaps out of memory" if status < 0 else f"exit status {status}"
        return _Failure(f"the process of --remote-evaluation died ({reason})", "no traceback")

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self._pipe.close()
        self.path.unlink(missing_ok=True)


class _RemoteTraceback(Exception):
    """Traceback of the evaluating process, shown by ``--debug``."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _evaluate_policies(settings: DevEvaluatorSettings, pipe: Connection) -> None:
    """Evaluate the policies that the training process sends, and return results through the pipe, until training ends."""
    if hasattr(os, "setsid"):  # signals to the training's process group must not end this process
        os.setsid()
    begin_work()
    try:
        suite = make_dev_suite(settings)
        while True:
            path = pipe.recv()
            began = time.monotonic()
            policy, _ = checkpoint.load_policy(path)
            evaluation, wins = play_dev_levels(
                suite, policy.to(settings.device), settings.config.evaluation.deterministic
            )
            pipe.send((evaluation, wins, time.monotonic() - began))
    except (EOFError, BrokenPipeError):  # the training has ended
        return
    except Exception as error:  # noqa: BLE001  # reported by the training
        message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        pipe.send(_Failure(f"--remote-evaluation failed: {message}", traceback.format_exc()))


def make_dev_suite(settings: DevEvaluatorSettings) -> EvaluationSuite:
    """Load plugins, set the number of threads of this process, and return the suite of the dev levels."""
    plugins.load(settings.config.plugins)
    torch.set_num_threads(1)  # as in training, since rounding depends on it
    episodes = settings.config.evaluation.periodic_episodes_per_category
    return make_suite(settings.config, settings.levels, episodes, threads=settings.simulator_threads)
