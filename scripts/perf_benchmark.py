"""Speed of the environment alone: rounds of random or recorded play, their statistics, and comparison with earlier ones.

python scripts/perf_benchmark.py                                             # figures
python scripts/perf_benchmark.py --profile                                   # ... and a table of phases
python scripts/perf_benchmark.py --phase before --output results/before.json # ... and a record
python scripts/perf_benchmark.py --phase after --baseline results/before.json
python scripts/perf_benchmark.py --report results

Exit status: 0 good; 1 unstable (coefficient of variation of 20 % or more; nothing is stored); 2 validation found a
mismatch, or compared nothing; 3 slower than a baseline by more than --threshold; 4 bad input, or a comparison that is
refused; 130 after Ctrl-C.  Where several hold: 4, 2, 1, 3.  See docs/benchmarking.md.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from nppsim.files import write_json
from nppsim.generate import CATEGORIES
from nppsim.levels.level import LevelError
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.measure import throughput
from nppsim.measure.machine import conditions
from nppsim.measure.timing import POOR, TimingError
from nppsim.measure.workload import Settings, Workload, generated_levels, random_levels, random_play, recorded_play
from nppsim.replays.replay import ReplayError

GOOD, UNSTABLE, MISMATCH, REGRESSION, REFUSED, INTERRUPTED = 0, 1, 2, 3, 4, 130
CATEGORY, NUM_LEVELS, ENTITY_DENSITY, REPLAYS, THRESHOLD = "simple", 40, 0.02, Path("datasets/demonstrations"), 0.1


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status, see above."""
    try:
        arguments = parse(argv)
        if arguments.report:
            print(throughput.benchmark_report(arguments.report))
            return GOOD
        return run(arguments)
    except (TimingError, LevelError, LevelSetError, ReplayError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was stored", file=sys.stderr)
        return INTERRUPTED


def run(arguments: argparse.Namespace) -> int:
    work = workload(arguments)
    baselines = {str(path): throughput.load_result(path) for path in arguments.baseline or ()}
    now = conditions() | {"settings": work.key}
    for name, baseline in baselines.items():  # before minutes are spent on it
        throughput.check_comparable(now, baseline, name)
    print(
        f"{work.source}: {work.settings.envs} environments, {work.settings.rounds} rounds of {work.settings.iterations}"
    )
    for note in work.notes:
        print(note)
    result = throughput.measure(work, phase=arguments.phase or "")
    print(throughput.describe(result), flush=True)
    unstable = result["stability"] == POOR
    status = UNSTABLE if unstable else GOOD
    if unstable:
        print("unstable: the figures are not worth keeping; wait for a quiet machine, or raise --iterations")
    if baselines:
        print(throughput.comparison_table(result, baselines))
        threshold = THRESHOLD if arguments.threshold is None else arguments.threshold
        slower = [
            name
            for name, b in baselines.items()
            if throughput.compare_with_baseline(result, b, name).regressed(threshold)
        ]
        if slower:
            print(f"regression: more than {threshold:.0%} slower than {', '.join(slower)}")
            status = status or REGRESSION
    if arguments.profile:
        profiled = throughput.side_by_side(work, "profile")
        print(profiled.profile_table())
        print(f"time with profiling / without: {profiled.ratio}")
        result["profile"] = {"ns": profiled.phases, "decisions": profiled.decisions, "seconds": profiled.seconds}
    if arguments.shadow:
        shadowed = throughput.side_by_side(work, "shadow")
        comparisons, mismatches = shadowed.simulator.shadow.comparisons, shadowed.simulator.shadow.mismatches
        print(f"validation: {comparisons:,} comparisons, {mismatches:,} mismatches")
        print(f"time with validation / without: {shadowed.ratio}")
        result["shadow"] = {"comparisons": comparisons, "mismatches": mismatches}
        if mismatches or not comparisons:
            print(
                "validation failed" + ("" if mismatches else ": nothing was compared; raise --iterations or --rounds")
            )
            status = MISMATCH
    if arguments.output and unstable:
        print(f"not stored: {arguments.output}")
    elif arguments.output:
        write_json(arguments.output, result)
        print(f"result: {arguments.output}")
    return status


def workload(arguments: argparse.Namespace) -> Workload:
    """The work that the flags ask for."""
    given = {name: getattr(arguments, name) for name in Settings.__dataclass_fields__}
    settings = replace(Settings(), **{name: value for name, value in given.items() if value is not None})
    if arguments.actions == "recorded":
        return recorded_play(arguments.replays or REPLAYS, settings)
    count = NUM_LEVELS if arguments.num_levels is None else arguments.num_levels
    if arguments.levels:
        levels = list(LevelSet.open(arguments.levels))
        return random_play(levels, settings, f"{len(levels)} levels of the folder {arguments.levels.name}")
    if arguments.density is None:
        category = arguments.category or CATEGORY
        return random_play(
            generated_levels(category, count, settings.seed), settings, f"{count} generated levels, {category}"
        )
    entity_density = ENTITY_DENSITY if arguments.entity_density is None else arguments.entity_density
    levels = random_levels(count, settings.seed, density=arguments.density, entity_density=entity_density)
    what = f"{count} random levels, tile density {arguments.density}, entity density {entity_density}"
    return random_play(levels, settings, what)


class _Parser(argparse.ArgumentParser):
    def error(self, message):  # argparse's own status, 2, means a mismatch here
        raise TimingError(message)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags; None where nothing was given.  Raises TimingError for flags that would have no effect."""
    usual = Settings()
    parser = _Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = parser.add_argument
    add("--actions", choices=("random", "recorded"), help="default: random")
    add("--replays", type=Path, metavar="DIR", help=f"replays for recorded actions (default: {REPLAYS})")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--levels", type=Path, metavar="DIR", help="random actions on the levels of a folder")
    source.add_argument(
        "--category", choices=CATEGORIES, metavar="NAME", help=f"... on generated levels (default: {CATEGORY})"
    )
    source.add_argument("--density", type=float, metavar="X", help="... on random levels, this share of tiles not open")
    add(
        "--entity-density",
        type=float,
        metavar="X",
        help=f"entities per tile with --density (default: {ENTITY_DENSITY})",
    )
    add("--num-levels", type=int, metavar="N", help=f"generated or random levels (default: {NUM_LEVELS})")
    for name, text in {
        "envs": "environments stepped together",
        "frame_skip": "frames per decision",
        "threads": "threads of the simulator",
        "iterations": "decisions of each environment in a round",
        "rounds": "rounds",
        "warmup": "decisions of each environment before the first round",
        "seed": "of levels and actions",
    }.items():
        option = f"--{name.replace('_', '-')}"
        add(option, type=int, metavar="N", help=f"{text} (default: {getattr(usual, name):,})")
    add("--observations", nargs="+", metavar="NAME", help=f"default: {' '.join(usual.observations)}")
    add("--profile", action="store_true", default=None, help="add a table of phases, of extra rounds")
    add("--shadow", action="store_true", default=None, help="validate every step of extra rounds, and count")
    add("--phase", metavar="LABEL", help="label of the result, e.g. before")
    add("--output", type=Path, metavar="FILE.json", help="store the result")
    add("--baseline", type=Path, nargs="+", metavar="FILE.json", help="compare with stored results")
    add("--threshold", type=float, metavar="X", help=f"slow-down that counts as regression (default: {THRESHOLD})")
    add("--report", type=Path, metavar="DIR", help="summary of the results in a folder, and nothing else")
    arguments = parser.parse_args(argv)
    given = {name for name, value in vars(arguments).items() if value is not None}
    sources = {"levels", "category", "density", "num_levels"}
    for bad, why in (
        (given - {"report"} if arguments.report else (), "with --report"),
        (given & sources if arguments.actions == "recorded" else (), "with --actions recorded"),
        (given & {"replays"} if arguments.actions != "recorded" else (), "without --actions recorded"),
        (given & {"entity_density"} if arguments.density is None else (), "without --density"),
        (given & {"num_levels"} if arguments.levels else (), "with --levels"),
        (given & {"threshold"} if not arguments.baseline else (), "without --baseline"),
    ):
        for name in sorted(bad):
            parser.error(f"--{name.replace('_', '-')} has no effect {why}; leave it out")
    if (arguments.num_levels or 1) < 1:
        parser.error(f"--num-levels {arguments.num_levels}: give at least 1")
    if arguments.threshold is not None and not 0 < arguments.threshold < 1:
        parser.error(f"--threshold {arguments.threshold}: give a share between 0 and 1, e.g. {THRESHOLD}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
