"""Faults of the machine, tried out: real commands at tiny size, each hit by a fault while it runs.

    print(counts(campaign(Path("attack"), print)))

What is promised is in docs/lab/reliability.md: nothing is lost but the work in progress, one line says what is wrong, the
interpreter does not crash.  A target is a command that writes (or only reads), a fault is something that the machine does.
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

from nppsim._cache import CACHE_FOLDER
from nppsim.errors import INTERRUPTED, REFUSED, UNHEARD, UserError
from nppsim.files import table
from nppsim.lock import LOCK
from nppsim.plain import PlainError, from_plain
from nppsim.reading import read_json
from tests.chaos.integrity import damaged, left_over
from tests.chaos.targets import ROOT, TARGETS, Target, make_world, names_of, run_of
from tests.fuzz import damage

PATIENCE_S = 600.0  # after which a command hangs
SURVIVAL_S = 20.0  # that processes of a command may outlive it
TRIES = 4  # moments at which a fault is tried until it comes before the command's end
MOST_MEMORY = 16 << 30  # bytes of address space where a header is hostile; those that lie claim more
NOWHERE = "/proc/none/such"  # a place that nobody can make, not even root
GOOD = ("finished", "clean error", "stopped", "killed", "too late", "skipped")
BAD = ("traceback", "crash", "hung", "unclear", "data lost")
# Beginnings of lines that neither Python nor a library may write, on stdout neither, whatever the status.
_NOISE = (
    *("Traceback (most", "Exception ignored", "Exception in thread", "Fatal Python error", "Error in sys.excepthook"),
    *("HDF5-DIAG", "Segmentation fault", "terminate called", "free()", "malloc()", "double free", "corrupted"),
)
_REMEDIES = ("; ", "): ")  # what stands before them in our messages
_NOTICE = "nppsim: compiling for this machine"  # no error, and no part of one


class AttackError(UserError, RuntimeError):
    """A campaign that cannot be run: an unknown target or fault, or a command that fails without any fault."""


class Skipped(Exception):
    """A fault that this machine or user cannot make; says why."""


@dataclass(frozen=True)
class Undisturbed:
    """A run without a fault: seconds until its first file and in all, bytes of its output and of its largest file, what
    it made, the names of its files (``names_of``), where they are, and its status."""

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

    command: instead of the target's.
    haste: factor of the moments at which faults come.
    limits: RLIMIT_... -> value.
    variables: of the environment; None takes one away.
    during: is called with the process, while it runs.
    mend: takes the fault away, so that the command can be called again; None where it is gone with the process.
    came: whether the fault came before the process's end.
    named, words: what an error must name, and say: one of each.
    held, rivals: the process, where it was held, and a second one that ran meanwhile.
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
    mend: Callable[[], None] | None = None
    came: bool = True
    named: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    stdout: int = subprocess.PIPE
    held: int = 0
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
        """In the child: what it may use."""
        for what, value in self.limits.items():
            resource.setrlimit(what, (value, value))

    def wait_for_output(self, process: subprocess.Popen) -> bool:
        """Until there is a file in ``out`` (True), or the process has ended."""
        while process.poll() is None:
            if any(path.is_file() for path in self.out.rglob("*")):
                return True
            time.sleep(0.01)
        return False

    def wait_some_time(self, process: subprocess.Popen) -> bool:
        """Until any moment between the first file and the end of an undisturbed run; False if the process ends before.

        Where that was too late before: until an earlier one, or one before the first file if the command begins with its work
        and not with a file that it holds.
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
        """What an undisturbed run has made, and ``out`` (default: that of this run) does not hold."""
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
        return [] if same else ["made something else than without the fault"]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    status: of its exit, or minus the signal that killed it.
    stderr, stdout: what it said, as far as it was read.
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
        """What is on stderr, without the notice that kernels are being compiled."""
        return [line for line in self.stderr.splitlines() if line.strip() and not line.startswith(_NOTICE)]

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return self.lines[-1].strip() if self.lines else ""


@dataclass(frozen=True)
class Result:
    """What came of one run: one of GOOD or BAD, with the status, what was told last, and what was found amiss."""

    target: str
    fault: str
    outcome: str
    status: int | None
    told: str
    amiss: tuple[str, ...] = ()
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
        except BaseException as error:  # noqa: BLE001  # raised again below: a fault that did not come must not pass
            failed.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        said, told = process.communicate(timeout=PATIENCE_S)
        hung = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, told = process.communicate()
        hung = True
    finally:
        if process.poll() is None:  # this process is being stopped
            os.killpg(process.pid, signal.SIGKILL)
    watcher.join()
    if failed:
        raise failed[0]
    seconds = time.monotonic() - begin
    texts = [(text or b"").decode(errors="replace") for text in (told, said)]
    return Ended(process.returncode, seconds, texts[0], hung, texts[1], _survivors(process.pid))


def _survivors(session: int) -> tuple[int, ...]:
    """Processes of a session that do not end by themselves; they are killed.  None where there is no /proc."""
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
    """(process, its session) of all that live."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                yield int(path.parent.name), int(session)


def judge(target: Target, ended: Ended, killed: bool = False) -> str:
    """The outcome, by status and words alone."""
    lines = ended.lines
    if ended.hung:
        return "hung"
    if killed and ended.status == -signal.SIGKILL:
        return "killed"
    if ended.status < 0 or (ended.status >= 128 and ended.status not in (INTERRUPTED, UNHEARD)):
        return "crash"
    if any(line.lstrip().startswith(_NOISE) for line in (*lines, *ended.stdout.splitlines())):
        return "traceback"
    if ended.status in target.statuses and not any(line.startswith("error:") for line in lines):
        return "finished"
    alone = len(lines) == 1
    if alone and (ended.status, lines[0].split(":")[0]) in ((INTERRUPTED, "interrupted"), (UNHEARD, "error")):
        return "stopped"
    return "clean error" if alone and ended.status == REFUSED and lines[0].startswith("error: ") else "unclear"


# ---------------------------------------------------------------------------------------------------------------------
# Faults


Fault = Callable[[Case], Iterator[None]]


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[None]:
    """A small disk of its own at ``folder``."""
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
    """Whether the small disk could be made that large; it cannot where more is on it."""
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
    """SIGTERM, likewise."""

    def during(process: subprocess.Popen) -> None:
        case.came = case.wait_some_time(process)
        process.terminate()

    case.during = during
    yield


def disk_full(case: Case) -> Iterator[None]:
    """A disk on which there is room at first; from some moment on, for no more than a share of what is still to come."""
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
    case.mend = lambda: None if _resize(case.out, large) else _cannot("the small disk cannot be made large again")
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
    """A folder that cannot be written."""
    case.named, case.words = (str(case.out),), ("cannot be written", "cannot write", "Read-only", "Permission denied")
    if os.geteuid():
        case.out.mkdir(parents=True)
        case.out.chmod(0o555)
        try:
            yield
        finally:
            case.out.chmod(0o755)
    else:  # whom permissions do not stop
        with _mounted(case.out, "ro,size=1m"):
            yield


def vanish(case: Case) -> Iterator[None]:
    """The folder is removed at any moment after the first file, at one blow."""

    def during(process: subprocess.Popen) -> None:
        alive = case.wait_some_time(process)
        gone = case.out.with_name(f"{case.out.name}_gone")
        case.out.rename(gone)
        case.came = alive and bool(case.lacking(gone))
        shutil.rmtree(gone)

    case.during, case.named = during, (str(case.out),)
    yield


def open_files(case: Case) -> Iterator[None]:
    """Few open files are allowed."""
    case.limits[resource.RLIMIT_NOFILE] = case.rng.randint(5, 12)
    case.words = ("open files",)
    yield


def memory(case: Case) -> Iterator[None]:
    """No more memory than the command has by some moment, 64 MB aside."""
    if not hasattr(resource, "prlimit") or case.usual is None:
        raise Skipped("this system cannot limit the memory of a process that runs")
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
    """Bytes of address space."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def two_processes(case: Case) -> Iterator[None]:
    """The same command a second time, from beginning to end, while the first one is held at some moment."""
    target = case.target

    def during(process: subprocess.Popen) -> None:
        alive = case.wait_some_time(process)
        while target.again and run_of(case.out) is None and process.poll() is None:
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
        case.came = alive and (_is_locked(case.out) if target.alone else bool(case.lacking()))
        case.held = process.pid
        try:
            case.rivals.append(run_case(Case(target, case.world, case.out, None, case.rng, target.again)))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)

    case.during, case.words = during, (target.refuses_again or str(case.out),)
    yield


def _is_locked(out: Path) -> bool:
    """Whether a process holds a folder at or below ``out``."""
    for path in out.rglob(LOCK):
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def hostile_header(case: Case) -> Iterator[None]:
    """A file that the command reads claims what it does not hold, or holds what it should not."""
    pattern = case.rng.choice(case.target.reads)
    if "{out}" in pattern and case.usual is not None and case.usual.folder is not None:
        shutil.copytree(case.usual.folder, case.out)  # an earlier call's
    world = case.out.with_name(f"{case.out.name}_world")
    shutil.copytree(case.world, world)
    case.world = world
    path = Path(case.rng.choice(sorted(glob.glob(pattern.format(world=world, out=case.out)))))
    way = case.rng.choice(_WAYS[path.suffix])
    path.write_bytes(way(path.read_bytes(), np.random.default_rng(case.rng.getrandbits(64))))
    case.limits[resource.RLIMIT_AS] = MOST_MEMORY
    case.named = (str(path), str(path.parent))
    yield


_WAYS = {
    ".h5": (damage.in_hdf5, damage.in_bytes),
    ".json": (damage.in_json,),
    ".map": (damage.in_bytes,),
    ".safetensors": (damage.in_checkpoint, damage.in_bytes),
}


def home_unset(case: Case) -> Iterator[None]:
    """No HOME."""
    case.variables |= dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"))
    yield


def home_not_there(case: Case) -> Iterator[None]:
    """A HOME that does not exist and cannot be made."""
    case.variables |= {"HOME": NOWHERE, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None}
    case.named, case.words = (NOWHERE,), ("NUMBA_CACHE_DIR",)
    yield


def home_replaced(case: Case) -> Iterator[None]:
    """The same, with the remedy that the error names: a folder for compiled kernels."""
    case.variables |= {"HOME": NOWHERE, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": str(CACHE_FOLDER)}
    yield


def cache_not_there(case: Case) -> Iterator[None]:
    """A folder for compiled kernels that cannot be made."""
    case.variables["NUMBA_CACHE_DIR"] = NOWHERE
    case.named, case.words = (NOWHERE,), ("NUMBA_CACHE_DIR",)
    yield


def cache_full(case: Case) -> Iterator[None]:
    """A folder for compiled kernels on a full disk."""
    cache = case.out.with_name(f"{case.out.name}_cache")
    case.variables["NUMBA_CACHE_DIR"] = str(cache)
    case.named, case.words = (str(cache),), ("No space left",)
    with _mounted(cache, "size=64k"):
        yield


def locale(case: Case) -> Iterator[None]:
    """The C locale without UTF-8, and a folder whose name is no text in any."""
    case.variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    case.out = case.out / os.fsdecode(b"caf\xe9_\xff_\xc3\xa9")
    case.words = ("UTF-8",)
    yield


def closed_output(case: Case) -> Iterator[None]:
    """Standard output is a pipe that nobody reads."""
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
# How a run may end that the fault has come to; others: finished, or a clean error.
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
# Those that come at a moment, which may be too late for the command to notice.
_TIMED = (kill, terminate, disk_full, vanish, memory, two_processes)
# After which the command is called again, without the fault.
_CALLED_AGAIN = (kill, terminate, disk_full, file_size, vanish, memory)


def name_of(fault: Fault) -> str:
    """A fault's name in tables."""
    return fault.__name__.replace("_", " ")


# ---------------------------------------------------------------------------------------------------------------------
# Campaign


def attack(
    name: str, fault: Fault, world: Path, out: Path, usual: Undisturbed, rng: random.Random, seed: int = 0
) -> list[Result]:
    """Run a target under a fault; the result, and that of a second process where there is one.

    A fault that came too late is tried again, earlier, up to TRIES times.
    """
    results: list[Result] = []
    for number in range(TRIES):
        case = Case(TARGETS[name], world, out.with_name(f"{out.name}_{number}"), usual, rng, haste=0.5**number)
        try:
            with contextmanager(fault)(case):
                case.out.mkdir(parents=True, exist_ok=True)
                ended = run_case(case)
                outcome, amiss = _examined(case, fault, ended)
                if outcome not in BAD and fault in _CALLED_AGAIN:
                    amiss += _called_again(case)
        except Skipped as reason:
            return [Result(name, name_of(fault), "skipped", None, str(reason), seed=seed)]
        outcomes = ["data lost" if amiss and outcome in GOOD else outcome]
        outcomes += [_rival(case, one) for one in case.rivals]
        results = [
            Result(name, name_of(fault), so, one.status, one.last, tuple(amiss), round(one.seconds, 1), seed)
            for so, one in zip(outcomes, (ended, *case.rivals), strict=True)
        ]
        if amiss or outcome in BAD or (outcome != "too late" and case.came):
            break
    return results


def _examined(case: Case, fault: Fault, ended: Ended) -> tuple[str, list[str]]:
    """The outcome of a run, and what is amiss with what it has left."""
    outcome = judge(case.target, ended, killed=fault is kill)
    amiss = [f"still running: process {pid}" for pid in ended.left]
    amiss += damaged(case.out) if fault is not hostile_header else []
    if outcome != "killed":
        amiss += [f"left over: {file}" for file in left_over(case.out)]
    if fault is vanish and outcome == "clean error":
        amiss += [f"made again: {file}" for file in names_of(case.out)]
    unfinished = case.lacking() if fault is not hostile_header else []
    if outcome == "finished" and not (fault is vanish and not case.came):
        amiss += unfinished
        if fault is not hostile_header and case.usual is not None and ended.status != case.usual.status:
            amiss.append(f"status {ended.status}, without the fault {case.usual.status}")
    # A signal may still come after the work, when Python itself is about to end.
    ended_anyhow = outcome == "finished" or (fault is terminate and ended.status == -signal.SIGTERM)
    late = ended_anyhow and (not case.came or (not unfinished and fault in (kill, terminate, disk_full)))
    if late and fault in _TIMED:
        return "too late", amiss
    if outcome in GOOD and outcome not in _ENDS.get(fault, ("finished", "clean error")):
        return "unclear", [
            *amiss,
            f"{outcome}, where {' or '.join(_ENDS.get(fault, ('finished', 'clean error')))} was due",
        ]
    if outcome == "clean error" and (reason := _not_understood(case, ended)):
        return "unclear", [*amiss, reason]
    return outcome, amiss


def _not_understood(case: Case, ended: Ended) -> str:
    """What an error lacks: file, reason or remedy; "" for nothing."""
    if case.named and not any(name in ended.last for name in case.named):
        return f"names none of: {', '.join(case.named)}"
    if any(case.words) and not any(word in ended.last for word in case.words):
        return f"says none of: {', '.join(case.words)}"
    return "" if any(mark in ended.last for mark in _REMEDIES) else "says nothing of a remedy"


def _called_again(case: Case) -> list[str]:
    """Call the command that goes on, or begins anew, without the fault; what is then amiss."""
    if case.mend is not None:
        case.mend()
    command = case.target.again if run_of(case.out) is not None else ""
    again = Case(case.target, case.world, case.out, case.usual, case.rng, command)
    ended = run_case(again)
    outcome = judge(again.target, ended)
    if outcome == "clean error" and again.target.refuses_again and again.target.refuses_again in ended.last:
        return []
    found = (
        damaged(again.out) + again.lacking() if outcome == "finished" else [f"{outcome} ({ended.status}) {ended.last}"]
    )
    return [f"called again: {text}" for text in found]


def _rival(case: Case, ended: Ended) -> str:
    """The outcome of a second process on the same folder."""
    outcome = judge(case.target, ended)
    if outcome in ("finished", "clean error") and not case.came:
        return "too late"
    alone = case.target.alone
    told = f": process {case.held} on " in ended.last if alone else not _not_understood(case, ended)
    as_due = told if outcome == "clean error" else outcome == "finished" and not alone
    return outcome if as_due or outcome in BAD else "unclear"


def undisturbed(name: str, world: Path, out: Path) -> Undisturbed:
    """Run a target without a fault, again if it had to compile.  AttackError if it does not end well."""
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
    if judge(case.target, ended) != "finished":
        raise AttackError(
            f"{' '.join(case.arguments)}: ends with status {ended.status} without any fault: {ended.last}"
        )
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    content = case.target.content(out) if case.target.content else None
    largest = max(sizes, default=0)
    times = first[0] or ended.seconds, ended.seconds
    return Undisturbed(*times, sum(sizes), largest, content, names_of(out), out, ended.status)


def campaign(
    work: Path,
    tell: Callable[[str], None],
    *,
    targets: Sequence[str] | None = None,
    faults: Sequence[str] | None = None,
    seed: int = 0,
) -> Iterator[Result]:
    """Attack each target with each fault that PLAN has for it; gives the results as they come.

    work: a new folder for input and output.
    tell: receives a line per run.
    targets, faults: names; None: all.
    seed: of moments and sizes, which depend on target and fault besides.
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
        tell(f"{name}: {usual.seconds:.0f} s, {usual.bytes:,} bytes without a fault")
        for fault in mine:
            rng = random.Random(f"{seed} {name} {fault.__name__}")
            for result in attack(name, fault, world, work / f"{name}_{fault.__name__}", usual, rng, seed):
                tell(
                    f"{name}, {result.fault}: {result.outcome} ({result.status}) {result.told} {'; '.join(result.amiss)}"
                )
                yield result


def counts(results: Iterable[Result]) -> str:
    """A Markdown table: targets by faults, and how runs ended."""
    results = list(results)
    cells: dict[tuple[str, str], Counter] = {}
    for result in results:
        cells.setdefault((result.target, result.fault), Counter())[result.outcome] += 1
    targets = [name for name in TARGETS if any(result.target == name for result in results)]
    faults = [name for fault in PLAN if (name := name_of(fault)) in {result.fault for result in results}]
    rows = [[fault, *(_cell(cells.get((target, fault), Counter())) for target in targets)] for fault in faults]
    total = Counter(result.outcome for result in results)
    told = ", ".join(f"{total[outcome]} {outcome}" for outcome in (*GOOD, *BAD) if total[outcome])
    return f"{table(['fault', *targets], rows, 'l' * (len(targets) + 1))}\n\n{len(results)} runs: {told}"


def _cell(found: Counter) -> str:
    return ", ".join(outcome if count == 1 else f"{count} {outcome}" for outcome, count in found.items())


def facts(results: Sequence[Result]) -> dict:
    """The results for a JSON file."""
    return {"counts": Counter(result.outcome for result in results), "runs": [asdict(result) for result in results]}


def known_results(path: Path) -> list[Result]:
    """The results in a JSON file of ``facts``; none where there is no file.  AttackError if it is another one."""
    if not path.exists():
        return []
    data = read_json(path, AttackError, "give another name")
    try:
        found: list[Result] = from_plain(list[Result], data["runs"] if isinstance(data, dict) else None)
        return found
    except (KeyError, PlainError) as error:
        raise AttackError(f"{path}: holds no results of attacks ({error}); give another name") from error
