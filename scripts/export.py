"""Export a checkpoint as an ONNX file, or as a folder with a model card for a model hub.

python scripts/export.py CHECKPOINT --onnx OUT.onnx [--hub FOLDER] [--results RESULTS.json] [--license MIT]

Before the file is written, the outputs of the exported network are compared with those of the policy on 500 observations
(docs/search_and_export.md).  scripts/evaluate.py accepts OUT.onnx.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.import_optional("torch", "train")
        from rl.tools.export import parse, run

        run(parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
