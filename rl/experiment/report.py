"""Report of an experiment: one self-contained HTML page, from ``nppsim/report/templates/experiment.html``.

    write_report(results, folder / "report.html")     # results: content of results.json

Paths of runs are relative to the report's folder, and those of films to the folder of the run.
"""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from nppsim.errors import import_optional
from nppsim.replays.replay import Replay
from nppsim.report.charts import INK, coloured, large_numbers, lines_chart, new_chart, to_png, whole_numbers
from nppsim.report.pages import Plot, render_page, write_page
from nppsim.studio import page as players
from nppsim.studio.page import LevelRuns, player_data
from rl.evaluation.comparison import SuccessDifference, format_difference
from rl.evaluation.results import ALL, categories
from rl.events import EventsError, Scalars, read_scalars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Policies of a training, in the order of columns.
METHODS = {"ppo": "after PPO", "distilled": "after distillation", "bc": "after imitation", "random": "random play"}
_LOSSES = {"train_loss": "training", "validation_loss": "validation"}  # key in the history of imitation -> label
_ACCURACIES = {
    "train_accuracy": "training",
    "validation_accuracy": "validation",
    "validation_change_accuracy": "validation, on changes",
}
THUMBNAIL_WIDTH = 640  # px
_AUDIT = {  # field of ``nppsim.reward.AuditRow`` -> label
    "path_px": "90th percentile of path lengths, px",
    "win_frames": "frames of a win at a third of top speed",
    "win_return": "return of this win",
    "timeout_return": "return of a time-out",
    "death_return": "return of an early death",
    "approach": "minimum reward per decision towards the goal",
}

Runs = Mapping[str, Mapping[str, Any]]  # title of a run -> its entry in results.json
Evaluated = Mapping[str, Mapping | None]  # method -> statistics per category, None if not evaluated


def write_report(results: Mapping, path: str | os.PathLike) -> Path:
    """Write the page atomically and return its path.  results: content of results.json."""
    path = Path(path)
    return write_page(render_report(results, path.parent), path)


def render_report(results: Mapping, folder: Path) -> str:
    """Return the page as HTML text.  results: content of results.json.  folder: folder of the page."""
    architectures = results["architectures"]
    runs: Runs = {run["title"]: run for label in architectures.values() for run in label["seeds"].values()}
    all_seeds = {
        f"{name}, all seeds": label["all_seeds"] for name, label in architectures.items() if "all_seeds" in label
    }
    scalars, notes = _scalars(runs, folder)
    sections = {title: _sections(run, folder, results["audit"]) for title, run in runs.items()}
    films = [film for contents in sections.values() for group in contents["films"].values() for film in group]
    return render_page(
        "experiment.html",
        title=results["name"],
        summary=[results["created"], results["machine"]],
        verdicts=_verdicts(results["comparisons"], runs),
        agent=_best_run(runs, folder),
        results=_results(runs),
        all_seeds=_results(all_seeds),
        comparisons=_comparisons(results["comparisons"], runs),
        notes=notes,
        curves=_curves(scalars),
        colours=[(colour, name) for colour, name, _ in coloured(scalars)],
        distillation=_distillation(scalars),
        reward_plots=_reward_plots(scalars),
        parts=_parts(sections),
        players=players if any(film["player"] for film in films) else None,
        machine=results["machine"],
        versions=results["versions"],
    )


def _evaluations(run: Mapping[str, Any]) -> Evaluated:
    """Return method -> statistics per category of the final evaluation."""
    return {"ppo": run["suites"]["test"] or None, **run["baselines"]}


def _sections(entry: Mapping, folder: Path, audit: Sequence[Mapping]) -> dict[str, Any]:
    """Return section -> content of one run's entry; None or empty for a section without data."""
    return {
        "bc": entry["bc"] and _imitation(entry["bc"], entry["events"]),
        "settings": _settings(entry["settings"]),
        "films": _films(entry, folder),
        "speed": _speed(entry["speed"], entry["wall_time_s"]),
        "events": list(map(_event, entry["events"])),
        "audit": [{_AUDIT.get(name, name): value for name, value in row.items()} for row in audit],
        "plan": _plan(entry["plan"]),
        "transfer": entry["transfer"] and _spaced(entry["transfer"]),
        **{key: entry[key] for key in ("checklist", "doctor")},
    }


def _parts(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[str, Any]]]:
    """Return section -> [(title, content)]; runs with equal content share a pair, and a single pair has no title."""
    parts: dict[str, list[tuple[list[str], Any]]] = {}
    for name, contents in sections.items():
        for key, content in contents.items():
            groups = parts.setdefault(key, [])
            same = next((names for names, other in groups if other == content), None)
            groups.append(([name], content)) if same is None else same.append(name)
    return {
        key: [(", ".join(names) if len(groups) > 1 else "", content) for names, content in groups]
        for key, groups in parts.items()
    }


def _settings(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict]]:
    """Return the rows of settings that were chosen, and those of settings with default values."""
    rows = [{"setting": name, "value": entry["value"], "from": entry["source"]} for name, entry in settings.items()]
    return {
        "chosen": [row for row in rows if row["from"] != "default"],
        "defaults": [row for row in rows if row["from"] == "default"],
    }


def _spaced(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict whose keys have spaces instead of underscores."""
    return {key.replace("_", " "): value for key, value in item.items()}


def _event(event: Mapping) -> dict[str, Any]:
    """Return an event of training or of the curriculum as a table row."""
    if "event" in event:  # of the curriculum
        after = f"{event['episode']:,} episodes" if "episode" in event else None
        return {"after": after, "event": event["event"], "details": f"{event.get('stage')}: {event.get('reason')}"}
    ((what, details),) = [(key, value) for key, value in event.items() if key != "at"]
    if isinstance(details, Mapping):
        details = ", ".join(f"{name} {_percent(success)}" for name, success in sorted(details.items(), key=_all_first))
    return {"after": f"{event['at']:,} decisions", "event": what.replace("_", " "), "details": details}


def _all_first(row: tuple[str, Any]) -> bool:
    return row[0] != ALL


def _plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a hardware plan, the source of each, and the memory needed."""
    memory = {
        f"memory of the {place}": f"{plan[f'{key}_bytes'] / 1e9:.1f} of {plan[f'{key}_budget'] / 1e9:.1f} GB"
        for place, key in (("machine", "host"), ("GPU", "device"))
        if plan[f"{key}_budget"]
    }
    total = {"decisions per update": plan["batch_size"], "updates": plan["updates"]}
    warnings = {"warnings": plan["warnings"]} if plan["warnings"] else {}
    return {"sizes": plan["settings"], **total, **memory, **warnings}


def _best_run(runs: Runs, folder: Path) -> str | None:
    """Return the path of the run with the most successful agent; None without an agent."""
    success = {}
    for run in runs.values():
        path, stats = folder / run["folder"], run["suites"]["test"].get(ALL)
        if (path / "agent.safetensors").is_file():
            success[str(path)] = stats["success"] if stats and stats["episodes"] else 0.0
    return max(success, key=lambda path: success[path], default=None)


def _verdicts(comparisons: Sequence[Mapping], runs: Runs) -> list[str]:
    """Return a summary text per run, and a sentence per comparison between architectures or conditions."""
    texts = []
    for title, run in runs.items():
        delivered = [f"Delivered: {run['delivered']}."] if run["delivered"] else []
        sentences = [comparison["sentence"] for comparison in run["comparisons"]]
        texts.append(" ".join([verdict(title, _evaluations(run)), *_gap(run), *sentences, *delivered]))
    return [*texts, *(comparison["sentence"] for comparison in comparisons)]


def _gap(run: Mapping[str, Any]) -> list[str]:
    """Return a sentence with success on the training levels and the gap to the test levels; [] if it was not evaluated."""
    if run["train_success"] is None:
        return []
    train, test = 100 * run["train_success"], 100 * run["suites"]["test"][ALL]["success"]
    return [f"On training levels: {train:.1f} %, a gap of {train - test:+.1f} points."]


def verdict(name: str, results: Evaluated) -> str:
    """Return a sentence about a run's success after PPO."""
    ppo = (results["ppo"] or {}).get(ALL)
    if not ppo or not ppo["episodes"]:
        return f"{name}: not evaluated after PPO."
    low, high = (100 * bound for bound in ppo["ci95"])
    won = f"{100 * ppo['success']:.1f} % of {ppo['episodes']:,} episodes on test levels"
    return f"{name} finishes {won} (95 % interval {low:.1f} to {high:.1f} %)."


def _results(runs: Runs) -> dict[str, Any]:
    """Return a table with a group of columns per run, a column per method, and a row per category; {} without results.

    Random play gets a single column if its results are equal in all runs.
    """
    evaluated = {title: _evaluations(run) for title, run in runs.items()}
    tables = {(title, method): results.get(method) for title, results in evaluated.items() for method in METHODS}
    tables = {column: table for column, table in tables.items() if table}
    if not tables:
        return {}
    random = [table for (_, method), table in tables.items() if method == "random"]
    if len(runs) > 1 and random and all(row == random[0] for row in random):
        tables = {column: table for column, table in tables.items() if column[1] != "random"}
        tables["", "random"] = random[0]
    groups: dict[str, list[str]] = {}
    for name, method in tables:
        groups.setdefault(name, []).append(METHODS[method])
    rows = [
        {"category": category, "total": category == ALL, "cells": [_evaluated(t, category) for t in tables.values()]}
        for category in categories({" ".join(column): table for column, table in tables.items()})
    ]
    return {"groups": list(groups.items()), "rows": rows}


def _comparisons(comparisons: Sequence[Mapping], runs: Runs) -> dict[str, Any]:
    """Return a table with a column per comparison, and a row per category; {} without comparisons."""
    shown = [*(comparison for run in runs.values() for comparison in run["comparisons"]), *comparisons]
    names = categories({str(number): comparison["categories"] for number, comparison in enumerate(shown)})
    rows = [
        {
            "category": name,
            "total": name == ALL,
            "cells": [_difference(comparison["categories"].get(name)) for comparison in shown],
        }
        for name in names
    ]
    return (
        {"titles": [(comparison["first"], comparison["second"]) for comparison in shown], "rows": rows} if shown else {}
    )


def _difference(values: Mapping | None) -> dict[str, Any] | None:
    """Return a difference as a table cell, bold if its 95 % interval excludes 0; None without values."""
    if values is None:
        return None
    difference = SuccessDifference(**values)
    return {"text": format_difference(difference), "bold": difference.clear}


def _evaluated(table: Mapping | None, category: str) -> Mapping | None:
    stats = (table or {}).get(category)
    return stats if stats and stats["episodes"] else None


def _scalars(runs: Runs, folder: Path) -> tuple[dict[str, dict[str, Scalars]], list[str]]:
    """Return (title of a run -> tag -> Scalars of its event files, notes about runs without event files)."""
    scalars, notes = {}, []
    for title, run in runs.items():
        try:
            scalars[title] = read_scalars(folder / run["folder"] / "tensorboard")
        except EventsError as error:
            notes.append(f"{title}: {error}")
    return scalars, notes


def _curves(runs: Mapping[str, Mapping[str, Scalars]]) -> list[tuple["Chart", bytes | None]]:
    marks = {name: stages(scalars) for name, scalars in runs.items()}
    return [(chart, curve_chart(chart, runs, marks)) for chart in CHARTS] if runs else []


def _distillation(runs: Mapping[str, Mapping[str, Scalars]]) -> list[Plot]:
    """Return charts of divergence and success for each run with distillation."""
    plots = []
    for name, scalars in runs.items():
        for tag, what, unit, factor in (
            ("bc/teacher/divergence", "Divergence from the teacher", "nats", 1),
            ("bc/teacher/success", "Success during distillation", "%", 100),
        ):
            if line := scalars.get(tag):
                title = f"{what}, {name}"
                plots.append(Plot(title, lines_chart(title, unit, {name: (line.steps, factor * line.values)}, "step")))
    return plots


def _reward_plots(runs: Mapping[str, Mapping[str, Scalars]]) -> list[Plot]:
    """Return one chart per run of the reward per episode, with a line per reward term."""
    plots = []
    for name, scalars in runs.items():
        terms = {
            tag.removeprefix("reward/"): (line.steps, line.values)
            for tag, line in sorted(scalars.items())
            if tag.startswith("reward/")
        }
        if terms:
            title = f"Reward per episode by term, {name}"
            plots.append(Plot(title, lines_chart(title, "", terms, "decisions")))
    return plots


def _imitation(bc: Mapping, events: Sequence[Mapping]) -> dict[str, Any]:
    """Return the section on imitation.

    events: events of PPO's training; the evaluation at decision 0 is that of the BC policy.
    """
    metrics = {"policy, validation": bc["validation"], "policy, training": bc["training"]}
    metrics |= {f"trivial: {name}": baseline for name, baseline in bc["baselines"].items()}
    scores = {
        title: {
            "accuracy": _percent(values["accuracy"]),
            "on changes": _percent(values["change_accuracy"]),
            "loss": values["loss"],
        }
        for title, values in metrics.items()
    }
    history = bc["history"]
    charts = (
        ("Loss of imitation", "nats", _history_lines(history, _LOSSES)),
        ("Accuracy of imitation", "%", _history_lines(history, _ACCURACIES, 100)),
    )
    listed = ("validation", "training", "baselines", "closed_loop", "history")
    return {
        "scores": scores,
        "closed_loop": bc["closed_loop"] or _success_before_ppo(events),
        "plots": [Plot(title, lines_chart(title, unit, lines, "epoch")) for title, unit, lines in charts if lines],
        "rest": {key: value for key, value in bc.items() if key not in listed},
    }


def _success_before_ppo(events: Sequence[Mapping]) -> dict[str, str | None] | None:
    """Return the BC policy's success per category on the dev levels, None if it was not evaluated."""
    first = next((event["evaluation"] for event in events if event.get("at") == 0 and "evaluation" in event), None)
    return first and {category: _percent(success) for category, success in first.items()}


def _history_lines(
    history: Sequence[Mapping], labels: Mapping[str, str], factor: float = 1
) -> dict[str, tuple[list, list]]:
    """Return label -> (epochs from 1, values).  labels: key in the history -> label."""
    lines = {}
    for key, label in labels.items():
        points = [(i, factor * epoch[key]) for i, epoch in enumerate(history, start=1) if epoch.get(key) is not None]
        if points:
            lines[label] = ([epoch for epoch, _ in points], [value for _, value in points])
    return lines


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _speed(speed: Mapping, wall_time_s: float) -> dict[str, Any]:
    """Return speed figures, and (colour, phase of training, share of the time) of each phase."""
    figures = {key: value for key, value in speed.items() if key != "share"} | {"wall_time_s": wall_time_s}
    return {"figures": _spaced(figures), "shares": list(coloured(speed["share"]))}


def _films(run: Mapping, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return category -> films, with link, preview picture and replay player if their files exist."""
    base = folder / run["folder"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for film in run["films"]:
        route, video = base / film["route"], base / film["video"]
        played = Replay.load(replay) if (replay := video.with_suffix(".replay")).is_file() else None
        shown = {
            **film,
            "link": quote(Path(os.path.relpath(video, folder)).as_posix()) if video.is_file() else None,
            "poster": _thumbnail(route) if route.is_file() else None,
            "player": played and player_data(LevelRuns(played.level, [(film["level_name"], played.inputs)])),
        }
        groups.setdefault(film["category"], []).append(shown)
    return groups


def _thumbnail(path: Path) -> bytes:
    with import_optional("PIL.Image", "video").open(path) as image:
        small = image.convert("RGB")
        small.thumbnail((THUMBNAIL_WIDTH, THUMBNAIL_WIDTH))
        buffer = io.BytesIO()
        small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


# ---------------------------------------------------------------------------------------------------------------------
# Learning curves

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
