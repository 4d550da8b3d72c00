"""The report of an experiment: one self-contained HTML page (plots and pictures inside, no network).

    write_report(experiment, folder / "report.html")

``experiment`` is a plain dictionary, as stored in ``experiment.json``; every key is optional, and a section without
its data says "not run":

    name, created         text for the heading
    config                dict: the resolved configuration
    machine               text, or dict with "name" and more
    versions              dict: name -> text
    architectures         dict: name -> dict with
        results           {"random": S, "bc": S, "ppo": S}; S: category -> statistics as from ``rl.judge.results.aggregate``
                          (None: not run)
        bc                ``bc.BCResult.as_dict()``: validation, training, baselines (dicts with accuracy,
                          change_accuracy, loss), history (list of dicts), closed_loop and more
        transfer          dict, e.g. {"copied": 41, "fresh": [...]}
        speed             {"decisions_per_s": x, "share": {"environment": s, "inference": s, "update": s, "rest": s}}
        audit             reward audit: text, dict, or list of dicts
        plan              hardware plan: text or dict
        wall_time_s       seconds
        events            list of dicts: what happened during training
        paths             {"tensorboard": folder, "run": folder, "films": [dicts of ``rl.judge.video.Film``]}; relative
                          paths are looked up in the report's folder, then in the working directory; a film's in "run"

Texts are escaped; values that are no texts, numbers, lists or dictionaries are shown as ``str`` gives them.
"""

import dataclasses
import io
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from nppsim.report.charts import data_uri, line_colours
from nppsim.report.pages import NOT_RUN, escape, folded, image, page, value_html, write_page
from rl.events import EventsError, read_scalars
from rl.experiment.curves import CHARTS, curve_chart, lines_chart
from rl.judge.results import ALL, categories

METHODS = {"random": "random play", "bc": "BC alone", "ppo": "after PPO"}
_BC_CHARTS = (
    ("Loss while cloning", "nats", 1, {"train_loss": "training", "validation_loss": "validation"}),
    (
        "Accuracy while cloning",
        "%",
        100,
        {
            "train_accuracy": "training",
            "validation_accuracy": "validation",
            "validation_change_accuracy": "validation, on changes",
        },
    ),
)  # title, unit, factor, tag in the history -> label
THUMBNAIL_WIDTH = 640  # px of the route pictures in the page


def write_report(experiment: Mapping, path: str | os.PathLike) -> Path:
    """Write the page atomically and return its path.  experiment: see the head of this file."""
    path = Path(path)
    return write_page(render_report(experiment, path.parent), path)


def render_report(experiment: Mapping, folder: Path) -> str:
    """The page as text.  folder: where it will lie; paths are resolved, and links made, from there."""
    architectures = dict(experiment.get("architectures") or {})
    name = str(experiment.get("name") or "experiment")
    machine = experiment.get("machine") or {}
    machine_name = machine.get("name") if isinstance(machine, Mapping) else machine
    told = " · ".join(escape(v) for v in (experiment.get("created"), machine_name) if v)
    for title, entry in architectures.items():
        if entry.get("speed") and entry.get("wall_time_s") is not None:
            architectures[title] = {**entry, "speed": {**entry["speed"], "wall_time_s": entry["wall_time_s"]}}
    runs, notes = _scalars(architectures, folder)
    sections = (
        ("Results", _results(architectures)),
        ("Learning curves", notes + _curves(runs) if runs or notes else NOT_RUN),
        ("Behavioural cloning", _each(architectures, "bc", _bc)),
        ("Films and routes", _each(architectures, "paths", lambda paths: _films(paths, folder))),
        ("Speed", _each(architectures, "speed", _speed)),
        ("Events", _each(architectures, "events", folded)),
        ("Rewards", _rewards(architectures, runs)),
        ("Weight transfer", _each(architectures, "transfer", value_html)),
        ("Hardware plan", _each(architectures, "plan", value_html)),
        ("Configuration", folded(experiment.get("config"))),
        ("Machine and versions", value_html(machine) + folded(experiment.get("versions")) if machine else NOT_RUN),
    )
    return page(name, f"<p class='muted'>{told}</p>{_verdict(architectures)}", sections)


# ---------------------------------------------------------------------------------------------------------------------
# Verdict and results


def verdict(name: str, results: Mapping) -> str:
    """One sentence on an architecture: success after PPO, what came before it, and whether the difference is clear."""
    totals = {method: ((results or {}).get(method) or {}).get(ALL) for method in METHODS}
    ppo = totals["ppo"]
    if not ppo or not ppo["episodes"]:
        return f"{name}: not evaluated after PPO."
    low, high = ppo["ci95"]
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
    text = f"{name} finishes {_percent(ppo)} of {ppo['episodes']} held-out episodes ({interval})."
    for method in ("bc", "random"):
        other = totals[method]
        if other and other["episodes"]:
            if low > other["ci95"][1]:
                relation = "clearly more than"
            elif high < other["ci95"][0]:
                relation = "clearly LESS than"
            else:
                relation = "not clearly different from"
            text += f" That is {relation} {METHODS[method]} ({_percent(other)})."
    return text


def _percent(stats):
    return f"{100 * stats['success']:.1f} %"


def _verdict(architectures):
    if not architectures:
        return '<p class="verdict">Nothing was run.</p>'
    return "".join(
        f'<p class="verdict">{escape(verdict(name, entry.get("results")))}</p>' for name, entry in architectures.items()
    )


def _results(architectures):
    """A table with a row per category and, for each architecture, a column per method."""
    tables = {name: entry.get("results") or {} for name, entry in architectures.items()}
    if not any(stats for table in tables.values() for stats in table.values()):
        return NOT_RUN
    columns = {(name, method): table.get(method) for name, table in tables.items() for method in METHODS}
    head = "".join(f'<th colspan="{len(METHODS)}">{escape(name)}</th>' for name in tables)
    methods = "".join(f"<th>{METHODS[method]}</th>" for _, method in columns)
    rows = ""
    for category in categories({" ".join(key): stats for key, stats in columns.items()}):
        cells = "".join(_cell((stats or {}).get(category)) for stats in columns.values())
        rows += f"<tr{' class=total' if category == ALL else ''}><th>{escape(category)}</th>{cells}</tr>"
    return (
        f'<div class="wide"><table class="results"><thead><tr><th></th>{head}</tr><tr><th>category</th>{methods}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
        '<p class="muted">Success on held-out levels with Wilson’s 95 % interval; below it: episodes, deaths, '
        "time-outs, median frames of the episodes won.</p>"
    )


def _cell(stats):
    if not stats or not stats["episodes"]:
        return '<td class="missing">not run</td>'
    low, high = (100 * bound for bound in stats["ci95"])
    frames = "–" if stats["median_frames"] is None else f"{stats['median_frames']:.0f} frames"
    counts = f"{stats['episodes']} ep · {stats['deaths']} died · {stats['timeouts']} late · {frames}"
    return (
        f'<td><b>{_percent(stats)}</b> <span class="muted">[{low:.1f}, {high:.1f}]</span>'
        f'<div class="bar"><i style="width:{100 * stats["success"]:.2f}%"></i>'
        f'<u style="left:{low:.2f}%;width:{high - low:.2f}%"></u></div>'
        f'<small class="muted">{counts}</small></td>'
    )


# ---------------------------------------------------------------------------------------------------------------------
# Sections


def _each(architectures, key, draw):
    """The same part of every architecture, under its name where there are several."""
    parts = []
    for name, entry in architectures.items():
        value = entry.get(key)
        title = f"<h3>{escape(name)}</h3>" if len(architectures) > 1 else ""
        parts.append(f"<div>{title}{draw(value) if value else NOT_RUN}</div>")
    return f'<div class="beside">{"".join(parts)}</div>' if parts else NOT_RUN


def _scalars(architectures, folder):
    """(name -> tag -> Scalars of the architectures that have event files, notes on those that have not)."""
    runs, notes = {}, []
    for name, entry in architectures.items():
        tensorboard = (entry.get("paths") or {}).get("tensorboard")
        if not tensorboard:
            notes.append(f"{name}: not run")
            continue
        try:
            runs[name] = read_scalars(_place(folder, tensorboard))
        except EventsError as error:
            notes.append(f"{name}: {error}")
    return runs, "".join(f'<p class="missing">{escape(note)}</p>' for note in notes)


def _curves(runs):
    plots = ""
    for chart in CHARTS if runs else ():
        png = curve_chart(chart, runs)
        if png is None:
            plots += f'<p class="missing">{escape(chart.title)}: not logged ({escape(", ".join(chart.tags))})</p>'
        else:
            plots += image(png, chart.title)
    return f'<div class="plots">{plots}</div>'


def _rewards(architectures, runs):
    audits = _each(architectures, "audit", value_html)
    plots = ""
    for name, scalars in runs.items():
        terms = {tag: (s.steps, s.values) for tag, s in scalars.items() if tag.startswith("reward/")}
        if terms:
            short = {tag.removeprefix("reward/"): line for tag, line in sorted(terms.items())}
            plots += image(lines_chart(f"Reward per episode by term, {name}", "", short, "decisions"), "reward terms")
    ledger = f'<div class="plots">{plots}</div>' if plots else '<p class="missing">no ledger (reward/* tags) logged</p>'
    return f"<h3>Audit before training</h3>{audits}<h3>Ledger</h3>{ledger}"


def _bc(bc):
    rows = {}
    for title, metrics in {
        "policy, validation": bc.get("validation"),
        "policy, training": bc.get("training"),
        **{f"trivial: {name}": metrics for name, metrics in (bc.get("baselines") or {}).items()},
    }.items():
        if metrics:
            rows[title] = {
                "accuracy": _share(metrics.get("accuracy")),
                "on changes": _share(metrics.get("change_accuracy")),
                "loss": metrics.get("loss"),
            }
    text = value_html(rows) if rows else ""
    closed = bc.get("closed_loop")
    text += f"<h4>Closed loop (the clone plays by itself)</h4>{value_html(closed) if closed else NOT_RUN}"
    history, plots = bc.get("history") or (), ""
    for title, unit, factor, tags in _BC_CHARTS:
        lines = {}
        for tag, label in tags.items():
            points = [(i + 1, factor * epoch[tag]) for i, epoch in enumerate(history) if epoch.get(tag) is not None]
            if points:
                lines[label] = tuple(zip(*points, strict=True))
        if lines:
            plots += image(lines_chart(title, unit, lines, "epoch"), title)
    rest = {k: v for k, v in bc.items() if k not in ("validation", "training", "baselines", "closed_loop", "history")}
    return f'{text}<div class="plots">{plots}</div>{folded(rest)}'


def _share(value):
    return None if value is None else f"{100 * value:.1f} %"


def _speed(speed):
    share = speed.get("share") or {}
    bars = legend = ""
    for colour, (name, part) in zip(line_colours(len(share)), share.items(), strict=True):
        bars += f'<i style="width:{100 * part:.2f}%;background:{colour}" title="{escape(name)}"></i>'
        legend += f'<span><i style="background:{colour}"></i>{escape(name)} {100 * part:.1f} %</span>'
    figures = value_html({key: value for key, value in speed.items() if key != "share"} or None)
    shares = f'<div class="stack">{bars}</div><p class="legend">{legend}</p>' if share else NOT_RUN
    return figures + shares


def _films(paths, folder):
    films = [dataclasses.asdict(film) if dataclasses.is_dataclass(film) else film for film in paths.get("films") or ()]
    if not films:
        return NOT_RUN
    base = _place(folder, paths.get("run") or "")
    groups: dict[str, str] = {}
    for film in films:
        won = film["outcome"] == "won"
        route, video = base / film["route"], base / film["video"]
        poster = f'poster="{_thumbnail(route)}"' if route.is_file() else ""
        if video.is_file():
            link = quote(Path(os.path.relpath(video, folder)).as_posix())
            shown = f'<video controls preload="none" {poster} src="{link}"></video><a href="{link}">film</a>'
        else:
            picture = f'<img src="{_thumbnail(route)}" alt="route">' if poster else ""
            shown = f'{picture}<span class="missing">film missing: {escape(film["video"])}</span>'
        groups.setdefault(str(film["category"]), "")
        groups[film["category"]] += (
            f'<figure>{shown} <figcaption><b class="{"won" if won else "lost"}">{escape(film["outcome"])}</b> '
            f"{escape(film['level_name'])}, {film['frames'] / 60:.2f} s</figcaption></figure>"
        )
    return "".join(f'<h4>{escape(name)}</h4><div class="films">{figures}</div>' for name, figures in groups.items())


def _place(folder, path):
    """A path of the experiment: in the report's folder if it is there, else as the working directory sees it."""
    inside = folder / path
    return inside if inside.exists() else Path(path)


def _thumbnail(path):
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB")
        small.thumbnail((THUMBNAIL_WIDTH, THUMBNAIL_WIDTH))
        buffer = io.BytesIO()
        small.save(buffer, "PNG", optimize=True)
    return data_uri(buffer.getvalue())
