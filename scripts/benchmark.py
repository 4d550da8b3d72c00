#!/usr/bin/env python3
"""Run the benchmark of docs/benchmark.md: ``nppsim benchmark run|score|table|levels|generate``.

    python scripts/benchmark.py run CHECKPOINT --levels hard/dev --out mine
    python scripts/benchmark.py score mine
    python scripts/benchmark.py table mine other

``run`` writes a submission: ``submission.json``, ``replays.h5`` with one replay per level, and its ``score.json``.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.import_optional("torch", "train")
        from rl.tools.benchmark import parse

        arguments = parse(given)
        arguments.job(arguments)

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
