"""Demonstrations without a player: the planner's runs through a level set, one replay file per level."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nppsim.levelset import LevelSet
from nppsim.planner import plan
from nppsim.replay import Replay


@dataclass(frozen=True)
class MadeDemonstrations:
    """What ``make_demonstrations`` did: files written now, found from an earlier call, and levels without a run."""

    written: int
    found: int
    unfinished: tuple[str, ...]


def make_demonstrations(
    levels: str | Path,
    out: str | Path,
    *,
    frame_skip: int = 4,
    seed: int = 0,
    budget: int = 5_000_000,
    workers: int | None = None,
    progress: Callable[[Iterable, int], Iterable] = lambda items, total: items,
) -> MadeDemonstrations:
    """Plan a run through every level of a level set and write it to ``out/<category>/<level>.replay``.

    frame_skip: frames per decision of the runs.  budget: simulated frames per level.  workers: processes; all cores if
    None.  progress: wraps the results as they come, given their number.  Files that exist are kept, so that an
    interrupted call can be repeated.  Raises LevelSetError for a level set that cannot be read.
    """
    level_set, out = LevelSet.open(levels), Path(out)
    jobs, found = [], 0
    for i, entry in enumerate(level_set.entries):
        target = out / entry.category / f"{Path(entry.file).stem}.replay"
        if target.exists():
            found += 1
        else:
            jobs.append((level_set, i, target, frame_skip, seed, budget))
    unfinished = []
    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        for name, done in progress(pool.map(_make_one, jobs, chunksize=4), len(jobs)):
            if not done:
                unfinished.append(name)
    return MadeDemonstrations(len(jobs) - len(unfinished), found, tuple(unfinished))


def _make_one(job) -> tuple[str, bool]:
    level_set, i, target, frame_skip, seed, budget = job
    level = level_set[i]
    run = plan(level, frame_skip, budget=budget, seed=seed)
    if run is None:
        return level.name, False
    target.parent.mkdir(parents=True, exist_ok=True)
    Replay(level, run.inputs, success=True, name=str(target), frame_skip=frame_skip).save(target)
    return level.name, True
