"""Is the curriculum what makes training slow?  Every suspicion tested in one go, each with its verdict.

python scripts/benchmark_curriculum.py                    # all strategies, 10 to 100,000 levels: about a minute
python scripts/benchmark_curriculum.py --levels 1000 --updates 30

How to read it: docs/curriculum.md.
"""

import sys

from nppsim import errors
from nppsim.files import table
from nppsim.settings import Parser


def main(argv: list[str]) -> int:
    """Returns the exit status: 0 if the curriculum costs what it should, 1 if it does not, 2 for bad input."""

    def job() -> int:
        errors.needed("torch", "train")
        from rl.curriculum.benchmark import Benchmark, criteria, outcome_table

        parser = Parser(prog="benchmark_curriculum.py", description=__doc__.partition("\n")[0])
        default = Benchmark()
        parser.add_argument(
            "--levels", type=int, nargs="+", default=default.counts, metavar="N", help="numbers of levels"
        )
        parser.add_argument("--updates", type=int, default=default.updates, metavar="N", help="updates per measurement")
        parser.add_argument("--episodes", type=int, default=default.episodes, metavar="N", help="episodes per update")
        parser.add_argument(
            "--training-us",
            type=float,
            default=default.training_us,
            metavar="X",
            help="microseconds that a decision of your training takes (1,000,000 / its decisions per second)",
        )
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        given = parser.parse_args(argv)
        smallest = min(*given.levels, given.updates // 6, given.episodes // 64)
        if smallest < 1 or given.training_us <= 0:
            raise errors.ConfigError("give at least 1 level, 6 updates, 64 episodes and a positive time")
        benchmark = Benchmark(tuple(given.levels), given.updates, given.episodes, given.training_us)
        sections = []
        for section in benchmark.sections():
            sections.append(section)
            print(f"\n{section.title}\n{table(section.header, section.rows)}\n-> {section.verdict}", flush=True)
        header = ("suspicion", "test", "expected, if so", "confirmed", "next step")
        print("\nOutcome\n" + table(header, outcome_table(sections), "lllll"))
        met = criteria(sections, benchmark.updates, benchmark.training_us)
        print("\nCriteria\n" + table(("criterion", "verdict"), met, "ll"))
        bad = [section.title for section in sections if section.good is False]
        names = ", ".join(bad)
        print(f"\nto blame: {names}" if bad else "\nthe curriculum is not what slows training down")
        return int(bool(bad))

    return errors.run(job, debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
