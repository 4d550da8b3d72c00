"""Parts of the HTML reports: a self-contained page (plots inside, no network), and plain data as tables."""

import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from nppsim.files import write_text
from nppsim.report.charts import data_uri
from nppsim.report.style import CSS

NOT_RUN = '<p class="missing">not run</p>'
_PLOT_PIXELS, _PLOT_WIDTH = 736, 348  # width of a chart as it is drawn, and of ".plot" in the page


def page(title: str, head: str, sections: Sequence[tuple[str, str]]) -> str:
    """The page as text.  head: HTML below the title.  sections: (title, HTML); the navigation lists them."""
    links = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name, _ in sections)
    body = "".join(f'<section id="{_anchor(name)}"><h2>{escape(name)}</h2>{text}</section>' for name, text in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><header>"
        f"<h1>{escape(title)}</h1>{head}<nav>{links}</nav></header>"
        f"<main>{body}</main></body></html>\n"
    )


def write_page(text: str, path: str | os.PathLike) -> Path:
    """Write a page atomically and return its path; folders that are missing are made."""
    write_text(path, text)
    return Path(path)


def value_html(value) -> str:
    """HTML of plain data: dictionaries and lists become tables, longer texts keep their lines."""
    if isinstance(value, Mapping):
        if not value:
            return NOT_RUN
        if all(isinstance(item, Mapping) and item for item in value.values()):
            return table_html([{"": name, **item} for name, item in value.items()])
        rows = "".join(f"<tr><th>{escape(key)}</th><td>{value_html(item)}</td></tr>" for key, item in value.items())
        return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if value and all(isinstance(item, Mapping) for item in value):
            return table_html(value)
        return ", ".join(value_html(item) for item in value) or "–"
    if isinstance(value, str) and "\n" in value:
        return f"<pre>{escape(value)}</pre>"
    return escape(number(value))


def table_html(rows: Sequence[Mapping]) -> str:
    """HTML table with a row per mapping; columns are the keys in order of first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{value_html(row.get(c))}</td>" for c in columns) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def number(value) -> str:
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


def folded(value) -> str:
    """``value_html`` behind a button."""
    return f"<details><summary>show</summary>{value_html(value)}</details>" if value else NOT_RUN


def image(png: bytes, title: str) -> str:
    """A chart in the page; one that is wider than most is shown wider, so that its texts stay as large."""
    pixels = int.from_bytes(png[16:20], "big")  # width, in the header of every PNG
    style = f' style="width:{pixels * _PLOT_WIDTH / _PLOT_PIXELS:.0f}px"' if pixels > _PLOT_PIXELS else ""
    return f'<img class="plot"{style} alt="{escape(title)}" src="{data_uri(png)}">'


def _anchor(title):
    return title.lower().replace(" ", "-")


def escape(value) -> str:
    """The value as text that is safe in HTML."""
    return html.escape(str(value))
