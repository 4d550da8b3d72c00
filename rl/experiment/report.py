"""Report of an experiment: one self-contained HTML page, from ``nppsim/report/templates/experiment.html``.

    write_report(experiment, folder / "report.html")

``experiment`` is the result of ``rl.experiment.record.report_view``.  Relative paths refer to the report's folder or the
working directory; those of films refer to the folder of the run.
"""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nppsim.errors import needed
from nppsim.replays.replay import Replay
from nppsim.report.charts import coloured, lines_chart
from nppsim.report.pages import Plot, render_page, write_page
from nppsim.studio import page as players
from nppsim.studio.page import LevelRuns, player_data
from rl.evaluation.comparison import Difference, format_difference
from rl.evaluation.results import ALL, categories
from rl.events import EventsError, Scalars, read_scalars
from rl.experiment.curves import CHARTS, Chart, curve_chart, stages

METHODS = {"ppo": "after PPO", "bc": "before PPO", "random": "random play"}  # in the order of columns
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

Architectures = Mapping[str, Mapping[str, Any]]  # title of a run -> its entry


def write_report(experiment: Mapping, path: str | os.PathLike) -> Path:
    """Write the page atomically and return its path."""
    path = Path(path)
    return write_page(render_report(experiment, path.parent), path)


def render_report(experiment: Mapping, folder: Path) -> str:
    """Return the page as HTML text.  folder: folder of the page, for relative paths and links."""
    architectures: Architectures = experiment["architectures"]
    runs, notes = _scalars(architectures, folder)
    sections = {name: _sections(entry, folder) for name, entry in architectures.items()}
    films = [film for contents in sections.values() for group in contents["films"].values() for film in group]
    return render_page(
        "experiment.html",
        title=experiment["name"],
        summary=[experiment["created"], experiment["machine"]],
        verdicts=_verdicts(experiment, architectures),
        agent=_best_run(architectures, folder),
        results=_results({name: entry["results"] for name, entry in architectures.items()}),
        all_seeds=_results(experiment["all_seeds"]),
        comparisons=_comparisons(experiment, architectures),
        notes=notes,
        curves=_curves(runs),
        colours=[(colour, name) for colour, name, _ in coloured(runs)],
        distillation=_distillation(runs),
        reward_plots=_reward_plots(runs),
        parts=_parts(sections),
        players=players if any(film["player"] for film in films) else None,
        machine=experiment["machine"],
        versions=experiment["versions"],
    )


def _sections(entry: Mapping, folder: Path) -> dict[str, Any]:
    """Return section -> content of one architecture's entry; None or empty for a section without data."""
    return {
        "bc": entry["bc"] and _imitation(entry["bc"], entry["events"]),
        "settings": _settings(entry["settings"]),
        "films": _films(entry["paths"], folder),
        "speed": _speed(entry["speed"], entry["wall_time_s"]),
        "events": list(map(_event, entry["events"])),
        "audit": [{_AUDIT.get(name, name): value for name, value in row.items()} for row in entry["audit"]],
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
    rows = [{"setting": name, "value": one["value"], "from": one["source"]} for name, one in settings.items()]
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
    """Return the sizes of a hardware plan with what determined each, and the memory needed."""
    memory = {
        f"memory of the {place}": f"{plan[f'{key}_bytes'] / 1e9:.1f} of {plan[f'{key}_budget'] / 1e9:.1f} GB"
        for place, key in (("machine", "host"), ("GPU", "device"))
        if plan[f"{key}_budget"]
    }
    total = {"decisions per update": plan["batch_size"], "updates": plan["updates"]}
    warnings = {"warnings": plan["warnings"]} if plan["warnings"] else {}
    return {"sizes": plan["settings"], **total, **memory, **warnings}


def _best_run(architectures: Architectures, folder: Path) -> str | None:
    """Return the folder of the run with the most successful agent, as it is named in the record; None without an agent."""
    runs = {}
    for entry in architectures.values():
        run, stats = entry["paths"]["run"], (entry["results"]["ppo"] or {}).get(ALL)
        if (_resolved(folder, run) / "agent.safetensors").is_file():
            runs[run] = stats["success"] if stats and stats["episodes"] else 0.0
    return max(runs, key=lambda run: runs[run], default=None)


def _verdicts(experiment: Mapping, architectures: Architectures) -> list[str]:
    """Return a summary text per architecture, and a sentence per comparison between architectures or conditions."""
    texts = []
    for name, entry in architectures.items():
        delivered = [f"Delivered: {entry['delivered']}."] if entry["delivered"] else []
        claims = [one["sentence"] for one in entry["comparisons"]]
        texts.append(" ".join([verdict(name, entry["results"]), *claims, *delivered]))
    return [*texts, *(one["sentence"] for one in experiment["comparisons"])]


def verdict(name: str, results: Mapping) -> str:
    """Return a sentence about an architecture's success after PPO."""
    ppo = (results["ppo"] or {}).get(ALL)
    if not ppo or not ppo["episodes"]:
        return f"{name}: not evaluated after PPO."
    low, high = (100 * bound for bound in ppo["ci95"])
    won = f"{100 * ppo['success']:.1f} % of {ppo['episodes']:,} episodes on test levels"
    return f"{name} finishes {won} (95 % interval {low:.1f} to {high:.1f} %)."


def _results(methods_of: Mapping[str, Mapping]) -> dict[str, Any]:
    """Return a table with a group of columns per run, a column per method, and a row per category; {} without results.

    Random play gets a single column if its results are equal in all runs.
    """
    tables = {(name, method): results[method] for name, results in methods_of.items() for method in METHODS}
    if not any(tables.values()):
        return {}
    random = [table for (_, method), table in tables.items() if method == "random" and table]
    if len(methods_of) > 1 and random and all(one == random[0] for one in random):
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


def _comparisons(experiment: Mapping, architectures: Architectures) -> dict[str, Any]:
    """Return a table with a column per comparison, and a row per category; {} without comparisons."""
    found = [one for entry in architectures.values() for one in entry["comparisons"]] + experiment["comparisons"]
    names = categories({str(number): one["categories"] for number, one in enumerate(found)})
    rows = [
        {"category": name, "total": name == ALL, "cells": [_difference(one["categories"].get(name)) for one in found]}
        for name in names
    ]
    return {"titles": [(one["first"], one["second"]) for one in found], "rows": rows} if found else {}


def _difference(values: Mapping | None) -> dict[str, Any] | None:
    """Return a difference as a table cell, bold if its 95 % interval excludes 0; None without values."""
    if values is None:
        return None
    difference = Difference(**values)
    return {"text": format_difference(difference), "bold": difference.clear}


def _evaluated(table: Mapping | None, category: str) -> Mapping | None:
    stats = (table or {}).get(category)
    return stats if stats and stats["episodes"] else None


def _scalars(architectures: Architectures, folder: Path) -> tuple[dict[str, dict[str, Scalars]], list[str]]:
    """Return (architecture -> tag -> Scalars of its event files, notes about architectures without event files)."""
    runs, notes = {}, []
    for name, entry in architectures.items():
        try:
            runs[name] = read_scalars(_resolved(folder, entry["paths"]["tensorboard"]))
        except EventsError as error:
            notes.append(f"{name}: {error}")
    return runs, notes


def _curves(runs: Mapping[str, Mapping[str, Scalars]]) -> list[tuple[Chart, bytes | None]]:
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
        known = [(i, factor * epoch[key]) for i, epoch in enumerate(history, start=1) if epoch.get(key) is not None]
        if known:
            lines[label] = ([epoch for epoch, _ in known], [value for _, value in known])
    return lines


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _speed(speed: Mapping, wall_time_s: float) -> dict[str, Any]:
    """Return speed figures, and (colour, phase of training, share of the time) of each phase."""
    figures = {key: value for key, value in speed.items() if key != "share"} | {"wall_time_s": wall_time_s}
    return {"figures": _spaced(figures), "shares": list(coloured(speed["share"]))}


def _films(paths: Mapping, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return category -> films, with link, preview picture and replay player if their files exist."""
    base = _resolved(folder, paths["run"])
    groups: dict[str, list[dict[str, Any]]] = {}
    for film in paths["films"]:
        route, video = base / film["route"], base / film["video"]
        run = Replay.load(replay) if (replay := video.with_suffix(".replay")).is_file() else None
        shown = {
            **film,
            "link": quote(Path(os.path.relpath(video, folder)).as_posix()) if video.is_file() else None,
            "poster": _thumbnail(route) if route.is_file() else None,
            "player": run and player_data(LevelRuns(run.level, [(film["level_name"], run.inputs)])),
        }
        groups.setdefault(film["category"], []).append(shown)
    return groups


def _resolved(folder: Path, path: str) -> Path:
    """Return a path relative to the report's folder if it exists there, else unchanged."""
    inside = folder / path
    return inside if inside.exists() else Path(path)


def _thumbnail(path: Path) -> bytes:
    with needed("PIL.Image", "video").open(path) as image:
        small = image.convert("RGB")
        small.thumbnail((THUMBNAIL_WIDTH, THUMBNAIL_WIDTH))
        buffer = io.BytesIO()
        small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
