"""A process of its own that evaluates while training goes on (``--remote-evaluation``).

    with evaluator(task, folder, suite, stop) as remote:
        remote.order(policy, decisions)     # returns at once
        ...                                 # train
        found, seconds = remote.result()    # waits, if need be

It is told what to do through its standard input, and ends with that: no process is left when the training ends, however it
ends.  Policies are given to it as checkpoints.  It hears no signal of the terminal, as the training may want to save first.
"""

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import torch

from nppsim.errors import UserError
from nppsim.signals import StopRequest
from rl.config import ExperimentConfig, plugins
from rl.evaluation.results import ALL, DevHistory, LevelWins, aggregate
from rl.evaluation.suite import EvaluationSuite
from rl.experiment.data import Pairs, make_suite
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.ppo.model_selection import Evaluation

ORDERED = f"in_evaluation{checkpoint.SUFFIX}"  # in the run's folder, as long as it is played
ASK_S = 0.2  # between looks whether somebody wants the program to end
END_S = 10.0  # that it may take to be gone
_PROGRAM = "from rl.experiment.evaluator import serve; serve()"


def stop_if(stop: StopRequest) -> None:
    """Raise KeyboardInterrupt if a signal has requested the end of the program."""
    if stop.by:
        raise KeyboardInterrupt(f"by {stop.by}")


def play_dev_levels(
    suite: EvaluationSuite, policy: NppPolicy, deterministic: bool, progress: Callable[[int], None] | None = None
) -> tuple[Evaluation, LevelWins]:
    """Success of a policy on the dev levels, in total and level by level.  progress: as of ``EvaluationSuite.run``."""
    episodes = suite.run(policy, deterministic=deterministic, progress=progress)
    rows = {category: stats["success"] for category, stats in aggregate(episodes).items()}
    wins = LevelWins.count(episodes)
    return Evaluation(rows[ALL], rows, wins.success[0]), wins


class EvaluatorError(UserError, RuntimeError):
    """The process that evaluates has failed or died; the message says what it said, and how to go on."""


@dataclass(frozen=True)
class DevTask:
    """What to evaluate on, and with what.

    levels: the dev levels.
    architecture: of the policies.
    device: where they compute.
    simulator_threads: whose number changes nothing.
    """

    config: ExperimentConfig
    levels: Pairs
    architecture: str
    device: str
    simulator_threads: int


@dataclass(frozen=True)
class _Answer:
    """decisions: as ordered.  seconds: that it took."""

    decisions: int
    evaluation: Evaluation
    wins: LevelWins
    seconds: float


@dataclass(frozen=True)
class _Failure:
    """told: for people.  trace: for us."""

    told: str
    trace: str


class Evaluator:
    """The process, as the training sees it.

    folder: of the run, where policies are handed over and successes are noted.
    suite: what it plays; only the levels are compared.
    stop: request to end the program, which also ends waiting.
    """

    def __init__(self, task: DevTask, folder: Path, suite: EvaluationSuite, stop: StopRequest):
        self.path = folder / ORDERED
        self.history = DevHistory(folder)
        self.stop = stop
        self._frame_skip = task.config.frame_skip
        self._levels = tuple(level.fingerprint for level in suite.bank.levels)
        self._ordered: int | None = None
        self._arrived: _Answer | None = None
        self._failed: _Failure | None = None
        self._orders: SimpleQueue[bytes] = SimpleQueue()
        self._answers: SimpleQueue[_Answer | _Failure | None] = SimpleQueue()  # None: there will be no more
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._write, self._read)]
        for thread in self._threads:
            thread.start()
        self._orders.put(pickle.dumps(task))

    def _write(self) -> None:
        """Pass on orders, of which the first waits until the process has begun to read; b"" is the end."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the other thread learns of its end, too
            while order := self._orders.get():
                self.process.stdin.write(order)
                self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            with suppress(EOFError, pickle.UnpicklingError):  # the end, perhaps amid an answer
                while True:
                    self._answers.put(pickle.load(self.process.stdout))
        finally:
            self._answers.put(None)

    def order(self, policy: NppPolicy, decisions: int) -> None:
        """Have a policy played, as it is now; returns at once.  decisions: that it has learned from."""
        self.check()
        if self._ordered is not None:
            raise AssertionError(f"the policy after {self._ordered} decisions is still being evaluated")
        checkpoint.save(self.path, policy, frame_skip=self._frame_skip)
        self._ordered = decisions
        self._orders.put(pickle.dumps((self.path, decisions)))

    def check(self) -> None:
        """EvaluatorError if the process has failed or died."""
        self._listen(0.0)

    def result(self) -> tuple[Evaluation, float]:
        """What the policy that was ordered achieves, noted in the run's history, and the seconds that it was played.

        Waits for it.  EvaluatorError if the process fails or dies, KeyboardInterrupt if somebody asks the program to end.
        """
        while self._arrived is None:
            stop_if(self.stop)
            self._listen(ASK_S)
        answer, ordered = self._arrived, self._ordered
        self._arrived = self._ordered = None
        if answer.decisions != ordered or answer.wins.levels != self._levels:
            raise EvaluatorError(
                f"another policy ({answer.decisions:,} decisions instead of {ordered:,}) or other levels were evaluated"
            )
        self.path.unlink()
        self.history.add(answer.decisions, answer.wins)
        return answer.evaluation, answer.seconds

    def _listen(self, seconds: float) -> None:
        """Take what the process says, if it does so within that time; EvaluatorError for bad news, again and again."""
        if self._failed is None:
            try:
                answer = self._answers.get(timeout=seconds)
            except queue.Empty:
                return
            if isinstance(answer, _Answer):
                self._arrived = answer
                return
            self._failed = answer or self._death()
        raise EvaluatorError(
            f"{self._failed.told}. Go on with --resume-from, which evaluates again; with --resume-override "
            "remote-evaluation=off, too, it does so in the training's process"
        ) from _Cause(self._failed.trace)

    def _death(self) -> _Failure:
        status = self.process.wait(END_S)
        reason = f"signal {-status}, perhaps for lack of memory" if status < 0 else f"exit status {status}"
        return _Failure(f"the process that evaluates beside training died ({reason})", "it has left none")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self._orders.put(b"")
        for thread in self._threads:
            thread.join()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.path.unlink(missing_ok=True)


class _Cause(Exception):
    """The traceback in the other process; ``--debug`` shows it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@contextmanager
def evaluator(task: DevTask, folder: Path, suite: EvaluationSuite, stop: StopRequest) -> Iterator[Evaluator]:
    """An Evaluator, whose process ends with the block."""
    made = Evaluator(task, folder, suite, stop)
    try:
        yield made
    finally:
        made.close()


# ---------------------------------------------------------------------------------------------------------------------
# In the other process


def serve() -> None:
    """Evaluate what standard input orders, until it ends; answers go to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed here is no answer
    orders: SimpleQueue = SimpleQueue()
    threading.Thread(target=_hear, args=(sys.stdin.buffer, orders), daemon=True).start()
    try:
        task: DevTask = orders.get()
        suite = prepare(task)
        while True:
            path, decisions = orders.get()
            began = time.monotonic()
            policy, _ = checkpoint.load_policy(path)
            found, wins = play_dev_levels(suite, policy.to(task.device), task.config.evaluation.deterministic)
            _answer(answers, _Answer(decisions, found, wins, time.monotonic() - began))
    except Exception as error:  # noqa: BLE001  # the training is told, and decides
        told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        _answer(answers, _Failure(f"the evaluation beside training failed: {told}", traceback.format_exc()))
        orders.get()  # none comes: the training ends this process, or ends itself


def prepare(task: DevTask) -> EvaluationSuite:
    """The dev levels, compiled, and this process's threads set."""
    plugins.load(task.config.plugins)
    torch.set_num_threads(1)  # as in the training, since other numbers round another way
    config, network = task.config, get_architecture(task.architecture)
    episodes = config.evaluation.periodic_episodes_per_category
    return make_suite(config, task.levels, network, episodes, threads=task.simulator_threads)


def _hear(orders: BinaryIO, heard: SimpleQueue) -> None:
    """Pass on what is ordered; with its end this process ends, too, whatever it is doing."""
    status = 0
    try:
        while True:
            heard.put(pickle.load(orders))
    except (EOFError, pickle.UnpicklingError):  # the training has ended, perhaps amid an order
        pass
    except Exception:  # noqa: BLE001  # whatever it is, the training must not wait for an answer
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def _answer(answers: BinaryIO, answer: _Answer | _Failure) -> None:
    with suppress(BrokenPipeError):  # nobody wants to know any more
        pickle.dump(answer, answers)
        answers.flush()
