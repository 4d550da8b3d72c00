"""Compare the results of two experiments bit for bit, for instance of an interrupted and an undisturbed one.

    differences(folder, other)      # [], or ["vision_free/checkpoints/final.safetensors: training.optimizer.state.0.step"]

Compared are weights, optimiser, curriculum, random states, environments and the memory of evaluations (all in the final
checkpoints), scalars in table and event files, digests, evaluations and results.  Times, memory and paths are not compared.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.errors import UserError
from nppsim.io.reading import MAX_JSON_BYTES, parse_json, read_bytes, read_json
from rl.events import read_scalars
from rl.policy import checkpoint

# Names of values that differ between two runs of the same command.
TIMED = {
    *(
        "seconds",
        "cpu_seconds",
        "elapsed_s",
        "speed",
        "phase_seconds",
        "evaluating",
        "evaluated_at",
        "reserved",
        "eval/seconds",
        "wall_time_s",
        "rate",
        "memory_mib",
        "blocks",
    ),
    *(
        "time/fps",
        "time/time_elapsed",
        "sim/decisions_per_s",
        "bc/teacher/decisions_per_s",
        "sim/update_s",
        "sim/curriculum_s",
        "created",
        "command",
        "resumed",
        "at",
    ),
    *("output_dir", "experiment_name", "paths", "name", "note", "plan", "machine", "checklist"),
}

# Beginnings of such names: sizes of caches, which a resumed run fills again.
SIZED = ("curriculum/kib", "curriculum_size/", "start_states/kib")

_REMEDY = "compare folders that this version of the project has written"


class DifferenceError(UserError, ValueError):
    """A file that cannot be compared; the message names it."""


def differences(one: Path, other: Path) -> list[str]:
    """Return the places at which two experiment folders differ, by file; a file that only one of them has is a difference."""
    found = []
    for read in (_checkpoints, _tables, _events, _lines, _documents):
        mine, theirs = dict(read(one)), dict(read(other))
        found += [f"{name}: only in {one}" for name in mine.keys() - theirs.keys()]
        found += [f"{name}: only in {other}" for name in theirs.keys() - mine.keys()]
        for name in mine.keys() & theirs.keys():
            found += [f"{name}: {place}" for place in _different(mine[name], theirs[name], "")]
    return sorted(found)


def _checkpoints(folder: Path) -> Iterator[tuple[str, Any]]:
    for pattern in ("final", "best", "agent", "clone", "bc_best"):
        for path in folder.rglob(f"{pattern}{checkpoint.SUFFIX}"):
            yield _name(path, folder), {**checkpoint.load(path), "versions": None}


def _tables(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in folder.rglob("*.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            yield _name(path, folder), list(csv.DictReader(file))


def _events(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in folder.rglob("tensorboard"):
        yield _name(path, folder), {tag: [*scalars] for tag, scalars in read_scalars(path).items()}


def _lines(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in folder.rglob("*.jsonl"):
        lines = read_bytes(path, DifferenceError, MAX_JSON_BYTES, _REMEDY).splitlines()
        yield _name(path, folder), [parse_json(line, path, DifferenceError, _REMEDY) for line in lines]


def _documents(folder: Path) -> Iterator[tuple[str, Any]]:
    for name in ("config.json", "results.json", "finished.json", "eval_results.json"):
        for path in folder.rglob(name):
            yield _name(path, folder), read_json(path, DifferenceError, _REMEDY)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _different(a: Any, b: Any, place: str) -> Iterator[str]:
    """Yield the places at which two nested values differ, except for TIMED and SIZED ones."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b} - TIMED, key=str):
            if str(name).startswith(SIZED):
                continue
            if name in a and name in b:
                yield from _different(a[name], b[name], f"{place}.{name}".lstrip("."))
            else:
                yield f"{place}.{name}".lstrip(".")
    elif isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str) and len(a) == len(b):
        for i, pair in enumerate(zip(a, b, strict=True)):
            yield from _different(*pair, f"{place}[{i}]")
    elif not _equal(a, b):
        yield place or "content"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        a, b = a.numpy(force=True), b.numpy(force=True)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return type(a) is type(b) and bool(a == b)
