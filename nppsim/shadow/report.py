"""JSON summary of all shadow validation in a process, and its check."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path

from nppsim.errors import UserError
from nppsim.files import write_json
from nppsim.reading import mismatch, read_json

VARIABLE = "NPPSIM_SHADOW_REPORT"  # path of the file; read when a Shadow is made
_SUMMARY = {
    "comparisons": int,
    "mismatches": int,
    "simulators": [
        {
            "environments": int,
            "mismatches_of_kind": {...: int},
            "comparisons_of_environment": [int],
        }
    ],
}
_summaries: list[Callable[[], dict]] = []


class ReportError(UserError, ValueError):
    """Missing or invalid summary, or one with mismatches or too few comparisons."""


def register(summary: Callable[[], dict]) -> None:
    """Add a Shadow to the summary written at the end of the process, if NPPSIM_SHADOW_REPORT is set."""
    path = os.environ.get(VARIABLE)
    if path:
        if not _summaries:
            atexit.register(write, Path(path))
        _summaries.append(summary)


def write(path: Path) -> None:
    """Write the summary of all registered Shadows atomically."""
    simulators = [summary() for summary in _summaries]
    totals = {name: sum(part[name] for part in simulators) for name in ("comparisons", "mismatches")}
    write_json(path, totals | {"simulators": simulators})


def check_report(path: Path, environments: int, comparisons: int) -> str:
    """Return one line with the number of comparisons.

    Raises ReportError if there was a mismatch, or if no simulator made at least ``comparisons`` comparisons in each of at
    least ``environments`` environments.
    """
    if not path.exists():
        raise ReportError(f"{path}: there is no summary; the run did not come to its end")
    summary = read_json(path, ReportError, "give the right file")
    if wrong := mismatch(summary, _SUMMARY):
        raise ReportError(f"{path}: this is no summary of shadow validation ({wrong}); give the right file")
    mismatches, simulators = summary["mismatches"], summary["simulators"]
    if any(not part["comparisons_of_environment"] for part in simulators):
        raise ReportError(f"{path}: a simulator without environments; give the right file")
    if mismatches:
        kinds = [part["mismatches_of_kind"] for part in simulators if part["mismatches_of_kind"]]
        raise ReportError(f"{path}: {mismatches:,} mismatches in {summary['comparisons']:,} comparisons: {kinds}")
    enough = [part for part in simulators if part["environments"] >= environments]
    least = max((min(part["comparisons_of_environment"]) for part in enough), default=0)
    if least < comparisons:
        raise ReportError(
            f"{path}: {least:,} comparisons in the environment with the fewest, of {environments} environments; "
            f"{comparisons:,} were promised: run longer"
        )
    return f"{summary['comparisons']:,} comparisons, at least {least:,} in each of {environments} environments, no mismatch"
