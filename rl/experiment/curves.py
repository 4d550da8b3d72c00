"""Learning curves as PNG, drawn with ``nppsim.report.charts``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nppsim.report.charts import INK, line_colours, new_figure, to_png
from rl.events import Scalars


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
    figure, axes = new_figure(chart.title, chart.unit)
    for colour, (name, scalars) in zip(line_colours(len(runs)), runs.items(), strict=True):
        for style, tag in zip(_STYLES[: len(chart.tags)], chart.tags, strict=True):
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
    return to_png(figure, axes)


def lines_chart(title: str, unit: str, lines: Mapping[str, tuple[Sequence, Sequence]], x_label: str) -> bytes:
    """PNG of plain lines; lines: name -> (x, y)."""
    figure, axes = new_figure(title, unit)
    for colour, (name, (x, y)) in zip(line_colours(len(lines)), lines.items(), strict=True):
        axes.plot(x, y, color=colour, label=name, marker="o" if len(x) == 1 else None, markersize=3)
    _steps_axis(axes, x_label)
    return to_png(figure, axes)


def band_chart(title: str, unit: str, x: Sequence, bands: Mapping[str, tuple], x_label: str) -> bytes:
    """PNG of lines with a band around each; bands: name -> (mean, low, high), each at the places ``x``."""
    figure, axes = new_figure(title, unit)
    for colour, (name, (mean, low, high)) in zip(line_colours(len(bands)), bands.items(), strict=True):
        axes.plot(x, mean, color=colour, label=name)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    _steps_axis(axes, x_label)
    return to_png(figure, axes)


def _running_mean(values, width):
    """Mean of the last ``width`` values (fewer at the start)."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - width, 0)
    return (total[end] - total[start]) / (end - start)


def _steps_axis(axes, label):
    from matplotlib.ticker import EngFormatter

    axes.set_xlabel(label, fontsize=8, color=INK)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
