"""Write the planner's runs through every level of a level set, one file per category: demonstrations to imitate.

python scripts/make_demonstrations.py --levels datasets/train --out datasets/demonstrations

Run again with the same arguments, it goes on where it was interrupted.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bc.planned_demonstrations import MadeDemonstrations, make_demonstrations
from nppsim import errors
from nppsim.cluster import Workers
from nppsim.files import check_output_folder
from nppsim.planner.settings import PlannerSettings
from nppsim.progress import progress_bar
from nppsim.settings import Parser

SHOWN = 20  # names of levels after which only their number is told


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if a level has no run, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv
    return errors.run(lambda: run(*parse(given)), debug="--debug" in given)


def run(arguments: argparse.Namespace, settings: PlannerSettings, workers: Workers) -> int:
    """Plan, and tell what was made; an interruption says how to go on."""
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
        raise KeyboardInterrupt(f"{arguments.out} keeps what was made, the same command continues") from None
    tell(made)
    return 1 if made.unfinished else 0


def tell(made: MadeDemonstrations) -> None:
    """Print what was made, and which levels have no run."""
    print(f"{made.written} demonstrations written, {made.found} were there already")
    if made.duplicates or made.failed:
        print(f"dropped, as they were the same as others: {made.duplicates}; further runs not found: {made.failed}")
    if made.compared:
        equal = made.compared - len(made.differing)
        print(f"as long as the level set's index says (par_frames): {equal} of {made.compared}")
        if made.differing:
            print(f"of another length, so the planner is not the one that made the index: {len(made.differing)}")
        show(made.differing, SHOWN)
    if made.unfinished:
        print(f"no run found within the budget on {len(made.unfinished)} levels:")
        show(made.unfinished, len(made.unfinished))


def show(lines: Sequence[str], most: int) -> None:
    """Print the first lines, and how many more there are."""
    for line in lines[:most]:
        print(f"  {line}")
    if len(lines) > most:
        print(f"  ... and {len(lines) - most} more")


def searching(items: Iterable, total: int) -> Iterable:
    """The items, with a progress bar."""
    return progress_bar(items, "searching", total=total, unit="level")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, PlannerSettings, Workers]:
    """What the command line asks for."""
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
