"""Levels of an evaluation or of an experiment, read from folders and files.

pairs = read_pairs(["datasets/dev", "mine/level.map"])      # [(level, category), ...] without duplicates
"""

from collections.abc import Sequence
from pathlib import Path

from nppsim.levels.level import UNSUPPORTED, Level, left_out, warning_lines
from nppsim.levels.level_set import LevelSet, LevelSetError
from rl.evaluation.results import ALL
from rl.log import Log

SHOWN = 5  # maximum number of unusable levels that an error names
Pairs = list[tuple[Level, str]]  # levels with categories


def read_pairs(
    paths: Sequence[str | Path], log: Log = print, *, skip_bad_levels: bool = False, allow_unsupported: bool = False
) -> Pairs:
    """Read the levels of folders and files with their categories, without duplicates; see ``merge_level_sets``.

    Raises LevelSetError for unreadable levels, unless ``skip_bad_levels``.
    """
    bad: list[str] = []
    sets = [drop_unreadable(LevelSet.at(path), bad) for path in paths]
    skip_or_raise(bad, skip_bad_levels, log)
    return merge_level_sets(sets, log, allow_unsupported=allow_unsupported)


def drop_unreadable(levels: LevelSet, bad: list[str]) -> LevelSet:
    """Return the set without unreadable levels, with all levels in memory; LevelSetError if all are unreadable.

    bad: list to which the error messages are appended.
    """
    good, read, errors = [], [], []
    for i, entry in enumerate(levels.entries):
        try:
            read.append(levels[i])
            good.append(entry)
        except LevelSetError as error:
            errors.append(str(error))
    if not good:
        every = f"no level of {levels.path} can be used: {first_of(errors)}"
        raise LevelSetError(errors[0] if len(errors) == 1 else every)
    bad += errors
    return LevelSet(levels.path, good, levels.skipped, read)


def first_of(messages: Sequence[str]) -> str:
    """Join the first SHOWN messages, and state the number of the others."""
    return "; ".join([*messages[:SHOWN], *([f"and {len(messages) - SHOWN} more"] if len(messages) > SHOWN else [])])


def skip_or_raise(bad: Sequence[str], skip: bool, log: Log) -> None:
    """Log the error messages ``bad`` of unusable levels if ``skip``, otherwise raise a LevelSetError that names the first."""
    if bad and not skip:
        advice = "fix or remove them, or leave them out with --skip-bad-levels"
        raise LevelSetError(f"{len(bad)} levels cannot be used: {first_of(bad)}; {advice}")
    for message in bad:
        log(f"left out: {message}")


def merge_level_sets(sets: Sequence[LevelSet], log: Log, *, allow_unsupported: bool = False) -> Pairs:
    """Return the levels of all sets with their categories, and log their warnings and omitted levels.

    Duplicate levels are omitted; levels with unsupported entities also, unless ``allow_unsupported``.
    Raises LevelSetError if no level is left.
    """
    pairs: Pairs = []
    unsupported: list[Level] = []
    first: dict[str, Path] = {}  # fingerprint of a level -> first file that contains the level
    for levels in sets:
        twice = []
        for i, entry in enumerate(levels.entries):
            level, category, file = levels[i], levels.category(i), levels.path / entry.file
            if category == ALL:
                raise LevelSetError(f'{levels.path}: category "{ALL}" is reserved for the total; rename it')
            if level.support == UNSUPPORTED and not allow_unsupported:
                unsupported.append(level)
            elif level.fingerprint in first:
                twice.append(f"{file} = {first[level.fingerprint]}")
            else:
                first[level.fingerprint] = file
                pairs.append((level, category))
        if twice:
            log(f"left out: {len(twice)} duplicate levels: {', '.join(twice)}")
    if unsupported:
        message = left_out(unsupported, len(unsupported) + len(pairs))
        if not pairs:
            raise LevelSetError(message)
        log(f"left out: {message}")
    for warning in warning_lines(level for level, _ in pairs):
        log(warning)
    return pairs
