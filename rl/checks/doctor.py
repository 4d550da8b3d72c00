"""Framework for checks of data, settings, network and runs: registration, execution and report.

    @check(UPDATE)
    def every_parameter_gets_a_gradient(ppo: PPO) -> str:
        '''The first update of the actor leaves a finite, non-zero gradient in every trainable tensor.'''
        ...
        return "41 tensors"                      # what was measured
        # or: raise CheckFailed("no gradient reaches action_net.weight", "what to do")

The name of the function is the name of the check.  Its parameters are the names of the objects that it needs, as with pytest
fixtures.  Objects are added while a run proceeds (``Doctor.provide``).  A check is skipped if one of its objects is declared
absent (``Doctor.lack``).  A check fails if it crashes, or if one of its objects is missing for another reason.  The checks of
a module form a group.
"""

import importlib
import inspect
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from nppsim.errors import UserError, did_you_mean, redact
from nppsim.io.files import table, write_json
from nppsim.io.reading import PlainError, from_plain, read_json

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
MARKS = {OK: "✓", WARNING: "!", FAILED: "✗", SKIPPED: "–"}
GROUPS = {
    "data": "levels and demonstrations",
    "config": "settings, rewards, hardware and budget",
    "learning": "network, imitation and first updates",
    "run": "files of runs and agents",
}

# Moments at which checks are made.  Trainings make the checks of the group "data" at the first two moments.
BEFORE = "before"  # before training
IMITATION = "imitation"  # when the dataset of demonstrations is complete
UPDATE = "update"  # after the first update of the actor
REHEARSAL = "rehearsal"  # after a short trial training
STORED = "stored"  # when the files of a run are examined
CHECKPOINT = "checkpoint"  # when an agent is examined
MOMENTS = (BEFORE, IMITATION, UPDATE, REHEARSAL, STORED, CHECKPOINT)

Check = Callable[..., str]


class CheckFailed(Exception):
    """A check has failed.  found: description of the measurement; remedy: advice to the user."""

    def __init__(self, found: str, remedy: str):
        super().__init__(found, remedy)
        self.found, self.remedy = found, remedy


class CheckWarned(CheckFailed):
    """A check has found a problem that does not prevent training."""


class CheckSkipped(Exception):
    """A check does not apply; the message gives the reason."""


class DoctorError(UserError, RuntimeError):
    """Unknown check, or a damaged file of findings."""


def require(good: bool, found: str, remedy: str) -> None:
    """Raise CheckFailed unless ``good``."""
    if not good:
        raise CheckFailed(found, remedy)


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str
    group: str
    moment: str  # moment at which the check was made
    status: str  # OK, WARNING, FAILED or SKIPPED
    found: str  # description of the measurement, or the reason for skipping the check
    remedy: str = ""  # advice to the user, or ""
    seconds: float = 0.0  # duration of the check

    @property
    def sentence(self) -> str:
        """The finding as one line."""
        return f"{self.check}: {self.found}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class CheckInfo:
    """A registered check."""

    name: str
    group: str
    moments: tuple[str, ...]
    parts: tuple[str, ...]  # names of the objects that the function needs
    function: Check

    def examine(self, moment: str, parts: Mapping[str, Any], absent: Mapping[str, str]) -> Finding:
        """Make the check.  parts: objects by name; absent: reasons for objects that will not exist, by name."""
        start = time.perf_counter()
        status, found, remedy = self._outcome(parts, absent)
        return Finding(self.name, self.group, moment, status, redact(found), remedy, time.perf_counter() - start)

    def _outcome(self, parts: Mapping[str, Any], absent: Mapping[str, str]) -> tuple[str, str, str]:
        missing = [name for name in self.parts if name not in parts]
        if missing and missing[0] in absent:
            return SKIPPED, absent[missing[0]], ""
        try:
            return OK, self.function(**{name: parts[name] for name in self.parts}), ""
        except CheckWarned as warning:
            return WARNING, warning.found, warning.remedy
        except CheckFailed as failure:
            return FAILED, failure.found, failure.remedy
        except CheckSkipped as skipped:
            return SKIPPED, str(skipped), ""
        except Exception as crash:  # noqa: BLE001  # a check that crashes must never pass
            return FAILED, f"{type(crash).__name__}: {crash}", _advice(crash)


def _advice(crash: Exception) -> str:
    """Return advice for an exception: a reference to its message for a user error, else its file and line."""
    if isinstance(crash, UserError):
        return "follow the message"
    frame = traceback.extract_tb(crash.__traceback__)[-1]
    return f"exception in {Path(frame.filename).name}, line {frame.lineno}"


_CHECKS: dict[str, CheckInfo] = {}


def check(*moments: str) -> Callable[[Check], Check]:
    """Return a decorator that registers a function as a check for these moments."""

    def register(function: Check) -> Check:
        name, group = function.__name__, function.__module__.rpartition(".")[2]
        _CHECKS[name] = CheckInfo(name, group, moments, tuple(inspect.signature(function).parameters), function)
        return function

    return register


def all_checks() -> list[CheckInfo]:
    """Return all checks in the order in which they are made."""
    for group in GROUPS:
        importlib.import_module(f"rl.checks.{group}")
    groups = list(GROUPS)
    return sorted(_CHECKS.values(), key=lambda info: (MOMENTS.index(info.moments[0]), groups.index(info.group)))


class Doctor:
    """Makes the checks of one run, at each of MOMENTS that the run reaches.

    log: function that prints a line.
    path: JSON file to which the findings are written after each moment; None: do not write them.
    only: names of checks or groups to make; None: all.
    rehearses: True in a short trial training, in which the first update is checked.
    """

    def __init__(
        self,
        log: Callable[[str], object],
        path: Path | None = None,
        *,
        only: Iterable[str] | None = None,
        rehearses: bool = False,
    ):
        self.log, self.path, self.rehearses = log, path, rehearses
        self.only = None if only is None else frozenset(only)
        known = [*GROUPS, *(info.name for info in all_checks())]
        for name in sorted((self.only or frozenset()) - set(known)):
            near = did_you_mean(name, known)
            raise DoctorError(f"there is no check {name!r}{near or '; scripts/doctor.py prints the names of all'}")
        self.findings: list[Finding] = []  # all findings so far
        self._earlier = read_findings(path) if path else []  # findings before the run was resumed
        self._parts: dict[str, Any] = {}
        self._absent: dict[str, str] = {}

    def provide(self, **parts: Any) -> None:
        """Add or replace objects for all later checks."""
        self._parts |= parts

    def lack(self, **reasons: str) -> None:
        """Declare that objects will not exist; checks that need them are skipped.  reasons: reason by object name."""
        self._absent |= reasons

    def examine(self, moment: str, **parts: Any) -> None:
        """Make the checks of a moment; torch's random generator is left unchanged.  parts: objects for these checks only."""
        with torch.random.fork_rng(devices=[]):
            new = [
                info.examine(moment, self._parts | parts, self._absent)
                for info in all_checks()
                if moment in info.moments and (self.only is None or self.only & {info.name, info.group})
            ]
        self.findings += new
        if self.path:
            examined = {finding.moment for finding in self.findings}
            earlier = [finding for finding in self._earlier if finding.moment not in examined]
            in_order = sorted([*earlier, *self.findings], key=lambda finding: MOMENTS.index(finding.moment))
            write_json(self.path, to_dict(in_order))
        seconds = sum(finding.seconds for finding in new)
        self.log(f"doctor, {moment}: {summary(new)}, in {seconds:.1f} s")
        for finding in new:
            if finding.status in (FAILED, WARNING):
                self.log(f"{MARKS[finding.status]} {finding.sentence}")

    def record_failure(self, moment: str, name: str, error: Exception) -> None:
        """Record that a step of the run failed, and skip all later checks of objects that do not exist yet."""
        parts = {part for info in all_checks() for part in info.parts}
        self.lack(**dict.fromkeys(parts - self._absent.keys(), f"{name} failed before"))
        found = f"{type(error).__name__}: {error}"
        self.findings.append(Finding(name, "run", moment, FAILED, redact(found), _advice(error)))

    @property
    def failed(self) -> bool:
        """True if any check has failed."""
        return any(finding.status == FAILED for finding in self.findings)


def summary(findings: Iterable[Finding]) -> str:
    """Describe the number of findings with each status."""
    counts = Counter(finding.status for finding in findings)
    return ", ".join(f"{counts[status]} {status}" for status in MARKS if counts[status]) or "nothing to check"


def findings_table(findings: Iterable[Finding]) -> str:
    """Format a table with one row per check, followed by the remedies."""
    findings = list(findings)
    rows = [
        (MARKS[one.status], one.group, one.check.replace("_", " "), one.found, f"{one.seconds:.1f}") for one in findings
    ]
    lines = [table(("", "group", "check", "found", "s"), rows, "llllr"), "", summary(findings)]
    lines += [f"{MARKS[one.status]} {one.check}: {one.remedy}" for one in findings if one.remedy]
    return "\n".join(lines)


def read_findings(path: Path) -> list[Finding]:
    """Read the findings of a doctor.json; [] if it does not exist.  Raises DoctorError for an invalid file."""
    if not path.is_file():
        return []
    remedy = "delete the file; it will be written again"
    data = read_json(path, DoctorError, remedy)
    try:
        found: list[Finding] = from_plain(list[Finding], data["findings"] if isinstance(data, dict) else None)
        if odd := [one for one in found if one.status not in MARKS or one.moment not in MOMENTS]:
            raise PlainError(f"status {odd[0].status!r}, moment {odd[0].moment!r}")
    except (KeyError, PlainError) as error:
        raise DoctorError(f"{path}: invalid findings ({error}); {remedy}") from error
    return found


def report_rows(findings: Iterable[Finding]) -> dict[str, Any] | None:
    """Return the findings for the HTML report, or None if there are none."""
    rows = [{"check": one.check, "": MARKS[one.status], "found": one.found, "to do": one.remedy} for one in findings]
    return {"summary": summary(findings), "findings": rows} if rows else None


def to_dict(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return plain values for doctor.json and ``--json``."""
    findings = list(findings)
    failed = any(finding.status == FAILED for finding in findings)
    return {"passed": not failed, "findings": [asdict(finding) for finding in findings]}
