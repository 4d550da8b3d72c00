"""Search on top of a trained agent: finish levels and shorten runs.

python scripts/solve.py LEVEL --agent CHECKPOINT [--against REPLAY] [--out DIR]

LEVEL is a level file, a replay or an attract file (for its level), or a folder of either.  Prints frames beside par and
recording; writes replay, attract file, film and page into DIR (docs/search_and_export.md).
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 if a level was not solved, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        errors.needed("torch", "train")
        from rl.search.command import parse, run

        return run(*parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
