"""The self-test: plants faults one at a time and sees which guard notices, where and after how long; and that sound runs,
of different configurations and of every stage, set off none.

    outcomes = run_each([*all_faults(), *SOUND], jobs=2, log=print)

Every fault is planted in a process of its own, forked from one in which all is imported and compiled, and the real thing
is then done: mostly the main job, at tiny size, on a few shipped levels.  What counts as noticed is what a user would see:
an error that ends the run, or a warning of doctor or alarms that a run without the fault does not give.
"""

import multiprocessing
import os
import re
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

import hardware
from bc.demonstrations import find_replays
from nppsim.errors import ConfigError, UserError
from nppsim.files import table
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay_set import ReplayWriter
from tests.mutation.mutations import Fault, Plants, all_faults
from tests.mutation.stages import STAGES, SUPPORT, Noticed, Stage

CATEGORIES = ("simplest", "simpler")
LEVELS = {"train": 12, "dev": 3, "test": 3}  # of each category
DEMONSTRATIONS = 12  # of each category
LONGEST_S = 300.0  # that a fault may take until it counts as not noticed
# Warnings that say, rightly, that these runs are tiny.
ABOUT_SIZE = frozenset({"the_plan_is_sensible", "updates_fit_the_budget", "few episodes"})
NOT_NOTICED = "not noticed"
BROKEN = "the plant itself is broken"
# How it shows that what is planted does not fit what it changes any more: that proves nothing.
OUTDATED = re.compile(r"\b_\w*\.<locals>\.(\w+|<lambda>)\(\) (takes|got|missing)|broke off in (plants_\w+|faults)\.py")
OF_THE_PLANT = (AttributeError, LookupError, NameError, TypeError)  # no guard speaks so, wherever they are raised
TEACHER = "datasets/agents/vision_free_foresight.safetensors"


class SelfTestError(UserError, RuntimeError):
    """What the self-test rests on does not hold; the message says what."""


@dataclass(frozen=True)
class Outcome:
    """What came of a planted fault.

    fault: its name.
    guard: what noticed it; NOT_NOTICED.
    moment: before, first update, during, after; tests.
    seconds: from the start of the stage.
    message: what a user reads.
    """

    fault: str
    guard: str
    moment: str
    seconds: float
    message: str


# Configurations of sound runs, as flags of the main job beside those of every tiny run.
_CONFIGURATIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("--curriculum", "stages", "--curriculum-min-episodes", "20"),
    ("--no-pretraining",),
    ("--frame-skip", "2", "--bc-class-weight-power", "0.5", "--curriculum", "learning_progress"),
    ("--frame-skip", "6", "--no-pretraining"),
    ("--reward-preset", "default", "--gamma", "0.99"),
    ("--architectures", "mlp_baseline", "--total-timesteps", "8192"),
    ("--architectures", "vision_free_foresight", "--total-timesteps", "8192"),
    ("--architectures", "mlp_baseline_foresight", "--no-pretraining", "--total-timesteps", "6144"),
    ("--mirror-demonstrations",),
    ("--num-envs", "64", "--rollout-length", "16", "--architectures", "vision_free+gru"),
    ("--num-envs", "16", "--rollout-length", "128", "--minibatch-size", "512"),
    ("--mixed-precision", "--total-timesteps", "8192"),
    ("--n-epochs", "4", "--initial-lr", "0.0003", "--target-kl", "0.01"),
    ("--desired-kl", "0.01", "--no-pretraining"),
    ("--clip-apart", "--self-imitation-coef", "0.1"),
    ("--seeds", "7", "--critic-warmup-max-updates", "0", "--learning-rate-warmup-updates", "0"),
    ("--bc-kl-coef", "0", "--no-enable-lr-annealing"),
    ("--eval-freq", "0", "--max-demonstrations-per-category", "6", "--teacher", TEACHER, "--teacher-decisions", "2048"),
    ("--no-retention-guard", "--use-curriculum", "--curriculum-start-stage", "simpler", "--seeds", "3"),
    (*("--no-pretraining", "--prioritised-alpha", "0.6"), *("--curriculum", "plr", "--save-freq", "1024")),
    (
        *("--no-pretraining", "--returns-from", "current", "--vtrace-rho-clip", "1.0"),
        *("--curriculum", "learnability", "--desync-episodes", "--gradient-accumulation", "2"),
    ),
    (
        *("--use-hierarchical-ppo", "--high-level-update-freq", "10", "--eval-freq", "1024"),
        *("--enable-early-stopping", "--early-stopping-patience", "3", "--early-stopping-min-evaluations", "4"),
    ),
    ("--time-budget-minutes", "0.1", "--use-curriculum", "--start-states"),
    (
        *("--architectures", "vision_free+gru", "--memory-burn-in", "8", "--returns-from", "current"),
        *("--curriculum", "stages", "--curriculum-stage-gamma", "simplest=0.99", "--no-pretraining"),
    ),
    ("--curriculum", "stages", "--use-hierarchical-ppo", "--hierarchical-from-stage", "simpler"),
    (
        *("--curriculum", "stages", "--curriculum-stage-learning-rate", "simplest=0.0001"),
        *("--curriculum-stage-ent-coef", "simplest=0.05", "--curriculum-regression-threshold", "0.2"),
    ),
    ("--curriculum", "learning_progress", "--curriculum-preset", "first", "--lr-end-share", "0"),
    ("--num-envs", "1", "--rollout-length", "64", "--minibatch-size", "64", "--total-timesteps", "1024"),
    (
        *("--remote-evaluation", "--eval-freq", "512", "--gae-lambda", "0.2", "--clip-range", "6"),
        *("--ent-coef-start", "0.1", "--reward-win", "300"),
    ),
)
_SENSIBLE = (
    "--num-envs",
    "128",
    "--rollout-length",
    "64",
    "--total-timesteps",
    "10000000",
)  # for a plan without warnings
# Runs in which nothing may be noticed: a stage that always notices something would prove nothing of its faults.
SOUND = (
    *(Fault(f"sound: {' '.join(flags) or 'plain'}", (), None, "job", flags) for flags in _CONFIGURATIONS),
    *(
        Fault(f"sound: stage {stage}", (), None, stage, _SENSIBLE if stage == "plan" else ())
        for stage in STAGES
        if stage != "job"
    ),
)


def make_world(shipped: Path, folder: Path) -> Path:
    """A few shipped levels and demonstrations; returns the folder."""
    for name, count in LEVELS.items():
        levels = LevelSet.open(shipped / name)
        chosen = [i for category in CATEGORIES for i in levels.indices(category)[:count]]
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in chosen])
    (folder / "demonstrations").mkdir()
    for category in CATEGORIES:
        with ReplayWriter(folder / "demonstrations" / f"{category}.h5") as writer:
            for file in find_replays(shipped / "demonstrations" / f"{category}.h5")[:DEMONSTRATIONS]:
                writer.append(file.replay, category=category)
    return folder


def run_each(faults: Sequence[Fault], jobs: int, log: Callable[[str], None]) -> list[Outcome]:
    """Do the stage of each fault with it in place, ``jobs`` at a time; outcomes in the same order.

    Raises SelfTestError where a run without a fault sets off an alarm: what is noticed then proves nothing.
    """
    with tempfile.TemporaryDirectory() as temporary, Plants() as around:
        around.around(hardware.detect, lambda original: _quiet(original()))
        world = make_world(Path("datasets"), Path(temporary) / "world")
        warned = _warm_up(world)
        log(f"a run without a fault warns of: {', '.join(sorted(warned))}")
        found = {outcome.fault: outcome for outcome in _in_children(faults, world, warned, jobs, log)}
    return [found[one.name] for one in faults]


def _quiet(machine: hardware.Machine) -> hardware.Machine:
    """The machine as runs are to see it.

    It has one core, as threads that hand work to each other cost more than they gain in runs this small, and all of its
    memory is free: what else is going on here is no news of a fault.
    """
    return replace(machine, cores=1, available_bytes=machine.memory_bytes)


def _warm_up(world: Path) -> frozenset[str]:
    """A sound run in this process, so that its children find all imported, compiled and cached; the warnings it gives."""
    torch.set_num_threads(1)
    stage = Stage(world, Path(tempfile.mkdtemp(dir=world.parent)), (), ABOUT_SIZE)
    try:
        STAGES["job"](stage, lambda: None)
    except Noticed as noticed:
        raise SelfTestError(
            f"a run without a fault sets off {noticed.guard}: {noticed.message}; mend that first"
        ) from None
    shutil.rmtree(stage.folder)
    return frozenset(stage.warned)


# ---------------------------------------------------------------------------------------------------------------------
# One fault, in a process of its own


def _planted(one: Fault, world: Path, warned: frozenset[str]) -> Outcome:
    """Do the fault's stage with the fault in place.  warned: what a run without a fault warns of."""
    begin = time.perf_counter()
    expected = warned | ({"few episodes"} if one.plant else ABOUT_SIZE)
    stage = Stage(world, Path(tempfile.mkdtemp(dir=world.parent)), one.flags, expected)
    try:
        with Plants() as plants:
            STAGES[one.stage](stage, lambda: one.plant and one.plant(plants))
        guard, message = NOT_NOTICED, ""
    except Noticed as noticed:
        guard, message = noticed.guard, noticed.message
    except UserError as error:
        guard, message = stage.guard_of(error), str(error)
    except Exception as error:  # noqa: BLE001  # a crash ends the run, with a traceback: that is noticed
        guard, message = type(error).__name__, str(error)
        if one.plant and _is_of_the_plant(error):
            guard, message = NOT_NOTICED, f"{BROKEN}: {guard}: {message}"
    if OUTDATED.search(message):
        guard, message = NOT_NOTICED, f"{BROKEN}: {message}"
    shutil.rmtree(stage.folder, ignore_errors=True)
    moment = stage.moment if guard != NOT_NOTICED else ""
    return Outcome(one.name, guard, moment, time.perf_counter() - begin, " ".join(message.split()))


def _is_of_the_plant(error: Exception) -> bool:
    """Whether a crash is the self-test's own, or one of a kind that no guard raises: the product stumbles over what a plant
    has left inconsistent."""
    place = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return isinstance(error, OF_THE_PLANT) or place.parent == Path(__file__).parent


Child = tuple[str, multiprocessing.process.BaseProcess, float]  # name, process, when it was begun


def _in_children(
    faults: Sequence[Fault], world: Path, warned: frozenset[str], jobs: int, log: Callable[[str], None]
) -> Iterator[Outcome]:
    """Outcomes of the faults, each in a forked process, ``jobs`` at a time, in the order in which they end."""
    context = multiprocessing.get_context("fork")
    waiting = list(reversed(faults))
    running: dict[Connection, Child] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            one = waiting.pop()
            here, there = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(there, one, world, warned), daemon=True)
            child.start()
            there.close()
            running[here] = one.name, child, time.monotonic()
        for connection in [*wait(list(running), timeout=1.0), *_overdue(running)]:
            assert isinstance(connection, Connection)
            yield _result(connection, *running.pop(connection), log)


def _overdue(running: dict[Connection, Child]) -> list[Connection]:
    return [
        connection
        for connection, (_, _, begun) in running.items()
        if time.monotonic() - begun > LONGEST_S and not connection.poll()
    ]


def _result(
    connection: Connection,
    name: str,
    child: multiprocessing.process.BaseProcess,
    begun: float,
    log: Callable[[str], None],
) -> Outcome:
    seconds = time.monotonic() - begun
    try:
        outcome = connection.recv() if connection.poll() else None
    except EOFError:
        outcome = None
    if outcome is None:
        child.kill()
    child.join()
    if outcome is None:
        what = "the interpreter" if seconds < LONGEST_S else NOT_NOTICED
        outcome = Outcome(name, what, "during", seconds, f"exit code {child.exitcode} after {seconds:.0f} s")
    log(f"{outcome.fault}: {outcome.guard}, {outcome.moment}, {outcome.seconds:.1f} s: {outcome.message[:160]}")
    return outcome


def _child(connection: Connection, one: Fault, world: Path, warned: frozenset[str]) -> None:
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        connection.send(_planted(one, world, warned))
    connection.close()
    os._exit(0)  # nothing of the parent's is to be ended here


# ---------------------------------------------------------------------------------------------------------------------
# The command


def self_test(only: Sequence[str] | None, clean: int | None, jobs: int, log: Callable[[str], None]) -> dict:
    """Faults (of some numbers or words in their names; None: all) and sound runs (None: all); plain values for ``--json``.

    Raises ConfigError for faults that there are not, and outside of a checkout.
    """
    if not SUPPORT.is_dir():  # nor are the levels and docs that it needs
        raise ConfigError(f"{SUPPORT} is not in this folder; go to a checkout of the project first", "tests.mutation")
    chosen = [one for one in all_faults() if only is None or _is_meant(one, only)]
    if not chosen:
        told = "no planted fault has such a number or word: docs/lab/failures.md lists them"
        raise ConfigError(told, "--only", " ".join(only or ()))
    begin = time.monotonic()
    both = run_each([*chosen, *SOUND[:clean]], jobs, log)
    outcomes, sound = both[: len(chosen)], both[len(chosen) :]
    missed = [outcome.fault for outcome in outcomes if outcome.guard == NOT_NOTICED]
    false_alarms = [asdict(outcome) for outcome in sound if outcome.guard != NOT_NOTICED]
    numbers = {one.name: list(one.numbers) for one in chosen}
    return {
        "faults": [asdict(outcome) | {"stands_for": numbers[outcome.fault]} for outcome in outcomes],
        "missed": missed,
        "clean_runs": len(sound),
        "false_alarms": false_alarms,
        "seconds": time.monotonic() - begin,
    }


def _is_meant(one: Fault, only: Sequence[str]) -> bool:
    return any(word in one.numbers or word.lower() in one.name.lower() for word in only)


def self_test_table(result: dict) -> str:
    """The result for people."""
    rows = [
        (
            one["fault"],
            " ".join(one["stands_for"]),
            one["guard"],
            one["moment"],
            f"{one['seconds']:.1f}",
            one["message"][:100],
        )
        for one in result["faults"]
    ]
    lines = [table(("fault", "stands for", "noticed by", "moment", "s", "message"), rows, "llllrl")]
    lines.append(
        f"{len(rows) - len(result['missed'])} of {len(rows)} faults noticed; {len(result['false_alarms'])} false alarms in "
        f"{result['clean_runs']} sound runs; {result['seconds']:.0f} s"
    )
    lines += [f"not noticed: {name}" for name in result["missed"]]
    lines += [f"false alarm: {one['fault']}: {one['guard']}: {one['message']}" for one in result["false_alarms"]]
    return "\n".join(lines)
