"""Write the planner's runs through every level of a level set, one file per category: demonstrations to imitate.

python scripts/make_demonstrations.py --levels datasets/train --out datasets/demonstrations

Run again with the same arguments, it goes on where it was interrupted.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from tqdm import tqdm

from bc.demonstrations import DemonstrationError
from bc.make import PlannerSettings, make_demonstrations
from nppsim.levels.level_set import LevelSetError
from nppsim.replays.replay import ReplayError

SHOWN = 20  # names of levels after which only their number is told


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)

    def progress(items, total):
        return tqdm(items, total=total, unit="level", disable=not sys.stderr.isatty())

    try:
        settings = PlannerSettings(**{field.name: getattr(arguments, field.name) for field in fields(PlannerSettings)})
        made = make_demonstrations(
            arguments.levels, arguments.out, settings, workers=arguments.workers, progress=progress
        )
    except (DemonstrationError, LevelSetError, ReplayError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        reason = error.strerror or error
        print(f"error: --out {arguments.out}: cannot be written ({reason}); choose another folder", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {arguments.out} keeps what was made, the same command continues", file=sys.stderr)
        return 130
    print(f"{made.written} demonstrations written, {made.found} were there already")
    if made.duplicates or made.failed:
        print(f"dropped, as they were the same as others: {made.duplicates}; further runs not found: {made.failed}")
    if made.compared:
        equal = made.compared - len(made.differing)
        print(f"as long as the level set's index says (par_frames): {equal} of {made.compared}")
        if made.differing:
            print(f"of another length, so the planner is not the one that made the index: {len(made.differing)}")
        show(made.differing)
    if made.unfinished:
        print(f"no run found within the budget on {len(made.unfinished)} levels:")
        show(made.unfinished, len(made.unfinished))
    return 1 if made.unfinished else 0


def show(lines, most=SHOWN):
    for line in lines[:most]:
        print(f"  {line}")
    if len(lines) > most:
        print(f"  ... and {len(lines) - most} more")


def parse(argv) -> argparse.Namespace:
    defaults = PlannerSettings()
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--levels", type=Path, required=True, help="folder of levels")
    add("--out", type=Path, required=True, help="folder for the replay sets, CATEGORY.h5")
    add("--frame-skip", type=int, default=defaults.frame_skip, help="frames per decision")
    add("--seed", type=int, default=defaults.seed, help="of the planner")
    add("--runs", type=int, default=defaults.runs, help="runs per level, with seeds from --seed on")
    add("--min-hold", type=int, default=defaults.min_hold, help="decisions that an action lasts at least")
    add("--noise", type=float, default=defaults.noise, metavar="PX", help="more: runs of different seeds differ more")
    add("--budget", type=int, default=defaults.budget, help="simulated frames per run")
    add("--workers", type=int, default=argparse.SUPPRESS, help="processes; default: all cores")
    return argparse.Namespace(**({"workers": None} | vars(parser.parse_args(argv))))


if __name__ == "__main__":
    sys.exit(main())
