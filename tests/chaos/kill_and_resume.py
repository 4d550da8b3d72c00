"""Send SIGKILL in each phase of a training, resume each time, and compare the result with that of an undisturbed training.

    found = kill_and_resume(Path("work"), print, count=20)
    print(found)

Covers all of the main job but the doctor, at tiny size: imitation, warm-up of the critic, PPO, evaluations, films, reports.
The processes are forks of this one, which saves their start-up time; this one must not have used torch before.
"""

import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.io.files import table
from nppsim.levels.level_set import LevelSet
from rl.checks.doctor import Doctor
from rl.config.command_line import resolve
from rl.experiment.run import run
from rl.policy.architectures import get_architecture
from tests.chaos.machine_faults import AttackError
from tests.chaos.same_run import differences
from tests.chaos.targets import make_world

ARCHITECTURE = "vision_free"
FLAGS = (
    f"--experiment-name tiny --architectures {ARCHITECTURE} --train-dataset {{world}}/levels --test-dataset {{world}}/test "
    "--replay-data-dir {world}/demonstrations --bc-epochs 20 --bc-patience 20 --total-timesteps 8192 --num-envs 32 "
    "--rollout-length 32 --minibatch-size 256 --eval-freq 3000 --num-eval-episodes 8 --critic-warmup-max-updates 3 "
    "--device cpu --no-mixed-precision --torch-threads 1 --record-eval-videos --max-videos-per-category 2"
)
# (beginning of a printed line, phase of the run that starts with it)
PHASES = (
    ("experiment folder:", "before training"),
    ("imitation, epoch", "imitation"),
    ("imitation resumes", "imitation"),
    ("imitation is done", "evaluation of the BC policy"),
    ("weights:", "evaluation of the BC policy"),
    ("evaluation at", "PPO and its evaluations"),
    ("resuming from", "PPO and its evaluations"),
    ("evaluations took", "final evaluation, films, report"),
)


@dataclass(frozen=True)
class Kill:
    """One kill: number of the training, phase in which it came, and seconds after the start of the intended phase.

    The kill may come in the phase after the intended one.
    """

    training: int
    phase: str
    seconds: float


@dataclass(frozen=True)
class Campaign:
    """Outcome of all kills.

    trainings: number of trainings that were resumed until they ended.
    different: places at which a result differs from that of the undisturbed training.
    """

    kills: tuple[Kill, ...]
    trainings: int
    different: tuple[str, ...]

    def __str__(self) -> str:
        phases = Counter(kill.phase for kill in self.kills)
        rows = [(phase, phases[phase]) for phase in dict.fromkeys(phase for _, phase in PHASES) if phases[phase]]
        verdict = "; ".join(self.different) or "all results are the same, bit for bit"
        summary = f"{len(self.kills)} kills in {self.trainings} trainings: {verdict}"
        return f"{table(('killed in', 'times'), rows)}\n{summary}"


class _Process:
    """A training in a fork of this process; ``output`` is the file of what it prints."""

    def __init__(self, arguments: Sequence[str], output: Path):
        self.output = output
        self.lasted: Counter[str] = Counter()  # seconds in each phase
        output.write_text("")
        self.id = os.fork()
        if self.id == 0:
            _become(arguments, output)

    @property
    def phase(self) -> str:
        """Current phase of the run, by the lines it has printed; "" before the first."""
        found = ""
        for line in self.output.read_text().splitlines():
            found = next((phase for begin, phase in PHASES if line.startswith(begin)), found)
        return found

    def killed_in(self, wanted: str | None, seconds: float = 0.0) -> bool:
        """Send SIGKILL ``seconds`` after a phase has begun; return False if the training ended before.

        wanted: name of the phase; None: let the training end.
        Raises AttackError if the training failed.
        """
        end, before = None, time.monotonic()
        while True:
            done, status = os.waitpid(self.id, os.WNOHANG)
            if done:
                break
            now, phase = time.monotonic(), self.phase
            self.lasted[phase] += now - before  # type: ignore[assignment]
            before = now
            end = now + seconds if end is None and phase and phase == wanted else end
            if end is not None and now >= end:
                os.kill(self.id, signal.SIGKILL)
                _, status = os.waitpid(self.id, 0)
                break
            time.sleep(0.02)
        if status not in (0, signal.SIGKILL):
            raise AttackError(f"a training failed (status {status}): {self.output.read_text()[-1000:]}")
        return status == signal.SIGKILL


def _become(arguments: Sequence[str], output: Path) -> None:
    """Run the training in this process; never returns."""
    status = 1
    Doctor.run = lambda *_, **__: None  # type: ignore[method-assign]  # most of the time of so short a run
    try:
        with open(output, "w", buffering=1, encoding="utf-8") as sys.stdout:
            sys.stderr = sys.stdout
            run(resolve(arguments))
            status = 0
    except BaseException:  # noqa: BLE001  # any error is written for the parent, and this fork must end
        output.write_text(traceback.format_exc())
    finally:
        os._exit(status)


def kill_and_resume(work: Path, log: Callable[[str], None], count: int = 20, seed: int = 0) -> Campaign:
    """Kill ``count`` times, in as many trainings as that takes; each training is resumed until it ends.

    work: a new folder.
    log: receives a line per kill.
    Raises AttackError for a training that fails.
    """
    world = make_world(work / "world")
    flags = FLAGS.format(world=world).split()
    _load_kernels(world)
    usual = _Process([*flags, "--output-dir", str(work / "usual")], work / "usual.txt")
    usual.killed_in(None)
    phases = _phases(usual)
    log(f"undisturbed: {', '.join(f'{phase} {usual.lasted[phase]:.0f} s' for phase in phases)}")
    rng, kills, different, training = random.Random(seed), list[Kill](), list[str](), 0
    while len(kills) < count:
        training += 1
        out = work / f"training_{training}"
        arguments = [*flags, "--output-dir", str(out)]
        while True:
            wanted = phases[len(kills) % len(phases)] if len(kills) < count else None
            moment = rng.uniform(0, usual.lasted[wanted]) if wanted else 0.0
            process = _Process(arguments, work / f"training_{training}.txt")
            if not process.killed_in(wanted, moment):
                break
            kills.append(Kill(training, process.phase, moment))
            log(
                f"kill {len(kills)}: training {training}, {process.phase}, {moment:.1f} s after the beginning of {wanted}"
            )
            arguments = ["--resume-from", str(_only(out))]
        found = _apart(differences, _only(work / "usual"), _only(out))
        log(f"training {training} has ended: {'; '.join(found) or 'the same, bit for bit'}")
        different += [f"training {training}: {place}" for place in found]
    return Campaign(tuple(kills), training, tuple(different))


def _phases(usual: _Process) -> list[str]:
    """Return the phases of a training in order; raise AttackError if the undisturbed one lacks some."""
    phases = list(dict.fromkeys(phase for _, phase in PHASES))
    if absent := [phase for phase in phases if not usual.lasted[phase]]:
        raise AttackError(f"an undisturbed training printed no line of: {', '.join(absent)}; update PHASES")
    return phases


def _apart(function: Callable[..., list[str]], *arguments: Path) -> list[str]:
    """Call a function in a process of its own: if torch started threads in this one, later forks would lack them and hang."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: sender.send(function(*arguments)))
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def _load_kernels(world: Path) -> None:
    levels = LevelSet.open(world / "levels")
    sim = BatchSimulator([levels[0]], 2, observations=get_architecture(ARCHITECTURE).observations, threads=1)
    sim.reset()
    sim.step(np.zeros(2, np.int64))


def _only(out: Path) -> Path:
    (folder,) = out.glob("tiny_*")
    return folder
