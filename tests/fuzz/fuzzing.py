"""Fuzz the readers of files, in processes with limited memory that read PER_PROCESS damaged files each.

A file must be read, or refused with a UserError of one line that names the file.  Anything else is a failure: another error,
more memory or time than the limits, a crash, a hang.  Input i of seed s is a pure function of reader, s and i.
"""

import multiprocessing
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppsim.errors import ConfigError, UserError, did_you_mean, redact
from nppsim.io.files import table, write_bytes
from tests.fuzz.damage import Reader
from tests.fuzz.readers import readers

MEMORY_BYTES = 1 << 30  # limit of reading one file, beyond the memory of the process with its libraries
SECONDS = 10.0  # limit of processor time to read one file
HANG_SECONDS = 300.0  # without a result
PER_PROCESS = 500  # files; a new process does not count the caches of libraries as memory of one file
LEVELS = Path("datasets/train")  # default of the settings that are damaged
_PROJECT = Path(__file__).parents[2]


class Failure(NamedTuple):
    """A failing input: its number, what happened, and the bytes of the file."""

    number: int
    what: str
    data: bytes


@dataclass
class Tally:
    """Results of fuzzing one reader.

    tried, refused: numbers of inputs; those not refused were read.
    places: line of the project ("folder/file.py:12") -> number of inputs refused there.
    slowest_s: processor time of the slowest input.
    peak_bytes: peak memory of a process, minus its memory before the first input.
    """

    reader: str
    tried: int = 0
    refused: int = 0
    places: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    peak_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)


def damaged(reader: Reader, valid: list[bytes], seed: int, index: int) -> bytes:
    """Return input ``index`` of a seed."""
    rng = np.random.default_rng([seed, index, zlib.crc32(reader.name.encode())])
    data = valid[rng.integers(len(valid))]
    return reader.damages[rng.integers(len(reader.damages))](data, rng)


def valid_files(reader: Reader) -> list[bytes]:
    """Return the bytes of the valid files that are damaged."""
    with tempfile.TemporaryDirectory() as folder:
        return [path.read_bytes() for path in reader.valid(Path(folder))]


class Ending(NamedTuple):
    """How an attempt to read ended.

    refused: True if with an error.
    wrong: description of a failure; "" if there was none.
    place: line of the project where the error was first raised; "" without an error.
    """

    refused: bool
    wrong: str = ""
    place: str = ""


def attempt(reader: Reader, path: Path) -> Ending:
    """Read a file and return how that ended."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except UserError as error:
        text = redact(str(error))
        if "\n" in text or str(path.parent) not in text:
            return Ending(True, f"the message is not one line that names the file: {text[:300]!r}", _raised(error))
        return Ending(True, place=_raised(error))
    except Exception as error:  # noqa: BLE001  # the failures that fuzzing looks for
        return Ending(True, f"{type(error).__name__}: {str(error)[:300]} ({_raised(error)})", _raised(error))
    return Ending(False)


def _raised(error: BaseException | None) -> str:
    """Return the line of the project that raised an error or its cause; "" if none did."""
    place = ""
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            if (file := Path(frame.filename)).is_relative_to(_PROJECT):
                place = f"{file.relative_to(_PROJECT)}:{frame.lineno}"
        error = error.__cause__
    return place


def fuzz(name: str, count: int, seed: int = 0, first: int = 0, *, stop: bool = True) -> Tally:
    """Try inputs ``first`` to ``first + count - 1`` of a seed on one reader.

    stop: end at the first failure; else a new process continues with the next input after a crash or hang.
    """
    reader = readers()[name]
    tally, valid = Tally(name), valid_files(reader)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # loaded once instead of in each process
    while tally.tried < count and not (stop and tally.failures):
        ours, theirs = context.Pipe(duplex=False)
        begin, end = first + tally.tried, first + min(tally.tried + PER_PROCESS, count)
        process = context.Process(target=_child, args=(theirs, name, valid, seed, begin, end), daemon=True)
        process.start()
        theirs.close()
        for outcome in _outcomes(ours, process):
            index = first + tally.tried
            if outcome.failure:
                what = f"{outcome.failure}, in a process that began with input {begin}"
                tally.failures.append(Failure(index, what, damaged(reader, valid, seed, index)))
            tally.tried += 1
            tally.refused += outcome.refused
            tally.places.update([outcome.place] if outcome.place else [])
            tally.slowest_s = max(tally.slowest_s, outcome.seconds)
            tally.peak_bytes = max(tally.peak_bytes, outcome.peak_bytes)
            if stop and tally.failures:
                break
        process.kill()
        process.join()
    return tally


@dataclass(frozen=True)
class _Outcome:
    """Result of one input; ``seconds`` of processor time, ``peak_bytes`` of the process so far beyond its libraries."""

    refused: bool
    failure: str
    place: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


def _outcomes(news: Connection, process: multiprocessing.process.BaseProcess) -> Iterator[_Outcome]:
    """Yield the results that a child sends, and a failure if it ended early."""
    while True:
        if not news.poll(HANG_SECONDS):
            yield _Outcome(False, f"hangs: no end within {HANG_SECONDS:.0f} s")
            return
        try:
            outcome = news.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            yield _Outcome(False, f"the process ended: {signal.Signals(-code).name if code < 0 else f'status {code}'}")
            return
        if outcome is None:
            return
        yield outcome


def _child(news: Connection, name: str, valid: list[bytes], seed: int, first: int, end: int) -> None:
    """Read the inputs and send the result of each."""
    reader = readers()[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / reader.file
        for data in valid:  # compiles, and fills caches, before memory is counted
            path.write_bytes(data)
            if (ending := attempt(reader, path)).refused:
                raise RuntimeError(f"{name}: a valid file was not read: {ending.wrong or ending.place}")
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY_BYTES,) * 2)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _status("VmRSS")
        for index in range(first, end):
            shutil.rmtree(folder)  # removes files that readers wrote
            path.parent.mkdir()
            path.write_bytes(damaged(reader, valid, seed, index))
            began = time.process_time()
            refused, failure, place = attempt(reader, path)
            seconds = time.process_time() - began
            if not failure and seconds > SECONDS:
                failure = f"takes {seconds:.1f} s of processor time"
            news.send(_Outcome(refused, failure, place, seconds, _status("VmHWM") - before))
    news.send(None)


def _status(name: str) -> int:
    """Return bytes of this process: VmSize (address space), VmRSS (resident memory) or VmHWM (peak of resident memory)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def run(names: Sequence[str] | None, count: int, seed: int, out: Path, *, first: int = 0, stop: bool = True) -> int:
    """Fuzz readers one after another, print the results and save failing inputs; return 1 if there were any, else 0.

    names: names of readers; None for all.
    Raises ConfigError for unknown names, and outside of a checkout, whose levels the fuzzed settings name.
    """
    if not LEVELS.is_dir():
        raise ConfigError(f"{LEVELS} is not in this folder; go to a checkout of the project first")
    known = readers()
    for name in names or known:
        if name not in known:
            raise ConfigError(
                f"unknown reader; choose from {', '.join(known)}{did_you_mean(name, known)}", "--readers", name
            )
    for flag, value, least in (("--count", count, 1), ("--first", first, 0)):
        if value < least:
            raise ConfigError(f"give a number, {least} or more", flag, value)
    tallies = []
    for name in names or known:
        tally = fuzz(name, count, seed, first, stop=stop)
        tallies.append(tally)
        print(f"{name}: {tally.tried:,} tried, {tally.refused:,} refused, {len(tally.failures)} failures", flush=True)
        for index, what, data in tally.failures:
            saved = out / f"{name}_{seed}_{index}{Path(known[name].file).suffix}"
            write_bytes(saved, data)
            print(f"  input {index}: {what}; saved as {saved}", flush=True)
        if stop and tally.failures:
            break
    print(tallies_table(tallies))
    return int(any(tally.failures for tally in tallies))


def tallies_table(tallies: Sequence[Tally]) -> str:
    """Format the results as a text table with one row per reader."""
    header = ("reader", "tried", "refused", "most often in", "read", "failures", "slowest, s", "memory, MB")
    rows = [
        (
            tally.reader,
            f"{tally.tried:,}",
            f"{tally.refused:,}",
            "".join(f"{place} {times / tally.refused:4.0%}" for place, times in tally.places.most_common(1)),
            f"{tally.tried - tally.refused:,}",
            len(tally.failures),
            f"{tally.slowest_s:.2f}",
            f"{tally.peak_bytes / 1e6:.0f}",
        )
        for tally in tallies
    ]
    return table(header, rows)
