"""Charts as PNG, drawn with matplotlib (Agg) on a transparent ground that suits light and dark pages."""

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np

COLOURS = ("#3b7dd8", "#e07b39", "#3a9d6e", "#a05fc4", "#c94f6d", "#6f8f2f")  # one per line, in order
INK = "#8a8d99"  # readable on white and on black
_HEAT = ("#363b4c", "#3f8cf2")  # 0 and 1 of a table of shares; white is readable on both


def data_uri(content: bytes, kind: str = "image/png") -> str:
    """The content as a URI to put into a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def line_colours(count: int) -> list[str]:
    """``count`` of COLOURS, from the start again when they run out."""
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def new_figure(title: str, unit: str = "", size: tuple[float, float] = (4.6, 2.6)):
    """(matplotlib figure, its axes); size: width and height in units of 160 pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(f"{title} ({unit})" if unit else title, fontsize=10, color=INK, loc="left", fontweight="bold")
    return figure, axes


def histogram_chart(title: str, unit: str, samples: Mapping[str, np.ndarray], x_label: str, edges: np.ndarray) -> bytes:
    """PNG with an outline per name, of its number of samples per bin; edges: of the bins."""
    figure, axes = new_figure(title, unit)
    for colour, (name, values) in zip(line_colours(len(samples)), samples.items(), strict=True):
        counts, _ = np.histogram(values, edges)
        axes.stairs(counts, edges, color=colour, label=name, linewidth=1.4)
        axes.stairs(counts, edges, color=colour, alpha=0.12, fill=True)
    if (np.diff(edges) == 1).all():
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(x_label, fontsize=8, color=INK)
    return to_png(figure, axes)


def box_chart(title: str, samples: Mapping[str, np.ndarray], x_label: str, lines: Sequence[float] = ()) -> bytes:
    """PNG with a row per name on a logarithmic axis: median, box of the middle half, whiskers from the 5th to the 95th
    percentile, and every sample beyond them as a dot; a dashed line at each of ``lines``."""
    from matplotlib.ticker import LogLocator, NullLocator

    figure, axes = new_figure(title, size=(4.6, 0.9 + 0.22 * len(samples)))
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
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(x_label, fontsize=8, color=INK)
    return to_png(figure, axes)


def heat_chart(
    title: str, unit: str, shares: np.ndarray, rows: Sequence[str], columns: Sequence[str], row_label: str = ""
) -> bytes:
    """PNG of shares (0..1, [rows, columns]) as a table: numbers in percent, white on fields from dark to blue."""
    width, height = 1.3 + 0.62 * len(columns), 0.9 + 0.28 * len(rows)
    figure, axes = new_figure(title, unit, (max(width, 4.6), height))
    dark, bright = (np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) for colour in _HEAT)
    axes.imshow((dark + shares[..., None] * (bright - dark)).astype(np.uint8), aspect="auto")
    for row, column in np.ndindex(shares.shape):
        value = shares[row, column]
        text = "–" if not value else f"{100 * value:.1f}" if value >= 0.001 else "<0.1"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color="#fff")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylabel(row_label, fontsize=8, color=INK)
    return to_png(figure, axes, grid=False)


def field_chart(
    title: str,
    counts: np.ndarray,
    extent: tuple[float, float, float, float],
    labels: tuple[str, str],
    height: float = 2.6,
) -> bytes:
    """PNG of counts [rows, columns] over a plane, row 0 at the top, on a logarithmic scale.

    extent: left, right, bottom, top.  labels: of both axes.  height: of the picture, in units of 160 pixels.
    """
    figure, axes = new_figure(title, size=(4.6, height))
    scaled = np.log1p(counts) / max(np.log1p(counts.max()), 1e-9)
    axes.imshow(_tinted(scaled), extent=extent, aspect="equal", interpolation="nearest")
    axes.set_xlabel(labels[0], fontsize=8, color=INK)
    axes.set_ylabel(labels[1], fontsize=8, color=INK)
    return to_png(figure, axes)


def _tinted(shares):
    """RGBA picture of shares 0..1: the first colour, the more opaque the larger; zero is transparent."""
    red, green, blue = (int(COLOURS[0][i : i + 2], 16) / 255 for i in (1, 3, 5))
    picture = np.empty((*shares.shape, 4))
    picture[..., :3] = red, green, blue
    picture[..., 3] = np.where(shares > 0, 0.08 + 0.92 * shares, 0)
    return picture


def to_png(figure, axes, grid: bool = True) -> bytes:
    """The figure with grid, frame and legend as all charts have them."""
    if grid:
        axes.grid(True, color=INK, alpha=0.2, linewidth=0.6)
    axes.tick_params(colors=INK, labelsize=8, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)
    axes.margins(x=0.01)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=7, frameon=False, labelcolor=INK)
    buffer = io.BytesIO()
    figure.savefig(buffer, transparent=True)
    return buffer.getvalue()
