"""Results of evaluations: success with intervals per category, tables, ``results.json``, history on the dev levels.

stats = aggregate(episodes)                  # {"simple": {"episodes": 100, "wins": 93, ...}, "all": {...}}
stats = aggregate(of_seed_1, of_seed_2)      # the same over several training seeds
print(format_table({"random": ..., "BC": ..., "PPO": stats}))
write_json(folder / "results.json", {"architectures": {...}, "config": ..., "machine": ..., "versions": ...})

history = DevHistory(folder)                 # <folder>/dev_levels.jsonl: wins of each dev level at each evaluation
history.add(100_000, LevelWins.count(episodes))
read_history(folder).success                 # float64[evaluations, levels]
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

import numpy as np

from nppsim.errors import UserError
from nppsim.io.files import table, write_text
from nppsim.io.reading import MAX_JSON_BYTES, parse_json, read_bytes
from nppsim.levels.level import EXACT, SUPPORT, Level
from nppsim.measure.intervals import mean_over_levels, wilson
from nppsim.physics.outcomes import DIED, NAMES, TIMEOUT, WON
from nppsim.replays.score import score, seconds

ALL = "all"  # row of all categories
HISTORY_FILE = "dev_levels.jsonl"
_HISTORY_REMEDY = "compare without it, or train again"
INTERVAL_NOTE = "success in percent, with its 95 % interval over levels (and seeds, where there are several)"
STATS_SHAPE = {
    **dict.fromkeys(("episodes", "wins", "deaths", "timeouts"), int),
    "success": float,
    "ci95": [float],
    "median_frames": (None, float),
}


class Stats(TypedDict):
    """Statistics of the episodes of a category.

    success: share of wins, 0 to 1.
    ci95: lower and upper bound of the 95 % interval of success, over levels (and seeds, if several).
    median_frames: median length of the won episodes; None without won episodes.
    mean_return, mean_decisions, mean_gold: means over all episodes; None without episodes.
    mean_time, mean_score: means over the won episodes, in the units of the game (``nppsim.replays.score``); None without
        won episodes.
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
    mean_time: float | None
    mean_score: float | None


class ResultsError(UserError, ValueError):
    """Results that cannot be read or counted."""


@dataclass(frozen=True)
class EpisodeRecord:
    """One finished episode, which the simulator can reproduce exactly from ``level`` and ``inputs``.

    level_index: index of the level in its level set.
    inputs: uint8[frames], N++ input bytes from the spawn.
    outcome: "won", "died" or "timeout".
    frames, decisions: length of the episode in frames and in decisions.
    ret: undiscounted sum of rewards.
    path_length: length in px of the path from the spawn via the switch to the exit.
    subtasks: int64[decisions, 2], subtask and its age in decisions, for a policy with subtasks; else None.
    backtracks: how often the player took decisions back.
    thoughts: periods of thinking in live play: begin and end in s, and number of decisions that were final then.
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
    subtasks: np.ndarray | None = field(default=None, repr=False)
    backtracks: int = 0
    thoughts: Sequence[tuple[float, float, int]] = ()

    @property
    def won(self) -> bool:
        """True if the exit was reached."""
        return self.outcome == NAMES[WON]

    @property
    def score(self) -> float | None:
        """Score of a won episode, as the game shows it; None for the others."""
        return score(self.frames, self.gold) if self.won else None


@dataclass(frozen=True, eq=False)
class LevelWins:
    """Wins of policies from S training seeds on each of L levels, in the order of the level set.

    levels: fingerprint of each level.
    categories: category of each level.
    episodes: int64[L], number of episodes that each policy played on each level.
    wins: int64[S, L], number of these episodes that the policy of each seed won.
    """

    levels: tuple[str, ...]
    categories: tuple[str, ...]
    episodes: np.ndarray
    wins: np.ndarray

    @classmethod
    def count(cls, *seeds: Sequence[EpisodeRecord]) -> "LevelWins":
        """Count the wins of each seed.  Raises ResultsError if the seeds did not play the same levels equally often."""
        first = {episode.level_index: episode for records in seeds for episode in records}
        row = {level: i for i, level in enumerate(sorted(first))}
        episodes = np.zeros((len(seeds), len(row)), np.int64)
        wins = np.zeros_like(episodes)
        for seed, records in enumerate(seeds):
            for episode in records:
                episodes[seed, row[episode.level_index]] += 1
                wins[seed, row[episode.level_index]] += episode.won
        if (episodes != episodes[0]).any():
            raise ResultsError("the seeds were not evaluated on the same levels; evaluate them with the same settings")
        firsts = [first[level] for level in row]
        return cls(tuple(e.level.fingerprint for e in firsts), tuple(e.category for e in firsts), episodes[0], wins)

    @property
    def success(self) -> np.ndarray:
        """Success rate of each seed on each level, float64[S, L]."""
        return self.wins / self.episodes

    def of(self, category: str) -> "LevelWins":
        """Wins on the levels of one category, or on all levels (ALL)."""
        rows = [i for i, name in enumerate(self.categories) if category in (name, ALL)]
        names, categories = (tuple(values[i] for i in rows) for values in (self.levels, self.categories))
        return LevelWins(names, categories, self.episodes[rows], self.wins[:, rows])

    def interval(self) -> tuple[float, float]:
        """95 % interval of the success rate.

        If the share of wins is the same on all levels, it is Wilson's interval with one trial per level, or with one
        trial per episode for a single level.
        """
        if not self.levels:
            return 0.0, 1.0
        mean = mean_over_levels(self.success, self.episodes)
        if mean.low is not None and mean.high is not None:
            return max(mean.low, 0.0), min(mean.high, 1.0)  # the estimated effect of seeds may exceed the bounds
        trials = len(self.levels) if len(self.levels) > 1 else len(self.wins) * int(self.episodes[0])
        return wilson(min(mean.value, 1.0) * trials, trials)


def aggregate(*seeds: Sequence[EpisodeRecord]) -> dict[str, Stats]:
    """Statistics per category, in order of first appearance, and over all episodes ("all", last).

    seeds: episodes of the policy of each training seed.
    Raises ResultsError for a category named "all", and for seeds that were not evaluated on the same levels.
    """
    wins = LevelWins.count(*seeds)
    episodes = [episode for records in seeds for episode in records]
    names = dict.fromkeys(episode.category for episode in episodes)
    if ALL in names:
        raise ResultsError(f'a category cannot be named "{ALL}", which is the row of all categories')
    return {name: _count([e for e in episodes if name in (e.category, ALL)], wins.of(name)) for name in (*names, ALL)}


def by_category_and_support(*seeds: Sequence[EpisodeRecord]) -> dict[str, Stats]:
    """``aggregate`` with a row per support grade (``Level.support``) before the total, if not all levels are exact."""
    stats = aggregate(*seeds)
    grades = [grade for grade in SUPPORT if any(e.level.support == grade for e in seeds[0])]
    if grades == [EXACT]:
        return stats
    rows = {f"support: {g}": aggregate(*([e for e in s if e.level.support == g] for s in seeds))[ALL] for g in grades}
    return {name: row for name, row in stats.items() if name != ALL} | rows | {ALL: stats[ALL]}


def _count(episodes: list[EpisodeRecord], wins: LevelWins) -> Stats:
    """Compute statistics of some episodes.  wins: wins in the same episodes, for the interval."""
    won = [e.frames for e in episodes if e.won]
    scores = [e.score for e in episodes if e.score is not None]
    count = len(episodes)

    def mean(values: Sequence[float]) -> float | None:
        return float(np.mean(values)) if values else None

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
        "mean_time": mean([seconds(frames) for frames in won]),
        "mean_score": mean(scores),
    }


def format_cell(stats: Stats | None) -> str:
    """Success with its interval, e.g. " 93.0 % [86.3, 96.6]"; "-" without episodes."""
    if not stats or not stats["episodes"]:
        return "-"
    low, high = stats["ci95"]
    return f"{100 * stats['success']:5.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def categories(methods: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Categories of the statistics of all methods, in order of first appearance, then "all"."""
    names = dict.fromkeys(name for stats in methods.values() for name in stats or () if name != ALL)
    return [*names, ALL]


def format_table(methods: Mapping[str, Mapping[str, Stats] | None]) -> str:
    """Format a table with a row per category and a column per method (name -> result of ``aggregate``; None: not run)."""
    rows = []
    for category in categories(methods):
        cells = [(stats or {}).get(category) for stats in methods.values()]
        counts = sorted({int(cell["episodes"]) for cell in cells if cell})
        rows.append([category, "/".join(map(str, counts)) or "-", *map(format_cell, cells)])
    return f"{table(['category', 'episodes', *methods], rows)}\n{INTERVAL_NOTE}"


# ---------------------------------------------------------------------------------------------------------------------
# Success on the dev levels over training


@dataclass(frozen=True, eq=False)
class History(LevelWins):
    """E evaluations of one training on the same L dev levels; ``wins`` is int64[E, L] and ``success`` float64[E, L].

    decisions: int64[E], number of decisions of training before each evaluation; 0: evaluation of the BC policy.
    """

    decisions: np.ndarray

    def delivered(self, guarded: bool) -> np.ndarray:
        """Success float64[L] of the final policy of the training.

        guarded: True for the policy with the highest success on these levels, the latest of equally good ones (retention
            guard); False for the last evaluated policy.
        """
        means = self.success.mean(axis=1)
        return self.success[len(means) - 1 - int(np.argmax(means[::-1])) if guarded else -1]


def level_wins(histories: Sequence[History], shares: Sequence[np.ndarray]) -> LevelWins:
    """Convert success rates float64[L], one array per seed, to (fractional) numbers of wins.

    Raises ResultsError unless all seeds have played the same levels equally often.
    """
    first = histories[0]
    if any(h.levels != first.levels or (h.episodes != first.episodes).any() for h in histories):
        raise ResultsError(
            "the seeds have different dev levels or numbers of episodes: evaluate with the same settings"
        )
    return LevelWins(first.levels, first.categories, first.episodes, np.stack(shares) * first.episodes)


class DevHistory:
    """Writer of the evaluation history of one run; evaluations repeated after a resume replace the earlier ones."""

    def __init__(self, folder: Path):
        self.path = folder / HISTORY_FILE

    def add(self, decisions: int, wins: LevelWins) -> None:
        """Add an evaluation after this number of decisions; it replaces those after the same number or more."""
        head = {
            "levels": list(wins.levels),
            "categories": list(wins.categories),
            "episodes": wins.episodes.tolist(),
        }
        earlier = [row for row in _lines(self.path)[1:] if row["decisions"] < decisions] if self.path.is_file() else []
        rows = [head, *earlier, {"decisions": decisions, "wins": wins.wins[0].tolist()}]
        write_text(self.path, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the header, then a row for each evaluation.  Raises ResultsError for a file that is too large or damaged."""
    lines = read_bytes(path, ResultsError, MAX_JSON_BYTES, _HISTORY_REMEDY).splitlines()
    return [parse_json(line, path, ResultsError, _HISTORY_REMEDY) for line in lines]


def read_history(folder: Path) -> History | None:
    """Read the file of ``DevHistory``; return None without a file.  Raises ResultsError for a damaged file."""
    path = folder / HISTORY_FILE
    if not path.is_file():
        return None
    lines = _lines(path)
    try:
        head, *rows = lines
        levels, categories = tuple(map(str, head["levels"])), tuple(map(str, head["categories"]))
        wins = np.array([row["wins"] for row in rows], np.int64).reshape(len(rows), len(levels))
        decisions = np.array([row["decisions"] for row in rows], np.int64)
        episodes = np.array(head["episodes"], np.int64).reshape(len(levels))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ResultsError(
            f"{path}: not a history of evaluations ({type(error).__name__}: {error}); {_HISTORY_REMEDY}"
        ) from error
    return History(levels, categories, episodes, wins, decisions)
