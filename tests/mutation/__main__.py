"""Mutate the product, one mutation at a time, and see which check notices each; then run sound configurations.

python -m tests.mutation [--only WORD ...] [--clean N] [--jobs N] [--json]

Exit status 1 if a mutation was not noticed, or if a sound run set off an alarm.
"""

import json
import sys
from collections.abc import Sequence

from nppsim import errors
from nppsim.settings import Parser
from tests.mutation.runner import self_test, self_test_table


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if a mutation was missed or a sound run set off an alarm, 2 for bad arguments."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        parser = Parser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
        parser.add_argument(
            "--only", nargs="+", metavar="WORD", help="numbers of docs/lab/failures.md or words of names"
        )
        parser.add_argument("--clean", type=int, metavar="N", help="sound runs (default: all)")
        parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
        parser.add_argument("--json", action="store_true", help="print the results as JSON")
        arguments = parser.parse_args(given)
        for flag, value, least in (("--clean", arguments.clean, 0), ("--jobs", arguments.jobs, 1)):
            if value is not None and value < least:
                raise errors.ConfigError(f"give at least {least}", flag, value)
        result = self_test(
            arguments.only, arguments.clean, arguments.jobs, lambda line: print(line, file=sys.stderr, flush=True)
        )
        print(json.dumps(result, indent=1) if arguments.json else self_test_table(result))
        return int(bool(result["missed"] or result["false_alarms"]))

    return errors.run(job)


if __name__ == "__main__":
    sys.exit(main())
