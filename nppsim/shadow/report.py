"""JSON summary of the shadow validation in a process, and a check of this summary."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path

from nppsim.errors import UserError
from nppsim.files import write_json
from nppsim.reading import read_json

VARIABLE = "NPPSIM_SHADOW_REPORT"  # environment variable with the path of the file
_summaries: list[Callable[[], dict]] = []


class ReportError(UserError, ValueError):
    """A summary is missing, or has mismatches or too few comparisons."""


def register(summary: Callable[[], dict]) -> None:
    """Add a Shadow's summary to the file written at the end of the process, if NPPSIM_SHADOW_REPORT is set."""
    path = os.environ.get(VARIABLE)
    if path:
        if not _summaries:
            atexit.register(write, Path(path))
        _summaries.append(summary)


def write(path: Path) -> None:
    """Write the summaries of all registered Shadows atomically."""
    simulators = [summary() for summary in _summaries]
    totals = {name: sum(part[name] for part in simulators) for name in ("comparisons", "mismatches")}
    write_json(path, totals | {"simulators": simulators})


def check_report(path: Path, environments: int, comparisons: int) -> str:
    """Return one line with the number of comparisons.

    Raises ReportError for a mismatch, or if no simulator with at least ``environments`` environments made at least
    ``comparisons`` comparisons in each of them.
    """
    if not path.exists():
        raise ReportError(f"{path}: there is no summary; the run did not finish")
    summary = read_json(path, ReportError, "give another file")
    mismatches, simulators = summary["mismatches"], summary["simulators"]
    if mismatches:
        kinds = [part["mismatches_of_kind"] for part in simulators if part["mismatches_of_kind"]]
        raise ReportError(f"{path}: {mismatches:,} mismatches in {summary['comparisons']:,} comparisons: {kinds}")
    enough = [part for part in simulators if part["environments"] >= environments]
    least = max((min(part["comparisons_of_environment"]) for part in enough), default=0)
    if least < comparisons:
        raise ReportError(
            f"{path}: simulators of at least {environments} environments made {least:,} comparisons per environment; "
            f"{comparisons:,} are required: run longer"
        )
    return f"{summary['comparisons']:,} comparisons, at least {least:,} in each of {environments} environments, no mismatch"
