"""Check that the levels of a generated set match its index."""

import json
from collections.abc import Sequence

import numpy as np

from nppsim.generate import recipe
from nppsim.generate.make import GenerateError
from nppsim.levels.level import mirror
from nppsim.levels.level_set import LevelSet
from nppsim.planner.plan import plan
from nppsim.simulate import simulate

FEW = 3  # number of levels per category that are planned again
_REPORT = "this is a bug in the generator, not in the settings"


def check_made(
    level_set: LevelSet, difficulty: float | None = None, exclude: Sequence[LevelSet] = (), known: int = 0
) -> None:
    """Raise GenerateError if a level does not match its recipe, is excluded, or equals another one or its mirror image.

    Also plans a few levels of each category again and compares the lengths of the runs with the index.

    difficulty, exclude: arguments with which the set was generated.
    known: number of levels to skip in this comparison, because another version of the planner may have verified them.
    """
    used = {other.fingerprint(i): str(other.path) for other in exclude for i in range(len(other))}
    for entry, level in zip(level_set.entries, level_set, strict=True):
        place = f"{level_set.path}: level {entry.file}"
        if entry.seed is None:
            raise GenerateError(f"{place} has no seed, so it cannot be generated again; {_REPORT}")
        family, parameters = recipe(entry.category, entry.seed, difficulty)
        if (family, json.dumps(parameters)) != (entry.generator, json.dumps(entry.parameters)):
            raise GenerateError(
                f"{place} has category {entry.category}, but its generator is {entry.generator} with {entry.parameters}, not "
                f"{family} with {parameters}; {_REPORT}"
            )
        names = {level.fingerprint, mirror(level).fingerprint}
        if found := [used[name] for name in names if name in used]:
            raise GenerateError(f"{place} is also in {found[0]}, identical or mirrored; {_REPORT}")
        used |= dict.fromkeys(names, f"{level_set.path} ({entry.file})")
    for category in level_set.categories:
        rows = [row for row in level_set.indices(category) if row >= known]
        for place in np.unique(np.linspace(0, len(rows) - 1, FEW).astype(int)).tolist() if rows else ():
            _check_finished(level_set, rows[place])


def _check_finished(level_set: LevelSet, row: int) -> None:
    entry, level = level_set.entries[row], level_set[row]
    run = plan(level)
    played = simulate(level, run.inputs) if run else None
    if played is None or not played.won or played.frames != entry.par_frames:
        result = f"{played.outcome} after {played.frames} frames" if played else "not finished"
        raise GenerateError(
            f"{level_set.path}: level {entry.file} has par {entry.par_frames} frames in the index, but planned again it is "
            f"{result}: the set may contain levels that cannot be finished; {_REPORT}"
        )
