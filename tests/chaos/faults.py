"""Faults of the machine that hit a running command: a kill, a full disk, a missing folder, ...

A fault is a generator function: it changes the ``Case`` before the command starts, and undoes the fault after the ``yield``.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from nppsim._numba.cache import CACHE_FOLDER
from nppsim.io.files import LOCK
from tests.chaos.targets import ROOT, TARGETS, Target, names_of, run_of
from tests.fuzz import damage

TIMEOUT_S = 600.0  # a command that runs longer counts as hung
SURVIVAL_S = 20.0  # time after which processes of an ended command count as left over
MOST_MEMORY = 16 << 30  # bytes of address space with a corrupted header, which may claim more
NOWHERE = "/proc/none/such"  # cannot be created, not even by root


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
    names: Counter[str]
    folder: Path
    status: int


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
    paused, concurrent: id of the process if it was paused, and the end of a second process that ran meanwhile.
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
    concurrent: "Ended | None" = None

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

    def missing(self, out: Path | None = None) -> list[str]:
        """Return what an undisturbed run has written and ``out`` (default: that of this run) has not."""
        out = out or self.out
        if self.usual is None:
            return []
        missing = [f"not made: {name}" for name in (self.usual.names - names_of(out)).elements()]
        if missing or self.usual.content is None or self.target.content is None:
            return missing
        same = self.target.content(out) == self.usual.content
        return [] if same else ["content differs from an undisturbed run"]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    status: exit status, or minus the signal that killed it.
    stderr: lines of standard error, without the notice that kernels are being compiled.
    stdout: what it printed, as far as it was read.
    survivors: processes of its session that outlived it.
    """

    status: int
    seconds: float
    stderr: tuple[str, ...]
    stdout: str
    survivors: tuple[int, ...]

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return self.stderr[-1] if self.stderr else ""


def run_case(case: Case) -> Ended:
    """Run the command to its end.  Raises subprocess.TimeoutExpired if it hangs."""
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
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    watcher.join()
    if failed:
        raise failed[0]
    lines = stderr.decode(errors="replace").splitlines()
    printed = tuple(line.strip() for line in lines if line.strip() and not line.startswith("nppsim: compiling for"))
    seconds = time.monotonic() - begin
    return Ended(
        process.returncode, seconds, printed, (stdout or b"").decode(errors="replace"), _survivors(process.pid)
    )


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


def undisturbed(name: str, world: Path, out: Path) -> Undisturbed:
    """Run a target without a fault."""
    begin, first = time.monotonic(), [0.0]
    case = Case(TARGETS[name], world, out, None, random.Random())
    out.mkdir(parents=True)

    def during(process: subprocess.Popen) -> None:
        if case.wait_for_output(process):
            first[0] = time.monotonic() - begin

    case.during = during
    ended = run_case(case)
    assert ended.status in case.target.statuses, f"{' '.join(case.arguments)}: {ended}"
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    content = case.target.content(out) if case.target.content else None
    times = first[0] or ended.seconds, ended.seconds
    return Undisturbed(*times, sum(sizes), max(sizes, default=0), content, names_of(out), out, ended.status)


# ---------------------------------------------------------------------------------------------------------------------
# Faults


Fault = Callable[[Case], Iterator[None]]


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[None]:
    """Mount a small tmpfs at ``folder``."""
    if shutil.which("mount") is None:
        pytest.skip("no small disk can be mounted here: there is no mount")
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here ({' '.join(done.stderr.split())})")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _resize(folder: Path, size: int) -> bool:
    """Resize the tmpfs; return False if it contains more than ``size`` bytes."""
    return subprocess.run(_remount(folder, size), capture_output=True).returncode == 0


def _remount(folder: Path, size: int) -> list[str]:
    return ["mount", "-o", f"remount,size={size}", str(folder)]


def _usual(case: Case) -> Undisturbed:
    if case.usual is None or not case.usual.bytes:
        pytest.skip("this command writes nothing")
    return case.usual


def kill(case: Case) -> Iterator[None]:
    """SIGKILL, at any moment after the first file."""
    yield from _signal(case, signal.SIGKILL)


def terminate(case: Case) -> Iterator[None]:
    """SIGTERM, at any moment after the first file."""
    yield from _signal(case, signal.SIGTERM)


def _signal(case: Case, number: signal.Signals) -> Iterator[None]:
    def during(process: subprocess.Popen) -> None:
        case.came = case.wait_some_time(process)
        process.send_signal(number)

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
    case.repair = lambda: subprocess.run(_remount(case.out, large), check=True)
    with _mounted(case.out, f"size={large}"):
        yield


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
        case.came = alive and bool(case.missing(gone))
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
        pytest.skip("this system cannot limit the memory of a running process")
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
        case.came = alive and (_is_locked(case.out) if target.alone else bool(case.missing()))
        case.paused = process.pid
        try:
            case.concurrent = run_case(Case(target, case.world, case.out, None, case.rng, target.again))
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
    case.variables |= {"HOME": NOWHERE, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": str(CACHE_FOLDER.parent)}
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
# Outcomes allowed after a fault; default: finished or error.
EXPECTED: dict[Fault, tuple[str, ...]] = {
    kill: ("killed",),
    terminate: ("stopped",),
    file_size: ("error",),
    read_only: ("error",),
    home_unset: ("finished",),
    home_not_there: ("error",),
    home_replaced: ("finished",),
    cache_not_there: ("error",),
    cache_full: ("error",),
    closed_output: ("stopped",),
    full_output: ("error",),
}
# Faults at a random moment, which may be too late.
TIMED = (kill, terminate, disk_full, vanish, memory, two_processes)
# Faults after which the command is called again, without the fault.
REPEATED = (kill, terminate, disk_full, file_size, vanish, memory)
