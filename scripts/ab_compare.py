"""Train A and B with the same seeds, in alternation, and compare their speed and their learning curves.

python scripts/ab_compare.py --a "--frame-skip 4" --b "--frame-skip 2" --seeds 1 2 3 -- \\
    --architectures vision_free --total-timesteps 1000000 --skip-final-eval

After ``--``: flags of scripts/train_and_compare.py for both.  With --out of an interrupted comparison, finished runs are
kept.  Exit status: 0; 2 bad input or a failed run; 130 after Ctrl-C.  See docs/benchmarking.md.
"""

import argparse
import shlex
import sys
from datetime import datetime
from pathlib import Path

from nppsim import errors
from nppsim.errors import ConfigError
from rl.experiment import ab

SCRIPT = Path(__file__).with_name("train_and_compare.py")


def main(argv: list[str]) -> int:
    """Returns the exit status, see above."""
    return errors.run(lambda: run(parse(argv)))


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, compare, print and write."""
    settings = ab.ABSettings(arguments.a, arguments.b, tuple(arguments.common), tuple(arguments.seeds))
    try:
        ab.run_all(settings, arguments.out, SCRIPT, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"finished runs are kept; go on with --out {arguments.out}") from None
    comparison = ab.compare_arms(settings, arguments.out, arguments.part)
    print(ab.comparison_text(comparison))
    for file in ab.write(comparison, arguments.out):
        print(f"written: {file}")


def parse(argv: list[str]) -> argparse.Namespace:
    """The flags, with ``part``, a ChangedPart or None, and ``common``, what follows "--"."""
    end = argv.index("--") if "--" in argv else len(argv)
    own = list(argv[:end])
    for arm in ("--a", "--b"):  # argparse takes a value that begins with a dash for a flag, unless it is joined
        if arm in own[:-1]:
            at = own.index(arm)
            own[at : at + 2] = [f"{arm}={own[at + 1]}"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--a", default="", metavar="FLAGS", help='flags of A, the baseline, in one text, e.g. --a "--frame-skip 4"')
    add("--b", default="", metavar="FLAGS", help="flags of B, what is tried")
    add(
        "--seeds",
        "--seed",
        type=int,
        nargs="+",
        default=[1, 2, 3],
        metavar="SEED",
        help="a run of each arm (default: 1 2 3)",
    )
    add(
        "--out",
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="folder of the comparison (default: experiments/ab_TIME)",
    )
    add("--share", type=float, metavar="X", help="share of A's time that the changed part takes, 0 to 1")
    add("--speedup", type=float, metavar="X", help="how many times as fast that part was measured to be")
    arguments = parser.parse_args(own)
    arguments.a, arguments.b = _split("--a", arguments.a), _split("--b", arguments.b)
    arguments.part = _changed_part(arguments.share, arguments.speedup)
    arguments.common = argv[end + 1 :]
    arguments.out = arguments.out or Path("experiments") / f"ab_{datetime.now():%Y%m%d_%H%M%S}"
    return arguments


def _split(option: str, text: str) -> tuple[str, ...]:
    """The flags in one text, as a shell would part them."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}; check its quotation marks") from error


def _changed_part(share: float | None, speed_up: float | None) -> ab.ChangedPart | None:
    if share is None and speed_up is None:
        return None
    if share is None or speed_up is None:
        raise ConfigError("--share and --speedup belong together: give both, or none")
    return ab.ChangedPart(share, speed_up)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
