"""Charts of learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nppsim.report.charts import INK, coloured, large_numbers, new_chart, to_png, whole_numbers
from rl.events import Scalars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STAGE = "curriculum/current_stage_idx"
_STAGES, _PLACE = "curriculum_stages/", "_place"  # prefix and suffix of a stage's name, in the tag of its position


class Stage(NamedTuple):
    """A stage of the curriculum.  begin: number of training decisions before the stage."""

    begin: int
    name: str


@dataclass(frozen=True)
class Chart:
    """One chart of learning curves.

    tag: scalar to draw.
    unit: unit of the y axis.
    factor: multiplies the scalars, to convert them to ``unit``.
    smooth: width of the running mean in points.
    steps: draw a step function of the curriculum's stages.
    """

    title: str
    tag: str
    unit: str = ""
    factor: float = 1.0
    smooth: int = 1
    steps: bool = False


CHARTS = (
    Chart("Success on dev levels", "eval/all_success", "%", 100.0),
    Chart("Success on training levels", "rollout/success_rate", "%", 100.0),
    Chart("Return per episode", "rollout/ep_rew_mean"),
    Chart("Episode length", "rollout/ep_len_mean", "decisions"),
    Chart("Entropy of the policy", "train/entropy_loss", "nats", -1.0),
    Chart("KL of an update", "train/approx_kl", "nats", smooth=5),
    Chart("Explained variance of the critic", "train/explained_variance", smooth=5),
    Chart("Value loss", "train/value_loss", smooth=5),
    Chart("Curriculum stage", STAGE, steps=True),
    Chart("Speed since the start", "time/fps", "decisions/s"),
)
_STAGE_NAME: dict[str, Any] = {"rotation": 90, "va": "top", "ha": "right", "fontsize": 7, "color": INK}


def stages(scalars: Mapping[str, Scalars]) -> list[Stage]:
    """Return the stages that a run has reached, in the order of training; [] without a curriculum of stages."""
    if STAGE not in scalars:
        return []
    names = stage_names(scalars)
    steps, stages = scalars[STAGE]
    begin = np.flatnonzero(np.diff(stages, prepend=-1))
    return [Stage(int(steps[i]), names[int(stages[i])]) for i in begin if stages[i] < len(names)]


def stage_names(scalars: Mapping[str, Scalars]) -> list[str]:
    """Return the names of all stages of the curriculum, in their order."""
    positions = {
        tag.removeprefix(_STAGES).removesuffix(_PLACE): line.values[-1]
        for tag, line in scalars.items()
        if tag.startswith(_STAGES) and tag.endswith(_PLACE)
    }
    return sorted(positions, key=lambda name: positions[name])


def curve_chart(
    chart: Chart, runs: Mapping[str, Mapping[str, Scalars]], marks: Mapping[str, Sequence[Stage]] | None = None
) -> bytes | None:
    """Return a PNG with a line per run, or None if no run has the tag.

    runs: name -> tag -> Scalars.  Colours are those of ``coloured``, so that a run has the same colour in all charts.
    marks: name of a run -> stages, whose beginnings are marked, with the stages' names if there is only one run.
    """
    if not any(chart.tag in scalars for scalars in runs.values()):
        return None
    axes = new_chart(chart.title, chart.unit)
    for colour, _name, scalars in coloured(runs):
        if chart.tag not in scalars:
            continue
        steps, values, mean = shown_line(chart, scalars[chart.tag])
        if mean is not None:
            axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.3)
        axes.plot(
            steps,
            values if mean is None else mean,
            color=colour,
            marker="o" if len(values) < 30 else None,
            markersize=3,
            drawstyle="steps-post" if chart.steps else "default",
        )
    if chart.steps:
        names = max((stage_names(scalars) for scalars in runs.values()), key=len)
        axes.set_yticks(range(len(names)), names, fontsize=7)
    else:
        _mark_stages(axes, runs, marks or {})
    whole_numbers(axes.xaxis)
    large_numbers(axes)
    return to_png(axes, "decisions")


def shown_line(chart: Chart, line: Scalars) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return steps int64[n], values float64[n] and their running mean float64[n] or None, as drawn in a chart."""
    steps, values = line.steps, chart.factor * line.values
    smooth = chart.smooth > 1 and len(values) > chart.smooth
    return steps, values, _running_mean(values, chart.smooth) if smooth else None


def _mark_stages(axes: "Axes", runs: Mapping[str, object], marks: Mapping[str, Sequence[Stage]]) -> None:
    """Draw a vertical line at the beginning of each stage but the first.  marks: name of a run -> stages."""
    for colour, name, _ in coloured(runs):
        for stage in marks.get(name, ())[1:]:
            axes.axvline(stage.begin, color=colour if len(runs) > 1 else INK, linewidth=0.8, linestyle=":", alpha=0.7)
            if len(runs) == 1:
                axes.text(stage.begin, 1, stage.name, transform=axes.get_xaxis_transform(), **_STAGE_NAME)


def _running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Return for each value the mean of the last ``width`` values up to it; of fewer values at the start."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - width, 0)
    return (total[end] - total[start]) / (end - start)
