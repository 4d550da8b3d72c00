"""Measure the speed of the environment without learning, with random or recorded actions, and compare with earlier results.

python scripts/perf_benchmark.py                                             # print the speed
python scripts/perf_benchmark.py --profile                                   # ... and a table of phases
python scripts/perf_benchmark.py --phase before --output results/before.json # ... and store the result
python scripts/perf_benchmark.py --phase after --baseline results/before.json
python scripts/perf_benchmark.py --report results

With default settings, the speed is also compared with the baseline of this project, which was measured on another machine:
speeds are divided by the speed of calibration loops.

Exit status: 0 success; 1 unstable (the coefficient of variation is 20 % or more, and nothing is stored); 2 validation found a
mismatch, or compared nothing; 3 slower than a baseline by more than --threshold, or than the project's baseline by more than
20 %; 4 bad input, or results that cannot be compared; 130 after Ctrl-C.  If several apply, the first of 4, 2, 1, 3 is
returned.  See docs/evaluate.md.
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
from nppsim.measure.timing import POOR, TOLERANCE, is_slower, relative_speeds
from nppsim.measure.workload import (
    Workload,
    WorkloadSettings,
    generated_levels,
    random_levels,
    random_play,
    recorded_play,
)
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
STORED = Path(__file__).parents[1] / "benchmarks" / "results" / "perf_benchmark.json"  # written with --output


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit status (see the module's docstring)."""

    def job() -> int:
        arguments, settings = parse(argv)
        if arguments.report:
            print(throughput.benchmark_report(arguments.report))
            return GOOD
        try:
            return run(arguments, settings)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was stored") from None

    return errors.run(job, refused=REFUSED)


def run(arguments: argparse.Namespace, settings: WorkloadSettings) -> int:
    """Measure the speed, print it, compare it with the baselines and store it; return the exit status."""
    if arguments.output:
        check_output_file(arguments.output, "--output")
    work = workload(arguments, settings)
    baselines = {str(path): throughput.load_result(path) for path in arguments.baseline or ()}
    now = conditions() | {"settings": work.key}
    for name, baseline in baselines.items():
        throughput.check_comparable(now, baseline, name)
    print(f"{work.source}: {settings.envs} environments, {settings.rounds} rounds of {settings.iterations}")
    for note in work.notes:
        print(note)
    result = throughput.measure(work, phase=arguments.phase or "")
    print(throughput.describe(result), flush=True)
    statuses = {compare_with_stored(result)}
    if result["stability"] == POOR:
        print(
            "unstable: the rounds differ too much to store the result; wait for an idle machine, or raise --iterations"
        )
        statuses.add(UNSTABLE)
    if baselines:
        print(throughput.comparison_table(result, baselines))
        limit = arguments.threshold or THRESHOLD
        slower = [name for name, stored in baselines.items() if throughput.has_regressed(result, stored, limit)]
        if slower:
            print(f"regression: more than {limit:.0%} slower than {', '.join(slower)}")
            statuses.add(REGRESSION)
    if arguments.profile:
        profiled = throughput.side_by_side(work, profile=True)
        print(f"{profiled.profile_table()}\ntime with profiling / without: {profiled.ratio}")
        result["profile"] = {name: getattr(profiled, name) for name in ("phases", "decisions", "seconds")}
    if arguments.shadow:
        result["shadow"], status = validate(work)
        statuses.add(status)
    if arguments.output and UNSTABLE in statuses:
        print(f"not stored: {arguments.output}")
    elif arguments.output:
        write_json(arguments.output, result)
        print(f"result: {arguments.output}")
    return next((status for status in (MISMATCH, UNSTABLE, REGRESSION) if status in statuses), GOOD)


def compare_with_stored(result: Mapping) -> int:
    """Compare a result with the project's baseline, if that has the same settings; return GOOD or REGRESSION."""
    stored = throughput.load_result(STORED) if STORED.exists() else None
    if stored is None or stored["settings"] != result["settings"]:
        return GOOD
    ratios = ", ".join(f"{ratio:.2f} by the {loop} loop" for loop, ratio in relative_speeds(result, stored).items())
    print(f"speed relative to the project's baseline of {stored['date'][:10]}: {ratios}")
    if not is_slower(result, stored):
        return GOOD
    print(f"regression: more than {TOLERANCE:.0%} slower than the project's baseline")
    return REGRESSION


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


def workload(arguments: argparse.Namespace, settings: WorkloadSettings) -> Workload:
    """Return the levels and actions that the flags select."""
    if arguments.actions == "recorded":
        return recorded_play(arguments.replays or REPLAYS, settings)
    if arguments.levels:
        levels = list(LevelSet.open(arguments.levels))
        return random_play(levels, settings, f"{len(levels)} levels of the folder {arguments.levels.name}")
    if arguments.density is None:
        levels = generated_levels(CATEGORY, NUM_LEVELS, settings.seed)
        return random_play(levels, settings, f"{NUM_LEVELS} generated levels, {CATEGORY}")
    levels = random_levels(NUM_LEVELS, settings.seed, density=arguments.density)
    return random_play(levels, settings, f"{NUM_LEVELS} random levels, tile density {arguments.density}")


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, WorkloadSettings]:
    """Parse the command line; return the arguments (None: not given) and the number of environments, rounds and steps.

    Raises ConfigError for flags without effect.
    """
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--actions", choices=("random", "recorded"), help="actions to play; default: random")
    replays = f"replays for recorded actions (default: {REPLAYS})"
    add("--replays", "--replay-data-dir", type=Path, metavar="DIR", help=replays)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--levels", type=Path, metavar="DIR", help="play random actions on the levels of this folder")
    density = "play random actions on random levels with this share of solid tiles"
    parser.add_flag(Setting(density, flag="density", kind=float, low=0, below=1), source)
    for field in fields(WorkloadSettings):
        parser.add_setting(WorkloadSettings, field.name)
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
    given = {name for name, value in vars(arguments).items() if value is not None}
    recorded = arguments.actions == "recorded"
    for why, names in {
        "with --report": given - {"report"} if arguments.report else set(),
        "with --actions recorded": given & {"levels", "density"} if recorded else set(),
        "without --actions recorded": set() if recorded else given & {"replays"},
        "without --baseline": set() if arguments.baseline else given & {"threshold"},
    }.items():
        for name in sorted(names):
            raise ConfigError(f"has no effect {why}; leave it out", f"--{name.replace('_', '-')}")
    return arguments, parser.build(WorkloadSettings, arguments)


if __name__ == "__main__":
    sys.exit(main())
