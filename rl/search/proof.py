"""Verification of search results: play runs back and read the files.

check_found(solved, tasks, path)
check_files(solved, out, demonstrations)
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nppsim.errors import UserError
from nppsim.levels.level_set import INDEX, LevelSet
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplaySet
from nppsim.simulate import simulate
from rl.search.levels import Task
from rl.search.results import REPLAYS, Solved


class SolveError(UserError, RuntimeError):
    """A result or file that differs from the run found."""


def check_found(solved: Sequence[Solved], tasks: Sequence[Task], path: Path) -> None:
    """Raise SolveError unless each level was searched, and each run wins with the reported length and par.

    path: of the levels.
    """
    if [one.task.level for one in solved] != [task.level for task in tasks]:
        raise SolveError(f"{len(solved)} levels were searched instead of {len(tasks)}")
    pars: dict[str, set[int | None]] = {}
    if (path / INDEX).is_file():
        levels = LevelSet.open(path)
        for i, entry in enumerate(levels.entries):
            pars.setdefault(levels.fingerprint(i), set()).add(entry.par_frames)
    for one in solved:
        name = one.task.name
        if one.task.par_frames not in pars.get(one.task.level.fingerprint, {one.task.par_frames}):
            raise SolveError(f"{name}: {one.task.par_frames} is not the par of this level in {path / INDEX}")
        if one.solution.run is None:
            continue
        run = simulate(one.task.level, one.solution.run.inputs)
        if not run.won or run.frames != one.frames or len(one.solution.run.inputs) != one.frames:
            raise SolveError(
                f"{name}: reported as solved in {one.frames} frames; in playback, the run is {run.outcome} after "
                f"{run.frames}"
            )


def check_files(solved: Sequence[Solved], out: Path, demonstrations: Path | None) -> None:
    """Raise SolveError unless the files contain the runs found.  demonstrations: folder of the replay sets, or None."""
    found = [one for one in solved if one.solution.run is not None]
    for one in found:
        file = out / REPLAYS / f"{one.stem}.replay"
        if not _same(Replay.load(file), one.replay):
            raise SolveError(f"{file}: is not the run that was found on {one.task.name}")
    if demonstrations is None:
        return
    for category in {one.task.category for one in found}:
        wanted = [one.replay for one in found if one.task.category == category]
        file = demonstrations / f"{category}.h5"
        with ReplaySet(file) as replays:
            same = len(replays) == len(wanted) and all(
                replays.entry(i).category == category and _same(replays[i], wanted[i]) for i in range(len(wanted))
            )
        if not same:
            raise SolveError(f"{file}: does not hold the {len(wanted)} runs that were found in {category}")


def _same(one: Replay, other: Replay) -> bool:
    return one.level == other.level and np.array_equal(one.inputs, other.inputs) and one.success == other.success
