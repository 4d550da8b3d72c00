"""Judge the summary of a run under shadow validation: exit status 0, or 1 with the reason.

python -m nppsim.shadow REPORT.json --environments N --comparisons M
"""

import argparse
import sys
from pathlib import Path

from nppsim.shadow.report import ReportError, judge


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nppsim.shadow", description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="the file that NPPSIM_SHADOW_REPORT named")
    parser.add_argument("--environments", type=int, default=1, help="of the simulator that the promise is about")
    parser.add_argument("--comparisons", type=int, default=1, help="promised for each environment")
    arguments = parser.parse_args(argv)
    try:
        print(f"shadow: {judge(arguments.report, arguments.environments, arguments.comparisons)}")
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
