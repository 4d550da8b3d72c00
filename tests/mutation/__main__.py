"""Apply mutations (deliberate mistakes) to the product one at a time and require that tests fail.

python -m tests.mutation [--only WORD ...] [--jobs N] [--json] [--list]

Exit status 1 if the tests of a mutation pass, or if a mutation no longer fits the function that it changes.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from nppsim import errors
from nppsim.io.files import table
from nppsim.settings import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 if a mutation was missed or is broken, 2 for bad arguments."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        parser = Parser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
        parser.add_argument(
            "--only",
            nargs="+",
            metavar="WORD",
            help="run only these: names of subsystems, or words in the names of mutations",
        )
        parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
        parser.add_argument("--json", action="store_true", help="print the results as JSON")
        parser.add_argument(
            "--list", action="store_true", help="print the mutations and their tests without running them"
        )
        arguments = parser.parse_args(given)
        if arguments.jobs < 1:
            raise errors.ConfigError("give at least 1", "--jobs", arguments.jobs)
        return run(arguments.only, arguments.jobs, as_json=arguments.json, only_list=arguments.list)

    return errors.run(job)


def run(only: Sequence[str] | None, jobs: int, *, as_json: bool, only_list: bool) -> int:
    """Run the selected mutations and print their status; return 1 if one was missed or is broken."""
    from tests.mutation.mutation import ROOT, all_mutations
    from tests.mutation.runner import MISSED, NOTICED, run_each

    if not (ROOT / "datasets" / "train").is_dir():
        raise errors.ConfigError("datasets/train is not in this checkout; the tests need it")
    chosen = [
        one
        for one in all_mutations()
        if only is None or any(word == one.subsystem or word.lower() in one.name.lower() for word in only)
    ]
    if not chosen:
        raise errors.ConfigError("matches no mutation; --list prints all", "--only", " ".join(only or ()))
    if only_list:
        rows = [(one.subsystem, one.name, " ".join(one.tests)) for one in chosen]
        print(table(("subsystem", "mutation", "tests"), rows, "lll"))
        return 0
    outcomes = run_each(chosen, jobs, lambda line: print(line, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps([asdict(one) for one in outcomes], indent=1))
    bad = [one for one in outcomes if one.status != NOTICED]
    for one in bad:
        what = "its tests pass" if one.status == MISSED else "it no longer fits the function that it changes"
        print(f"{one.status}: {one.mutation}: {what}. {one.message}", file=sys.stderr)
    print(f"{len(outcomes) - len(bad)} of {len(outcomes)} mutations noticed", file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
