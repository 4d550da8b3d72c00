"""Evaluate a checkpoint: success rate with confidence interval per category, and videos.

python scripts/evaluate.py CHECKPOINT --levels DIR [--record-eval-videos]

CHECKPOINT may also be a network written by scripts/export.py (*.onnx).

Writes into ``<output-dir>/evaluate_<time>/``: ``results.json`` with results per category, level and episode, ``replays.h5``
with every episode, and with --record-eval-videos the folders ``videos/`` and ``route_visualizations/``.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.import_optional("torch", "train")
        from rl.tools.evaluate import parse, run

        run(*parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
