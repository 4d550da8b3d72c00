"""Report on a folder of demonstrations: one self-contained HTML page, and a summary for the terminal.

    write_page(render_report(analysis), "demonstrations.html")
    print(summary(analysis))

The template is ``nppsim/report/templates/demonstrations.html``; ``docs/own_data.md`` explains the page.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bc.analysis import IDLE_FRAMES, SLOW, Analysis, Anomaly, Group
from nppsim.actions import ACTION_NAMES
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH
from nppsim.report.charts import box_chart, field_chart, heat_chart
from nppsim.report.pages import Plot, render_page

SHOWN = 20  # maximum number of items in a list
ALL = "all"
_PREDICTORS = {
    "majority": "always the most frequent action",
    "repeat_previous": "repeat the previous action",
    "transition": "the most frequent successor of the previous action",
    "transition_on_change": "the most frequent successor that differs from the previous action",
}

Groups = Mapping[str, Group]


def summary(analysis: Analysis) -> str:
    """Return counts and findings as plain text."""
    lines = [analysis.found.table(), "", "findings:"]
    lines += [f"  {'PROBLEM: ' if f.problem else ''}{f.text}" for f in analysis.findings]
    return "\n".join(lines)


def render_report(analysis: Analysis) -> str:
    """Return the HTML page."""
    found, total = analysis.found, analysis.total
    groups = {ALL: total} | analysis.groups if len(analysis.groups) > 1 else analysis.groups
    return render_page(
        "demonstrations.html",
        title=f"Demonstrations in {found.folder}",
        subtitle=f"{len(found.demonstrations)} demonstrations of {len({d.level for d in found.demonstrations})} levels, "
        f"{total.lengths.sum()} decisions of {found.frame_skip} frames",
        findings=analysis.findings,
        counts=found.table(),
        lengths=_lengths(analysis, groups),
        actions=_actions(groups),
        predictors=_predictors(groups),
        states=_states(analysis, groups),
        coverage=_coverage(analysis.coverage),
        duplicates=_duplicates(analysis),
        anomalies={kind: _listed(items) for kind, items in analysis.anomalies.items()},
        shown=SHOWN,
        idle_frames=IDLE_FRAMES,
    )


def _lengths(analysis: Analysis, groups: Groups) -> dict[str, Any]:
    rows = {name: _spread(g.lengths) for name, g in groups.items()}
    title = "Decisions per demonstration"
    plots = [Plot(title, box_chart(title, {name: g.lengths for name, g in analysis.groups.items()}, "decisions"))]
    category = np.array([d.category for d in analysis.found.demonstrations])
    ratio = analysis.frames / analysis.par
    ratios = {name: ratio[np.isfinite(ratio) & (category == name)] for name in analysis.groups}
    ratios = {name: values for name, values in ratios.items() if len(values)}
    against_par = {
        name: {"demonstrations": len(values)}
        | {f"frames / par, {key}": value for key, value in _spread(values).items()}
        | {f"over {SLOW:g}": f"{(values > SLOW).mean():.1%}"}
        for name, values in ratios.items()
    }
    if ratios:
        title = "Length against par"
        plots.append(Plot(title, box_chart(title, ratios, "frames / par", (1, SLOW))))
    return {"rows": rows, "against_par": against_par, "plots": plots}


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"median": float(np.median(values)), "p90": float(np.percentile(values, 90)), "largest": values.max().item()}


def _actions(groups: Groups) -> dict[str, Any]:
    first = next(iter(groups.values()))
    shares = np.array([g.actions / g.actions.sum() for g in groups.values()])
    after = first.transitions / np.maximum(first.transitions.sum(axis=1, keepdims=True), 1)
    rows = {
        name: _spread(g.holds) | {"actions per demonstration": len(g.holds) / len(g.lengths)}
        for name, g in groups.items()
    }
    title = "Next action, by previous action"
    plots = [
        Plot("Actions", heat_chart("Actions", "% of the decisions", shares, list(groups), ACTION_NAMES)),
        Plot(title, heat_chart(title, "% of each row", after, ACTION_NAMES, ACTION_NAMES, "previous action")),
    ]
    return {"rows": rows, "plots": plots}


def _predictors(groups: Groups) -> list[dict[str, str]]:
    rows = []
    for name, group in groups.items():
        for key, meaning in _PREDICTORS.items():
            metrics = group.baselines[key]
            changes = "–" if metrics.change_accuracy is None else f"{metrics.change_accuracy:.1%}"
            rows.append(
                {"": name, "prediction": meaning, "correct": f"{metrics.accuracy:.1%}", "correct on changes": changes}
            )
    return rows


def _states(analysis: Analysis, groups: Groups) -> dict[str, Any]:
    stage, plots = (0, STAGE_WIDTH, STAGE_HEIGHT, 0), []
    for name, g in groups.items():
        title = f"Positions, {name}"
        plots.append(Plot(title, field_chart(title, g.positions, stage, ("x, px", "y, px"))))
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
    return {"plots": plots, "components": components}


def _coverage(coverage: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    return {
        category: {
            "levels": len(demonstrated),
            "with": int(demonstrated.sum()),
            "without": int((~demonstrated).sum()),
            "share": f"{demonstrated.mean():.1%}",
        }
        for category, demonstrated in coverage.items()
    }


def _duplicates(analysis: Analysis) -> dict[str, Any]:
    return {
        "copies": _listed(analysis.anomalies.get("duplicate", ())),
        "several": _largest_first(analysis.several),
        "mirrored": _largest_first(analysis.mirrored),
        "same_mirrored": analysis.same_mirrored,
        "leaks": _listed(analysis.leaks),
    }


def _listed(anomalies: Iterable[Anomaly]) -> list[tuple[str, str]]:
    return [(anomaly.name, anomaly.detail) for anomaly in anomalies]


def _largest_first(groups: Iterable[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Return the size and the first five names of each group, the largest group first."""
    return [(len(names), ", ".join(names[:5])) for names in sorted(groups, key=len, reverse=True)]
