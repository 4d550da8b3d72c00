"""PNG charts, drawn with matplotlib (extra ``train``) on a transparent background for light and dark pages."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nppsim.errors import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLOURS = ("#3b7dd8", "#e07b39", "#3a9d6e", "#a05fc4", "#c94f6d", "#6f8f2f")  # colours of lines, in order
INK = "#8a8d99"  # text colour, readable on white and on black
UNIT_PIXELS = 160  # pixels per unit of a chart's size
WIDTH = 4.6  # default width in units
HEIGHT = 2.6  # default height in units
_HEAT_LOW = "#363b4c"  # colour of share 0; white text is readable on _HEAT_LOW and _HEAT_HIGH
_HEAT_HIGH = "#3f8cf2"  # colour of share 1
_SMALL: dict[str, Any] = {"fontsize": 10, "color": INK}  # axis labels; pages show charts at half size

Value = TypeVar("Value")


def coloured(values: Mapping[str, Value]) -> Iterator[tuple[str, str, Value]]:
    """Yield (colour, name, value) of each item; if there are more items than COLOURS, the colours repeat."""
    for i, (name, value) in enumerate(values.items()):
        yield COLOURS[i % len(COLOURS)], name, value


def new_chart(title: str, unit: str = "", width: float = WIDTH, height: float = HEIGHT) -> "Axes":
    """Return the axes of a new chart.  width, height: in units of UNIT_PIXELS."""
    figure = needed("matplotlib.figure", "train").Figure(figsize=(width, height), dpi=UNIT_PIXELS, layout="constrained")
    needed("matplotlib.backends.backend_agg", "train").FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(f"{title} ({unit})" if unit else title, fontsize=12, color=INK, loc="left", fontweight="bold")
    return axes


def to_png(axes: "Axes", x_label: str = "", y_label: str = "", grid: bool = True) -> bytes:
    """Add the common grid, frame, labels and legend to a chart; return it as PNG."""
    if grid:
        axes.grid(True, color=INK, alpha=0.2, linewidth=0.6)
    axes.set_xlabel(x_label, **_SMALL)
    axes.set_ylabel(y_label, **_SMALL)
    axes.tick_params(colors=INK, labelsize=10, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)
    axes.margins(x=0.01)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=9, frameon=False, labelcolor=INK)
    return _drawn(axes)


def _drawn(axes: "Axes") -> bytes:
    """Render like ``savefig(transparent=True)``, which takes twice as long because it draws everything twice."""
    canvas: Any = axes.figure.canvas
    for ground in (canvas.figure.patch, axes.patch):
        ground.set_alpha(0)
    canvas.draw()
    buffer = io.BytesIO()
    needed("PIL.Image", "train").fromarray(np.asarray(canvas.buffer_rgba())).save(buffer, "png", dpi=(UNIT_PIXELS,) * 2)
    return buffer.getvalue()


def whole_numbers(axis: "Axis") -> None:
    """Put ticks at whole numbers only."""
    locator = needed("matplotlib.ticker", "train").MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True)
    axis.set_major_locator(locator)


def large_numbers(axes: "Axes") -> None:
    """Write large numbers along the x axis as 20k, 3M."""
    axes.xaxis.set_major_formatter(needed("matplotlib.ticker", "train").EngFormatter(sep=""))


# ---------------------------------------------------------------------------------------------------------------------
# Lines


def lines_chart(title: str, unit: str, lines: Mapping[str, tuple[ArrayLike, ArrayLike]], x_label: str) -> bytes:
    """Draw lines; return a PNG.  lines: name -> (x, y)."""
    axes = new_chart(title, unit)
    for colour, name, (x, y) in coloured(lines):
        axes.plot(x, y, color=colour, label=name, marker="o" if np.size(x) == 1 else None, markersize=3)
    whole_numbers(axes.xaxis)
    large_numbers(axes)
    return to_png(axes, x_label)


def band_chart(title: str, unit: str, x: ArrayLike, bands: Mapping[str, tuple[ArrayLike, ...]], x_label: str) -> bytes:
    """Draw lines with a band around each; return a PNG.

    bands: name -> (mean, lower end, upper end), each as long as ``x``.
    """
    axes = new_chart(title, unit)
    for colour, name, (mean, low, high) in coloured(bands):
        axes.plot(x, mean, color=colour, label=name)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    large_numbers(axes)
    return to_png(axes, x_label)


# ---------------------------------------------------------------------------------------------------------------------
# Distributions


def box_chart(title: str, samples: Mapping[str, np.ndarray], x_label: str, lines: Sequence[float] = ()) -> bytes:
    """Draw horizontal box plots on a logarithmic axis; return a PNG.

    samples: name -> values.  Whiskers reach from the 5th to the 95th percentile; samples beyond them are dots.
    lines: positions of dashed vertical lines.
    """
    ticker = needed("matplotlib.ticker", "train")
    axes = new_chart(title, height=0.9 + 0.22 * len(samples))
    stroke = {"color": COLOURS[0], "linewidth": 1.2}
    axes.boxplot(
        list(samples.values()),
        orientation="horizontal",
        whis=(5, 95),
        widths=0.6,
        tick_labels=list(samples),
        boxprops=stroke,
        whiskerprops=stroke,
        capprops=stroke,
        medianprops=stroke | {"color": COLOURS[1], "linewidth": 2},
        flierprops={"marker": ".", "markersize": 3, "markerfacecolor": COLOURS[0], "markeredgewidth": 0, "alpha": 0.6},
    )
    for x in lines:
        axes.axvline(x, color=INK, linewidth=0.8, linestyle="--")
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return to_png(axes, x_label)


# ---------------------------------------------------------------------------------------------------------------------
# Heat maps


def heat_chart(
    title: str, unit: str, shares: np.ndarray, rows: Sequence[str], columns: Sequence[str], row_label: str = ""
) -> bytes:
    """Draw shares as a coloured table with numbers in percent; return a PNG.  shares: [rows, columns], 0..1."""
    axes = new_chart(title, unit, max(1.3 + 0.62 * len(columns), WIDTH), 0.9 + 0.28 * len(rows))
    low, high = _rgb(_HEAT_LOW), _rgb(_HEAT_HIGH)
    axes.imshow((low + shares[..., None] * (high - low)).astype(np.uint8), aspect="auto")
    for row, column in np.ndindex(shares.shape):
        value = shares[row, column]
        text = "–" if not value else f"{100 * value:.1f}" if value >= 0.001 else "<0.1"
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color="#fff")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    return to_png(axes, y_label=row_label, grid=False)


def field_chart(
    title: str, counts: np.ndarray, extent: tuple[float, float, float, float], labels: tuple[str, str]
) -> bytes:
    """Draw counts over a plane as opacity on a logarithmic scale; return a PNG.

    counts: [rows, columns], row 0 at the top.
    extent: coordinates of the left, right, bottom and top edges.
    labels: labels of the x and y axes.
    """
    axes = new_chart(title)
    shares = np.log1p(counts) / max(np.log1p(counts.max()), 1e-9)
    picture = np.empty((*shares.shape, 4))
    picture[..., :3] = _rgb(COLOURS[0]) / 255
    picture[..., 3] = np.where(shares > 0, 0.08 + 0.92 * shares, 0)
    axes.imshow(picture, extent=extent, aspect="equal", interpolation="nearest")
    return to_png(axes, *labels)


def _rgb(colour: str) -> np.ndarray:
    """Return [red, green, blue], 0..255, of a colour "#rrggbb"."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
