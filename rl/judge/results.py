"""Episodes of an evaluation, counted: success with Wilson intervals per category, tables, and ``results.json``.

stats = aggregate(episodes)                  # {"simple": {"episodes": 100, "wins": 93, ...}, "all": {...}}
print(format_table({"random": ..., "BC": ..., "PPO": stats}))
write_json(folder / "results.json", {"architectures": {...}, "config": ..., "machine": ..., "versions": ...})
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypedDict

import numpy as np

from nppsim.errors import UserError
from nppsim.files import table
from nppsim.levels.level import Level
from nppsim.measure.intervals import wilson
from nppsim.outcomes import DIED, NAMES, TIMEOUT, WON

ALL = "all"  # the row over every category
_STATS_KEYS = ("episodes", "wins", "success", "ci95", "median_frames", "deaths", "timeouts")
_TOP_KEYS = ("architectures", "config", "machine", "versions")


class Stats(TypedDict):
    """What is counted of one category's episodes.

    success: share of wins, 0 to 1.
    ci95: Wilson's interval of it, two numbers.
    median_frames: of the episodes won, None if there are none.
    mean_return, mean_decisions, mean_gold: of all episodes, None if there are none.
    """

    episodes: int
    wins: int
    success: float
    ci95: list[float]
    median_frames: float | None
    deaths: int
    timeouts: int
    mean_return: float | None
    mean_decisions: float | None
    mean_gold: float | None


class ResultsError(UserError, ValueError):
    """Results that cannot be read or counted; the message names file, place and remedy."""


@dataclass(frozen=True)
class EpisodeRecord:
    """One finished episode, complete: (level, inputs) reproduces it exactly.

    level_index: in its level set.
    inputs: uint8[frames], N++ input bytes from the spawn.
    outcome: "won", "died" or "timeout".
    frames, decisions: its length.
    ret: undiscounted sum of rewards.
    path_length: px from the spawn by way of the switch to the exit.
    """

    level_index: int
    level_name: str
    category: str
    level: Level = field(repr=False)
    inputs: np.ndarray = field(repr=False)
    outcome: str
    frames: int
    decisions: int
    ret: float
    gold: int
    path_length: float

    @property
    def won(self) -> bool:
        """Whether the exit was reached."""
        return self.outcome == NAMES[WON]

    def __post_init__(self):
        if self.outcome not in NAMES:
            raise ResultsError(
                f"episode on {self.level_name!r}: outcome {self.outcome!r} is none of {', '.join(NAMES)}"
            )
        if len(self.inputs) != self.frames:
            raise ResultsError(f"episode on {self.level_name!r}: {len(self.inputs)} inputs for {self.frames} frames")


def aggregate(episodes: Sequence[EpisodeRecord]) -> dict[str, Stats]:
    """Statistics per category, in order of first appearance, and over all episodes ("all", last).

    Raises ResultsError for a category called "all".
    """
    groups: dict[str, list[EpisodeRecord]] = {}
    for episode in episodes:
        groups.setdefault(episode.category, []).append(episode)
    if ALL in groups:
        raise ResultsError(f'a category cannot be called "{ALL}": that is the row over every category')
    return {category: _count(group) for category, group in groups.items()} | {ALL: _count(list(episodes))}


def success_by_level(episodes: Sequence[EpisodeRecord]) -> np.ndarray:
    """float64[L]: share of wins on each level played, in the order of the level set."""
    level = np.array([episode.level_index for episode in episodes])
    won = np.array([episode.won for episode in episodes], float)
    _, row = np.unique(level, return_inverse=True)
    return np.bincount(row, won) / np.bincount(row)


def _count(episodes: list[EpisodeRecord]) -> Stats:
    won = [e.frames for e in episodes if e.won]
    count = len(episodes)

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if count else None

    return {
        "episodes": count,
        "wins": len(won),
        "success": len(won) / count if count else 0.0,
        "ci95": list(wilson(len(won), count)),
        "median_frames": float(median(won)) if won else None,
        "deaths": sum(e.outcome == NAMES[DIED] for e in episodes),
        "timeouts": sum(e.outcome == NAMES[TIMEOUT] for e in episodes),
        "mean_return": mean([e.ret for e in episodes]),
        "mean_decisions": mean([e.decisions for e in episodes]),
        "mean_gold": mean([e.gold for e in episodes]),
    }


def format_cell(stats: Stats | None) -> str:
    """Success with its interval, e.g. " 93.0 % [86.3, 96.6]"; a dash where nothing was run."""
    if not stats or not stats["episodes"]:
        return "-"
    low, high = stats["ci95"]
    return f"{100 * stats['success']:5.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def categories(methods: Mapping[str, Mapping[str, Stats] | None]) -> list[str]:
    """Every category of several methods' statistics, in order of first appearance, "all" last."""
    names = dict.fromkeys(name for stats in methods.values() for name in stats or () if name != ALL)
    return [*names, ALL]


def format_table(methods: Mapping[str, Mapping[str, Stats] | None]) -> str:
    """A row per category, a column per method (name -> ``aggregate``'s answer; None: not run)."""
    rows = []
    for category in categories(methods):
        cells = [(stats or {}).get(category) for stats in methods.values()]
        counts = sorted({int(cell["episodes"]) for cell in cells if cell})
        rows.append([category, "/".join(map(str, counts)) or "-", *map(format_cell, cells)])
    return f"{table(['category', 'episodes', *methods], rows)}\nsuccess with Wilson's 95 % interval, in percent"


def load_results(path: str | os.PathLike) -> dict:
    """Read and check a ``results.json``; ResultsError says what is wrong, and where."""
    path = Path(path)
    if not path.is_file():
        raise ResultsError(f"{path}: no such file; give the results.json of an experiment folder")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path}: not a JSON file ({error}); was it cut off or edited?") from error
    if not isinstance(data, dict) or not set(_TOP_KEYS) <= set(data):
        missing = [key for key in _TOP_KEYS if not isinstance(data, dict) or key not in data]
        raise ResultsError(f"{path}: not a results file, {', '.join(missing)} missing at the top")
    try:
        for name, architecture in data["architectures"].items():
            for seed, entry in architecture["seeds"].items():
                for suite, table in entry["suites"].items():
                    for category, stats in table.items():
                        _check_stats(f"{path}: {name}, seed {seed}, {suite}, {category}", stats)
    except (KeyError, AttributeError, TypeError) as error:
        raise ResultsError(
            f'{path}: expected "architectures" -> name -> "seeds" -> seed -> "suites" -> suite -> category; '
            f"{type(error).__name__}: {error}"
        ) from error
    return data


def _check_stats(place: str, stats: Stats) -> None:
    missing = [key for key in _STATS_KEYS if key not in stats]
    if missing:
        raise ResultsError(f"{place}: {', '.join(missing)} missing")
    if stats["wins"] + stats["deaths"] + stats["timeouts"] != stats["episodes"]:
        raise ResultsError(f"{place}: wins, deaths and timeouts do not sum to {stats['episodes']} episodes")
