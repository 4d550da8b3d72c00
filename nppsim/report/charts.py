"""PNG charts, drawn with matplotlib (extra ``train``) on a transparent background for light and dark pages."""

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nppsim.errors import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLOURS = ("#3b7dd8", "#e07b39", "#3a9d6e", "#a05fc4", "#c94f6d", "#6f8f2f")  # colours of lines, in order
INK = "#8a8d99"  # text colour, readable on white and on black
UNIT_PIXELS = 160  # pixels per unit of a chart's size
WIDTH, HEIGHT = 4.6, 2.6  # in units

Value = TypeVar("Value")


def coloured(values: Mapping[str, Value]) -> Iterator[tuple[str, str, Value]]:
    """Yield (colour, name, value) of each item; if there are more items than COLOURS, the colours repeat."""
    for i, (name, value) in enumerate(values.items()):
        yield COLOURS[i % len(COLOURS)], name, value


def new_chart(title: str, unit: str = "") -> "Axes":
    """Return the axes of a new chart."""
    figure = import_optional("matplotlib.figure", "train").Figure(
        figsize=(WIDTH, HEIGHT), dpi=UNIT_PIXELS, layout="constrained"
    )
    import_optional("matplotlib.backends.backend_agg", "train").FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(f"{title} ({unit})" if unit else title, fontsize=12, color=INK, loc="left", fontweight="bold")
    return axes


def to_png(axes: "Axes", x_label: str) -> bytes:
    """Add the common grid, frame, label and legend to a chart; return it as PNG."""
    axes.grid(True, color=INK, alpha=0.2, linewidth=0.6)
    axes.set_xlabel(x_label, fontsize=10, color=INK)  # pages show charts at half size
    axes.tick_params(colors=INK, labelsize=10, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)
    axes.margins(x=0.01)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=9, frameon=False, labelcolor=INK)
    return _rendered(axes)


def _rendered(axes: "Axes") -> bytes:
    """Render like ``savefig(transparent=True)``, which takes twice as long because it draws everything twice."""
    canvas: Any = axes.figure.canvas
    for ground in (canvas.figure.patch, axes.patch):
        ground.set_alpha(0)
    canvas.draw()
    buffer = io.BytesIO()
    import_optional("PIL.Image", "train").fromarray(np.asarray(canvas.buffer_rgba())).save(
        buffer, "png", dpi=(UNIT_PIXELS,) * 2
    )
    return buffer.getvalue()


def whole_numbers(axis: "Axis") -> None:
    """Put ticks at whole numbers only."""
    locator = import_optional("matplotlib.ticker", "train").MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True)
    axis.set_major_locator(locator)


def large_numbers(axes: "Axes") -> None:
    """Write large numbers along the x axis as 20k, 3M."""
    axes.xaxis.set_major_formatter(import_optional("matplotlib.ticker", "train").EngFormatter(sep=""))


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
