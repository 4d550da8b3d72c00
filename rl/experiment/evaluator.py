"""Evaluation on the dev levels during training, in this process or in a separate one (``--remote-evaluation``).

    with remote_evaluator(job, plan, stop) as remote:
        remote.order(policy, decisions)     # starts an evaluation and returns immediately
        ...                                 # train
        found, seconds = remote.result()    # waits for the result

Policies are sent as checkpoint files.  The evaluating process ends with the training, and ignores Ctrl-C.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

import hardware
from nppsim.errors import UserError
from nppsim.signals import StopRequest
from nppsim.workers import work, worker_pool
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
    return evaluating_process(task, job.folder, stop)


class EvaluatorError(UserError, RuntimeError):
    """The evaluating process has failed or died."""


@dataclass(frozen=True)
class DevTask:
    """Work of the evaluating process: a function of the path of a checkpoint.

    levels: dev levels with their categories.
    architecture, device: of the policies to evaluate.
    """

    config: ExperimentConfig
    levels: Pairs
    architecture: str
    device: str
    simulator_threads: int

    @cached_property
    def suite(self) -> EvaluationSuite:
        """Suite of the dev levels; plugins are loaded and the threads of the process are set before it is made."""
        plugins.load(self.config.plugins)
        torch.set_num_threads(1)  # as in training, since rounding depends on it
        episodes = self.config.evaluation.periodic_episodes_per_category
        network = get_architecture(self.architecture)
        return make_suite(self.config, self.levels, network, episodes, threads=self.simulator_threads)

    def __call__(self, path: Path) -> tuple[Evaluation, LevelWins, float]:
        """Evaluate the policy of a checkpoint; return (result, wins on each level, seconds).

        Raises FileNotFoundError soon after the checkpoint was deleted, as nothing then needs the result.
        """
        suite = self.suite
        began = time.monotonic()
        policy, _ = checkpoint.load_policy(path)
        found, wins = play_dev_levels(
            suite, policy.to(self.device), self.config.evaluation.deterministic, lambda _: path.stat()
        )
        return found, wins, time.monotonic() - began


@contextmanager
def _as_evaluator_error() -> Iterator[None]:
    """Raise EvaluatorError for any error within the block."""
    try:
        yield
    except Exception as error:
        problem = f"--remote-evaluation failed: {error if isinstance(error, UserError) else repr(error)}"
        if isinstance(error, BrokenProcessPool):
            problem = "the process of --remote-evaluation died, perhaps for lack of memory"
        raise EvaluatorError(
            f"{problem}. Resume with --resume-from to repeat the evaluation; add --resume-override "
            "remote-evaluation=off to evaluate in the training process"
        ) from error


@contextmanager
def evaluating_process(task: DevTask, folder: Path, stop: StopRequest) -> "Iterator[Evaluator]":
    """Yield an ``Evaluator`` whose process ends with the block."""
    with worker_pool(1, EvaluatorError) as pool:
        remote = Evaluator(task, folder, stop, pool)
        try:
            yield remote
        finally:
            remote.path.unlink(missing_ok=True)  # also ends an evaluation, for which the pool would wait


class Evaluator:
    """Interface of the training process to the evaluating process.

    folder: folder of the run, for checkpoints and the history of evaluations.
    stop: request to stop the program; it interrupts ``result``, which waits for the evaluating process.
    pool: contains the evaluating process.
    """

    def __init__(self, task: DevTask, folder: Path, stop: StopRequest, pool: ProcessPoolExecutor):
        self.path = folder / ORDERED
        self.history = DevHistory(folder)
        self.stop, self.pool = stop, pool
        self._frame_skip = task.config.frame_skip
        self._task = pickle.dumps(task)  # unpickled once, so that all evaluations use one suite
        self._decisions = 0  # training decisions of the policy in evaluation
        self._found: Future[list[tuple[Evaluation, LevelWins, float]]] | None = None

    def order(self, policy: NppPolicy, decisions: int) -> None:
        """Start the evaluation of a policy.  decisions: training decisions of the policy."""
        checkpoint.save(self.path, policy, frame_skip=self._frame_skip)
        self._decisions = decisions
        with _as_evaluator_error():
            self._found = self.pool.submit(work, self._task, pickle.dumps([self.path]))

    def check(self) -> None:
        """Raise EvaluatorError if the process has failed or died."""
        if self._found is not None and self._found.done() and not self.stop.by:
            with _as_evaluator_error():
                self._found.result()

    def result(self) -> tuple[Evaluation, float]:
        """Wait for the evaluation, add its result to the run's history, and return (result, duration in seconds).

        Raises EvaluatorError if the process fails or dies, and KeyboardInterrupt at a request to stop.
        """
        assert self._found is not None
        while not self._found.done():
            stop_if(self.stop)
            wait([self._found], POLL_S)
        stop_if(self.stop)
        self.check()
        ((found, wins, seconds),) = self._found.result()
        self.path.unlink()
        self.history.add(self._decisions, wins)
        return found, seconds
