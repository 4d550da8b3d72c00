"""Commands at tiny size, each hit by each fault of the machine (docs/lab/failures.md); part of ``make chaos``.

Only work in progress may be lost, one line reports the error, and the interpreter does not crash.  CHAOS_SEED in the
environment varies the moments and sizes of the faults.  The full disk is a small tmpfs, which only root may mount.
"""

import os
import random
import signal
from contextlib import contextmanager

import pytest

from nppsim.errors import BROKEN_PIPE, INTERRUPTED, REFUSED
from tests.chaos import faults
from tests.chaos.faults import EXPECTED, PLAN, REPEATED, TIMED, Case, run_case, undisturbed
from tests.chaos.integrity import damaged, left_over
from tests.chaos.targets import TARGETS, make_world, names_of, run_of

SEED = os.environ.get("CHAOS_SEED", "0")
TRIES = 4  # how often a fault that came after the end of the command is repeated, earlier each time
# Beginnings of lines that may never be printed, on stdout or stderr, whatever the status.
TRACEBACKS = (
    *("Traceback (most", "Exception ignored", "Exception in thread", "Fatal Python error", "Error in sys.excepthook"),
    *("HDF5-DIAG", "Segmentation fault", "terminate called", "free()", "malloc()", "double free", "corrupted"),
)
CASES = [
    pytest.param(name, fault, id=f"{name}-{fault.__name__}")
    for name in TARGETS
    for fault, names in PLAN.items()
    if name in names
]


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def usual(world, tmp_path_factory):
    """Function that returns the ``Undisturbed`` run of a target; runs it twice, since the first one may compile."""
    runs = {}

    def of(name):
        if name not in runs:
            undisturbed(name, world, tmp_path_factory.mktemp("usual") / "first")
            runs[name] = undisturbed(name, world, tmp_path_factory.mktemp("usual") / "second")
        return runs[name]

    return of


def outcome_of(target, ended):
    """Return "finished", "error" (one line), "stopped" or "killed"; fail for any other end."""
    assert not [line for line in (*ended.stderr, *ended.stdout.splitlines()) if line.lstrip().startswith(TRACEBACKS)]
    errors = [line for line in ended.stderr if line.startswith("error: ")]
    if ended.status in target.statuses and not errors:
        return "finished"
    if ended.status == -signal.SIGKILL:
        return "killed"
    if (ended.status, len(ended.stderr)) == (BROKEN_PIPE, 0):
        return "stopped"
    assert len(ended.stderr) == 1, ended
    if ended.status == INTERRUPTED and ended.last.startswith("interrupted"):
        return "stopped"
    assert ended.status == REFUSED and errors, ended
    return "error"


def check_message(case, message):
    """Check that an error message contains the file, the reason and a remedy."""
    assert not case.named or any(name in message for name in case.named), message
    assert not any(case.words) or any(word in message for word in case.words), message
    assert "; " in message or "): " in message, "names no remedy"


def check_output(case, fault, ended, outcome):
    """Check the files of a command after a fault, and its message."""
    if outcome != "killed":
        assert left_over(case.out) == []
    if fault is not faults.hostile_header:
        assert damaged(case.out) == []
        if outcome == "finished":
            assert case.missing() == []
            assert ended.status == case.usual.status
    if outcome == "error":
        check_message(case, ended.last)
        if fault is faults.vanish:
            assert not names_of(case.out), "the removed folder was created again"


def check_concurrent(case):
    """Check the end of a second process on the same folder."""
    outcome = outcome_of(case.target, case.concurrent)
    if case.target.alone:
        assert outcome == "error" and f": process {case.paused} on " in case.concurrent.last
    elif outcome == "error":
        check_message(case, case.concurrent.last)
    else:
        assert outcome == "finished"


def check_repetition(case):
    """Call the command again without the fault, or the one that resumes; its output must be complete."""
    if case.repair is not None:
        case.repair()
    command = case.target.again if run_of(case.out) is not None else ""
    again = Case(case.target, case.world, case.out, case.usual, case.rng, command)
    ended = run_case(again)
    if outcome_of(case.target, ended) == "error":
        assert case.target.refuses_again and case.target.refuses_again in ended.last
    else:
        assert damaged(again.out) == [] and again.missing() == []


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_command_under_fault_ends_as_documented(name, fault, world, usual, tmp_path):
    rng = random.Random(f"{SEED} {name} {fault.__name__}")
    for number in range(TRIES):
        case = Case(TARGETS[name], world, tmp_path / str(number), usual(name), rng, haste=0.5**number)
        with contextmanager(fault)(case):
            case.out.mkdir(parents=True, exist_ok=True)
            ended = run_case(case)
            assert ended.survivors == ()
            if fault is faults.terminate and ended.status == -signal.SIGTERM:
                continue  # it came while Python shut down, after the work
            outcome = outcome_of(case.target, ended)
            if fault in TIMED and outcome == "finished" and (not case.came or not case.missing()):
                continue  # it came too late
            check_output(case, fault, ended, outcome)
            assert outcome in EXPECTED.get(fault, ("finished", "error"))
            if case.concurrent is not None:
                check_concurrent(case)
            if fault in REPEATED:
                check_repetition(case)
            return
    pytest.skip(f"the command ended before the fault in each of {TRIES} runs")
