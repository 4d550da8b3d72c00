"""Learning curves as PNG, drawn with matplotlib (Agg) on a transparent ground that suits light and dark pages."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rl.events import Scalars

COLOURS = ("#3b7dd8", "#e07b39", "#3a9d6e", "#a05fc4", "#c94f6d", "#6f8f2f")  # one per architecture, in order
_INK = "#8a8d99"  # readable on white and on black


@dataclass(frozen=True)
class Chart:
    """One plot: the tags it shows (the first is solid, further ones dashed or dotted), scaled and smoothed.

    factor: values are multiplied by it.  smooth: width of the running mean, in points.  steps: drawn as a staircase.
    """

    title: str
    tags: tuple[str, ...]
    unit: str = ""
    factor: float = 1.0
    smooth: int = 1
    steps: bool = False


CHARTS = (
    Chart("Success", ("rollout/success_rate", "eval/all_success"), "%", 100.0),
    Chart("Return per episode", ("rollout/ep_rew_mean",)),
    Chart("Episode length", ("rollout/ep_len_mean",), "decisions"),
    Chart("Entropy of the policy", ("train/entropy_loss",), "nats", -1.0),
    Chart("KL of an update", ("train/approx_kl",), "nats", smooth=5),
    Chart("Explained variance of the critic", ("train/explained_variance",), smooth=5),
    Chart("Value loss", ("train/value_loss",), smooth=5),
    Chart("Curriculum stage", ("curriculum/current_stage_idx",), steps=True),
    Chart("Speed", ("time/fps",), "decisions/s"),
)
_STYLES = ("-", "--", ":")


def curve_chart(chart: Chart, runs: Mapping[str, Mapping[str, Scalars]]) -> bytes | None:
    """PNG of one chart with a line per run and tag; runs: name -> tag -> Scalars.  None where no run has any tag."""
    if not any(tag in scalars for scalars in runs.values() for tag in chart.tags):
        return None
    figure, axes = _figure(chart.title, chart.unit)
    for colour, (name, scalars) in zip(_colours(len(runs)), runs.items(), strict=True):
        for style, tag in zip(_STYLES, chart.tags, strict=False):
            if tag in scalars:
                steps, values, _ = scalars[tag]
                label = name if style == "-" else f"{name}, {tag}"
                values = chart.factor * values
                if chart.smooth > 1 and len(values) > chart.smooth:
                    axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.3)
                    values = _running_mean(values, chart.smooth)
                marker = "o" if style != "-" or len(values) == 1 else None
                draw = "steps-post" if chart.steps else "default"
                axes.plot(steps, values, style, color=colour, label=label, marker=marker, markersize=3, drawstyle=draw)
    if chart.steps:
        axes.yaxis.get_major_locator().set_params(integer=True)
    _steps_axis(axes, "decisions")
    return _png(figure, axes)


def lines_chart(title: str, unit: str, lines: Mapping[str, tuple[Sequence, Sequence]], x_label: str) -> bytes:
    """PNG of plain lines; lines: name -> (x, y)."""
    figure, axes = _figure(title, unit)
    for colour, (name, (x, y)) in zip(_colours(len(lines)), lines.items(), strict=True):
        axes.plot(x, y, color=colour, label=name, marker="o" if len(x) == 1 else None, markersize=3)
    _steps_axis(axes, x_label)
    return _png(figure, axes)


def band_chart(title: str, unit: str, x: Sequence, bands: Mapping[str, tuple], x_label: str) -> bytes:
    """PNG of lines with a band around each; bands: name -> (mean, low, high), each at the places ``x``."""
    figure, axes = _figure(title, unit)
    for colour, (name, (mean, low, high)) in zip(_colours(len(bands)), bands.items(), strict=True):
        axes.plot(x, mean, color=colour, label=name)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    _steps_axis(axes, x_label)
    return _png(figure, axes)


def data_uri(content: bytes, kind: str = "image/png") -> str:
    """The content as a URI to put into a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _colours(count):
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _running_mean(values, width):
    """Mean of the last ``width`` values (fewer at the start)."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - width, 0)
    return (total[end] - total[start]) / (end - start)


def _figure(title, unit):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 2.6), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(f"{title} ({unit})" if unit else title, fontsize=10, color=_INK, loc="left", fontweight="bold")
    return figure, axes


def _steps_axis(axes, label):
    from matplotlib.ticker import EngFormatter

    axes.set_xlabel(label, fontsize=8, color=_INK)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _png(figure, axes):
    axes.grid(True, color=_INK, alpha=0.2, linewidth=0.6)
    axes.tick_params(colors=_INK, labelsize=8, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_INK)
    axes.margins(x=0.01)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=7, frameon=False, labelcolor=_INK)
    buffer = io.BytesIO()
    figure.savefig(buffer, transparent=True)
    return buffer.getvalue()
