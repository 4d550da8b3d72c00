"""Judge the summary of a run under shadow validation: exit status 0, or 1 with the reason.

python -m nppsim.shadow REPORT.json --environments N --comparisons M
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from nppsim import errors
from nppsim.settings import Parser, Setting
from nppsim.shadow.report import judge


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""

    def job() -> None:
        arguments = _parser().parse_args(argv)
        print(f"shadow: {judge(arguments.report, arguments.environments, arguments.comparisons)}")

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
