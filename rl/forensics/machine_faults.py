"""Faults of the machine, tried out: real commands at tiny size, each hit by a fault while it runs.

    print(counts(campaign(Path("attack"), print)))

What is promised is in docs/reliability.md: nothing is lost but the work in progress, one line says what is wrong, the
interpreter does not crash.  A door is a command that writes (or only reads), a fault is something that the machine does.
"""

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

from bc.demonstrations import find_replays
from nppsim.errors import INTERRUPTED, REFUSED, UNHEARD, UserError
from nppsim.files import table
from nppsim.levels.level_set import LevelSet
from nppsim.reading import read_json
from nppsim.replays.replay_set import ReplaySet, ReplayWriter
from rl.forensics.wholeness import damaged, left_over

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
PATIENCE_S = 600.0  # after which a command hangs
NOWHERE = "/proc/none/such"  # a place that nobody can make, not even root
GOOD = ("finished", "clean error", "stopped", "killed", "skipped")
BAD = ("traceback", "crash", "hung", "unclear", "data lost")


class AttackError(UserError, RuntimeError):
    """A campaign that cannot be run: an unknown door or fault, or a command that fails without any fault."""


class Skipped(Exception):
    """A fault that this machine or user cannot make; says why."""


@dataclass(frozen=True)
class Door:
    """A command to be attacked.

    command: after ``python``; {world} is the folder of its input, {out} that of its output.
    statuses: with which it ends well.
    content: of what it made, to compare with an undisturbed run's after it was killed and called again; None: it
        begins anew each time.
    """

    command: str
    statuses: tuple[int, ...] = (0,)
    content: Callable[[Path], object] | None = None
    variables: tuple[tuple[str, str], ...] = ()


def _levels_of(out: Path) -> list[str]:
    return [entry.fingerprint for entry in LevelSet.open(out / "set").entries]


def _runs_of(out: Path) -> list[bytes]:
    with ReplaySet(out / "runs" / "simplest.h5") as replays:
        return [replay.inputs.tobytes() for replay in replays]


DOORS = {
    "levels": Door(
        "scripts/generate_levels.py --category simplest --count 20 --seed 7 --workers 1 --out {out}/set",
        content=_levels_of,
    ),
    "demonstrations": Door(
        "scripts/make_demonstrations.py --levels {world}/levels --workers 1 --out {out}/runs",
        statuses=(0, 1),
        content=_runs_of,
    ),
    "load": Door("-m nppsim replays {world}/demonstrations"),
    "imitation": Door(
        "scripts/pretrain_bc.py --architecture vision_free --replay-data-dir {world}/demonstrations --epochs 2 "
        "--output-dir {out}"
    ),
    "export": Door(
        "-m bc minari-export {world}/demonstrations --source planner --author A --author-email a@b "
        "--code-permalink https://example.org",
        variables=(("MINARI_DATASETS_PATH", "{out}"),),
    ),
    "report": Door(
        "-m bc report {world}/demonstrations --levels {world}/levels --out {out}/report.html", statuses=(0, 1)
    ),
    "training": Door(
        "scripts/train_and_compare.py --experiment-name a --architectures vision_free --train-dataset {world}/levels "
        "--test-dataset {world}/test --replay-data-dir {world}/demonstrations --bc-epochs 1 --total-timesteps 4000 "
        "--num-envs 16 --eval-freq 0 --save-freq 1000 --num-eval-episodes 4 --output-dir {out}"
    ),
    "evaluation": Door(
        f"scripts/evaluate.py {AGENT} --levels {{world}}/test --output-dir {{out}} --record-eval-videos "
        "--max-videos-per-category 1 --video-fps 10"
    ),
    "search": Door(
        f"scripts/solve.py {{world}}/test --agent {AGENT} --workers 1 --budget 20000 --polish 0 --films 0 "
        "--out {out}/solved --demonstrations {out}/runs",
        statuses=(0, 1),
    ),
}


def make_world(folder: Path) -> Path:
    """Input of the commands: a few shipped levels of one category, and demonstrations."""
    for name, shipped, count in (("levels", "train", 8), ("test", "test", 2)):
        levels = LevelSet.open(ROOT / "datasets" / shipped)
        chosen = levels.indices("simplest")[:count]
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in chosen])
    with ReplayWriter(folder / "demonstrations" / "simplest.h5") as writer:
        for file in find_replays(ROOT / "datasets" / "demonstrations" / "simplest.h5")[:8]:
            writer.append(file.replay, category="simplest")
    return folder


@dataclass(frozen=True)
class Undisturbed:
    """A run without a fault: seconds until its first file and in all, bytes of its output and of its largest file, and
    what it made."""

    first_s: float
    seconds: float
    bytes: int
    largest: int
    content: object


@dataclass
class Case:
    """One run of a door under a fault; the faults below set what is not given.

    limits: RLIMIT_... -> value.  variables: of the environment; None takes one away.
    during: is called with the process, while it runs.
    """

    door: Door
    world: Path
    out: Path
    usual: Undisturbed | None
    rng: random.Random
    limits: dict[int, int] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    during: Callable[[subprocess.Popen], None] | None = None
    stdout: int = subprocess.PIPE
    others: list["Ended"] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        """The command line."""
        return [sys.executable, *(part.format(world=self.world, out=self.out) for part in self.door.command.split())]

    @property
    def environment(self) -> dict[str, str]:
        """The command's variables."""
        ours = {name: value.format(out=self.out) for name, value in self.door.variables}
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

    def some_time(self) -> float:
        """Seconds: any moment between the first file and the end of an undisturbed run."""
        return 0.0 if self.usual is None else self.rng.uniform(0, self.usual.seconds - self.usual.first_s)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its status (minus the signal that killed it), seconds, and what it said on stderr."""

    status: int
    seconds: float
    stderr: str
    hung: bool = False


@dataclass(frozen=True)
class Result:
    """What came of one run: one of GOOD or BAD, with the status, what was told last, and what was found amiss."""

    door: str
    fault: str
    outcome: str
    status: int | None
    told: str
    amiss: tuple[str, ...] = ()
    seconds: float = 0.0


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
    watcher = threading.Thread(target=case.during or (lambda process: None), args=(process,))
    watcher.start()
    try:
        _, told = process.communicate(timeout=PATIENCE_S)
        hung = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, told = process.communicate()
        hung = True
    finally:
        if process.poll() is None:  # this process is being stopped
            os.killpg(process.pid, signal.SIGKILL)
    watcher.join()
    return Ended(process.returncode, time.monotonic() - begin, told.decode(errors="replace"), hung)


def judge(door: Door, ended: Ended, killed: bool = False) -> str:
    """The outcome, by status and stderr alone."""
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    if ended.hung:
        return "hung"
    if killed and ended.status == -signal.SIGKILL:
        return "killed"
    if ended.status < 0 or (ended.status >= 128 and ended.status not in (INTERRUPTED, UNHEARD)):
        return "crash"
    if any(line.startswith(("Traceback", "Exception ignored", "Fatal Python error")) for line in lines):
        return "traceback"
    if ended.status in door.statuses and not any(line.startswith("error:") for line in lines):
        return "finished"
    if ended.status in (INTERRUPTED, UNHEARD) and len(lines) == 1:
        return "stopped"
    return (
        "clean error" if ended.status == REFUSED and len(lines) == 1 and lines[0].startswith("error: ") else "unclear"
    )


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


def _usual(case: Case) -> Undisturbed:
    if case.usual is None or not case.usual.bytes:
        raise Skipped("this command writes nothing")
    return case.usual


def kill(case: Case) -> Iterator[None]:
    """SIGKILL, at any moment after the first file."""

    def during(process: subprocess.Popen) -> None:
        case.wait_for_output(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(case.some_time())
        process.kill()

    case.during = during
    yield


def terminate(case: Case) -> Iterator[None]:
    """SIGTERM, likewise."""

    def during(process: subprocess.Popen) -> None:
        case.wait_for_output(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(case.some_time() / 2)
        process.terminate()

    case.during = during
    yield


def disk_full(case: Case) -> Iterator[None]:
    """A disk on which there is room at first; from some moment on, for no more than a share of what is still to come."""
    usual = _usual(case)
    moment, share = case.rng.uniform(0.8 * usual.first_s, 0.95 * usual.seconds), case.rng.uniform(0.0, 0.7)

    def during(process: subprocess.Popen) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        used = shutil.disk_usage(case.out).used
        room = used + int(share * max(usual.bytes - used, 0))
        room = room // 4096 * 4096 + 4096
        subprocess.run(["mount", "-o", f"remount,size={room}", str(case.out)], check=True)

    case.during = during
    with _mounted(case.out, "size=8g"):
        yield


def file_size(case: Case) -> Iterator[None]:
    """A limit below the largest file of the output."""
    case.limits[resource.RLIMIT_FSIZE] = int(_usual(case).largest * case.rng.uniform(0.2, 0.8))
    yield


def read_only(case: Case) -> Iterator[None]:
    """A folder that cannot be written."""
    if os.geteuid():
        case.out.mkdir(parents=True)
        case.out.chmod(0o555)
        try:
            yield
        finally:
            case.out.chmod(0o755)
    else:
        with _mounted(case.out, "ro,size=1m"):
            yield


def vanish(case: Case) -> Iterator[None]:
    """The folder is removed at any moment after the first file."""

    def during(process: subprocess.Popen) -> None:
        if case.wait_for_output(process):
            with suppress(subprocess.TimeoutExpired):
                process.wait(case.some_time() / 2)
            shutil.rmtree(case.out, ignore_errors=True)

    case.during = during
    yield


def open_files(case: Case) -> Iterator[None]:
    """Few open files are allowed."""
    case.limits[resource.RLIMIT_NOFILE] = case.rng.randint(5, 12)
    yield


def memory(case: Case) -> Iterator[None]:
    """No more memory than the command has by some moment, 64 MB aside."""
    if not hasattr(resource, "prlimit") or case.usual is None:
        raise Skipped("this system cannot limit the memory of a process that runs")
    moment = case.usual.seconds * case.rng.uniform(0.5, 0.9)

    def during(process: subprocess.Popen) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        with suppress(ProcessLookupError):
            limit = _memory_of(process.pid) + 64_000_000
            resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, limit))

    case.during = during
    yield


def _memory_of(pid: int) -> int:
    """Bytes of address space."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def two_processes(case: Case) -> Iterator[None]:
    """The same command a second time, while the first one runs."""

    def during(process: subprocess.Popen) -> None:
        case.wait_for_output(process)
        case.others.append(run_case(Case(case.door, case.world, case.out, case.usual, case.rng)))

    case.during = during
    yield


def home_unset(case: Case) -> Iterator[None]:
    """No HOME."""
    case.variables |= dict.fromkeys(("HOME", "XDG_CACHE_HOME"))
    yield


def home_not_there(case: Case) -> Iterator[None]:
    """A HOME that does not exist and cannot be made."""
    case.variables |= {"HOME": NOWHERE, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None}
    yield


def cache_not_there(case: Case) -> Iterator[None]:
    """A folder for compiled kernels that cannot be made."""
    case.variables["NUMBA_CACHE_DIR"] = NOWHERE
    yield


def cache_full(case: Case) -> Iterator[None]:
    """A folder for compiled kernels on a full disk."""
    cache = case.out.with_name(f"{case.out.name}_cache")
    case.variables["NUMBA_CACHE_DIR"] = str(cache)
    with _mounted(cache, "size=64k"):
        yield


def locale(case: Case) -> Iterator[None]:
    """The C locale without UTF-8, and a folder whose name is no text in any."""
    case.variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    case.out = case.out / os.fsdecode(b"caf\xe9_\xff_\xc3\xa9")
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
    yield
    os.close(case.stdout)


_WRITERS = tuple(name for name in DOORS if name != "load")
PLAN: dict[Fault, tuple[str, ...]] = {
    kill: _WRITERS,
    terminate: ("levels", "demonstrations", "imitation", "training", "search"),
    disk_full: _WRITERS,
    file_size: _WRITERS,
    read_only: ("levels", "imitation", "evaluation"),
    vanish: ("levels", "demonstrations", "imitation", "training", "evaluation", "search"),
    open_files: ("load", "imitation"),
    memory: ("demonstrations", "imitation"),
    two_processes: ("levels", "demonstrations"),
    home_unset: ("load",),
    home_not_there: ("load",),
    cache_not_there: ("levels",),
    cache_full: ("load",),
    locale: ("levels", "imitation", "report"),
    closed_output: ("load", "levels", "training"),
    full_output: ("load", "demonstrations"),
}


def name_of(fault: Fault) -> str:
    """A fault's name in tables."""
    return fault.__name__.replace("_", " ")


# ---------------------------------------------------------------------------------------------------------------------
# Campaign


def attack(name: str, fault: Fault, world: Path, out: Path, usual: Undisturbed, rng: random.Random) -> list[Result]:
    """Run a door under a fault; the result, and that of a second process where there is one."""
    door, told = DOORS[name], name_of(fault)
    case = Case(door, world, out, usual, rng)
    try:
        with contextmanager(fault)(case):
            case.out.mkdir(parents=True, exist_ok=True)
            ended = run_case(case)
            amiss = damaged(case.out)
            outcomes = [judge(door, one, killed=fault is kill) for one in (ended, *case.others)]
            if outcomes[0] != "killed":
                amiss += [f"left over: {file}" for file in left_over(case.out)]
    except Skipped as reason:
        return [Result(name, told, "skipped", None, str(reason))]
    if fault is kill and door.content is not None and not amiss:
        again = run_case(Case(door, world, out, None, rng))
        if judge(door, again) != "finished" or door.content(out) != usual.content:
            amiss.append(f"called again: status {again.status}, {_last(again)}")
    outcomes[0] = "data lost" if amiss and outcomes[0] in GOOD else outcomes[0]
    return [
        Result(name, told, outcome, one.status, _last(one), tuple(amiss), round(one.seconds, 1))
        for outcome, one in zip(outcomes, (ended, *case.others), strict=True)
    ]


def _last(ended: Ended) -> str:
    """The last line on stderr."""
    return (ended.stderr.strip().splitlines() or [""])[-1]


def undisturbed(name: str, world: Path, out: Path) -> Undisturbed:
    """Run a door without a fault.  AttackError if it does not end well."""
    begin, first = time.monotonic(), [0.0]
    case = Case(DOORS[name], world, out, None, random.Random())
    out.mkdir(parents=True)

    def during(process: subprocess.Popen) -> None:
        if case.wait_for_output(process):
            first[0] = time.monotonic() - begin

    case.during = during
    ended = run_case(case)
    if judge(case.door, ended) != "finished":
        raise AttackError(
            f"{' '.join(case.arguments)}: ends with status {ended.status} without any fault: {_last(ended)}"
        )
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    content = case.door.content(out) if case.door.content else None
    return Undisturbed(first[0] or ended.seconds, ended.seconds, sum(sizes), max(sizes, default=0), content)


def campaign(
    work: Path,
    tell: Callable[[str], None],
    *,
    doors: Sequence[str] | None = None,
    faults: Sequence[str] | None = None,
    seed: int = 0,
) -> Iterator[Result]:
    """Attack each door with each fault that PLAN has for it; gives the results as they come.

    work: a new folder for input and output.
    tell: receives a line per run.
    doors, faults: names; None: all.
    seed: of moments and sizes.
    Raises AttackError for unknown names, and for commands that fail without a fault.
    """
    known = {name_of(fault): fault for fault in PLAN}
    for what, given, names in (("door", doors, DOORS), ("fault", faults, known)):
        if unknown := set(given or ()) - set(names):
            raise AttackError(f"no {what} {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    chosen = [known[name] for name in faults or known]
    world, rng = make_world(work / "world"), random.Random(seed)
    for name in doors or DOORS:
        mine = [fault for fault in chosen if name in PLAN[fault]]
        if not mine:
            continue
        usual = undisturbed(name, world, work / name)
        tell(f"{name}: {usual.seconds:.0f} s, {usual.bytes:,} bytes without a fault")
        for fault in mine:
            for result in attack(name, fault, world, work / f"{name}_{fault.__name__}", usual, rng):
                tell(
                    f"{name}, {result.fault}: {result.outcome} ({result.status}) {result.told} {'; '.join(result.amiss)}"
                )
                yield result


def counts(results: Iterable[Result]) -> str:
    """A Markdown table: doors by faults, and how runs ended."""
    results = list(results)
    cells: dict[tuple[str, str], Counter] = {}
    for result in results:
        cells.setdefault((result.door, result.fault), Counter())[result.outcome] += 1
    doors = [name for name in DOORS if any(result.door == name for result in results)]
    faults = [name for fault in PLAN if (name := name_of(fault)) in {result.fault for result in results}]
    rows = [[fault, *(_cell(cells.get((door, fault), Counter())) for door in doors)] for fault in faults]
    total = Counter(result.outcome for result in results)
    told = ", ".join(f"{total[outcome]} {outcome}" for outcome in (*GOOD, *BAD) if total[outcome])
    return f"{table(['fault', *doors], rows, 'l' * (len(doors) + 1))}\n\n{len(results)} runs: {told}"


def _cell(found: Counter) -> str:
    return ", ".join(outcome if count == 1 else f"{count} {outcome}" for outcome, count in found.items())


def facts(results: Sequence[Result]) -> dict:
    """The results for a JSON file."""
    return {"counts": Counter(result.outcome for result in results), "runs": [asdict(result) for result in results]}


def known_results(path: Path) -> list[Result]:
    """The results in a JSON file of ``facts``; none where there is no file.  AttackError if it is another one."""
    if not path.exists():
        return []
    try:
        runs = read_json(path, AttackError, "give another name")["runs"]
        return [Result(**run | {"amiss": tuple(run["amiss"])}) for run in runs]
    except (LookupError, TypeError) as error:
        raise AttackError(f"{path}: holds no results of attacks ({error}); give another name") from error
