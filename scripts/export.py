"""Export a checkpoint: an ONNX file that other programs can run, and a folder with a model card, ready for a hub.

python scripts/export.py CHECKPOINT --onnx OUT.onnx [--hub FOLDER] [--results RESULTS.json] [--license MIT]

Before anything is written, the network is compared with its policy on 1,000 observations and in 100 episodes, and the
result is printed (docs/search_and_export.md).  scripts/evaluate.py plays OUT.onnx.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.needed("torch", "train")
        from rl.experiment.export import parse, run

        run(parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
