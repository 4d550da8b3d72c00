"""Generation of level sets with distinct levels per category, in parallel and resumable.

Levels that the verifier cannot finish are stored in a second level set, the sub-folder ``unfinished``.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nppsim.errors import UserError
from nppsim.generate import CATEGORIES, generate, recipe
from nppsim.io.files import locked
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import INDEX, LevelEntry, LevelSet, check_disjoint
from nppsim.parallel.executor import open_executor
from nppsim.parallel.workers import usable_cores

UNFINISHED = "unfinished"  # sub-folder of a level set
STREAM = 10**9  # a level set with seed s uses the level seeds s * STREAM, s * STREAM + 1, ...
PATIENCE = 2000  # number of consecutive candidates without a new level after which a category counts as exhausted
SAVE_EVERY_S = 20.0  # seconds between saves; an interruption loses at most this much work
MIN_PARALLEL = 20_000  # minimum number of levels for which worker processes save time
MIN_PARALLEL_VERIFIED = 20  # the same for levels that are verified, which is slow

Select = Callable[[Level], bool]
Verify = Callable[[Level], int | None]
Made = tuple[Level, LevelEntry]
Candidate = tuple[Level, LevelEntry, str, bool]  # level, entry, fingerprint of the mirror image, finished


class GenerateError(UserError, ValueError):
    """Levels cannot be generated as requested; the message contains the reason and the remedy."""


def make_level_set(
    path: str | Path,
    categories: Sequence[str],
    count: int,
    seed: int,
    *,
    difficulty: float | None = None,
    exclude: Sequence[LevelSet] = (),
    select: Select | None = None,
    verify: Verify | None = None,
    index_only: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> LevelSet:
    """Generate a level set with ``count`` distinct levels of each category, or complete an interrupted one.

    A level and its mirror image count as the same.  The levels depend only on categories, count, seed, difficulty,
    exclude, select and verify, not on the number of workers or on interruptions.

    path: a new folder, or one that this function wrote with the same seed and difficulty.
    seed: 0 or more; sets with different seeds use disjoint level seeds.
    difficulty: see ``recipe``.
    exclude: sets whose levels are not used.
    select: function that returns whether to use a level; others are neither verified nor stored.  As ``verify``, it must be
        picklable for several workers or a cluster.
    verify: function that returns the par frames of a level, or None if it cannot be finished; such levels do not count and
        are stored in the level set ``path / UNFINISHED``.  Without ``verify``, ``par_frames`` is null in the index.
    index_only: write no files of the levels, which are then generated when they are read.
    workers: number of processes; None: all available cores if there are enough levels.
    cluster: address of a Ray cluster to use instead of processes (``nppsim.parallel.cluster``).
    progress: called with a category and the number of its levels so far.
    After an exception, including Ctrl-C, the set contains the levels made so far, and another call continues.
    Raises GenerateError and ConfigError for bad arguments, an exhausted category, workers that die, and a folder whose
    levels have another seed or difficulty, or are not verified.  Raises LevelSetError if levels of the folder are excluded,
    FolderError while another process generates levels in it, and ClusterError if the cluster cannot be used.
    """
    path = Path(path)
    _check(categories, count, seed, difficulty, workers)
    with locked(path):
        entries = _begin_or_resume(path, seed, difficulty, verify is not None)
        if exclude:
            check_disjoint(exclude, [LevelSet(path, entries)])
        excluded = [level_set.fingerprint(i) for level_set in exclude for i in range(len(level_set))]
        used = {*excluded, *(entry.fingerprint for entry in (*entries, *_unfinished_entries(path)))}
        if workers is None and cluster is None:
            workers = _worker_count(entries, categories, count, verify is not None)
        with open_executor(workers, GenerateError, cluster) as executor:
            for category in dict.fromkeys(categories):
                made = [entry.seed for entry in entries if entry.category == category and entry.seed is not None]
                seeds = range(made[-1] + 1 if made else seed * STREAM, (seed + 1) * STREAM)
                make = partial(_candidate, category, difficulty, select, verify)
                with executor.map(make, seeds, chunk=1 if verify else 64) as candidates:
                    _fill(path, category, len(made), count, candidates, used, progress, index_only)
        return LevelSet.open(path)


def _check(categories: Sequence[str], count: int, seed: int, difficulty: float | None, workers: int | None) -> None:
    """Raise GenerateError or ConfigError for bad arguments."""
    if count < 1 or seed < 0:
        raise GenerateError(f"count={count}, seed={seed}; count must be at least 1 and seed at least 0")
    for category in categories:
        recipe(category, seed, difficulty)
    if workers is not None and workers < 1:
        raise GenerateError(f"workers={workers}; give at least 1 process, or leave it out for all cores")


def _worker_count(entries: Sequence[LevelEntry], categories: Sequence[str], count: int, verified: bool) -> int:
    """Return all cores if enough levels are missing, otherwise 1."""
    missing = sum(max(0, count - sum(entry.category == category for entry in entries)) for category in categories)
    return usable_cores() if missing >= (MIN_PARALLEL_VERIFIED if verified else MIN_PARALLEL) else 1


def count_unfinished(path: str | Path) -> dict[str, int]:
    """Return category -> number of unfinished levels of the level set at ``path``, without categories that have none."""
    return dict(Counter(entry.category for entry in _unfinished_entries(Path(path))))


def _unfinished_entries(path: Path) -> tuple[LevelEntry, ...]:
    folder = path / UNFINISHED
    return LevelSet.open(folder, may_be_empty=True).entries if (folder / INDEX).exists() else ()


def _begin_or_resume(path: Path, seed: int, difficulty: float | None, verified: bool) -> tuple[LevelEntry, ...]:
    """Write an empty set, or validate the existing one; return its entries.

    verified: raise GenerateError for entries without par frames.
    """
    if not (path / INDEX).exists():
        return LevelSet.write(path, []).entries
    entries = LevelSet.open(path, may_be_empty=True).entries
    for entry in (*entries, *_unfinished_entries(path)):
        other = ""
        if entry.seed is None or entry.category not in CATEGORIES:
            other = "by other means"
        elif entry.seed // STREAM != seed:
            other = f"with --seed {entry.seed // STREAM}"
        if entry.seed is None or other:
            raise GenerateError(
                f"{path}: level {entry.file} was made {other}, not with --seed {seed}; use that seed, or another folder"
            )
        generator, parameters = recipe(entry.category, entry.seed, difficulty)
        if generator != entry.generator or json.dumps(parameters) != json.dumps(entry.parameters):
            raise GenerateError(
                f"{path}: level {entry.file} was made by {entry.generator} with {entry.parameters}; difficulty "
                f"{difficulty} gives {generator} with {parameters}; use the set's own --difficulty, or another folder"
            )
    if verified and (unproven := [entry.file for entry in entries if entry.par_frames is None]):
        raise GenerateError(
            f"{path}: level {unproven[0]} has no par_frames: it was not verified ({len(unproven)} such levels); "
            "generate verified levels in another folder"
        )
    return entries


def _fill(
    path: Path,
    category: str,
    have: int,
    count: int,
    candidates: Iterator[Candidate | None],
    used: set[str],
    progress: Callable[[str, int], None] | None,
    index_only: bool,
) -> None:
    """Append levels to the set until it has ``count`` of the category.

    have: number of levels of the category so far.  used: fingerprints of levels that must not be repeated.
    """
    fresh: list[Made] = []
    unfinished: list[Made] = []
    misses, saved = 0, time.monotonic()
    try:
        while have + len(fresh) < count:
            candidate = next(candidates)
            made = False
            if candidate is not None:
                level, entry, mirrored, finished = candidate
                new = entry.fingerprint not in used and mirrored not in used
                made = new and finished
                if new:
                    used.add(entry.fingerprint)
                    (fresh if finished else unfinished).append((level, entry))
            if made:
                misses = 0
                if progress is not None:
                    progress(category, have + len(fresh))
            else:
                misses += 1
                if misses >= PATIENCE:
                    raise GenerateError(
                        f"{path}: category {category!r} has only {have + len(fresh)} of {count} distinct levels: "
                        f"there was no new one in {PATIENCE} candidates; lower --count, or exclude fewer sets"
                    )
            if time.monotonic() - saved > SAVE_EVERY_S:
                _save(path, fresh, unfinished, index_only)
                have, fresh, unfinished, saved = have + len(fresh), [], [], time.monotonic()
    finally:
        _save(path, fresh, unfinished, index_only)


def _save(path: Path, fresh: list[Made], unfinished: list[Made], index_only: bool) -> None:
    """Append levels to the set, and unfinished ones to ``UNFINISHED``; skip those stored before an interruption.

    Unfinished levels are stored first, because generation resumes after the seed of the last level in the set.
    """
    if not (path / INDEX).exists():
        raise GenerateError(
            f"{path} was removed during generation; repeat the command, and do not modify the folder meanwhile"
        )
    for folder, levels in ((path / UNFINISHED, unfinished), (path, fresh)):
        if not levels:
            continue
        if not (folder / INDEX).exists():
            LevelSet.write(folder, [])
        stored = {entry.fingerprint for entry in LevelSet.open(folder, may_be_empty=True).entries}
        new = [(level, entry) for level, entry in levels if entry.fingerprint not in stored]
        LevelSet.append(folder, new, index_only=index_only)


def _candidate(
    category: str, difficulty: float | None, select: Select | None, verify: Verify | None, seed: int
) -> Candidate | None:
    level, entry = generate(category, seed, difficulty)
    if select is not None and not select(level):
        return None
    par_frames = verify(level) if verify is not None else None
    entry = replace(entry, fingerprint=level.fingerprint, par_frames=None if par_frames is None else int(par_frames))
    return level, entry, mirror(level).fingerprint, verify is None or par_frames is not None
