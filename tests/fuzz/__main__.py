"""Damage files of every format and read them: each must be read, or refused in one line, with little memory and time.

python -m tests.fuzz [--count N] [--seed S] [--first N] [--readers NAME ...] [--keep-going] [--out FOLDER]

Prints a row per reader; stops at the first failure (another error, too much memory or time, a crash, a hang) and saves its
input in FOLDER.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 after a failure, 2 for bad arguments, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        from nppsim.settings import Parser

        parser = Parser(prog="python -m tests.fuzz", description="Read damaged files of every format.")
        parser.add_argument("--count", type=int, default=1000, metavar="N", help="inputs per reader (default: 1,000)")
        parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed (default: 0)")
        parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input (default: 0)")
        parser.add_argument("--readers", nargs="+", metavar="NAME", help="default: all; an unknown name lists them")
        parser.add_argument("--keep-going", action="store_true", help="count failures instead of stopping at the first")
        parser.add_argument(
            "--out", type=Path, default=Path("fuzz_failures"), metavar="FOLDER", help="folder for failing inputs"
        )
        arguments = parser.parse_args(given)
        errors.needed("torch", "train")
        from tests.fuzz.fuzzing import run

        return run(
            arguments.readers,
            arguments.count,
            arguments.seed,
            arguments.out,
            first=arguments.first,
            stop=not arguments.keep_going,
        )

    return errors.run(job)


if __name__ == "__main__":
    sys.exit(main())
