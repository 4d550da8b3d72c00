"""docs/lab/failures.md: the table of what can go wrong, its guards, and what came of planting it.

People write number, failure, guard and moment; the last two columns, and the table of planted faults, are written by
``scripts/doctor.py --self-test --write``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nppsim.errors import UserError
from nppsim.files import replacing
from rl.selftest.faults import Fault

PAGE = Path("docs/lab/failures.md")
MOMENTS = ("by construction", "before", "first update", "during", "after", "tests", "practice")
_ROW = re.compile(r"^\| ([FH]\d+) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_BEGIN, _END = "<!-- planted faults: written by doctor.py --self-test --write -->\n", "<!-- end -->\n"
_HEADER = "| fault | stands for | noticed by | moment | s | message |\n|---|---|---|---|--:|---|\n"
_RESULT = re.compile(r"^\| (.+?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
LONGEST_MESSAGE = 160


class FailuresError(UserError, ValueError):
    """The page lacks something; the message says what."""


@dataclass(frozen=True)
class Failure:
    """A row of the table.

    number: "F1" to "F161", "H1" to "H49".
    text: what went wrong.
    guard: what notices it, or makes it impossible.
    moments: when; of MOMENTS.
    planted, result: "yes" or "no", and which guard noticed.
    """

    number: str
    text: str
    guard: str
    moments: tuple[str, ...]
    planted: str
    result: str


def read(page: str) -> list[Failure]:
    """The rows of the page."""
    return [
        Failure(number, text, guard, tuple(moments.split(", ")), planted, result)
        for number, text, guard, moments, planted, result in _ROW.findall(page)
    ]


def read_results(page: str) -> dict[str, Mapping[str, str]]:
    """Fault -> what the page says came of it: guard, moment, seconds, message."""
    begin, end = page.index(_BEGIN) + len(_BEGIN), page.index(_END)
    rows = [row for row in _RESULT.findall(page[begin:end]) if row[0] != "fault"]  # that is the header
    return {
        name: {"guard": guard, "moment": moment, "seconds": seconds, "message": message}
        for name, _, guard, moment, seconds, message in rows
    }


def written(page: str, faults: Sequence[Fault], results: Mapping[str, Mapping[str, object]]) -> str:
    """The page with its last columns and the table of planted faults made anew.

    results: fault -> guard, moment, seconds and message; a fault without one keeps what the page has.
    """
    if _BEGIN not in page or _END not in page:
        raise FailuresError(f"{PAGE}: the marks {_BEGIN.strip()} and {_END.strip()} are missing: put them back")
    found: dict[str, Mapping[str, object]] = {**read_results(page), **results}
    begin, end = page.index(_BEGIN) + len(_BEGIN), page.index(_END)
    rows = "".join(_row(one, found[one.name]) for one in faults if one.name in found)
    page = f"{page[:begin]}{_HEADER}{rows}{page[end:]}"

    def replaced(match: re.Match) -> str:
        number = match[1]
        mine = [one for one in faults if number in one.numbers]
        guards = dict.fromkeys(str(found[one.name]["guard"]) for one in mine if one.name in found)
        told = ("; ".join(guards) or "not run yet") if mine else "–"
        return f"| {number} | {match[2]} | {match[3]} | {match[4]} | {'yes' if mine else 'no'} | {told} |"

    return _ROW.sub(replaced, page)


def _row(one: Fault, result: Mapping[str, object]) -> str:
    seconds = result["seconds"]
    cells = (
        one.name,
        " ".join(one.numbers),
        result["guard"],
        result["moment"],
        f"{seconds:.1f}" if isinstance(seconds, float) else seconds,
        _short(str(result["message"])),
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _short(message: str) -> str:
    plain = re.sub(r"(/\S+)+/", "…/", message).replace("|", "/").replace("\n", " ")
    return plain if len(plain) <= LONGEST_MESSAGE else plain[: LONGEST_MESSAGE - 2] + " …"


def update(faults: Sequence[Fault], outcomes: Iterable[Mapping[str, object]], path: Path = PAGE) -> None:
    """Write the page anew with these outcomes of the self-test."""
    page = written(path.read_text(encoding="utf-8"), faults, {str(one["fault"]): one for one in outcomes})
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
