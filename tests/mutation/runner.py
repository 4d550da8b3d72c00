"""Apply mutations one at a time and run their tests, of which one must fail.

    outcomes = run_each(all_mutations(), jobs=2, log=print)

Each mutation runs in a process of its own, forked from one in which the packages are imported: pytest collects the tests,
the mutation is applied to all that they have imported, and the first test that fails ends the run.
"""

import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.mutation.mutation import FOLDER, ROOT, Mutation, Patch

LONGEST_S = 600.0  # time limit for the tests of a mutation
# Status of a mutation.
NOTICED, MISSED, BROKEN = "noticed", "missed", "broken"
_ARGUMENTS = re.compile(r"<locals>\.(\w+|<lambda>)\(\) (takes|got|missing)")


@dataclass(frozen=True)
class Outcome:
    """Result of a mutation.

    status: NOTICED: a test failed; MISSED: all passed, or took too long; BROKEN: the mutation itself could not be applied.
    test: node that failed first.
    message: its error.
    """

    mutation: str
    status: str
    test: str = ""
    message: str = ""
    seconds: float = 0.0


class _Plugin:
    """pytest plugin: applies a mutation between collection and the first test; stores the first failure."""

    def __init__(self, inject: Callable[[Patch], None] | None):
        self.inject = inject
        self.patch = Patch()
        self.status, self.test, self.message = MISSED, "", ""

    def pytest_collection_finish(self) -> None:
        if self.inject is None:
            return
        try:
            self.inject(self.patch)
        except Exception as error:  # noqa: BLE001  # any error here is not a failed test
            self.status, self.message = BROKEN, f"{type(error).__name__}: {error}"
            pytest.exit("the mutation cannot be applied")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.status == MISSED:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.status = BROKEN if _does_not_fit(crash) else NOTICED
            self.test = report.nodeid
            self.message = crash.message if crash is not None else str(report.longrepr)


def _does_not_fit(crash: Any) -> bool:
    """Return True if a test failed only because the mutation no longer fits the function that it changes."""
    if crash is None:
        return False
    return Path(crash.path).resolve().parent == FOLDER or _ARGUMENTS.search(crash.message) is not None


def run_tests(inject: Callable[[Patch], None] | None, tests: Sequence[str]) -> tuple[str, str, str]:
    """Run tests in this process with a mutation (None: without); return status, failed test, its error."""
    plugin = _Plugin(inject)
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
    with plugin.patch:
        code = pytest.main([*options, *tests], plugins=[plugin])
    if plugin.status == MISSED and code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return BROKEN, "", f"pytest ended with status {int(code)}"
    return plugin.status, plugin.test, " ".join(plugin.message.split())


def run_each(mutations: Sequence[Mutation], jobs: int, log: Callable[[str], None]) -> list[Outcome]:
    """Run the mutations, ``jobs`` at a time; return their outcomes in the same order."""
    context = multiprocessing.get_context("fork")
    waiting = list(reversed(mutations))
    running: dict[Connection, tuple[Mutation, multiprocessing.process.BaseProcess, float]] = {}
    found: dict[str, Outcome] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            one = waiting.pop()
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(theirs, one))
            child.start()
            theirs.close()
            running[ours] = one, child, time.monotonic()
        ready = {connection for connection in wait(list(running), timeout=1.0) if isinstance(connection, Connection)}
        ready |= {here for here, (_, _, begun) in running.items() if time.monotonic() - begun > LONGEST_S}
        for connection in ready:
            one, child, begun = running.pop(connection)
            found[one.name] = outcome = _received(connection, one, child, time.monotonic() - begun)
            log(f"{one.name}: {outcome.status}, {outcome.seconds:.0f} s: {outcome.test} {outcome.message[:120]}")
    return [found[one.name] for one in mutations]


def _received(
    connection: Connection, one: Mutation, child: multiprocessing.process.BaseProcess, seconds: float
) -> Outcome:
    try:
        status, test, message = connection.recv() if connection.poll() else (MISSED, "", "took too long")
    except EOFError:
        status, test, message = NOTICED, "", "the interpreter crashed"
    child.kill()
    child.join()
    return Outcome(one.name, status, test, message, seconds)


def _child(connection: Connection, one: Mutation) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        connection.send(run_tests(one.inject, one.tests))
    connection.close()
    os._exit(0)  # skip the parent's exit handlers
