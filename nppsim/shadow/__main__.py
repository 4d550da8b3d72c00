"""Check the summary of a run with shadow validation; exit with status 1 and a reason if the check fails.

python -m nppsim.shadow REPORT.json --environments N --comparisons M
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from nppsim import errors
from nppsim.settings import Parser, Setting
from nppsim.shadow.report import check_report


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status."""

    def job() -> None:
        arguments = _parser().parse_args(argv)
        print(f"shadow: {check_report(arguments.report, arguments.environments, arguments.comparisons)}")

    return errors.run(job, refused=1)


def _parser() -> Parser:
    parser = Parser(prog="python -m nppsim.shadow", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "report", type=Path, help="summary file, written by the run to the path in NPPSIM_SHADOW_REPORT"
    )
    environments = "minimum number of environments; simulators with fewer do not count"
    parser.add_flag(Setting(environments, flag="environments", kind=int, default=1, low=1))
    comparisons = "minimum number of comparisons in each environment of such a simulator"
    parser.add_flag(Setting(comparisons, flag="comparisons", kind=int, default=1, low=1))
    return parser


if __name__ == "__main__":
    sys.exit(main())
