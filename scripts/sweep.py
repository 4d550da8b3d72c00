"""Search for better settings: Optuna proposes them, each trial trains a policy, and success on the dev levels decides.

python scripts/sweep.py --sweep initial-lr=1e-4..1e-2:log minibatch-size=1024,2048,4096 --trials 20 --seeds 0 1 \\
    --out experiments/sweep -- --architectures vision_free --total-timesteps 2000000

Flags after ``--`` are flags of scripts/train_and_compare.py for every trial.  Trials that are worse than the median of
earlier trials are stopped.  To continue an interrupted sweep, give its folder with --out.  The test levels are never played.
Exit status: 0 success; 2 bad input, three failed trials in succession, or no successful trial; 130 after Ctrl-C.
See docs/evaluate.md.
"""

import argparse
import sys
from datetime import datetime
from pathlib import Path

from nppsim import errors
from nppsim.io.files import check_output_folder
from nppsim.settings import Parser, Setting

SCRIPT = Path(__file__).with_name("train_and_compare.py")


def main(argv: list[str]) -> int:
    """Run the command; return the exit status (see the module's docstring)."""

    def job() -> None:
        arguments = parse(argv)
        errors.import_optional("torch", "train")
        errors.import_optional("optuna", "sweep")
        run(arguments)

    return errors.run(job)


def run(arguments: argparse.Namespace) -> None:
    """Train the missing trials and print the table."""
    from rl import plugins
    from rl.tools import sweep  # needs torch

    check_output_folder(arguments.out, "--out")
    plugins.load(arguments.plugin)
    settings = sweep.Sweep(
        sweep.read_space(arguments.sweep),
        (*(["--plugin", *arguments.plugin] if arguments.plugin else []), *arguments.common),
        tuple(arguments.seeds),
        arguments.trials,
        arguments.pruning,
    )
    try:
        study = sweep.run_trials(settings, arguments.out, SCRIPT, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"to continue, repeat the command with --out {arguments.out}") from None
    print(sweep.report(study, settings, arguments.out))


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; ``common`` contains the flags after "--"."""
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sweep",
        nargs="+",
        default=[],
        action="extend",
        metavar="NAME=VALUES",
        help="ranges NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=A,B,C; NAME is a flag without dashes or a dotted setting",
    )
    plugin = "Python files or installed modules to import first, here and in every trial (docs/own_network.md)"
    parser.add_argument("--plugin", nargs="+", action="extend", default=[], metavar="FILE", help=plugin)
    trials = "total number of trials, including earlier ones in --out"
    parser.add_flag(Setting(trials, flag="trials", kind=int, default=20, low=1))
    seeds = "random seeds; each trial trains once with each seed"
    parser.add_flag(Setting(seeds, flag="seeds", aliases=("seed",), kind=int, many=True, default=(0,), low=0))
    pruning = "stop trials that are worse than the median of earlier trials"
    parser.add_flag(Setting(pruning, flag="pruning", kind=bool, default=True, switch=True))
    folder = "folder of the sweep (default: experiments/sweep_TIME)"
    parser.add_argument("--out", "--output-dir", type=Path, metavar="DIR", help=folder)
    arguments = parser.parse_args(argv[:end])
    arguments.common = argv[end + 1 :]
    arguments.out = arguments.out or Path("experiments") / f"sweep_{datetime.now():%Y%m%d_%H%M%S}"
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
