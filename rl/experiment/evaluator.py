"""Evaluation on the dev levels in a separate process during training (``--remote-evaluation``).

    with closing(Evaluator(task, folder, stop)) as remote:
        remote.order(policy, decisions)     # starts an evaluation and returns immediately
        ...                                 # train
        found, seconds = remote.result()    # waits for the result

Policies are sent as checkpoint files.  The evaluating process ends with the training, and ignores Ctrl-C.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import hardware
from nppsim.errors import UserError
from nppsim.signals import StopRequest
from nppsim.workers import begin_work, without_main_guard
from rl import plugins
from rl.config import ExperimentConfig
from rl.evaluation.results import ALL, DevHistory, LevelWins, aggregate
from rl.evaluation.suite import EvaluationSuite
from rl.experiment.data import Pairs, make_suite
from rl.experiment.jobs import Job
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.ppo.model_selection import Evaluate, Evaluation

ORDERED = f"in_evaluation{checkpoint.SUFFIX}"  # policy to evaluate, in the run's folder
POLL_S = 0.2  # seconds between checks for a request to stop


def stop_if(stop: StopRequest) -> None:
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


def dev_evaluation(job: Job, stop: StopRequest) -> Evaluate:
    """Return a function that evaluates a policy on the dev levels; a stop request interrupts the evaluation."""
    suite = job.suites.periodic(job.architecture)
    history = DevHistory(job.folder)

    def play(policy: NppPolicy, decisions: int) -> Evaluation:
        found, wins = play_dev_levels(suite, policy, job.config.evaluation.deterministic, lambda _: stop_if(stop))
        history.add(decisions, wins)
        return found

    return play


def remote_evaluator(job: Job, plan: hardware.Plan, stop: StopRequest) -> "AbstractContextManager[Evaluator | None]":
    """Return a context manager that runs the process of --remote-evaluation during its block; None without the flag."""
    if not job.config.evaluation.remote:
        return nullcontext()
    threads = plan.evaluator_threads or 1  # the plan has None if --resume-override added the evaluator
    task = DevTask(job.config, job.data.dev, job.architecture.name, plan.device, threads)
    return closing(Evaluator(task, job.folder, stop))


class EvaluatorError(UserError, RuntimeError):
    """The evaluating process has failed or died."""


@dataclass(frozen=True)
class DevTask:
    """Settings of the evaluating process.

    levels: dev levels with their categories.
    architecture, device: of the policies to evaluate.
    """

    config: ExperimentConfig
    levels: Pairs
    architecture: str
    device: str
    simulator_threads: int


class Evaluator:
    """Interface of the training process to the evaluating process.

    folder: folder of the run, for checkpoints and the history of evaluations.
    stop: request to stop the program; it interrupts ``result``, which waits for the evaluating process.
    """

    def __init__(self, task: DevTask, folder: Path, stop: StopRequest):
        self.path = folder / ORDERED
        self.history = DevHistory(folder)
        self.stop = stop
        self._frame_skip = task.config.frame_skip
        self._decisions = 0  # training decisions of the policy in evaluation
        context = multiprocessing.get_context("spawn")  # the training's threads would not survive a fork
        self.pool = ProcessPoolExecutor(1, context, _begin)
        self._start: Future[None] = self.pool.submit(_prepare, task)
        self._ordered: Future[tuple[Evaluation, LevelWins, float]] | None = None

    def order(self, policy: NppPolicy, decisions: int) -> None:
        """Start the evaluation of a policy.  decisions: training decisions of the policy."""
        self.check()
        checkpoint.save(self.path, policy, frame_skip=self._frame_skip)
        self._decisions = decisions
        with _reported():
            self._ordered = self.pool.submit(_evaluate, self.path)

    def check(self) -> None:
        """Raise EvaluatorError if the process has failed or died."""
        for future in (self._start, self._ordered):
            if future is not None and future.done():
                with _reported():
                    future.result()

    def result(self) -> tuple[Evaluation, float]:
        """Wait for the evaluation, add its result to the run's history, and return (result, duration in seconds).

        Raises EvaluatorError if the process fails or dies, and KeyboardInterrupt at a request to stop.
        """
        assert self._ordered is not None
        while not self._ordered.done():
            stop_if(self.stop)
            wait([self._ordered], POLL_S)
        with _reported():
            found, wins, seconds = self._ordered.result()
        self._ordered = None
        self.path.unlink()
        self.history.add(self._decisions, wins)
        return found, seconds

    def close(self) -> None:
        """Kill the process."""
        for process in self.pool._processes.values():  # ``kill_workers`` of Python 3.14
            process.kill()
        self.pool.shutdown()
        self.path.unlink(missing_ok=True)


@contextmanager
def _reported() -> Iterator[None]:
    """Raise EvaluatorError for an error of the evaluating process in the block."""
    remedy = (
        "Resume with --resume-from to repeat the evaluation; add --resume-override remote-evaluation=off to evaluate in "
        "the training process"
    )
    try:
        yield
    except BrokenProcessPool as error:
        problem = without_main_guard() or "the process of --remote-evaluation died, perhaps for lack of memory"
        raise EvaluatorError(f"{problem}. {remedy}") from error
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        raise EvaluatorError(f"--remote-evaluation failed: {message}. {remedy}") from error


# In the evaluating process

_TASK: dict[str, Any] = {}  # "task" and "suite" of this process


def _begin() -> None:
    if hasattr(os, "setsid"):  # signals to the training's process group must not end this process
        os.setsid()
    begin_work()


def _prepare(task: DevTask) -> None:
    _TASK.update(task=task, suite=prepare(task))


def _evaluate(path: Path) -> tuple[Evaluation, LevelWins, float]:
    """Evaluate the policy in a checkpoint; return (result, wins, duration in seconds)."""
    began, task = time.monotonic(), _TASK["task"]
    policy, _ = checkpoint.load_policy(path)
    found, wins = play_dev_levels(_TASK["suite"], policy.to(task.device), task.config.evaluation.deterministic)
    return found, wins, time.monotonic() - began


def prepare(task: DevTask) -> EvaluationSuite:
    """Load plugins, set the number of threads of this process, and return the suite of the dev levels."""
    plugins.load(task.config.plugins)
    torch.set_num_threads(1)  # as in training, since rounding depends on it
    config, network = task.config, get_architecture(task.architecture)
    episodes = config.evaluation.periodic_episodes_per_category
    return make_suite(config, task.levels, network, episodes, threads=task.simulator_threads)
