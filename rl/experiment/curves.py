"""The learning curves of a run: what is shown, and a chart of each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nppsim.report.charts import coloured, large_numbers, new_chart, to_png, whole_numbers
from rl.events import Scalars


@dataclass(frozen=True)
class Chart:
    """One chart of learning curves.

    title, unit: of the chart.
    tags: shown in it; the first is solid, further ones dashed or dotted.
    factor: values are multiplied by it.
    smooth: width of the running mean, in points.
    steps: drawn as a staircase.
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
    axes = new_chart(chart.title, chart.unit)
    for colour, name, scalars in coloured(runs):
        for style, tag in zip(_STYLES[: len(chart.tags)], chart.tags, strict=True):
            if tag not in scalars:
                continue
            steps, values = scalars[tag]
            values = chart.factor * values
            if chart.smooth > 1 and len(values) > chart.smooth:
                axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.3)
                values = _running_mean(values, chart.smooth)
            axes.plot(
                steps,
                values,
                style,
                color=colour,
                label=name if style == "-" else f"{name}, {tag}",
                marker="o" if style != "-" or len(values) == 1 else None,
                markersize=3,
                drawstyle="steps-post" if chart.steps else "default",
            )
    if chart.steps:
        whole_numbers(axes.yaxis)
    large_numbers(axes)
    return to_png(axes, "decisions")


def _running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of the last ``width`` values (fewer at the start)."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - width, 0)
    return (total[end] - total[start]) / (end - start)
