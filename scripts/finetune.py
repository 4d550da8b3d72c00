"""Train a finished agent further on other levels: train_and_compare.py with the settings of the recipe ``finetune``.

python scripts/finetune.py LEVELS... [--init-from CHECKPOINT] [flags of train_and_compare.py]
"""

import argparse
import sys
from pathlib import Path

from nppsim import errors

DATASETS = Path(__file__).resolve().parents[1] / "datasets"
SHIPPED = DATASETS / "agents" / "vision_free_foresight.safetensors"


def main(argv: list[str]) -> int:
    """Run the command; return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    flags = main_job_flags(argv)

    def job() -> int:
        errors.import_optional("torch", "train")
        from rl.experiment.train import start

        return start(flags, Path(__file__).with_name("train_and_compare.py"))

    return errors.run(job, debug="--debug" in argv)


def main_job_flags(argv: list[str]) -> list[str]:
    """Return the flags of train_and_compare.py that correspond to this command line."""
    parser = argparse.ArgumentParser(
        prog="finetune.py",
        description="Train a finished agent further on other levels, for an hour, with the settings of the recipe finetune.",
        epilog="All flags of train_and_compare.py may follow (docs/flags.md), such as --time-budget-minutes 20.",
        allow_abbrev=False,
    )
    parser.add_argument("levels", nargs="+", metavar="LEVELS", help="folders of levels, level files or campaign files")
    parser.add_argument("--init-from", metavar="CHECKPOINT", default=str(SHIPPED), help="default: the shipped agent")
    parser.add_argument(
        "--test-dataset",
        nargs="+",
        metavar="LEVELS",
        default=[str(DATASETS / "test")],
        help="default: the shipped test levels",
    )
    arguments, more = parser.parse_known_args(argv)
    chosen = ["--init-from", arguments.init_from, "--test-dataset", *arguments.test_dataset]
    return ["--recipe", "finetune", "--train-dataset", *arguments.levels, *chosen, *more]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
