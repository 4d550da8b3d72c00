"""The report on a folder of demonstrations: one self-contained HTML page, and a short text for the terminal.

    write_page(render_report(analysis), "demonstrations.html")
    print(summary(analysis))

How to read it: ``docs/demonstrations.md``.
"""

from collections.abc import Mapping

import numpy as np

from bc.analysis import FASTEST, FEW_LEVELS, IDLE_FRAMES, SLOW, Analysis, Coverage, Group
from nppsim.actions import ACTION_NAMES
from nppsim.pictures.region import STAGE, TILE
from nppsim.report.charts import box_chart, field_chart, heat_chart, histogram_chart
from nppsim.report.pages import escape, image, page, value_html

LONG_HOLD = 12  # decisions: actions held longer than this share a column
SHOWN = 20  # of each kind of anomaly, and of each list of names
ALL = "all together"
_BASELINES = {
    "majority": "always the most frequent action",
    "repeat_previous": "repeat the previous action",
    "transition": "what most often follows the previous action",
    "transition_on_change": "the same, but never the previous action itself",
}
_MEASURES = {"way": "length of the way (px)", "hazards": "hazards", "doors": "doors"}
_NO_LEVELS = '<p class="missing">not compared: no --levels given</p>'


def summary(analysis: Analysis) -> str:
    """Counts, lengths and findings as plain text."""
    lines = [analysis.found.table(), "", "findings:"]
    lines += [f"  {'PROBLEM: ' if f.problem else ''}{f.text}" for f in analysis.findings]
    return "\n".join(lines)


def render_report(analysis: Analysis) -> str:
    """The page as text."""
    found, total = analysis.found, analysis.total
    told = (
        f"{len(found.demonstrations)} demonstrations of {len({d.level for d in found.demonstrations})} levels, "
        f"{total.lengths.sum()} decisions of {found.frame_skip} frames"
    )
    findings = "".join(
        f"<li{' class=lost' if finding.problem else ''}>{escape(finding.text)}</li>" for finding in analysis.findings
    )
    head = f'<p class="muted">{told}</p><div class="verdict"><ul>{findings}</ul></div>'
    groups = {ALL: total} | analysis.groups if len(analysis.groups) > 1 else analysis.groups
    sections = (
        ("Counts", _counts(analysis)),
        ("Lengths", _lengths(analysis, groups)),
        ("Actions", _actions(groups)),
        ("Trivial predictors", _baselines(groups)),
        ("States", _states(analysis, groups)),
        ("Compared with the levels", _coverage(analysis.coverage)),
        ("Duplicates", _duplicates(analysis)),
        ("Anomalies", _anomalies(analysis)),
    )
    return page(f"Demonstrations in {found.folder}", head, sections)


def _counts(analysis):
    return f"<pre>{escape(analysis.found.table())}</pre>"


def _lengths(analysis, groups):
    rows = {
        name: {
            "median": float(np.median(g.lengths)),
            "p90": float(np.percentile(g.lengths, 90)),
            "longest": int(g.lengths.max()),
        }
        for name, g in groups.items()
    }
    text = f"<h3>Decisions per demonstration</h3>{value_html(rows)}"
    lengths = {name: g.lengths for name, g in groups.items() if name != ALL}
    title = "Decisions per demonstration"
    plots = image(box_chart(title, lengths, "decisions"), title)
    known = np.isfinite(analysis.par)
    if known.any():
        category = np.array([d.category for d in analysis.found.demonstrations])
        rows, ratios = {}, {}
        for name in analysis.groups:
            chosen = known & (category == name)
            if chosen.any():
                ratios[name] = ratio = analysis.frames[chosen] / analysis.par[chosen]
                rows[name] = {
                    "with par": int(chosen.sum()),
                    "median of frames / par": float(np.median(ratio)),
                    "p90": float(np.percentile(ratio, 90)),
                    "largest": float(ratio.max()),
                    f"over {SLOW:g}": f"{(ratio > SLOW).mean():.1%}",
                }
        text += f"<h3>Against par, the frames that the level set knows</h3>{value_html(rows)}"
        plots += image(box_chart("Length against par", ratios, "frames / par", (1, SLOW)), "par")
    else:
        text += '<p class="missing">no par: no --levels given, or their index knows none</p>'
    return (
        f'{text}<div class="plots">{plots}</div><p class="muted">Boxes: the middle half and the median; whiskers: 5 % to '
        "95 %; dots: all beyond.</p>"
    )


def _actions(groups: Mapping[str, Group]):
    first = next(iter(groups.values()))
    shares = np.array([g.actions / g.actions.sum() for g in groups.values()])
    after = first.transitions / np.maximum(first.transitions.sum(axis=1, keepdims=True), 1)
    holds = np.array(
        [np.bincount(np.minimum(g.holds, LONG_HOLD), minlength=LONG_HOLD + 1)[1:] for g in groups.values()]
    )
    held = [*map(str, range(1, LONG_HOLD)), f"{LONG_HOLD}+"]
    rows = {
        name: {
            "median": float(np.median(g.holds)),
            "mean": float(g.holds.mean()),
            "p90": float(np.percentile(g.holds, 90)),
            "longest": int(g.holds.max()),
            "actions per demonstration": len(g.holds) / len(g.lengths),
        }
        for name, g in groups.items()
    }
    plots = (
        image(heat_chart("Actions", "% of the decisions", shares, list(groups), ACTION_NAMES), "actions")
        + image(
            heat_chart("What follows an action", "% of each row", after, ACTION_NAMES, ACTION_NAMES, "previous action"),
            "transitions",
        )
        + image(
            heat_chart(
                "Decisions until the action changes",
                "% of the actions",
                holds / holds.sum(axis=1, keepdims=True),
                list(groups),
                held,
            ),
            "held actions",
        )
    )
    return (
        f'<div class="plots">{plots}</div><h3>Decisions until the action changes</h3>{value_html(rows)}'
        '<p class="muted">Before the first decision the previous action counts as no-op. The last stretch of each '
        "demonstration ends with the win.</p>"
    )


def _baselines(groups: Mapping[str, Group]):
    rows = []
    for name, g in groups.items():
        for key, meaning in _BASELINES.items():
            metrics = g.baselines[key]
            changes = "–" if metrics.change_accuracy is None else f"{metrics.change_accuracy:.1%}"
            rows.append(
                {"": name, "prediction": meaning, "right": f"{metrics.accuracy:.1%}", "right on changes": changes}
            )
    return (
        f'{value_html(rows)}<p class="muted">Learned from, and measured on, all demonstrations of the folder. A clone has '
        "learned something if it beats all of them, on all decisions and on those where the action changes.</p>"
    )


def _states(analysis, groups):
    names = [*next(iter(groups.values())).states, "airborne"]
    shares = np.array([[*g.states.values(), g.airborne] for g in groups.values()])
    plots = image(heat_chart("State of the ninja", "% of the decisions", shares, list(groups), names), "states")
    first = next(iter(groups.values()))
    edge = FASTEST + 0.25
    speeds = field_chart(
        "Speeds, before each decision", first.speeds, (-edge, edge, edge, -edge), ("vx, px/frame", "vy (down)"), 3.6
    )
    plots += image(speeds, "speeds")
    stage = (0, STAGE[0] * TILE, STAGE[1] * TILE, 0)
    for name, g in groups.items():
        plots += image(field_chart(f"Positions, {name}", g.positions, stage, ("x, px", "y, px")), "positions")
    visited = {
        name: {
            "levels": len(g.visited),
            "median": f"{np.median(g.visited):.1%}",
            "p10": f"{np.percentile(g.visited, 10):.1%}",
            "p90": f"{np.percentile(g.visited, 90):.1%}",
        }
        for name, g in groups.items()
    }
    components = [
        {
            "component": c.name,
            "low": c.low,
            "mean": c.mean,
            "high": c.high,
            "spread": c.spread,
            "most frequent value": f"{c.common:.1%}",
            "": "never varies" if c.constant else "",
        }
        for c in analysis.components
    ]
    return (
        f'<div class="plots">{plots}</div><p class="muted">Speeds and positions on a logarithmic scale: the fuller the '
        f"colour, the more decisions. Speeds above {FASTEST} px/frame are counted at the edge.</p>"
        f"<h3>Share of each level’s reachable tiles that its demonstrations visit</h3>{value_html(visited)}"
        '<p class="muted">Reachable: by the path field, which ignores gravity; visited: on the straight lines between '
        "decisions. One run through an open room visits little of it, so compare folders and categories, not with "
        f"100 %.</p><h3>Observation “state”, raw units</h3>{value_html(components)}"
    )


def _coverage(coverage: Mapping[str, Coverage]):
    if not coverage:
        return _NO_LEVELS
    rows, quarters, plots = {}, {}, ""
    for category, c in coverage.items():
        rows[category] = {
            "levels": len(c.demonstrated),
            "with": int(c.demonstrated.sum()),
            "without": int((~c.demonstrated).sum()),
            "share": f"{c.share:.1%}",
        }
        for measure, title in _MEASURES.items():
            values = c.measures[measure]
            finite = np.isfinite(values)
            if not finite.any():
                continue
            demonstrated = values[finite & c.demonstrated]
            rows[category] |= (
                {
                    f"{title}, median": _pair(np.median, values[finite], demonstrated),
                    "most": _pair(np.max, values[finite], demonstrated),
                }
                if measure == "way"
                else {f"{measure}, mean": _pair(np.mean, values[finite], demonstrated)}
            )
            if len(np.unique(values[finite])) > 1:
                plots += _distribution(category, title, values[finite], demonstrated)
        if shares := c.quarters("way"):
            names = ("shortest quarter", "second", "third", "longest quarter")
            quarters[category] = {n: f"{share:.0%}" for n, share in zip(names, shares, strict=True)}
    text = (
        f'{value_html(rows)}<p class="muted">Pairs: levels with a demonstration, of all levels of the category. A level '
        "counts as demonstrated if it or its mirror image is.</p>"
    )
    if quarters:
        text += (
            f"<h3>Share with demonstration, by length of the way</h3>{value_html(quarters)}"
            f'<p class="muted">Categories of at least {FEW_LEVELS} levels.</p>'
        )
    return f'{text}<div class="plots">{plots}</div>'


def _pair(measure, values, demonstrated):
    return (
        f"{measure(demonstrated):.4g} of {measure(values):.4g}" if len(demonstrated) else f"– of {measure(values):.4g}"
    )


def _distribution(category, title, values, demonstrated):
    if values.max() - values.min() <= 40 and (values == np.rint(values)).all():
        edges = np.arange(values.min() - 0.5, values.max() + 1)
    else:
        edges = np.linspace(values.min(), values.max(), 31)
    samples = {"all levels": values, "with demonstration": demonstrated}
    return image(histogram_chart(f"{category}: {title}", "levels", samples, title, edges), title)


def _duplicates(analysis):
    copies = analysis.anomalies.get("duplicate", ())
    text = (
        f"<h3>Same level and actions: {len(copies)} files left out</h3>{_listed([(a.name, a.detail) for a in copies])}"
        f"<h3>Levels with several demonstrations: {len(analysis.several)}</h3>"
        f"{_listed([(len(names), ', '.join(names[:5])) for names in _largest_first(analysis.several)])}"
        f"<h3>Levels there with their mirror image: {len(analysis.mirrored)}; with mirrored actions too: "
        f"{analysis.same_mirrored}</h3>"
        f"{_listed([(len(names), ', '.join(names[:5])) for names in _largest_first(analysis.mirrored)])}"
    )
    leaks = _listed([(a.name, a.detail) for a in analysis.leaks])
    return f"{text}<h3>Demonstrations of held-out levels: {len(analysis.leaks)}</h3>{leaks}"


def _largest_first(groups):
    return sorted(groups, key=len, reverse=True)


def _anomalies(analysis):
    if not analysis.anomalies:
        return '<p class="missing">none</p>'
    return "".join(
        f"<h3>{escape(kind)}: {len(items)}</h3>{_listed([(a.name, a.detail) for a in items])}"
        for kind, items in analysis.anomalies.items()
    ) + (
        f'<p class="muted">The most extreme come first, {SHOWN} of each kind at most. An idle stretch is at least '
        f"{IDLE_FRAMES} frames without moving; standing still until something has passed is one too.</p>"
    )


def _listed(rows):
    """A table of pairs, cut off after SHOWN."""
    if not rows:
        return ""
    cells = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows[:SHOWN])
    more = f'<p class="muted">… and {len(rows) - SHOWN} more</p>' if len(rows) > SHOWN else ""
    return f'<div class="wide"><table><tbody>{cells}</tbody></table></div>{more}'
