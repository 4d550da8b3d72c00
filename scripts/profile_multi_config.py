"""Measure the time of each phase of a simulator step on several kinds of levels, and the cost of profiling itself.

python scripts/profile_multi_config.py [--json FILE.json]

For each configuration the same random actions run on two simulators, one with profiling and one without, in alternating
rounds.  Exit status: 0 success; 2 bad input; 130 after Ctrl-C.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.generate import GENERATORS
from nppsim.io.files import check_output_file, write_json
from nppsim.levels.level import Level
from nppsim.measure.machine import conditions
from nppsim.measure.throughput import side_by_side
from nppsim.measure.workload import WorkloadSettings, random_levels, random_play
from nppsim.observe import layout
from nppsim.settings import Parser, Setting

NUM_LEVELS = 40  # levels per configuration
ROUNDS = 10  # rounds with profiling, and as many without
DEFAULTS = {"envs": 64, "warmup": 5_000}  # defaults of flags that differ from the defaults of ``WorkloadSettings``


@dataclass(frozen=True)
class Configuration:
    """Kind of levels and observations to profile."""

    name: str
    levels: Callable[[int, int], list[Level]]  # function of seed and number of levels
    observations: tuple[str, ...] = layout.VISION_FREE  # observation keys


def generated(name: str, **parameters: object) -> Callable[[int, int], list[Level]]:
    """Return a function that makes levels with a generator of ``nppsim.generate``."""
    return lambda seed, count: [GENERATORS[name](seed + k, **parameters) for k in range(count)]


def mixed(seed: int, count: int) -> list[Level]:
    """Generate random levels with doors and all entity types of ``workload.RANDOM_TYPES``."""
    return random_levels(count, seed, density=0.2, entity_density=0.04)


CONFIGURATIONS = (
    Configuration("tiny corridor", generated("minimal", width=(3, 8), height=(1, 2))),
    Configuration("maze without entities", generated("maze", width=(20, 30), height=(13, 19))),
    Configuration("mixed entities", mixed),
    Configuration("mixed entities, foresight and both images", mixed, layout.ALL),
)


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit status (see the module's docstring)."""
    return errors.run(lambda: run(*parse(argv)))


def run(arguments: argparse.Namespace, settings: WorkloadSettings) -> None:
    """Profile every configuration."""
    if arguments.json:
        check_output_file(arguments.json, "--json")
    here = conditions()
    machine, versions = here["machine"], here["versions"]
    print(f"{machine['cpu']}, {machine['cores']} cores; Python {versions['python']}, Numba {versions['numba']}")
    print(f"{settings.envs} environments, {settings.threads} threads, {settings.warmup:,} + {arguments.steps:,} steps")
    stored = {configuration.name: profile(configuration, settings) for configuration in CONFIGURATIONS}
    if arguments.json:
        write_json(arguments.json, here | {"configurations": stored})
        print(f"written: {arguments.json}")


def profile(configuration: Configuration, settings: WorkloadSettings) -> dict:
    """Profile one configuration and print its table; return the values to store."""
    levels = configuration.levels(settings.seed, NUM_LEVELS)
    work = random_play(levels, replace(settings, observations=configuration.observations), configuration.name)
    measured = side_by_side(work, profile=True)
    entities = ", ".join(f"{name} {count}" for name, count in work.coverage.items())
    print(f"\n## {configuration.name}\n\n{len(levels)} levels with {entities}\n\n{measured.profile_table()}")
    print(f"time with profiling / without: {measured.ratio}", flush=True)
    phases = [row._asdict() for row in measured.phase_rows()]
    return {"settings": work.key, "coverage": work.coverage, "phases": phases, "overhead": vars(measured.ratio)}


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, WorkloadSettings]:
    """Parse the command line; return the arguments and the number of environments, rounds and steps per configuration."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("envs", "threads", "warmup", "seed"):
        parser.add_setting(WorkloadSettings, name, default=(vars(WorkloadSettings()) | DEFAULTS)[name])
    parser.set_defaults(**DEFAULTS)
    steps = f"number of steps with profiling, and as many without; a multiple of {ROUNDS}"
    parser.add_flag(Setting(steps, flag="steps", kind=int, default=15_000, low=1))
    parser.add_argument("--json", "--out", type=Path, metavar="FILE.json", help="store the result")
    arguments = parser.parse_args(argv)
    if arguments.steps % ROUNDS:
        raise ConfigError(f"give a multiple of {ROUNDS}, the number of rounds", "--steps", arguments.steps)
    iterations = arguments.steps // ROUNDS
    return arguments, parser.build(WorkloadSettings, arguments, rounds=ROUNDS, iterations=iterations)


if __name__ == "__main__":
    sys.exit(main())
