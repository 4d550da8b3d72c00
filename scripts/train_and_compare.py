"""The main job: imitation -> PPO with curriculum -> evaluation with films -> report, for one or more networks.

python scripts/train_and_compare.py --experiment-name first --architectures mlp_baseline --replay-data-dir DIR

All flags: docs/flags.md.
"""

import sys

from nppsim import errors


def main(argv: list[str]) -> int:
    """Run the command; return the exit status: 0, 2 for bad input, 130 after Ctrl-C."""

    def job() -> int:
        errors.needed("torch", "train")
        from rl.experiment.train import start

        return start(argv, __file__)

    return errors.run(job, debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
