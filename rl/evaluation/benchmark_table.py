"""Tables of benchmark scores: interquartile mean, performance profile, paired differences.

    print(benchmark_table(scores))                 # scores: list of ``Score``, one per training seed

A *run* is a method with a training seed; a *task* is a category of levels, or a fifth of them by par time.  Source: Agarwal
et al. 2021 (interquartile mean, stratified bootstrap over runs, performance profiles).
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nppsim.io.files import table
from nppsim.measure.intervals import RESAMPLES, Estimate
from rl.evaluation.comparison import compare
from rl.evaluation.results import LevelWins, ResultsError
from rl.evaluation.submission import Score

THRESHOLDS = (0.1, 0.25, 0.5, 0.75, 0.9)  # success rates of the performance profile
_INTERVAL = (2.5, 97.5)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of the last axis; a quarter of the values, rounded down, is cut on each side."""
    ordered = np.sort(values, axis=-1)
    cut = values.shape[-1] // 4
    return ordered[..., cut : values.shape[-1] - cut].mean(axis=-1)


def stratified_bootstrap(success: np.ndarray, statistic: Any) -> Estimate:
    """Return ``statistic`` of all runs and tasks with its 95 % interval, by resampling the runs of each task separately.

    success: float64[seeds, tasks].
    statistic: function from [resamples, seeds * tasks] to [resamples].
    low and high are None for a single seed.
    """
    value = float(statistic(success.reshape(1, -1))[0])
    seeds, tasks = success.shape
    if seeds < 2:
        return Estimate(value, None, None)
    rows = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds, tasks))
    drawn = success[rows, np.arange(tasks)].reshape(RESAMPLES, -1)
    low, high = np.percentile(statistic(drawn), _INTERVAL).tolist()
    return Estimate(value, low, high)


def by_task(wins: LevelWins) -> np.ndarray:
    """Return the success rate of each seed on each task, float64[seeds, tasks]."""
    tasks = dict.fromkeys(wins.categories)
    return np.stack([wins.of(task).success.mean(axis=1) for task in tasks], axis=1)


def wins_of(scores: Sequence[Score]) -> LevelWins:
    """Return the wins of the seeds of one method.  Raises ResultsError for other levels, and for a repeated seed."""
    first = scores[0]
    for score in scores:
        if score.levels != first.levels:
            raise ResultsError(f"{score.about.name}: {score.about.levels} has other levels than {first.about.levels}")
    seeds = [score.about.seed for score in scores]
    if len(set(seeds)) < len(seeds):
        raise ResultsError(f"{first.about.name}: two scores of one seed ({seeds}); give each seed once")
    wins = np.stack([score.wins for score in scores]).astype(np.int64)
    return LevelWins(first.levels, first.tasks, np.ones(len(first.levels), np.int64), wins)


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Return the results of the scores of one split as values for JSON.

    Keys: "methods", one entry per method, and "differences", one sentence per pair of methods.
    """
    names = dict.fromkeys(score.about.name for score in scores)
    groups = {name: [score for score in scores if score.about.name == name] for name in names}
    wins = {name: wins_of(own) for name, own in groups.items()}
    methods = []
    for name, own in groups.items():
        success = by_task(wins[name])
        profile = [stratified_bootstrap(success, lambda x, t=t: (x > t).mean(axis=1)) for t in THRESHOLDS]
        about = own[0].about
        methods.append(
            {
                "method": name,
                "track": about.track,
                "protocol": about.protocol,
                "budget": about.budget,
                "seeds": len(own),
                "success": float(wins[name].success.mean()),
                "ci95": list(wins[name].interval()),
                "iqm": _plain(stratified_bootstrap(success, interquartile_mean)),
                "profile": {str(t): _plain(estimate) for t, estimate in zip(THRESHOLDS, profile, strict=True)},
                "tasks": dict(zip(dict.fromkeys(wins[name].categories), success.mean(axis=0).tolist(), strict=True)),
            }
        )
    pairs = itertools.combinations(names, 2)
    tracks = {m["method"]: m["track"] for m in methods}
    comparable = ((a, b) for a, b in pairs if wins[a].wins.shape == wins[b].wins.shape and tracks[a] == tracks[b])
    differences = [compare(a, b, wins[a], wins[b]).sentence for a, b in comparable]
    return {"levels": scores[0].about.levels, "methods": methods, "differences": differences}


def _plain(estimate: Estimate) -> list[float | None]:
    return [estimate.value, estimate.low, estimate.high]


def _percent(value: Sequence[float | None]) -> str:
    middle, low, high = (None if x is None else f"{100 * x:.1f}" for x in value)
    return f"{middle} [{low}, {high}]" if low else str(middle)


def format_summary(result: dict[str, Any]) -> str:
    """Format a ``summary`` as tables."""
    methods = result["methods"]
    header = ("method", "track", "protocol", "decisions", "seeds", "success, %", "IQM, %")
    rows = [
        (m["method"], m["track"], m["protocol"], "-" if m["budget"] is None else f"{m['budget']:,}", m["seeds"])
        + (_percent([m["success"], *m["ci95"]]), _percent(m["iqm"]))
        for m in methods
    ]
    shares = ("method", *(f"> {100 * t:.0f} %" for t in THRESHOLDS))
    profiles = [(m["method"], *(_percent(m["profile"][str(t)]) for t in THRESHOLDS)) for m in methods]
    parts = [f"{result['levels']}: success rate and interquartile mean over runs and tasks, with 95 % intervals"]
    parts += [table(header, rows, align="lllrrrr"), "share of runs and tasks with a success rate above:"]
    parts += [table(shares, profiles, align="l" + "r" * len(THRESHOLDS)), *result["differences"]]
    return "\n".join(parts)
