"""Measure the speed of the environment without learning, with random or recorded actions, and compare with earlier results.

python scripts/perf_benchmark.py                                             # print the speed
python scripts/perf_benchmark.py --profile                                   # ... and a table of phases
python scripts/perf_benchmark.py --phase before --output results/before.json # ... and store the result
python scripts/perf_benchmark.py --phase after --baseline results/before.json
python scripts/perf_benchmark.py --report results

Exit status: 0 success; 1 unstable (the coefficient of variation is 20 % or more, and nothing is stored); 2 validation found a
mismatch, or compared nothing; 3 slower than a baseline by more than --threshold; 4 bad input, or results that cannot be
compared; 130 after Ctrl-C.  If several apply, the first of 4, 2, 1, 3 is returned.  See docs/evaluate.md.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.io.files import check_output_file, write_json
from nppsim.levels.level_set import LevelSet
from nppsim.measure import throughput
from nppsim.measure.machine import conditions
from nppsim.measure.timing import POOR
from nppsim.measure.workload import Amount, Workload, generated_levels, random_levels, random_play, recorded_play
from nppsim.settings import Parser, Setting

# Exit statuses.
GOOD = 0
UNSTABLE = 1
MISMATCH = 2
REGRESSION = 3
REFUSED = 4

CATEGORY = "simple"  # of generated levels
NUM_LEVELS = 40  # generated or random levels
# Defaults of flags.
REPLAYS = Path("datasets/demonstrations")
THRESHOLD = 0.1  # a larger slow-down counts as regression


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit status (see the module's docstring)."""

    def job() -> int:
        arguments, amount = parse(argv)
        if arguments.report:
            print(throughput.benchmark_report(arguments.report))
            return GOOD
        try:
            return run(arguments, amount)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was stored") from None

    return errors.run(job, refused=REFUSED)


def run(arguments: argparse.Namespace, amount: Amount) -> int:
    """Measure the speed, print it, compare it with the baselines and store it; return the exit status."""
    if arguments.output:
        check_output_file(arguments.output, "--output")
    work = workload(arguments, amount)
    baselines = load_baselines(arguments, work)
    print(f"{work.source}: {amount.envs} environments, {amount.rounds} rounds of {amount.iterations}")
    for note in work.notes:
        print(note)
    result = throughput.measure(work, phase=arguments.phase or "")
    print(throughput.describe(result), flush=True)
    found = {check_stability(result)}
    if baselines:
        found.add(check_regression(result, baselines, arguments.threshold or THRESHOLD))
    if arguments.profile:
        result["profile"] = profile(work)
    if arguments.shadow:
        result["shadow"], status = validate(work)
        found.add(status)
    if arguments.output and UNSTABLE in found:
        print(f"not stored: {arguments.output}")
    elif arguments.output:
        write_json(arguments.output, result)
        print(f"result: {arguments.output}")
    return next((status for status in (MISMATCH, UNSTABLE, REGRESSION) if status in found), GOOD)


def load_baselines(arguments: argparse.Namespace, work: Workload) -> dict[str, dict]:
    """Load the stored results to compare with.  Raises TimingError for a result that cannot be compared."""
    baselines = {str(path): throughput.load_result(path) for path in arguments.baseline or ()}
    now = conditions() | {"settings": work.key}
    for name, baseline in baselines.items():
        throughput.check_comparable(now, baseline, name)
    return baselines


def check_stability(result: Mapping) -> int:
    """Return UNSTABLE and print a line if the speeds of the rounds differ too much, else return GOOD."""
    if result["stability"] != POOR:
        return GOOD
    print(
        "unstable: the rounds differ too much to store the result; wait until the machine is idle, or raise --iterations"
    )
    return UNSTABLE


def check_regression(result: Mapping, baselines: Mapping[str, Mapping], threshold: float) -> int:
    """Print the comparison with each baseline (name -> result); return REGRESSION if it is too slow."""
    print(throughput.comparison_table(result, baselines))
    slower = [
        name
        for name, baseline in baselines.items()
        if throughput.compare_with_baseline(result, baseline, name).regressed(threshold)
    ]
    if not slower:
        return GOOD
    print(f"regression: more than {threshold:.0%} slower than {', '.join(slower)}")
    return REGRESSION


def profile(work: Workload) -> dict:
    """Run extra rounds with profiling and print the time of each phase; return the values to store."""
    profiled = throughput.side_by_side(work, profile=True)
    print(profiled.profile_table())
    print(f"time with profiling / without: {profiled.ratio}")
    return {"ns": profiled.phases, "decisions": profiled.decisions, "seconds": profiled.seconds}


def validate(work: Workload) -> tuple[dict, int]:
    """Run extra rounds in which every step is validated; return the values to store, and GOOD or MISMATCH."""
    shadowed = throughput.side_by_side(work, shadow=True)
    shadow = shadowed.simulator.shadow
    assert shadow is not None
    print(f"validation: {shadow.comparisons:,} comparisons, {shadow.mismatches:,} mismatches")
    print(f"time with validation / without: {shadowed.ratio}")
    stored = {"comparisons": shadow.comparisons, "mismatches": shadow.mismatches}
    if shadow.comparisons and not shadow.mismatches:
        return stored, GOOD
    print("validation failed" + ("" if shadow.mismatches else ": nothing was compared; raise --iterations or --rounds"))
    return stored, MISMATCH


def workload(arguments: argparse.Namespace, amount: Amount) -> Workload:
    """Return the levels and actions that the flags select."""
    if arguments.actions == "recorded":
        return recorded_play(arguments.replays or REPLAYS, amount)
    if arguments.levels:
        levels = list(LevelSet.open(arguments.levels))
        return random_play(levels, amount, f"{len(levels)} levels of the folder {arguments.levels.name}")
    if arguments.density is None:
        levels = generated_levels(CATEGORY, NUM_LEVELS, amount.seed)
        return random_play(levels, amount, f"{NUM_LEVELS} generated levels, {CATEGORY}")
    levels = random_levels(NUM_LEVELS, amount.seed, density=arguments.density)
    return random_play(levels, amount, f"{NUM_LEVELS} random levels, tile density {arguments.density}")


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, Amount]:
    """Parse the command line; return the arguments (None: not given) and the number of environments, rounds and steps.

    Raises ConfigError for flags without effect.
    """
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _add_source_flags(parser)
    for field in fields(Amount):
        parser.add_setting(Amount, field.name)
    add = parser.add_argument
    profile = "run extra rounds with profiling, and print the time of each phase"
    add("--profile", action="store_true", default=None, help=profile)
    add("--shadow", action="store_true", default=None, help="run extra rounds in which every step is validated")
    add("--phase", metavar="LABEL", help="label of the result, e.g. before")
    add("--output", "--out", type=Path, metavar="FILE.json", help="store the result")
    add("--baseline", type=Path, nargs="+", action="extend", metavar="FILE.json", help="compare with stored results")
    slow_down = f"slow-down above which the result counts as regression, as a fraction; default: {THRESHOLD}"
    parser.add_flag(Setting(slow_down, flag="threshold", kind=float, above=0, below=1))
    add("--report", type=Path, metavar="DIR", help="only print a summary of the results in this folder")
    arguments = parser.parse_args(argv)
    _check(arguments)
    return arguments, parser.build(Amount, arguments)


def _add_source_flags(parser: Parser) -> None:
    """Add the flags that select levels and actions."""
    add = parser.add_argument
    add("--actions", choices=("random", "recorded"), help="actions to play; default: random")
    replays = f"replays for recorded actions (default: {REPLAYS})"
    add("--replays", "--replay-data-dir", type=Path, metavar="DIR", help=replays)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--levels", type=Path, metavar="DIR", help="play random actions on the levels of this folder")
    density = "play random actions on random levels with this share of solid tiles"
    parser.add_flag(Setting(density, flag="density", kind=float, low=0, below=1), source)


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for flags that would have no effect."""
    given = {name for name, value in vars(arguments).items() if value is not None}
    sources = {"levels", "density"}
    idle = {
        "with --report": given - {"report"} if arguments.report else set(),
        "with --actions recorded": given & sources if arguments.actions == "recorded" else set(),
        "without --actions recorded": given & {"replays"} if arguments.actions != "recorded" else set(),
        "without --baseline": given & {"threshold"} if not arguments.baseline else set(),
    }
    for why, names in idle.items():
        for name in sorted(names):
            raise ConfigError(f"has no effect {why}; leave it out", f"--{name.replace('_', '-')}")


if __name__ == "__main__":
    sys.exit(main())
