"""Run real commands at tiny size, each hit by a fault of the machine while it runs.

    print(counts(campaign(Path("attack"), print)))

The requirements are in docs/lab/failures.md: only work in progress may be lost, one line reports the error, the
interpreter does not crash.  A target is a command; a fault is a function that causes an event such as a full disk.
"""

import fcntl
import glob
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from nppsim._numba.cache import CACHE_FOLDER
from nppsim.errors import BROKEN_PIPE, INTERRUPTED, REFUSED, UserError
from nppsim.io.files import LOCK, table
from nppsim.io.reading import PlainError, from_plain, read_json
from tests.chaos.integrity import damaged, left_over
from tests.chaos.targets import ROOT, TARGETS, Target, make_world, names_of, run_of
from tests.fuzz import damage

PATIENCE_S = 600.0  # a command that runs longer counts as hung
SURVIVAL_S = 20.0  # processes of a command may outlive it by this
TRIES = 4  # how often a fault that came after the end of the command is repeated, earlier each time
MOST_MEMORY = 16 << 30  # bytes of address space with a corrupted header, which may claim more
NOWHERE = "/proc/none/such"  # cannot be created, not even by root
GOOD = ("finished", "clean error", "stopped", "killed", "too late", "skipped")
BAD = ("traceback", "crash", "hung", "unclear", "data lost")
# Beginnings of lines that may never be printed, on stdout or stderr, whatever the status.
_NOISE = (
    *("Traceback (most", "Exception ignored", "Exception in thread", "Fatal Python error", "Error in sys.excepthook"),
    *("HDF5-DIAG", "Segmentation fault", "terminate called", "free()", "malloc()", "double free", "corrupted"),
)
_REMEDIES = ("; ", "): ")  # separators before the remedy in error messages
_NOTICE = "nppsim: compiling for this machine"  # printed by a command that has to compile; no error


class AttackError(UserError, RuntimeError):
    """A campaign that cannot run: unknown target or fault, or a command that fails without a fault."""


class Skipped(Exception):
    """A fault that this machine or user cannot cause; the message gives the reason."""


@dataclass(frozen=True)
class Undisturbed:
    """A run without a fault.

    first_s, seconds: seconds until the first file, and until the end.
    bytes, largest: size of all files of the output, and of the largest one.
    content, names: ``Target.content`` and ``names_of`` of the output.
    folder, status: output folder and exit status.
    """

    first_s: float
    seconds: float
    bytes: int
    largest: int
    content: object
    names: Counter[str] = field(default_factory=Counter)
    folder: Path | None = None
    status: int = 0


@dataclass
class Case:
    """One run of a target under a fault; the faults below set what is not given.

    command: replaces the target's command.
    haste: factor of the moments at which faults come.
    limits: RLIMIT_... -> value.
    variables: environment variables; None unsets one.
    during: called with the process while it runs.
    repair: ends the fault before the command is called again; None if it ended with the process.
    came: whether the fault came before the process ended.
    named, words: an error message must contain one of ``named`` (a path) and one of ``words``.
    paused, rivals: id of the process if it was paused, and a second process that ran meanwhile.
    """

    target: Target
    world: Path
    out: Path
    usual: Undisturbed | None
    rng: random.Random
    command: str = ""
    haste: float = 1.0
    limits: dict[int, int] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    during: Callable[[subprocess.Popen], None] | None = None
    repair: Callable[[], None] | None = None
    came: bool = True
    named: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    stdout: int = subprocess.PIPE
    paused: int = 0
    rivals: list["Ended"] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        """The command line."""
        places = {"world": self.world, "out": self.out, "run": run_of(self.out)}
        return [sys.executable, *(part.format(**places) for part in (self.command or self.target.command).split())]

    @property
    def environment(self) -> dict[str, str]:
        """The command's variables."""
        ours = {name: value.format(out=self.out) for name, value in self.target.variables}
        wanted = os.environ | {"PYTHONPATH": str(ROOT)} | ours | self.variables
        return {name: value for name, value in wanted.items() if value is not None}

    def limit(self) -> None:
        """Set the resource limits, in the child."""
        for what, value in self.limits.items():
            resource.setrlimit(what, (value, value))

    def wait_for_output(self, process: subprocess.Popen) -> bool:
        """Wait until there is a file in ``out`` (return True) or the process has ended (False)."""
        while process.poll() is None:
            if any(path.is_file() for path in self.out.rglob("*")):
                return True
            time.sleep(0.01)
        return False

    def wait_some_time(self, process: subprocess.Popen) -> bool:
        """Wait for a random moment between the first file and the end of an undisturbed run; False if the process ended.

        ``haste`` below 1 makes it earlier; then also before the first file, unless the command starts by locking a file.
        """
        first, end = (0.0, 0.0) if self.usual is None else (self.usual.first_s, self.usual.seconds)
        if self.haste < 1 and not self.target.alone:
            moment = first * self.rng.uniform(0.6, 1.0)
        else:
            moment = self.rng.uniform(0, end - first) * self.haste
            self.wait_for_output(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        return process.poll() is None

    def lacking(self, out: Path | None = None) -> list[str]:
        """Return what an undisturbed run has written and ``out`` (default: that of this run) lacks."""
        out = out or self.out
        if self.usual is None:
            return []
        lacking = [f"not made: {name}" for name in (self.usual.names - names_of(out)).elements()]
        if lacking or self.usual.content is None or self.target.content is None:
            return lacking
        try:
            same = self.target.content(out) == self.usual.content
        except (UserError, OSError) as error:
            return [f"cannot be read: {error}"]
        return [] if same else ["content differs from an undisturbed run"]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    status: exit status, or minus the signal that killed it.
    stderr, stdout: what it printed, as far as it was read.
    left: processes of its session that outlived it.
    """

    status: int
    seconds: float
    stderr: str
    hung: bool = False
    stdout: str = ""
    left: tuple[int, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Lines on stderr, without the notice that kernels are being compiled."""
        return [line for line in self.stderr.splitlines() if line.strip() and not line.startswith(_NOTICE)]

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return self.lines[-1].strip() if self.lines else ""


@dataclass(frozen=True)
class Result:
    """Outcome of one run (one of GOOD or BAD), exit status, last line on stderr, and problems found."""

    target: str
    fault: str
    outcome: str
    status: int | None
    message: str
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    seed: int = 0


def run_case(case: Case) -> Ended:
    """Run the command to its end."""
    begin = time.monotonic()
    process = subprocess.Popen(
        case.arguments,
        cwd=ROOT,
        env=case.environment,
        stdin=subprocess.DEVNULL,
        stdout=case.stdout,
        stderr=subprocess.PIPE,
        preexec_fn=case.limit,
        start_new_session=True,
    )
    failed: list[BaseException] = []

    def watch() -> None:
        try:
            if case.during is not None:
                case.during(process)
        except BaseException as error:  # noqa: BLE001  # raised again below
            failed.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        hung = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        hung = True
    finally:
        if process.poll() is None:  # this process is being stopped
            os.killpg(process.pid, signal.SIGKILL)
    watcher.join()
    if failed:
        raise failed[0]
    seconds = time.monotonic() - begin
    texts = [(text or b"").decode(errors="replace") for text in (stderr, stdout)]
    return Ended(process.returncode, seconds, texts[0], hung, texts[1], _survivors(process.pid))


def _survivors(session: int) -> tuple[int, ...]:
    """Kill and return the processes of a session that outlive SURVIVAL_S; none without /proc."""
    end = time.monotonic() + SURVIVAL_S
    while found := tuple(pid for pid, its in _sessions() if its == session):
        if time.monotonic() > end:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return found
        time.sleep(0.1)
    return ()


def _sessions() -> Iterator[tuple[int, int]]:
    """Yield (process id, session) of all running processes."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                yield int(path.parent.name), int(session)


def classify(target: Target, ended: Ended, killed: bool = False) -> str:
    """Return the outcome by exit status and printed lines alone."""
    lines = ended.lines
    if ended.hung:
        return "hung"
    if killed and ended.status == -signal.SIGKILL:
        return "killed"
    if ended.status < 0 or (ended.status >= 128 and ended.status not in (INTERRUPTED, BROKEN_PIPE)):
        return "crash"
    if any(line.lstrip().startswith(_NOISE) for line in (*lines, *ended.stdout.splitlines())):
        return "traceback"
    if ended.status in target.statuses and not any(line.startswith("error:") for line in lines):
        return "finished"
    alone = len(lines) == 1
    if alone and (ended.status, lines[0].split(":")[0]) in ((INTERRUPTED, "interrupted"), (BROKEN_PIPE, "error")):
        return "stopped"
    return "clean error" if alone and ended.status == REFUSED and lines[0].startswith("error: ") else "unclear"


# ---------------------------------------------------------------------------------------------------------------------
# Faults


Fault = Callable[[Case], Iterator[None]]


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[None]:
    """Mount a small tmpfs at ``folder``."""
    if shutil.which("mount") is None:
        raise Skipped("no small disk can be mounted here: there is no mount")
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise Skipped(f"no small disk can be mounted here ({' '.join(done.stderr.split())})")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _resize(folder: Path, size: int) -> bool:
    """Resize the tmpfs; return False if it contains more than ``size`` bytes."""
    arguments = ["mount", "-o", f"remount,size={size}", str(folder)]
    return subprocess.run(arguments, capture_output=True).returncode == 0


def _usual(case: Case) -> Undisturbed:
    if case.usual is None or not case.usual.bytes:
        raise Skipped("this command writes nothing")
    return case.usual


def kill(case: Case) -> Iterator[None]:
    """SIGKILL, at any moment after the first file."""

    def during(process: subprocess.Popen) -> None:
        case.came = case.wait_some_time(process)
        process.kill()

    case.during = during
    yield


def terminate(case: Case) -> Iterator[None]:
    """SIGTERM, at any moment after the first file."""

    def during(process: subprocess.Popen) -> None:
        case.came = case.wait_some_time(process)
        process.terminate()

    case.during = during
    yield


def disk_full(case: Case) -> Iterator[None]:
    """A disk that shrinks during the run to a random share of what the command still has to write."""
    usual, large = _usual(case), 8 << 30
    moment = case.rng.uniform(0.8 * usual.first_s, 0.95 * usual.seconds) * case.haste
    share = case.rng.uniform(0.0, 0.7)

    def during(process: subprocess.Popen) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        while True:
            used = shutil.disk_usage(case.out).used
            room = used + int(share * max(usual.bytes - used, 0))
            if _resize(case.out, max(room // 4096 * 4096, 4096)):  # 0 is no limit
                break
        case.came = process.poll() is None

    case.during, case.named, case.words = during, (str(case.out),), ("No space left", "make room")
    case.repair = lambda: None if _resize(case.out, large) else _cannot("the small disk cannot be made large again")
    with _mounted(case.out, f"size={large}"):
        yield


def _cannot(reason: str) -> None:
    raise AttackError(reason)


def file_size(case: Case) -> Iterator[None]:
    """A limit below the largest file of the output."""
    case.limits[resource.RLIMIT_FSIZE] = int(_usual(case).largest * case.rng.uniform(0.2, 0.8))
    case.named, case.words = (str(case.out),), ("File too large",)
    yield


def read_only(case: Case) -> Iterator[None]:
    """An output folder that is not writable."""
    case.named, case.words = (str(case.out),), ("cannot be written", "cannot write", "Read-only", "Permission denied")
    if os.geteuid():
        case.out.mkdir(parents=True)
        case.out.chmod(0o555)
        try:
            yield
        finally:
            case.out.chmod(0o755)
    else:  # root, who ignores permissions
        with _mounted(case.out, "ro,size=1m"):
            yield


def vanish(case: Case) -> Iterator[None]:
    """The output folder is removed at any moment after the first file."""

    def during(process: subprocess.Popen) -> None:
        alive = case.wait_some_time(process)
        gone = case.out.with_name(f"{case.out.name}_gone")
        case.out.rename(gone)
        case.came = alive and bool(case.lacking(gone))
        shutil.rmtree(gone)

    case.during, case.named = during, (str(case.out),)
    yield


def open_files(case: Case) -> Iterator[None]:
    """A low limit on open files."""
    case.limits[resource.RLIMIT_NOFILE] = case.rng.randint(5, 12)
    case.words = ("open files",)
    yield


def memory(case: Case) -> Iterator[None]:
    """A limit 64 MB above the memory that the command uses at a random moment."""
    if not hasattr(resource, "prlimit") or case.usual is None:
        raise Skipped("this system cannot limit the memory of a running process")
    moment = case.usual.seconds * case.rng.uniform(0.5, 0.9) * case.haste

    def during(process: subprocess.Popen) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        case.came = process.poll() is None
        with suppress(ProcessLookupError, FileNotFoundError):
            limit = _memory_of(process.pid) + 64_000_000
            resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, limit))

    case.during, case.words = during, ("memory",)
    yield


def _memory_of(pid: int) -> int:
    """Return the bytes of address space of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def two_processes(case: Case) -> Iterator[None]:
    """The same command a second time, from beginning to end, while the first one is paused."""
    target = case.target

    def during(process: subprocess.Popen) -> None:
        alive = case.wait_some_time(process)
        while target.again and run_of(case.out) is None and process.poll() is None:
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
        case.came = alive and (_is_locked(case.out) if target.alone else bool(case.lacking()))
        case.paused = process.pid
        try:
            case.rivals.append(run_case(Case(target, case.world, case.out, None, case.rng, target.again)))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)

    case.during, case.words = during, (target.refuses_again or str(case.out),)
    yield


def _is_locked(out: Path) -> bool:
    """Return whether a process has locked a folder at or below ``out``."""
    for path in out.rglob(LOCK):
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def hostile_header(case: Case) -> Iterator[None]:
    """A corrupted header in one of the files that the command reads."""
    pattern = case.rng.choice(case.target.reads)
    if "{out}" in pattern and case.usual is not None and case.usual.folder is not None:
        shutil.copytree(case.usual.folder, case.out)  # an earlier call's
    world = case.out.with_name(f"{case.out.name}_world")
    shutil.copytree(case.world, world)
    case.world = world
    path = Path(case.rng.choice(sorted(glob.glob(pattern.format(world=world, out=case.out)))))
    corrupt = case.rng.choice(_CORRUPTIONS[path.suffix])
    path.write_bytes(corrupt(path.read_bytes(), np.random.default_rng(case.rng.getrandbits(64))))
    case.limits[resource.RLIMIT_AS] = MOST_MEMORY
    case.named = (str(path), str(path.parent))
    yield


_CORRUPTIONS = {
    ".h5": (damage.in_hdf5, damage.in_bytes),
    ".json": (damage.in_json,),
    ".map": (damage.in_bytes,),
    ".safetensors": (damage.in_checkpoint, damage.in_bytes),
}


def home_unset(case: Case) -> Iterator[None]:
    """HOME is unset."""
    case.variables |= dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"))
    yield


def home_not_there(case: Case) -> Iterator[None]:
    """HOME is a folder that cannot be created."""
    case.variables |= {"HOME": NOWHERE, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None}
    case.named, case.words = (NOWHERE,), ("NUMBA_CACHE_DIR",)
    yield


def home_replaced(case: Case) -> Iterator[None]:
    """HOME cannot be created, but NUMBA_CACHE_DIR names a folder for compiled kernels."""
    case.variables |= {"HOME": NOWHERE, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": str(CACHE_FOLDER)}
    yield


def cache_not_there(case: Case) -> Iterator[None]:
    """NUMBA_CACHE_DIR is a folder that cannot be created."""
    case.variables["NUMBA_CACHE_DIR"] = NOWHERE
    case.named, case.words = (NOWHERE,), ("NUMBA_CACHE_DIR",)
    yield


def cache_full(case: Case) -> Iterator[None]:
    """NUMBA_CACHE_DIR is on a full disk."""
    cache = case.out.with_name(f"{case.out.name}_cache")
    case.variables["NUMBA_CACHE_DIR"] = str(cache)
    case.named, case.words = (str(cache),), ("No space left",)
    with _mounted(cache, "size=64k"):
        yield


def locale(case: Case) -> Iterator[None]:
    """The C locale without UTF-8, and an output folder whose name is not valid text."""
    case.variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    case.out = case.out / os.fsdecode(b"caf\xe9_\xff_\xc3\xa9")
    case.words = ("UTF-8",)
    yield


def closed_output(case: Case) -> Iterator[None]:
    """Standard output is a pipe whose reader has ended."""
    reading, case.stdout = os.pipe()
    os.close(reading)
    yield
    os.close(case.stdout)


def full_output(case: Case) -> Iterator[None]:
    """Standard output goes to a full disk."""
    case.stdout = os.open("/dev/full", os.O_WRONLY)
    case.named, case.words = ("standard output",), ("No space left",)
    yield
    os.close(case.stdout)


_ALL = tuple(TARGETS)
_WRITERS = tuple(name for name, target in TARGETS.items() if target.writes)
PLAN: dict[Fault, tuple[str, ...]] = {
    kill: _WRITERS,
    terminate: _WRITERS,
    disk_full: _WRITERS,
    file_size: _WRITERS,
    read_only: _WRITERS,
    vanish: _WRITERS,
    two_processes: _WRITERS,
    hostile_header: _ALL,
    open_files: _ALL,
    memory: ("demonstrations", "imitation", "report", "evaluation"),
    home_unset: ("load", "levels", "export"),
    home_not_there: _ALL,
    home_replaced: _ALL,
    cache_not_there: _ALL,
    cache_full: _ALL,
    locale: _ALL,
    closed_output: _ALL,
    full_output: _ALL,
}
# Outcomes allowed after a fault; default: finished or clean error.
_ENDS: dict[Fault, tuple[str, ...]] = {
    kill: ("killed",),
    terminate: ("stopped",),
    file_size: ("clean error",),
    read_only: ("clean error",),
    home_unset: ("finished",),
    home_not_there: ("clean error",),
    home_replaced: ("finished",),
    cache_not_there: ("clean error",),
    cache_full: ("clean error",),
    closed_output: ("stopped",),
    full_output: ("clean error",),
}
# Faults at a random moment, which may be too late.
_TIMED = (kill, terminate, disk_full, vanish, memory, two_processes)
# Faults after which the command is called again, without the fault.
_CALLED_AGAIN = (kill, terminate, disk_full, file_size, vanish, memory)


def name_of(fault: Fault) -> str:
    """Return the name of a fault in tables and on the command line."""
    return fault.__name__.replace("_", " ")


# ---------------------------------------------------------------------------------------------------------------------
# Campaign


def attack(
    name: str, fault: Fault, world: Path, out: Path, usual: Undisturbed, rng: random.Random, seed: int = 0
) -> list[Result]:
    """Run a target under a fault; return the result, and that of the second process if there was one.

    A fault that came too late is repeated, earlier, up to TRIES times.
    """
    results: list[Result] = []
    for number in range(TRIES):
        case = Case(TARGETS[name], world, out.with_name(f"{out.name}_{number}"), usual, rng, haste=0.5**number)
        try:
            with contextmanager(fault)(case):
                case.out.mkdir(parents=True, exist_ok=True)
                ended = run_case(case)
                outcome, problems = _examined(case, fault, ended)
                if outcome not in BAD and fault in _CALLED_AGAIN:
                    problems += _called_again(case)
        except Skipped as reason:
            return [Result(name, name_of(fault), "skipped", None, str(reason), seed=seed)]
        outcomes = ["data lost" if problems and outcome in GOOD else outcome]
        outcomes += [_rival(case, one) for one in case.rivals]
        results = [
            Result(name, name_of(fault), so, one.status, one.last, tuple(problems), round(one.seconds, 1), seed)
            for so, one in zip(outcomes, (ended, *case.rivals), strict=True)
        ]
        if problems or outcome in BAD or (outcome != "too late" and case.came):
            break
    return results


def _examined(case: Case, fault: Fault, ended: Ended) -> tuple[str, list[str]]:
    """Return the outcome of a run and the problems of its output."""
    outcome = classify(case.target, ended, killed=fault is kill)
    problems = [f"still running: process {pid}" for pid in ended.left]
    problems += damaged(case.out) if fault is not hostile_header else []
    if outcome != "killed":
        problems += [f"temporary file not removed: {file}" for file in left_over(case.out)]
    if fault is vanish and outcome == "clean error":
        problems += [f"made again: {file}" for file in names_of(case.out)]
    unfinished = case.lacking() if fault is not hostile_header else []
    if outcome == "finished" and not (fault is vanish and not case.came):
        problems += unfinished
        if fault is not hostile_header and case.usual is not None and ended.status != case.usual.status:
            problems.append(f"status {ended.status}, without the fault {case.usual.status}")
    # A signal may also come after the work, while Python shuts down.
    ended_anyhow = outcome == "finished" or (fault is terminate and ended.status == -signal.SIGTERM)
    late = ended_anyhow and (not case.came or (not unfinished and fault in (kill, terminate, disk_full)))
    if late and fault in _TIMED:
        return "too late", problems
    if outcome in GOOD and outcome not in _ENDS.get(fault, ("finished", "clean error")):
        return "unclear", [
            *problems,
            f"{outcome}, expected {' or '.join(_ENDS.get(fault, ('finished', 'clean error')))}",
        ]
    if outcome == "clean error" and (reason := _missing_parts(case, ended)):
        return "unclear", [*problems, reason]
    return outcome, problems


def _missing_parts(case: Case, ended: Ended) -> str:
    """Return which part an error message lacks (file, reason or remedy); "" if none."""
    if case.named and not any(name in ended.last for name in case.named):
        return f"names none of: {', '.join(case.named)}"
    if any(case.words) and not any(word in ended.last for word in case.words):
        return f"contains none of: {', '.join(case.words)}"
    return "" if any(mark in ended.last for mark in _REMEDIES) else "names no remedy"


def _called_again(case: Case) -> list[str]:
    """Call the command again without the fault, or the one that resumes; return the problems."""
    if case.repair is not None:
        case.repair()
    command = case.target.again if run_of(case.out) is not None else ""
    again = Case(case.target, case.world, case.out, case.usual, case.rng, command)
    ended = run_case(again)
    outcome = classify(again.target, ended)
    if outcome == "clean error" and again.target.refuses_again and again.target.refuses_again in ended.last:
        return []
    found = (
        damaged(again.out) + again.lacking() if outcome == "finished" else [f"{outcome} ({ended.status}) {ended.last}"]
    )
    return [f"called again: {text}" for text in found]


def _rival(case: Case, ended: Ended) -> str:
    """Return the outcome of a second process on the same folder."""
    outcome = classify(case.target, ended)
    if outcome in ("finished", "clean error") and not case.came:
        return "too late"
    alone = case.target.alone
    as_promised = f": process {case.paused} on " in ended.last if alone else not _missing_parts(case, ended)
    expected = as_promised if outcome == "clean error" else outcome == "finished" and not alone
    return outcome if expected or outcome in BAD else "unclear"


def undisturbed(name: str, world: Path, out: Path) -> Undisturbed:
    """Run a target without a fault, again if it had to compile.  Raises AttackError if it does not succeed."""
    kernels = _kernels()
    found = _undisturbed(name, world, out)
    if _kernels() != kernels:
        shutil.rmtree(out)
        found = _undisturbed(name, world, out)
    return found


def _kernels() -> int:
    return sum(1 for _ in CACHE_FOLDER.rglob("*"))


def _undisturbed(name: str, world: Path, out: Path) -> Undisturbed:
    begin, first = time.monotonic(), [0.0]
    case = Case(TARGETS[name], world, out, None, random.Random())
    out.mkdir(parents=True)

    def during(process: subprocess.Popen) -> None:
        if case.wait_for_output(process):
            first[0] = time.monotonic() - begin

    case.during = during
    ended = run_case(case)
    if classify(case.target, ended) != "finished":
        raise AttackError(f"{' '.join(case.arguments)}: exit status {ended.status} without any fault: {ended.last}")
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    content = case.target.content(out) if case.target.content else None
    largest = max(sizes, default=0)
    times = first[0] or ended.seconds, ended.seconds
    return Undisturbed(*times, sum(sizes), largest, content, names_of(out), out, ended.status)


def campaign(
    work: Path,
    log: Callable[[str], None],
    *,
    targets: Sequence[str] | None = None,
    faults: Sequence[str] | None = None,
    seed: int = 0,
) -> Iterator[Result]:
    """Attack each target with each fault that PLAN lists for it; yield the results.

    work: a new folder for input and output.
    log: receives a line per run.
    targets, faults: names; None: all.
    seed: for random moments and sizes; combined with target and fault.
    Raises AttackError for unknown names, and for commands that fail without a fault.
    """
    known = {name_of(fault): fault for fault in PLAN}
    for what, given, names in (("target", targets, TARGETS), ("fault", faults, known)):
        if unknown := set(given or ()) - set(names):
            raise AttackError(f"no {what} {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    chosen = [known[name] for name in faults or known]
    world = make_world(work / "world")
    for name in targets or TARGETS:
        mine = [fault for fault in chosen if name in PLAN[fault]]
        if not mine:
            continue
        usual = undisturbed(name, world, work / name)
        log(f"{name}: {usual.seconds:.0f} s, {usual.bytes:,} bytes without a fault")
        for fault in mine:
            rng = random.Random(f"{seed} {name} {fault.__name__}")
            for result in attack(name, fault, world, work / f"{name}_{fault.__name__}", usual, rng, seed):
                ended = f"{result.outcome} ({result.status}) {result.message} {'; '.join(result.problems)}"
                log(f"{name}, {result.fault}: {ended}")
                yield result


def counts(results: Iterable[Result]) -> str:
    """Return a Markdown table of outcomes by target and fault, and the number of each outcome."""
    results = list(results)
    cells: dict[tuple[str, str], Counter] = {}
    for result in results:
        cells.setdefault((result.target, result.fault), Counter())[result.outcome] += 1
    targets = [name for name in TARGETS if any(result.target == name for result in results)]
    faults = [name for fault in PLAN if (name := name_of(fault)) in {result.fault for result in results}]
    rows = [[fault, *(_cell(cells.get((target, fault), Counter())) for target in targets)] for fault in faults]
    total = Counter(result.outcome for result in results)
    summary = ", ".join(f"{total[outcome]} {outcome}" for outcome in (*GOOD, *BAD) if total[outcome])
    return f"{table(['fault', *targets], rows, 'l' * (len(targets) + 1))}\n\n{len(results)} runs: {summary}"


def _cell(found: Counter) -> str:
    return ", ".join(outcome if count == 1 else f"{count} {outcome}" for outcome, count in found.items())


def facts(results: Sequence[Result]) -> dict:
    """Return the results as plain data for a JSON file."""
    return {"counts": Counter(result.outcome for result in results), "runs": [asdict(result) for result in results]}


def known_results(path: Path) -> list[Result]:
    """Load the results from a JSON file of ``facts``; none if it does not exist.  Raises AttackError for any other file."""
    if not path.exists():
        return []
    data = read_json(path, AttackError, "give another name")
    try:
        found: list[Result] = from_plain(list[Result], data["runs"] if isinstance(data, dict) else None)
        return found
    except (KeyError, PlainError) as error:
        raise AttackError(f"{path}: is no file of such results ({error}); give another name") from error
