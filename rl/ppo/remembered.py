"""Timings of updates that were made on this machine before, so that the same run is planned the same way again.

    plan = hardware.plan(..., benchmark=remembered(probe, machine))

Threads and precision are chosen by timing, and the number of threads changes rounding.  Fresh timings could so make two runs
of one seed differ.  Stored timings are used until ``python -m hardware plan --measure`` replaces them, or the code changes.
"""

import datetime
import functools
import hashlib
from pathlib import Path

import torch

from hardware import Benchmark, Candidate, Machine, Timings
from nppsim._cache import CACHE_FOLDER
from nppsim.errors import UserError
from nppsim.files import write_json
from nppsim.reading import mismatch, read_json
from rl.ppo.probe import UpdateProbe

FILE = CACHE_FOLDER.parent / "timings.json"  # beside the compiled kernels
_TIMED = ("hardware/thread_pool.py", "rl/policy/*.py", "rl/ppo/gradients.py", "rl/ppo/losses.py", "rl/ppo/probe.py")
_REMEDY = "remove it: all is timed again"
_SHAPE = {...: {"wall": [float], "processor": [float], "others": float, "date": str}}


class TimingsError(UserError, ValueError):
    """The file of timings cannot be read; the message names it and says what to do."""


def remembered(probe: UpdateProbe, machine: Machine, anew: bool = False) -> Benchmark:
    """A benchmark that is run once for each network, machine, size and version of the code, and then told from memory.

    anew: run it, whatever is known, and remember that.
    Raises TimingsError for a file of timings that is damaged.
    """

    def benchmark(minibatch_size: int, candidates: list[Candidate]) -> Timings:
        told = ", ".join(f"{candidate.precision} by {candidate.threads}" for candidate in candidates)
        here = f"{machine.cpu}, {machine.cores} cores, torch {torch.__version__}"
        key = f"{probe.name}, update of {minibatch_size}: {told}; {here}, code {code_digest()}"
        if key not in (known := known_timings(FILE)) or anew:
            made = probe.benchmark(minibatch_size, candidates)._replace(date=datetime.date.today().isoformat())
            known = known_timings(FILE) | {key: made._asdict()}  # another process may have added some meanwhile
            write_json(FILE, known)
        timings = Timings(**known[key])
        if {len(timings.wall), len(timings.processor)} != {len(candidates)}:
            raise TimingsError(f"{FILE}: {key}: not {len(candidates)} timings; {_REMEDY}")
        return timings

    return benchmark


@functools.cache
def code_digest() -> str:
    """Digest (8 hex characters) of the sources whose speed is timed."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for pattern in _TIMED for path in root.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def known_timings(file: Path) -> dict[str, dict]:
    """The timings in a file, as dictionaries; none where there is no file.  Raises TimingsError."""
    if not file.exists():
        return {}
    known: dict[str, dict] = read_json(file, TimingsError, _REMEDY)
    if wrong := mismatch(known, _SHAPE):
        raise TimingsError(f"{file}: {wrong}; {_REMEDY}")
    return known
