"""Episodes of an evaluation, counted: success with intervals per category, tables, and ``results.json``.

stats = aggregate(episodes)                  # {"simple": {"episodes": 100, "wins": 93, ...}, "all": {...}}
stats = aggregate(of_seed_1, of_seed_2)      # the same over several training seeds
print(format_table({"random": ..., "BC": ..., "PPO": stats}))
write_json(folder / "results.json", {"architectures": {...}, "config": ..., "machine": ..., "versions": ...})
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

import numpy as np

from nppsim.errors import UserError
from nppsim.files import table
from nppsim.levels.level import Level
from nppsim.measure.intervals import mean_over_levels, wilson
from nppsim.outcomes import DIED, NAMES, TIMEOUT, WON
from nppsim.reading import mismatch, read_json

ALL = "all"  # the row over every category
INTERVAL_NOTE = "success in percent, with its 95 % interval over levels (and seeds, where there are several)"
STATS_SHAPE = {
    **dict.fromkeys(("episodes", "wins", "deaths", "timeouts"), int),
    "success": float,
    "ci95": [float],
    "median_frames": (None, float),
}
_RESULTS: dict = {
    "architectures": {...: {"seeds": {...: {"suites": {...: {...: STATS_SHAPE}}}}}},
    "config": {},
    "machine": (str, {}),
    "versions": {},
}


class Stats(TypedDict):
    """What is counted of one category's episodes.

    success: share of wins, 0 to 1.
    ci95: its 95 % interval over levels, and seeds where there are several; two numbers.
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
    commands: int64[decisions, 2], subtask and decisions since it was given, of a policy that has them; None otherwise.
    memory: float32[size], what was remembered after the last decision, by a policy with a memory; None otherwise.
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
    commands: np.ndarray | None = field(default=None, repr=False)
    memory: np.ndarray | None = field(default=None, repr=False)

    @property
    def won(self) -> bool:
        """Whether the exit was reached."""
        return self.outcome == NAMES[WON]

    def __post_init__(self) -> None:
        if self.outcome not in NAMES:
            raise ResultsError(
                f"episode on {self.level_name!r}: outcome {self.outcome!r} is none of {', '.join(NAMES)}"
            )
        if len(self.inputs) != self.frames:
            raise ResultsError(f"episode on {self.level_name!r}: {len(self.inputs)} inputs for {self.frames} frames")


@dataclass(frozen=True, eq=False)
class LevelWins:
    """How often each of L levels was won, in the order of their level set, by policies from S training seeds.

    levels: fingerprints.
    categories: of the levels.
    episodes: int64[L], what each policy played.
    wins: int64[S, L].
    """

    levels: tuple[str, ...]
    categories: tuple[str, ...]
    episodes: np.ndarray
    wins: np.ndarray

    @classmethod
    def count(cls, *seeds: Sequence[EpisodeRecord]) -> "LevelWins":
        """Count the episodes of each seed.  Raises ResultsError if they did not play the same levels equally often."""
        first = {episode.level_index: episode for records in seeds for episode in records}
        row = {level: i for i, level in enumerate(sorted(first))}
        episodes = np.zeros((len(seeds), len(row)), np.int64)
        wins = np.zeros_like(episodes)
        for seed, records in enumerate(seeds):
            for episode in records:
                episodes[seed, row[episode.level_index]] += 1
                wins[seed, row[episode.level_index]] += episode.won
        if (episodes != episodes[0]).any():
            raise ResultsError("the seeds were not judged on the same levels; evaluate them with the same settings")
        known = [first[level] for level in row]
        return cls(tuple(e.level.fingerprint for e in known), tuple(e.category for e in known), episodes[0], wins)

    @property
    def success(self) -> np.ndarray:
        """float64[S, L]: share of wins."""
        return self.wins / self.episodes

    def of(self, category: str) -> "LevelWins":
        """The levels of one category, or of all."""
        rows = [i for i, name in enumerate(self.categories) if category in (name, ALL)]
        names, categories = (tuple(values[i] for i in rows) for values in (self.levels, self.categories))
        return LevelWins(names, categories, self.episodes[rows], self.wins[:, rows])

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the success.

        Where redrawing levels says nothing, as all were won equally often, it is Wilson's of as many trials as there are
        levels; of the episodes where there is a single level.
        """
        if not self.levels:
            return 0.0, 1.0
        found = mean_over_levels(self.success, self.episodes)
        if found.low is not None and found.high is not None:
            return max(found.low, 0.0), min(found.high, 1.0)  # effects of seeds are added, and know no bounds
        trials = len(self.levels) if len(self.levels) > 1 else len(self.wins) * int(self.episodes[0])
        return wilson(min(found.value, 1.0) * trials, trials)


def aggregate(*seeds: Sequence[EpisodeRecord]) -> dict[str, Stats]:
    """Statistics per category, in order of first appearance, and over all episodes ("all", last).

    seeds: episodes of one policy, or of one for each of several training seeds.
    Raises ResultsError for a category called "all", and for seeds that were not judged on the same levels.
    """
    wins = LevelWins.count(*seeds)
    episodes = [episode for records in seeds for episode in records]
    names = dict.fromkeys(episode.category for episode in episodes)
    if ALL in names:
        raise ResultsError(f'a category cannot be called "{ALL}": that is the row over every category')
    return {name: _count([e for e in episodes if name in (e.category, ALL)], wins.of(name)) for name in (*names, ALL)}


def _count(episodes: list[EpisodeRecord], wins: LevelWins) -> Stats:
    """wins: of the same episodes."""
    won = [e.frames for e in episodes if e.won]
    count = len(episodes)

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if count else None

    return {
        "episodes": count,
        "wins": len(won),
        "success": len(won) / count if count else 0.0,
        "ci95": list(wins.interval()),
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


def categories(methods: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Every category of several methods' tables, in order of first appearance, "all" last."""
    names = dict.fromkeys(name for stats in methods.values() for name in stats or () if name != ALL)
    return [*names, ALL]


def format_table(methods: Mapping[str, Mapping[str, Stats] | None]) -> str:
    """A row per category, a column per method (name -> ``aggregate``'s answer; None: not run)."""
    rows = []
    for category in categories(methods):
        cells = [(stats or {}).get(category) for stats in methods.values()]
        counts = sorted({int(cell["episodes"]) for cell in cells if cell})
        rows.append([category, "/".join(map(str, counts)) or "-", *map(format_cell, cells)])
    return f"{table(['category', 'episodes', *methods], rows)}\n{INTERVAL_NOTE}"


def load_results(path: str | os.PathLike) -> dict:
    """Read and check a ``results.json``; ResultsError says what is wrong, and where."""
    path = Path(path)
    if not path.is_file():
        raise ResultsError(f"{path}: no such file; give the results.json of an experiment folder")
    data = read_json(path, ResultsError, "was it cut off or edited?")
    if wrong := mismatch(data, _RESULTS):
        raise ResultsError(f"{path}: not a results file: {wrong}")
    for name, architecture in data["architectures"].items():
        for seed, entry in architecture["seeds"].items():
            for suite, categories in entry["suites"].items():
                for category, stats in categories.items():
                    if stats["wins"] + stats["deaths"] + stats["timeouts"] != stats["episodes"]:
                        raise ResultsError(
                            f"{path}: {name}, seed {seed}, {suite}, {category}: wins, deaths and timeouts do not sum to "
                            f"{stats['episodes']} episodes"
                        )
    return data
