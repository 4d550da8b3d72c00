"""Evaluate a checkpoint: success with confidence intervals per category, and films.

python scripts/evaluate.py CHECKPOINT --levels DIR [--record-eval-videos]

CHECKPOINT may be a network that scripts/export.py has written (*.onnx), too.

Writes ``results.json`` (per category, level and episode), ``replays.h5`` with every episode, and with --record-eval-videos
``videos/`` and ``route_visualizations/``, into ``<output-dir>/evaluate_<time>/``.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.needed("torch", "train")
        from rl.experiment.evaluate import parse, run

        run(*parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
