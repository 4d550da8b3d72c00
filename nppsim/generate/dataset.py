"""Generated level sets: as many distinct levels of each category as wanted, resumable, on all cores."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from nppsim.generate import CATEGORIES, generate
from nppsim.level import Level, mirror
from nppsim.levelset import INDEX, LevelEntry, LevelSet

STREAM = 10**9  # seeds of one stream: seed s of a level set stands for the level seeds s * STREAM, s * STREAM + 1, ...
PATIENCE = 2000  # candidates in a row without a new level, after which a category is taken to be exhausted
SAVE_EVERY_S = 20.0  # what an interruption can cost, at most
MIN_PARALLEL = 20_000  # levels; fewer are made before the other processes have started ...
MIN_PARALLEL_VERIFIED = 20  # ... unless they are verified, which takes long

Verify = Callable[[Level], int | None]


class GenerateError(ValueError):
    """Levels that cannot be generated as asked; the message says what is possible."""


def make_level_set(
    path: str | Path,
    categories: Sequence[str],
    count: int,
    seed: int,
    *,
    exclude: Sequence[LevelSet] = (),
    verify: Verify | None = None,
    workers: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> LevelSet:
    """Make a level set with ``count`` distinct levels of each category, or complete an interrupted one.

    A level and its mirror image count as the same; no level of the sets in ``exclude`` is used.  The levels depend on
    categories, count, seed, exclude and verify alone, not on ``workers`` nor on interruptions.

    path: the folder; new, or made by this function with the same seed.
    seed: 0 or more; sets with different seeds draw from different streams of level seeds.
    verify: par frames of a level, or None if it cannot be finished (the level is then dropped).  With several workers
        it must be a function that can be pickled.  Without it, ``par_frames`` is null in the index.
    workers: processes; by default all available cores where that pays.
    progress: called with a category and the number of its levels made so far.
    Raises GenerateError for bad arguments, a folder made with another seed, and a category that runs out of levels.
    An exception, Ctrl-C included, leaves what was made so far in the set; calling again continues.
    """
    path = Path(path)
    for category in categories:
        if category not in CATEGORIES:
            raise GenerateError(f"category {category!r} has no generators yet; choose from {', '.join(CATEGORIES)}")
    if count < 1 or seed < 0:
        raise GenerateError(f"count={count}, seed={seed}; count must be at least 1 and seed at least 0")
    entries = _begin_or_resume(path, seed)
    taken = {entry.fingerprint for entry in entries}
    for level_set in exclude:
        taken.update(level_set.fingerprint(i) for i in range(len(level_set)))
    missing = sum(max(0, count - sum(entry.category == category for entry in entries)) for category in categories)
    if workers is None:
        workers = (os.cpu_count() or 1) if missing >= (MIN_PARALLEL_VERIFIED if verify else MIN_PARALLEL) else 1
    for category in dict.fromkeys(categories):
        made = [entry for entry in entries if entry.category == category]
        first_seed = made[-1].seed + 1 if made else seed * STREAM
        with _candidates(category, range(first_seed, (seed + 1) * STREAM), verify, workers) as candidates:
            _fill(path, category, len(made), count, candidates, taken, progress)
    return LevelSet.open(path)


def _begin_or_resume(path: Path, seed: int) -> tuple[LevelEntry, ...]:
    """Entries that are there already."""
    if not (path / INDEX).exists():
        return LevelSet.write(path, []).entries
    entries = LevelSet.open(path, may_be_empty=True).entries
    for entry in entries:
        if entry.seed is None or entry.seed // STREAM != seed:
            other = "by other means" if entry.seed is None else f"with --seed {entry.seed // STREAM}"
            raise GenerateError(
                f"{path}: level {entry.file} was made {other}, not with --seed {seed}; use that seed, or another folder"
            )
    return entries


def _fill(path, category, have, count, candidates, taken, progress) -> None:
    """Append new levels to the set until it has ``count`` of the category."""
    fresh, misses, saved = [], 0, time.monotonic()
    try:
        while have + len(fresh) < count:
            level, entry, mirrored = next(candidates)
            if level is None or entry.fingerprint in taken or mirrored in taken:
                misses += 1
                if misses >= PATIENCE:
                    raise GenerateError(
                        f"{path}: category {category!r} gave {have + len(fresh)} distinct levels of {count} and then "
                        f"nothing new in {PATIENCE} candidates; ask for fewer levels, or exclude fewer"
                    )
                continue
            misses = 0
            taken.add(entry.fingerprint)
            fresh.append((level, entry))
            if progress is not None:
                progress(category, have + len(fresh))
            if time.monotonic() - saved > SAVE_EVERY_S:
                LevelSet.append(path, fresh)
                have, fresh, saved = have + len(fresh), [], time.monotonic()
    finally:
        if fresh:
            LevelSet.append(path, fresh)


@contextmanager
def _candidates(category: str, seeds: range, verify: Verify | None, workers: int) -> Iterator[Iterator]:
    """Candidates (level or None, entry, fingerprint of the mirror image) in the order of their seeds."""
    make = partial(_candidate, category, verify)
    if workers == 1:
        yield map(make, seeds)
        return
    chunk = 4 if verify else 64
    # "spawn": the caller may have threads (Numba's, torch's), which do not survive a fork.
    # Workers ignore Ctrl-C: this process answers it, saves, and ends them.
    pool = multiprocessing.get_context("spawn").Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with pool:
        # In rounds, because Pool.imap queues all of its input at once, and these seeds have no end.
        rounds = (seeds[first : first + 16 * chunk * workers] for first in range(0, len(seeds), 16 * chunk * workers))
        yield chain.from_iterable(pool.imap(make, some, chunksize=chunk) for some in rounds)


def _candidate(category: str, verify: Verify | None, seed: int) -> tuple[Level | None, LevelEntry, str]:
    level, entry = generate(category, seed)
    entry = replace(entry, fingerprint=level.fingerprint)
    if verify is not None:
        par_frames = verify(level)
        if par_frames is None:
            return None, entry, ""
        entry = replace(entry, par_frames=int(par_frames))
    return level, entry, mirror(level).fingerprint
