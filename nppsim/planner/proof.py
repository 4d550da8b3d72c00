"""Proof that the levels of a generated set are what its index says of them.

check_made(LevelSet.open(path), difficulty=None, exclude=[])
"""

import json
from collections.abc import Sequence

import numpy as np

from nppsim.generate import recipe
from nppsim.generate.make import GenerateError
from nppsim.levels.level import mirror
from nppsim.levels.level_set import LevelSet
from nppsim.planner.plan import plan
from nppsim.simulate import simulate

FEW = 3  # levels of each category that are finished again
_REPORT = "this is a mistake in the program, not in your settings: please report it"


def check_made(
    level_set: LevelSet, difficulty: float | None = None, exclude: Sequence[LevelSet] = (), known: int = 0
) -> None:
    """GenerateError unless every level is of its category's recipe and there once, mirrored or not, and none is to be
    excluded; and unless a few new ones of each category are finished in as many frames as the index says.

    difficulty, exclude: that the set was made with.
    known: levels that were there before, perhaps from another planner.
    """
    taken = {other.fingerprint(i): str(other.path) for other in exclude for i in range(len(other))}
    for entry, level in zip(level_set.entries, level_set, strict=True):
        place = f"{level_set.path}: level {entry.file}"
        if entry.seed is None:
            raise GenerateError(f"{place} has no seed: nobody can make it again; {_REPORT}")
        family, parameters = recipe(entry.category, entry.seed, difficulty)
        if (family, json.dumps(parameters)) != (entry.generator, json.dumps(entry.parameters)):
            raise GenerateError(
                f"{place} counts as {entry.category}, and was made by {entry.generator} with {entry.parameters}, not by "
                f"{family} with {parameters}; {_REPORT}"
            )
        names = {level.fingerprint, mirror(level).fingerprint}
        if found := [taken[name] for name in names if name in taken]:
            raise GenerateError(f"{place} is in {found[0]}, too, mirrored or not; {_REPORT}")
        taken |= dict.fromkeys(names, f"{level_set.path} ({entry.file})")
    for category in level_set.categories:
        rows = [row for row in level_set.indices(category) if row >= known]
        for place in np.unique(np.linspace(0, len(rows) - 1, FEW).astype(int)).tolist() if rows else ():
            _check_finished(level_set, rows[place])


def _check_finished(level_set: LevelSet, row: int) -> None:
    entry, level = level_set.entries[row], level_set[row]
    run = plan(level)
    played = simulate(level, run.inputs) if run else None
    if played is None or not played.won or played.frames != entry.par_frames:
        told = f"{played.outcome} after {played.frames} frames" if played else "not finished at all"
        raise GenerateError(
            f"{level_set.path}: level {entry.file} can be finished in {entry.par_frames} frames by the index, planned again "
            f"it is {told}: levels that nobody can finish may be in the set; {_REPORT}"
        )
