#!/usr/bin/env python3
"""Make a level set: ``python scripts/generate_levels.py --category simplest simpler --count 1000 --seed 1 --out DIR``.

Only levels that the planner finishes are in the set, with the frames of its run; the others are in the level set
``DIR/unfinished``, and counted.  Run again with the same arguments, it continues where it was interrupted.  ``--report
DIR`` prints instead how varied the levels of a level set are.
"""

import argparse
import sys

from nppsim.generate import CATEGORIES
from nppsim.generate.make import GenerateError, count_unfinished, make_level_set
from nppsim.generate.variety import variety, variety_table
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.planner import par_frames


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--category", nargs="+", choices=CATEGORIES, default=list(CATEGORIES), help="default: all")
    parser.add_argument("--count", type=int, help="distinct levels of each category")
    parser.add_argument("--seed", type=int, help="0 or more; give train and test sets different seeds")
    parser.add_argument(
        "--difficulty",
        type=float,
        metavar="D",
        help="0 to 1: draw from the easy or the hard end of a category; default: all",
    )
    parser.add_argument("--out", help="folder of the level set")
    parser.add_argument(
        "--exclude", nargs="+", default=[], metavar="DIR", help="level sets whose levels, mirrored or not, are not used"
    )
    parser.add_argument("--workers", type=int, help="processes; default: all cores where that pays")
    parser.add_argument(
        "--report", metavar="DIR", help="make nothing; print the variety of the levels of this level set"
    )
    options = parser.parse_args(arguments)
    if options.report is None and None in (options.count, options.seed, options.out):
        parser.error("--count, --seed and --out are needed to make levels; or give --report")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    if options.report is not None:
        return print_report(options.report)
    show = progress_bar(len(options.category) * options.count)
    try:
        level_set = make_level_set(
            options.out,
            options.category,
            options.count,
            options.seed,
            difficulty=options.difficulty,
            exclude=[LevelSet.open(path) for path in options.exclude],
            verify=par_frames,
            workers=options.workers,
            progress=show,
        )
    except (GenerateError, LevelSetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"error: --out {options.out}: cannot be written ({error.strerror}); choose another folder", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {options.out} keeps what was made, the same command continues", file=sys.stderr)
        return 130
    unfinished = count_unfinished(options.out)
    for category in level_set.categories:
        made, lost = len(level_set.indices(category)), unfinished.get(category, 0)
        print(
            f"{level_set.path}: {made} levels of category {category}; the planner could not finish {lost} more "
            f"({lost / (made + lost):.1%})"
        )
    return 0


def print_report(path: str) -> int:
    try:
        level_set = LevelSet.open(path)
        print(variety_table(variety((level_set.category(i), level) for i, level in enumerate(level_set))))
    except LevelSetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def progress_bar(total: int):
    """A tqdm bar on a terminal, else nothing; called with a category and the number of its levels."""
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    bar, done = tqdm(total=total, unit="level"), {}

    def show(category: str, made: int) -> None:
        done[category] = made
        bar.set_description(category)
        bar.n = sum(done.values())
        bar.update(0)
        if bar.n >= total:
            bar.close()

    return show


if __name__ == "__main__":
    sys.exit(main())
