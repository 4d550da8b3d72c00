"""Reports as web pages: one file each, with its pictures inside, nothing from the network, every text escaped.

    write_page(render_page("experiment.html", title=..., ...), "report.html")

The pages are Jinja2 templates (extra ``train``) in ``templates/``: ``page.html`` is the frame of all of them,
``parts.html`` has what they share, ``style.css`` their look.  Words are in the templates, numbers come from Python.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nppsim.errors import needed
from nppsim.files import write_text
from nppsim.replays.score import time_text
from nppsim.report.charts import UNIT_PIXELS, WIDTH

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGES = ("jinja2", "matplotlib")


class Plot(NamedTuple):
    """A chart for a page.  title: shown where pictures are not."""

    title: str
    png: bytes


def check_packages() -> None:
    """Call it before work whose result becomes a page.  Raises MissingPackageError."""
    for package in _PACKAGES:
        needed(package, "train")


def render_page(template: str, **content: object) -> str:
    """A page as text.

    template: a file of ``templates/`` that extends ``page.html``; content: what it shows, with a ``title``.
    """
    return environment().get_template(template).render(content)


def environment() -> "Environment":
    """Where templates are found and how they are filled in: every value escaped, a missing one is an error."""
    jinja2 = needed("jinja2", "train")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("nppsim.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {filter.__name__: filter for filter in (anchor, columns, data_uri, number, rows, time_text, wide)}
    return made


def write_page(text: str, path: str | os.PathLike) -> Path:
    """Write a page atomically and return its path; folders that are missing are made."""
    write_text(path, text)
    return Path(path)


# ---------------------------------------------------------------------------------------------------------------------
# Filters of the templates


def anchor(title: str) -> str:
    """The name of a section within its page."""
    return title.lower().replace(" ", "-")


def data_uri(png: bytes) -> str:
    """A picture as a URI to put into a page."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def number(value: object) -> str:
    """Numbers for people: grouped thousands, four significant digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)


def rows(value: object) -> list[dict] | None:
    """The rows of a table, if the value is one: a list of dictionaries, or dictionaries by name; else None."""
    if isinstance(value, Mapping) and value and all(isinstance(row, Mapping) and row for row in value.values()):
        return [{"": name, **row} for name, row in value.items()]
    if isinstance(value, Sequence) and value and all(isinstance(row, Mapping) for row in value):
        return [dict(row) for row in value]
    return None


def columns(rows: Sequence[Mapping]) -> list:
    """The keys of all rows, in order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def wide(png: bytes) -> float:
    """How many times as wide as most a chart is; it is shown that much wider, so that its texts stay as large."""
    pixels = int.from_bytes(png[16:20], "big")  # width, in the header of every PNG
    return max(1.0, pixels / round(WIDTH * UNIT_PIXELS))
