"""Write the planner's run through every level of a level set: demonstrations for behavioural cloning.

python scripts/make_demonstrations.py --levels datasets/train --out datasets/demonstrations
"""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from bc.make import make_demonstrations
from nppsim.levelset import LevelSetError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=Path, required=True, help="folder of levels")
    parser.add_argument("--out", type=Path, required=True, help="folder for the replays; existing ones are kept")
    parser.add_argument("--frame-skip", type=int, default=4, help="frames per decision (default: 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=5_000_000, help="simulated frames per level (default: 5 million)")
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    arguments = vars(parser.parse_args())

    def progress(items, total):
        return tqdm(items, total=total, unit="level", disable=not sys.stderr.isatty())

    try:
        made = make_demonstrations(**arguments, progress=progress)
    except (LevelSetError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{made.written} demonstrations written, {made.found} were there already")
    for name in made.unfinished:
        print(f"no run found within the budget: {name}")
    return 1 if made.unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
