"""Checks and their results.

    @check(UPDATE)
    def every_parameter_gets_a_gradient(policy: NppPolicy) -> str:
        '''Check that every parameter has a non-zero gradient after the first update.'''
        require(not missing, "no gradient reaches action_net.weight", "connect it to the output")
        return "41 tensors"  # message of the result

The name of the function is the name of the check.  Its parameters are the names of the objects that it needs, as with pytest
fixtures.  A check fails if it crashes, or if one of its objects is missing.
"""

import inspect
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nppsim.errors import UserError, redact
from nppsim.io.files import table
from nppsim.io.reading import PlainError, from_plain, read_json

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
MARKS = {OK: "✓", WARNING: "!", FAILED: "✗", SKIPPED: "–"}

# Events at which checks run.
BEFORE, IMITATION, UPDATE = "before", "imitation", "update"
TRIAL, STORED, CHECKPOINT = "trial", "stored", "checkpoint"
EVENTS = {
    BEFORE: "before training",
    IMITATION: "of the demonstrations",
    UPDATE: "after the first update of the actor",
    TRIAL: "after the trial run",
    STORED: "of the files of a run",
    CHECKPOINT: "of an agent",
}


class CheckFailed(Exception):
    """A check has failed.  message: the measured value; remedy: advice to the user."""

    def __init__(self, message: str, remedy: str):
        super().__init__(message, remedy)
        self.message, self.remedy = message, remedy


class CheckWarned(CheckFailed):
    """A check has found a problem that does not prevent training."""


class CheckSkipped(Exception):
    """A check does not apply; the message gives the reason."""


class DoctorError(UserError, RuntimeError):
    """Unknown check, or a damaged file of results."""


def require(condition: bool, message: str, remedy: str) -> None:
    """Raise CheckFailed unless ``condition``."""
    if not condition:
        raise CheckFailed(message, remedy)


@dataclass(frozen=True)
class Result:
    """Result of one check.

    event: one of EVENTS.
    status: OK, WARNING, FAILED or SKIPPED.
    message: the measured value, or the reason for skipping the check.
    remedy: advice to the user, or "".
    seconds: duration of the check.
    """

    check: str
    group: str
    event: str
    status: str
    message: str
    remedy: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{MARKS[self.status]} {self.check}: {self.message}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class Check:
    """A check.

    name, group: names of the function and of its module.
    events: events at which the check runs.
    objects: names of the objects that the function needs.
    """

    name: str
    group: str
    events: tuple[str, ...]
    objects: tuple[str, ...]
    function: Callable[..., str]

    def run(self, event: str, objects: Mapping[str, Any], absent: Mapping[str, str]) -> Result:
        """Run the check.  objects: objects by name; absent: reasons for objects that will not exist, by name."""
        start = time.perf_counter()
        status, message, remedy = self._outcome(objects, absent)
        return Result(self.name, self.group, event, status, redact(message), remedy, time.perf_counter() - start)

    def _outcome(self, objects: Mapping[str, Any], absent: Mapping[str, str]) -> tuple[str, str, str]:
        missing = [name for name in self.objects if name not in objects]
        if missing and missing[0] in absent:
            return SKIPPED, absent[missing[0]], ""
        try:
            return OK, self.function(**{name: objects[name] for name in self.objects}), ""
        except CheckFailed as failure:
            return WARNING if isinstance(failure, CheckWarned) else FAILED, failure.message, failure.remedy
        except CheckSkipped as skipped:
            return SKIPPED, str(skipped), ""
        except Exception as crash:  # noqa: BLE001  # a check that crashes must never pass
            return FAILED, *crash_report(crash)


def crash_report(crash: Exception) -> tuple[str, str]:
    """Return message and remedy for an exception: its own advice for a user error, else its file and line."""
    frame = traceback.extract_tb(crash.__traceback__)[-1]
    place = f"exception in {Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(crash).__name__}: {crash}", "follow the message" if isinstance(crash, UserError) else place


def check(*events: str) -> Callable[[Callable[..., str]], Check]:
    """Return a decorator that makes a function a check for these events."""

    def make(function: Callable[..., str]) -> Check:
        group = function.__module__.rpartition(".")[2]
        return Check(function.__name__, group, events, tuple(inspect.signature(function).parameters), function)

    return make


def summary(results: Iterable[Result]) -> str:
    """Describe the number of results with each status."""
    counts = Counter(result.status for result in results)
    return ", ".join(f"{counts[status]} {status}" for status in MARKS if counts[status]) or "nothing to check"


def results_table(results: Iterable[Result]) -> str:
    """Format a table with one row per check, followed by the remedies."""
    results = list(results)
    rows = [
        (MARKS[result.status], result.group, result.check.replace("_", " "), result.message, f"{result.seconds:.1f}")
        for result in results
    ]
    lines = [table(("", "group", "check", "result", "s"), rows, "llllr"), "", summary(results)]
    return "\n".join(
        lines + [f"{MARKS[result.status]} {result.check}: {result.remedy}" for result in results if result.remedy]
    )


def report_rows(results: Iterable[Result]) -> dict[str, Any] | None:
    """Return the results for the HTML report, or None if there are none."""
    rows = [
        {"check": result.check, "": MARKS[result.status], "result": result.message, "to do": result.remedy}
        for result in results
    ]
    return {"summary": summary(results), "results": rows} if rows else None


def to_dict(results: Iterable[Result]) -> dict[str, Any]:
    """Return plain values for doctor.json and ``--json``."""
    results = list(results)
    return {
        "passed": all(result.status != FAILED for result in results),
        "results": [asdict(result) for result in results],
    }


def read_results(path: Path) -> list[Result]:
    """Read the results of a doctor.json; [] if it does not exist.  Raises DoctorError for an invalid file."""
    if not path.is_file():
        return []
    remedy = "delete the file; the next run of the checks writes it again"
    data = read_json(path, DoctorError, remedy)
    try:
        results: list[Result] = from_plain(list[Result], data["results"] if isinstance(data, dict) else None)
        if invalid := [result for result in results if result.status not in MARKS or result.event not in EVENTS]:
            raise PlainError(f"status {invalid[0].status!r}, event {invalid[0].event!r}")
    except (KeyError, PlainError) as error:
        raise DoctorError(f"{path}: invalid results of checks ({error}); {remedy}") from error
    return results
