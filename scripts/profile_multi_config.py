"""Which phase of a step takes how long, on several kinds of levels; and what the profiling itself costs.

python scripts/profile_multi_config.py [--json FILE.json] [--strict]

For each configuration the same random play runs on two simulators, with profiling and without, in alternating rounds.
Exit status: 0; 1 with --strict if a configuration was skipped; 2 bad input; 130 after Ctrl-C.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nppsim import errors
from nppsim.files import write_json
from nppsim.generate import FAMILIES
from nppsim.levels.level import Level, LevelError
from nppsim.measure.machine import conditions
from nppsim.measure.throughput import side_by_side
from nppsim.measure.timing import TimingError
from nppsim.measure.workload import Settings, random_levels, random_play
from nppsim.observe import layout

NUM_LEVELS = 40  # of each configuration
ROUNDS = 10  # with profiling, and as many without


@dataclass(frozen=True)
class Configuration:
    """What is profiled."""

    name: str
    levels: Callable[[int, int], list[Level]]  # makes them from seed and number
    observations: tuple[str, ...] = layout.VISION_FREE  # keys


def family(name: str, **parameters: object) -> Callable[[int, int], list[Level]]:
    """Levels of a family of generated levels."""
    return lambda seed, count: [FAMILIES[name](seed + k, **parameters) for k in range(count)]


def mixed(seed: int, count: int) -> list[Level]:
    """Random levels with entities of all types of ``workload.STREWN``, and doors."""
    return random_levels(count, seed, density=0.2, entity_density=0.04)


CONFIGURATIONS = (
    Configuration("tiny corridor", family("minimal", width=(3, 8), height=(1, 2))),
    Configuration("maze without entities", family("maze", width=(20, 30), height=(13, 19))),
    Configuration("mixed entities", mixed),
    Configuration("mixed entities, both images", mixed, layout.ALL),
)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status, see above."""
    arguments = parse(argv)

    def job() -> int:
        skipped = run(arguments)
        return 1 if skipped and arguments.strict else 0

    return errors.run(job)


def run(arguments: argparse.Namespace) -> list[str]:
    """Profile every configuration; returns those that were skipped, with the reason."""
    if arguments.steps < ROUNDS or arguments.steps % ROUNDS:
        raise TimingError(f"--steps {arguments.steps} must be a multiple of {ROUNDS}, for as many rounds")
    settings = Settings(
        envs=arguments.envs,
        threads=arguments.threads,
        warmup=arguments.warmup,
        seed=arguments.seed,
        rounds=ROUNDS,
        iterations=arguments.steps // ROUNDS,
    )
    here = conditions()
    machine, versions = here["machine"], here["versions"]
    print(f"{machine['cpu']}, {machine['cores']} cores; Python {versions['python']}, Numba {versions['numba']}")
    print(f"{settings.envs} environments, {settings.threads} threads, {settings.warmup:,} + {arguments.steps:,} steps")
    skipped, stored = [], {}
    for configuration in CONFIGURATIONS:
        try:
            stored[configuration.name] = profile(configuration, settings)
        except LevelError as error:
            skipped.append(f"{configuration.name}: {error}")
    for what in skipped:
        print(f"skipped: {what}")
    print(f"\n{len(stored)} of {len(CONFIGURATIONS)} configurations profiled, {len(skipped)} skipped")
    if arguments.json:
        write_json(arguments.json, here | {"skipped": skipped, "configurations": stored})
        print(f"written: {arguments.json}")
    return skipped


def profile(configuration: Configuration, settings: Settings) -> dict:
    """Profile one configuration and print its table; returns what is stored.  LevelError if its levels cannot be made."""
    levels = configuration.levels(settings.seed, NUM_LEVELS)
    work = random_play(levels, replace(settings, observations=configuration.observations), configuration.name)
    measured = side_by_side(work, profile=True)
    entities = ", ".join(f"{name} {count}" for name, count in work.coverage.items())
    print(f"\n## {configuration.name}\n\n{len(levels)} levels with {entities}\n\n{measured.profile_table()}")
    print(f"time with profiling / without: {measured.ratio}", flush=True)
    rows, left_out = measured.phase_rows()
    return {
        "settings": work.key,
        "coverage": work.coverage,
        "phases": [row._asdict() for row in rows],
        "left_out": left_out,
        "overhead": vars(measured.ratio),
    }


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    for options, default, text in (
        (("--envs", "--num-envs"), 64, "environments stepped together"),
        (("--threads",), 1, "threads of the simulator"),
        (("--warmup",), 5_000, "steps before the first round"),
        (("--steps",), 15_000, "steps with profiling, and as many without"),
        (("--seed", "--seeds"), 42, "of levels and actions"),
    ):
        parser.add_argument(*options, type=int, default=default, metavar="N", help=f"{text} (default: {default:,})")
    parser.add_argument("--json", "--out", type=Path, metavar="FILE.json", help="store the figures")
    parser.add_argument("--strict", action="store_true", help="fail if a configuration was skipped")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
