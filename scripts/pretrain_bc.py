"""Train a policy by imitation of replays only, and optionally evaluate its success on held-out levels.

python scripts/pretrain_bc.py --architecture mlp_baseline --replay-data-dir DIR [--test-dataset datasets/test]

Writes ``bc_best.safetensors`` (the best weights so far), ``results.json`` and ``tensorboard/`` into
``<output-dir>/pretrain_<architecture>_<time>/``.  The dataset is cached in ``<output-dir>/cache``.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.import_optional("torch", "train")
        from rl.tools.pretrain import parse, run

        run(parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
