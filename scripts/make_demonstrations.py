"""Find a winning run for each level of a level set, and write the runs as demonstrations, one file per category.

python scripts/make_demonstrations.py --levels datasets/train --out datasets/demonstrations

To continue an interrupted command, repeat it with the same arguments.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bc.planned_demonstrations import PlannedDemonstrations, make_demonstrations
from nppsim import errors
from nppsim.io.files import check_output_folder
from nppsim.io.progress import progress_bar
from nppsim.parallel.cluster import Workers
from nppsim.planner.settings import PlannerSettings
from nppsim.settings import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 1 if no run was found for a level, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv
    return errors.run(lambda: run(*parse(given)), debug="--debug" in given)


def run(arguments: argparse.Namespace, settings: PlannerSettings, workers: Workers) -> int:
    """Find runs and print a summary.  The message of a KeyboardInterrupt explains how to continue."""
    check_output_folder(arguments.out, "--out")
    try:
        made = make_demonstrations(
            arguments.levels,
            arguments.out,
            settings,
            workers=workers.workers,
            cluster=workers.cluster,
            progress=searching,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"finished demonstrations are in {arguments.out}; repeat the command to continue"
        ) from None
    print_summary(made)
    return 1 if made.unfinished else 0


def print_summary(made: PlannedDemonstrations) -> None:
    """Print the number of demonstrations, and the levels without a run."""
    print(f"{made.written} demonstrations written, {made.found} existed already")
    if made.duplicates or made.failed:
        print(f"duplicate runs dropped: {made.duplicates}; additional runs not found: {made.failed}")
    if made.unfinished:
        print(f"no run found within the budget on {len(made.unfinished)} levels:")
        print(*(f"  {level}" for level in made.unfinished), sep="\n")


def searching(items: Iterable, total: int) -> Iterable:
    """Iterate over the items with a progress bar."""
    return progress_bar(items, "searching", total=total, unit="level")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, PlannerSettings, Workers]:
    """Parse the command line."""
    parser = Parser(prog="make_demonstrations.py", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--levels", type=Path, required=True, metavar="DIR", help="folder of levels")
    add(
        "--out", "--output-dir", type=Path, required=True, metavar="DIR", help="folder for the replay sets, CATEGORY.h5"
    )
    parser.add_settings(Workers)
    add("--debug", action="store_true", help="show the traceback of an error")
    parser.add_settings(PlannerSettings)
    arguments = parser.parse_args(argv)
    return arguments, parser.build(PlannerSettings, arguments), parser.build(Workers, arguments)


if __name__ == "__main__":
    sys.exit(main())
