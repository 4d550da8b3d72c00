"""Check the summary of a run with shadow validation; exit with status 1 and the reason if it fails.

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
    parser.add_argument("report", type=Path, help="the file that NPPSIM_SHADOW_REPORT named")
    environments = "of the simulator that the promise is about"
    parser.add_flag(Setting(environments, flag="environments", kind=int, default=1, low=1))
    parser.add_flag(Setting("promised for each environment", flag="comparisons", kind=int, default=1, low=1))
    return parser


if __name__ == "__main__":
    sys.exit(main())
