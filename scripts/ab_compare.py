"""Train two settings A and B with the same seeds, alternately, and compare their speed and learning curves.

python scripts/ab_compare.py --a "--frame-skip 4" --b "--frame-skip 2" --seeds 1 2 3 -- \\
    --architectures vision_free --total-timesteps 1000000

Flags after ``--`` are flags of scripts/train_and_compare.py for both A and B.  Success is compared on the dev levels, so that
choices do not depend on the test levels; --test also evaluates on the test levels.  To continue an interrupted comparison,
give its folder with --out: finished runs are reused.
Exit status: 0 success; 2 bad input or a failed run; 130 after Ctrl-C.  See docs/evaluate.md.
"""

import argparse
import shlex
import sys
from datetime import datetime
from pathlib import Path

from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.io.files import check_output_folder
from nppsim.settings import Parser, Setting

SCRIPT = Path(__file__).with_name("train_and_compare.py")


def main(argv: list[str]) -> int:
    """Run the command; return the exit status (see the module's docstring)."""

    def job() -> None:
        arguments = parse(argv)
        errors.import_optional("torch", "train")
        run(arguments)

    return errors.run(job)


def run(arguments: argparse.Namespace) -> None:
    """Train A and B with each seed, except finished runs; print and write the comparison."""
    from rl.tools import ab  # needs torch

    check_output_folder(arguments.out, "--out")
    given = {name: getattr(arguments, name) for name in ("a", "b", "test", "share")}
    settings = ab.ABSettings(
        **given, common=tuple(arguments.common), seeds=tuple(arguments.seeds), speed_up=arguments.speedup
    )
    try:
        ab.run_all(settings, arguments.out, SCRIPT, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"finished runs are saved; continue with --out {arguments.out}") from None
    comparison = ab.compare_arms(settings, arguments.out)
    print(comparison.text())
    for file in comparison.write(arguments.out):
        print(f"written: {file}")


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; ``common`` contains the flags after "--"."""
    end = argv.index("--") if "--" in argv else len(argv)
    own = list(argv[:end])
    # "--a VALUE" becomes "--a=VALUE", since argparse mistakes a VALUE with a dash for a flag.
    for arm in ("--a", "--b"):
        if arm in own[:-1]:
            at = own.index(arm)
            own[at : at + 2] = [f"{arm}={own[at + 1]}"]
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--a", default="", metavar="FLAGS", help='flags of A, the baseline, as one argument: --a "--frame-skip 4"')
    add("--b", default="", metavar="FLAGS", help="flags of B, the alternative, as one argument")
    seeds = "random seeds; A and B are trained once with each"
    parser.add_flag(Setting(seeds, flag="seeds", aliases=("seed",), kind=int, many=True, default=(1, 2, 3), low=0))
    folder = "folder of the comparison (default: experiments/ab_TIME)"
    add("--out", "--output-dir", type=Path, metavar="DIR", help=folder)
    final = "also evaluate on the test levels, for a final result"
    parser.add_flag(Setting(final, flag="test", kind=bool, default=False))
    share = "share (0 to 1) of A's training time spent in the part of the program that B changes; needs --speedup"
    parser.add_flag(Setting(share, flag="share", kind=float, low=0, high=1))
    speedup = "measured speed-up factor of that part, to compare the expected and the measured gain; needs --share"
    parser.add_flag(Setting(speedup, flag="speedup", kind=float, above=0))
    arguments = parser.parse_args(own)
    arguments.a, arguments.b = _split("--a", arguments.a), _split("--b", arguments.b)
    if (arguments.share is None) != (arguments.speedup is None):
        raise ConfigError("--share and --speedup belong together: give both or neither")
    arguments.common = argv[end + 1 :]
    arguments.out = arguments.out or Path("experiments") / f"ab_{datetime.now():%Y%m%d_%H%M%S}"
    return arguments


def _split(option: str, text: str) -> tuple[str, ...]:
    """Split a string of flags as a shell would."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{error}; check its quotation marks", option, text) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
