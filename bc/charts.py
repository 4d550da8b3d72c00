"""Charts as PNG, drawn with matplotlib (Agg) on a transparent ground that suits light and dark pages."""

import base64
import io

COLOURS = ("#3b7dd8", "#e07b39", "#3a9d6e", "#a05fc4", "#c94f6d", "#6f8f2f")  # one per line, in order
INK = "#8a8d99"  # readable on white and on black


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


def to_png(figure, axes) -> bytes:
    """The figure with grid, frame and legend as all charts have them."""
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
