"""Fuzzing of readers: damaged files, each in turn, in a process of its own that has little memory and is watched.

A file must be read, or refused with one of the named errors, in one line that names it.  Anything else is a failure: another
error, more memory or time than the limits, a crash, a hang.  Input i of seed s is a pure function of reader, s and i.
"""

import multiprocessing
import resource
import signal
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from nppsim.errors import ConfigError, UserError, did_you_mean, redact
from nppsim.files import table, write_bytes
from rl.forensics.readers import Reader, readers

MEMORY_BYTES = 1 << 30  # that reading may take, beyond what the process has with its libraries
SECONDS = 10.0  # of processor time that reading one file may take
HANG_SECONDS = 300.0  # without news: the machine may be busy


@dataclass
class Tally:
    """What became of a reader's inputs.

    tried, refused: inputs; the others were read.
    slowest_s: processor time of the slowest one.
    peak_bytes: of the process, beyond what it had before the first.
    failures: (number of the input, what happened).
    """

    reader: str
    tried: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    peak_bytes: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)


def damaged(reader: Reader, valid: list[bytes], seed: int, index: int) -> bytes:
    """Input ``index`` of a seed."""
    rng = np.random.default_rng([seed, index, zlib.crc32(reader.name.encode())])
    data = valid[rng.integers(len(valid))]
    return reader.ways[rng.integers(len(reader.ways))](data, rng)


def valid_files(reader: Reader) -> list[bytes]:
    """Bytes of the files that the reader's inputs are made of."""
    with tempfile.TemporaryDirectory() as folder:
        return [path.read_bytes() for path in reader.valid(Path(folder))]


def attempt(reader: Reader, path: Path) -> tuple[bool, str]:
    """(whether the file was refused, what is wrong with how it was read or refused, "" for nothing)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except UserError as error:
        text = redact(str(error))
        if "\n" in text or str(path.parent) not in text:
            return True, f"the message is not one line that names the file: {text[:300]!r}"
        return True, ""
    except Exception as error:  # noqa: BLE001  # what is looked for
        return True, f"{type(error).__name__}: {str(error)[:300]}"
    return False, ""


def fuzz(
    name: str,
    count: int,
    seed: int = 0,
    first: int = 0,
    *,
    stop: bool = True,
) -> Tally:
    """Try inputs ``first`` to ``first + count - 1`` of a seed on one reader.

    stop: at the first failure.  After a crash or hang, another process goes on with the next input.
    """
    tally, valid = Tally(name), valid_files(readers()[name])
    context = multiprocessing.get_context("spawn")
    while tally.tried < count and not (stop and tally.failures):
        ours, theirs = context.Pipe(duplex=False)
        place = (seed, first + tally.tried, first + count)
        process = context.Process(target=_child, args=(theirs, name, valid, *place), daemon=True)
        process.start()
        theirs.close()
        for outcome in _outcomes(ours, process):
            if outcome.failure:
                tally.failures.append((first + tally.tried, outcome.failure))
            tally.tried += 1
            tally.refused += outcome.refused
            tally.slowest_s = max(tally.slowest_s, outcome.seconds)
            tally.peak_bytes = max(tally.peak_bytes, outcome.peak_bytes)
            if stop and tally.failures:
                break
        process.kill()
        process.join()
    return tally


@dataclass(frozen=True)
class _Outcome:
    """Of one input.  seconds: of processor time.  peak_bytes: of the process so far, beyond its libraries."""

    refused: bool
    failure: str
    seconds: float = 0.0
    peak_bytes: int = 0


def _outcomes(news: Connection, process: multiprocessing.process.BaseProcess) -> Iterator[_Outcome]:
    """What a child tells of its inputs, and how it ended, if that was not its end."""
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
    """Try the inputs, and tell of each."""
    reader = readers()[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / reader.file
        for data in valid:  # compiles, and fills caches, before memory is counted
            path.write_bytes(data)
            if wrong := attempt(reader, path)[1]:
                raise RuntimeError(f"{name}: a valid file is not read: {wrong}")
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY_BYTES,) * 2)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = _status("VmRSS")
        for index in range(first, end):
            for leftover in Path(folder).iterdir():
                leftover.unlink()
            path.write_bytes(damaged(reader, valid, seed, index))
            began = time.process_time()
            refused, failure = attempt(reader, path)
            seconds = time.process_time() - began
            if not failure and seconds > SECONDS:
                failure = f"takes {seconds:.1f} s of processor time"
            news.send(_Outcome(refused, failure, seconds, _status("VmHWM") - before))
    news.send(None)


def _status(name: str) -> int:
    """Bytes of this process: VmSize, its address space; VmRSS, what it holds; VmHWM, the most that it has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def run(names: Sequence[str] | None, count: int, seed: int, out: Path, *, stop: bool = True) -> int:
    """Fuzz readers one after another, print what became of the inputs, keep those that fail; 1 if there was one, else 0.

    names: of readers; None for all.
    Raises ConfigError for names that there are not.
    """
    known = readers()
    for name in names or known:
        if name not in known:
            raise ConfigError(
                f"is no reader; there are {', '.join(known)}{did_you_mean(name, known)}", "--readers", name
            )
    if count < 1:
        raise ConfigError("give a number of inputs, 1 or more", "--count", count)
    tallies = []
    for name in names or known:
        tally = fuzz(name, count, seed, stop=stop)
        tallies.append(tally)
        print(f"{name}: {tally.tried:,} tried, {tally.refused:,} refused, {len(tally.failures)} failures", flush=True)
        valid = valid_files(known[name])
        for index, what in tally.failures:
            kept = out / f"{name}_{seed}_{index}{Path(known[name].file).suffix}"
            write_bytes(kept, damaged(known[name], valid, seed, index))
            print(f"  input {index}: {what}; kept as {kept}", flush=True)
        if stop and tally.failures:
            break
    print(tallies_table(tallies))
    return int(any(tally.failures for tally in tallies))


def tallies_table(tallies: Sequence[Tally]) -> str:
    """A row per reader, as text."""
    header = ("reader", "tried", "refused", "read", "failures", "slowest, s", "memory, MB")
    rows = [
        (
            tally.reader,
            f"{tally.tried:,}",
            f"{tally.refused:,}",
            f"{tally.tried - tally.refused:,}",
            len(tally.failures),
            f"{tally.slowest_s:.2f}",
            f"{tally.peak_bytes / 1e6:.0f}",
        )
        for tally in tallies
    ]
    return table(header, rows)
