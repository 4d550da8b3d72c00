#!/usr/bin/env python3
"""Generate a level set: ``python scripts/generate_levels.py --category simplest simpler --count 1000 --seed 1 --out DIR``.

The planner, a search in the simulator, tries to finish each level.  Levels that it finishes are written to DIR with the
number of frames of its run, and all others to ``DIR/unfinished``.  To continue an interrupted command, repeat it with the
same arguments.  With ``--report DIR``, the script only prints the variety of the levels of an existing set.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nppsim import errors
from nppsim.generate import CATEGORIES
from nppsim.generate.make import count_unfinished, make_level_set
from nppsim.generate.variety import variety, variety_table
from nppsim.io.files import check_output_folder
from nppsim.io.progress import progress_bar
from nppsim.levels.level_set import LevelSet
from nppsim.parallel.cluster import Workers
from nppsim.planner import par_frames
from nppsim.settings import Parser, Setting


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv
    return errors.run(lambda: run(*parse(given)), debug="--debug" in given)


def run(arguments: argparse.Namespace, workers: Workers) -> None:
    """Generate levels and print how many there are, or print the report of a level set."""
    if arguments.report is not None:
        level_set = LevelSet.open(arguments.report)
        print(variety_table(variety((level_set.category(i), level) for i, level in enumerate(level_set))))
        return
    level_set = make(arguments, workers)
    unfinished = count_unfinished(arguments.out)
    for category in level_set.categories:
        made, lost = len(level_set.indices(category)), unfinished.get(category, 0)
        print(
            f"{level_set.path}: {made} levels of category {category}; the planner could not finish {lost} more "
            f"({lost / (made + lost):.1%})"
        )


def make(arguments: argparse.Namespace, workers: Workers) -> LevelSet:
    """Generate and return the level set.  The message of a KeyboardInterrupt explains how to continue."""
    check_output_folder(arguments.out, "--out")
    try:
        return make_level_set(
            arguments.out,
            arguments.category,
            arguments.count,
            arguments.seed,
            difficulty=arguments.difficulty,
            exclude=[LevelSet.open(path) for path in arguments.exclude],
            verify=par_frames,
            index_only=arguments.index_only,
            workers=workers.workers,
            cluster=workers.cluster,
            progress=counter(len(arguments.category) * arguments.count),
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"finished levels are in {arguments.out}; repeat the command to continue") from None


def counter(total: int) -> Callable[[str, int], None] | None:
    """Return a function that updates a progress bar; None without a terminal.

    Arguments of the function: a category, and the number of levels that it has so far.
    """
    if not sys.stderr.isatty():
        return None
    bar, done = progress_bar(total=total, unit="level"), {}

    def show(category: str, made: int) -> None:
        done[category] = made
        bar.set_description(category)
        bar.n = sum(done.values())
        bar.update(0)
        if bar.n >= total:
            bar.close()

    return show


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Workers]:
    """Parse the command line."""
    parser = Parser(
        prog="generate_levels.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    categories = "categories of levels; default: all"
    add("--category", "--categories", nargs="+", choices=CATEGORIES, default=list(CATEGORIES), help=categories)
    parser.add_flag(Setting("number of levels per category", flag="count", kind=int, low=1))
    seed = "random seed; use different seeds for training and test levels"
    parser.add_flag(Setting(seed, flag="seed", aliases=("seeds",), kind=int, low=0))
    difficulty = "0 (easiest) to 1 (hardest) within each category; default: all difficulties"
    parser.add_flag(Setting(difficulty, flag="difficulty", kind=float, low=0, high=1))
    parser.add_settings(Workers)
    add("--out", "--output-dir", type=Path, metavar="DIR", help="folder of the level set")
    only = "write no files of levels, only the index, from which levels are generated when they are read"
    add("--index-only", action="store_true", help=only)
    exclude = "generate no level that is in these level sets, mirrored or not"
    add("--exclude", nargs="+", action="extend", default=[], metavar="DIR", help=exclude)
    add("--report", metavar="DIR", help="only print the variety of the levels of this set")
    add("--debug", action="store_true", help="show the traceback of an error")
    arguments = parser.parse_args(argv)
    needed = (arguments.count, arguments.seed, arguments.out)
    if arguments.report is None and None in needed:
        parser.error("--count, --seed and --out are needed to make levels; or give --report")
    if arguments.report is not None and needed != (None, None, None):
        parser.error("--report makes no levels; leave out --count, --seed and --out")
    return arguments, parser.build(Workers, arguments)


if __name__ == "__main__":
    sys.exit(main())
