"""Find runs that finish levels, and shorten them, by search guided by a trained agent.

python scripts/solve.py LEVEL --agent CHECKPOINT [--against REPLAY] [--out DIR]

LEVEL is a level file, a replay or attract file (whose level is used), or a folder of these.  Prints the length of each run,
the par and the length of the recording.  Writes replay, attract file, video and page into DIR (docs/search_and_export.md).
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 1 if a level was not solved, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        errors.import_optional("torch", "train")
        from rl.search.command import parse, run

        return run(*parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
