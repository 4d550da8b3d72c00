"""The doctor: checks of every link of a run, each a plain function of the parts that it looks at.

    @check(UPDATE)
    def every_gradient_arrives(ppo: PPO) -> str:
        '''The first update of the actor leaves a finite gradient, not all zero, in every trainable tensor.'''
        ...
        return "41 tensors"                      # what was measured
        # or: raise CheckFailed("no gradient reaches action_net.weight", "what to do")

A check is registered under its name; the parameters' names are the parts that it needs, as with pytest's fixtures.
Parts come into being while a run goes on (``Doctor.meet``).  A check whose parts will not exist (``Doctor.miss``) is
skipped, and says why; one whose parts nobody has thought of has failed, and so has one that crashes.  The checks are in
``rl/doctor/checks_*.py``, one file per group; ``scripts/doctor.py`` prints them all.
"""

import importlib
import inspect
import pkgutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import rl.doctor
from nppsim.errors import UserError, did_you_mean, redact
from nppsim.files import table, write_json
from nppsim.plain import PlainError, from_plain
from nppsim.reading import read_json

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
MARKS = {OK: "✓", WARNING: "!", FAILED: "✗", SKIPPED: "–"}

# When a check is made.  The main job makes those of the first three moments.  A check may look at parts that came before.
BEFORE = "before"  # levels, rewards, environments and a fresh network, before anything is learned
IMITATION = "imitation"  # the dataset of demonstrations, before a policy is cloned from it
UPDATE = "update"  # after the first update in which the actor learned
REHEARSAL = "rehearsal"  # what costs more than a run should pay each time: only in ``scripts/doctor.py``
STORED = "stored"  # what a run has written
CHECKPOINT = "checkpoint"  # an agent in a file
MOMENTS = (BEFORE, IMITATION, UPDATE, REHEARSAL, STORED, CHECKPOINT)

Check = Callable[..., str]


class CheckFailed(Exception):
    """A link is broken.  found: what was measured.  remedy: what to do."""

    def __init__(self, found: str, remedy: str):
        super().__init__(found, remedy)
        self.found, self.remedy = found, remedy


class CheckWarned(CheckFailed):
    """Nothing is broken, but somebody should know."""


class CheckSkipped(Exception):
    """There is nothing to check here; the message says why."""


class DoctorError(UserError, RuntimeError):
    """Checks have failed; the message has the first one's finding and remedy."""


def require(good: bool, found: str, remedy: str) -> None:
    """CheckFailed unless ``good``."""
    if not good:
        raise CheckFailed(found, remedy)


@dataclass(frozen=True)
class Finding:
    """What came of one check.

    check, group, moment: see ``CheckInfo``.
    status: OK, WARNING, FAILED or SKIPPED.
    found: what was measured, or why it was skipped.
    remedy: what to do; "" where nothing is to be done.
    seconds: that the check took.
    """

    check: str
    group: str
    moment: str
    status: str
    found: str
    remedy: str = ""
    seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """The finding in a line."""
        return f"{self.check}: {self.found}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class CheckInfo:
    """A registered check.

    name: of its function.
    group: of the file ``checks_GROUP.py`` that it is in.
    moments: some of MOMENTS.
    parts: names of what it looks at.
    proves: a line.
    """

    name: str
    group: str
    moments: tuple[str, ...]
    parts: tuple[str, ...]
    proves: str
    function: Check

    def examine(self, moment: str, parts: dict[str, Any], absent: Mapping[str, str]) -> Finding:
        """Make the check.  absent: why a part does not exist."""
        begin = time.perf_counter()
        status, found, remedy = self._outcome(parts, absent)
        return Finding(self.name, self.group, moment, status, redact(found), remedy, time.perf_counter() - begin)

    def _outcome(self, parts: dict[str, Any], absent: Mapping[str, str]) -> tuple[str, str, str]:
        missing = [name for name in _ingredients(self.parts) if name not in parts]
        if missing:
            return _absence(missing[0], absent)
        try:
            return OK, self.function(**{name: _part(name, parts) for name in self.parts}), ""
        except CheckWarned as warning:
            return WARNING, warning.found, warning.remedy
        except CheckFailed as failure:
            return FAILED, failure.found, failure.remedy
        except CheckSkipped as skipped:
            return SKIPPED, str(skipped), ""
        except Exception as crash:  # noqa: BLE001  # whatever breaks a check is a finding, never a pass
            return FAILED, f"{type(crash).__name__}: {crash}", _where(crash)


def _absence(part: str, absent: Mapping[str, str]) -> tuple[str, str, str]:
    """(status, found, remedy) of a check whose part is not there."""
    if part in absent:
        return SKIPPED, absent[part], ""
    return FAILED, f"no {part} was provided", "the check was not made: a mistake in the program"


def _where(crash: BaseException) -> str:
    """Where a check broke off, for who has to mend it."""
    if isinstance(crash, UserError):
        return "the message says what to do"
    frame = inspect.getinnerframes(crash.__traceback__)[-1] if crash.__traceback__ else None
    place = f" in {Path(frame.filename).name}, line {frame.lineno}" if frame else ""
    return f"the check itself broke off{place}: what it looks at is not as it should be"


_CHECKS: dict[str, CheckInfo] = {}
_DERIVED: dict[str, Callable[..., Any]] = {}


def derived(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a part that is made of others when a check first asks for it; dropped after the moment's last check."""
    _DERIVED[function.__name__] = function
    return function


def _ingredients(names: Iterable[str]) -> list[str]:
    """The parts that must exist for these to be there."""
    found: list[str] = []
    for name in names:
        found += _ingredients(inspect.signature(_DERIVED[name]).parameters) if name in _DERIVED else [name]
    return found


def _part(name: str, parts: dict[str, Any]) -> Any:
    if name not in parts:
        make = _DERIVED[name]
        parts[name] = make(**{needed: _part(needed, parts) for needed in inspect.signature(make).parameters})
    return parts[name]


def check(*moments: str) -> Callable[[Check], Check]:
    """Register a function as a check that is made at these moments."""

    def register(function: Check) -> Check:
        name, group = function.__name__, function.__module__.rpartition("checks_")[2]
        if name in _CHECKS or not moments or not set(moments) <= set(MOMENTS):
            raise ValueError(f"check {name} of {moments}: the name is taken, or there is no such moment")
        proves = inspect.getdoc(function) or ""
        parts = tuple(inspect.signature(function).parameters)
        _CHECKS[name] = CheckInfo(name, group, moments, parts, " ".join(proves.partition("\n\n")[0].split()), function)
        return function

    return register


def all_checks() -> list[CheckInfo]:
    """Every check, in the order in which they are made."""
    for module in sorted(found.name for found in pkgutil.iter_modules(rl.doctor.__path__)):
        if module.startswith("checks_"):
            importlib.import_module(f"rl.doctor.{module}")
    return sorted(_CHECKS.values(), key=lambda info: (MOMENTS.index(info.moments[0]), info.group))


def checks_of_group(group: str) -> list[str]:
    """Names of the checks of a group."""
    return [info.name for info in all_checks() if info.group == group]


class Doctor:
    """Examines one run, moment by moment.

    log: receives lines for people.
    path: where the findings are written after each moment; None: nowhere.
    stops: raise DoctorError at the end of a moment with failures; else go on, as ``scripts/doctor.py`` does.
    only: names of the checks to make; None: all.
    rehearses: also check the first update of PPO.
    findings: so far.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        path: Path | None = None,
        *,
        stops: bool = True,
        only: Iterable[str] | None = None,
        rehearses: bool = False,
    ):
        self.log, self.path, self.stops, self.rehearses = log, path, stops, rehearses
        self.only = None if only is None else frozenset(only)
        for name in sorted((self.only or frozenset()) - {info.name for info in all_checks()}):
            near = did_you_mean(name, [info.name for info in all_checks()])
            raise DoctorError(f"there is no check {name!r}{near or '; scripts/doctor.py prints the names of all'}")
        self.findings: list[Finding] = []
        self._earlier = read_findings(path) if path else []  # of a run that goes on
        self._parts: dict[str, Any] = {}
        self._absent: dict[str, str] = {}

    def meet(self, **parts: Any) -> None:
        """From now on there are these parts."""
        self._parts |= parts

    def suppose(self, **parts: Any) -> None:
        """There are these parts, unless there are others of their names already."""
        self._parts = parts | self._parts

    def miss(self, **reasons: str) -> None:
        """These parts will not exist, and why."""
        self._absent |= reasons

    def forget(self, *names: str) -> None:
        """These parts are needed no longer; what they keep in memory can go."""
        for name in names:
            self._parts.pop(name, None)

    def examine(self, moment: str, **parts: Any) -> None:
        """Make the checks of a moment.  Nothing of the run changes by that, its random numbers included.

        parts: as for ``meet``.
        Raises DoctorError for failures, if it stops at them.
        """
        self.meet(**parts)
        with torch.random.fork_rng(devices=[]):
            new = [
                info.examine(moment, self._parts, self._absent) for info in all_checks() if self._wanted(info, moment)
            ]
        self.findings += new
        self._tell(moment, new)
        failures = [finding for finding in new if finding.status == FAILED]
        if failures and self.stops:
            raise DoctorError(
                f"{len(failures)} of {len(new)} checks failed. {failures[0].sentence}"
                + (f" (all findings: {self.path})" if self.path else "")
            )

    def note(self, moment: str, name: str, error: Exception) -> None:
        """A step of the run itself has failed; what it would have made will not exist."""
        parts = {part for info in all_checks() for part in _ingredients(info.parts)}
        self.miss(**dict.fromkeys(parts - self._absent.keys(), f"{name} failed before"))
        found = f"{type(error).__name__}: {error}"
        self.findings.append(Finding(name, "run", moment, FAILED, redact(found), _where(error)))

    @property
    def failed(self) -> bool:
        """Whether any check has."""
        return any(finding.status == FAILED for finding in self.findings)

    def _wanted(self, info: CheckInfo, moment: str) -> bool:
        return moment in info.moments and (self.only is None or info.name in self.only)

    def _tell(self, moment: str, new: list[Finding]) -> None:
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


def summary(findings: Iterable[Finding]) -> str:
    """Findings, counted by status."""
    counts = Counter(finding.status for finding in findings)
    return ", ".join(f"{counts[status]} {status}" for status in MARKS if counts[status]) or "nothing to check"


def findings_table(findings: Iterable[Finding]) -> str:
    """A row per check, then what is to be done."""
    findings = list(findings)
    rows = [
        (MARKS[one.status], one.group, one.check.replace("_", " "), one.found, f"{one.seconds:.1f}") for one in findings
    ]
    lines = [table(("", "group", "check", "found", "s"), rows, "llllr"), "", summary(findings)]
    lines += [f"{MARKS[one.status]} {one.check}: {one.remedy}" for one in findings if one.remedy]
    return "\n".join(lines)


def read_findings(path: Path) -> list[Finding]:
    """The findings in a doctor.json; none if there is no such file.  DoctorError for a file that is something else."""
    if not path.is_file():
        return []
    remedy = "delete the file, it is written anew"
    data = read_json(path, DoctorError, remedy)
    try:
        found: list[Finding] = from_plain(list[Finding], data["findings"] if isinstance(data, dict) else None)
        if odd := [one.status for one in found if one.status not in MARKS]:
            raise PlainError(f"a status is {odd[0]!r}")
    except (KeyError, PlainError) as error:
        raise DoctorError(f"{path}: no findings of the doctor ({error}); {remedy}") from error
    return found


def told(findings: Iterable[Finding]) -> dict[str, Any] | None:
    """What a report shows of findings; None if there are none."""
    rows = [{"check": one.check, "": MARKS[one.status], "found": one.found, "to do": one.remedy} for one in findings]
    return {"summary": summary(findings), "findings": rows} if rows else None


def to_dict(findings: Iterable[Finding]) -> dict[str, Any]:
    """Plain values for doctor.json and ``--json``."""
    findings = list(findings)
    failed = any(finding.status == FAILED for finding in findings)
    return {"whole": not failed, "findings": [asdict(finding) for finding in findings]}
