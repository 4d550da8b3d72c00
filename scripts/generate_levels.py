#!/usr/bin/env python3
"""Make a level set: ``python scripts/generate_levels.py --category simplest simpler --count 1000 --seed 1 --out DIR``.

Only levels that the planner finishes are written, with the frames of its run.  Run again with the same arguments, it
continues where it was interrupted.
"""

import argparse
import sys

from nppsim.generate import CATEGORIES
from nppsim.generate.dataset import GenerateError, make_level_set
from nppsim.levelset import LevelSet, LevelSetError
from nppsim.planner import par_frames


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--category", nargs="+", choices=CATEGORIES, default=list(CATEGORIES), help="default: all")
    parser.add_argument("--count", type=int, required=True, help="distinct levels of each category")
    parser.add_argument("--seed", type=int, required=True, help="0 or more; give train and test sets different seeds")
    parser.add_argument("--out", required=True, help="folder of the level set")
    parser.add_argument(
        "--exclude", nargs="+", default=[], metavar="DIR", help="level sets whose levels, mirrored or not, are not used"
    )
    parser.add_argument("--workers", type=int, help="processes; default: all cores where that pays")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    show = progress_bar(len(options.category) * options.count)
    try:
        level_set = make_level_set(
            options.out,
            options.category,
            options.count,
            options.seed,
            exclude=[LevelSet.open(path) for path in options.exclude],
            verify=par_frames,
            workers=options.workers,
            progress=show,
        )
    except (GenerateError, LevelSetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; {options.out} keeps what was made, the same command continues", file=sys.stderr)
        return 130
    for category in level_set.categories:
        print(f"{level_set.path}: {len(level_set.indices(category))} levels of category {category}")
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
