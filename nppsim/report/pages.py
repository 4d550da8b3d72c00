"""HTML reports: one file each, with embedded images and without network access.  All values are escaped.

    write_page(render_page("experiment.html", title=..., ...), "report.html")

Reports are Jinja2 templates (extra ``train``) in ``templates/``.  They extend ``page.html`` and share the macros of
``parts.html``.  Text in other formats, such as a model card, has templates without escaping there.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nppsim.errors import import_optional
from nppsim.io.files import write_text
from nppsim.replays.score import time_text
from nppsim.report.charts import UNIT_PIXELS, WIDTH

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGES = ("jinja2", "matplotlib")


class Plot(NamedTuple):
    """A chart for a page, as PNG image.  title: alternative text of the image."""

    title: str
    png: bytes


def check_packages() -> None:
    """Raise MissingPackageError unless the packages for reports are installed; to be called before long computations."""
    for package in _PACKAGES:
        import_optional(package, "train")


def render_page(template: str, **content: object) -> str:
    """Return the HTML of a page, or a text.

    template: file in ``templates/``; that of a page extends ``page.html``.
    content: variables of the template, including ``title``.
    """
    return environment().get_template(template).render(content)


@cache
def environment() -> "Environment":
    """Return the Jinja2 environment: it escapes every value in HTML, and raises an error for a missing variable."""
    jinja2 = import_optional("jinja2", "train")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("nppsim.report"),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {filter.__name__: filter for filter in (anchor, columns, data_uri, number, rows, time_text, wide)}
    return made


def write_page(text: str, path: str | os.PathLike) -> Path:
    """Write a page atomically, create missing folders, and return the path."""
    write_text(path, text)
    return Path(path)


# ---------------------------------------------------------------------------------------------------------------------
# Filters of the templates


def anchor(title: str) -> str:
    """Return the HTML id of the section with a title."""
    return title.lower().replace(" ", "-")


def data_uri(png: bytes) -> str:
    """Return a PNG image as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def number(value: object) -> str:
    """Format a value: thousands separators from 10,000, four significant digits, "yes" and "no", "–" for None."""
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
    """Return the table rows in a list of dictionaries or in a dictionary of dictionaries; None for other values."""
    if isinstance(value, Mapping) and value and all(isinstance(row, Mapping) and row for row in value.values()):
        return [{"": name, **row} for name, row in value.items()]
    if isinstance(value, Sequence) and value and all(isinstance(row, Mapping) for row in value):
        return [dict(row) for row in value]
    return None


def columns(rows: Sequence[Mapping]) -> list:
    """Return the distinct keys of all rows, in order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def wide(png: bytes) -> float:
    """Return the width of a chart relative to the default width, at least 1."""
    pixels = int.from_bytes(png[16:20], "big")  # width, in the header of every PNG
    return max(1.0, pixels / round(WIDTH * UNIT_PIXELS))
