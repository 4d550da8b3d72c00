"""Train one or more networks by imitation and PPO with a curriculum, evaluate them, and write videos and a report.

python scripts/train_and_compare.py --experiment-name first --architectures mlp_baseline --replay-data-dir DIR

docs/flags.md lists all flags.
"""

import sys

from nppsim import errors


def main(argv: list[str]) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""

    def job() -> int:
        errors.import_optional("torch", "train")
        from rl.experiment.train import start

        return start(argv, __file__)

    return errors.run(job, debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
