"""Paired comparison of success on the same levels, with confidence intervals.

comparison = compare("vision_free", "mlp_baseline", LevelWins.count(*of_a), LevelWins.count(*of_b))
comparison.sentence        # "vision_free finishes 12.3 points more than mlp_baseline (95 % interval ...)."
write_levels(folder / "test_levels.csv", {"random": ..., "ppo": ...})  # for comparisons with later runs
"""

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from nppsim.io.files import table, write_text
from nppsim.io.reading import read_bytes
from nppsim.measure.intervals import mean_over_levels
from rl.evaluation.results import ALL, LevelWins, ResultsError

LEVELS_FILE = "test_levels.csv"
_MAX_BYTES = 64 << 20
_COLUMNS = ("level", "category", "episodes")  # first columns; a column of wins for each method follows


@dataclass(frozen=True)
class SuccessDifference:
    """Success rates of two policies on the same levels.

    first, second: success rate of each policy, 0 to 1.
    difference: ``first`` minus ``second``, -1 to 1.
    ci95: 95 % interval of the difference, over levels (and seeds, if several); None if it is the same on all levels.
    """

    first: float
    second: float
    difference: float
    ci95: list[float] | None

    @property
    def clear(self) -> bool:
        """True if the interval of the difference excludes 0."""
        return self.ci95 is not None and not self.ci95[0] <= 0 <= self.ci95[1]


@dataclass(frozen=True)
class Comparison:
    """Comparison of two policies, or of two trainings with several seeds, on the same levels.

    first, second: names of the policies.
    levels, seeds: number of levels and number of training seeds.
    categories: difference in the success rates on each category of levels, and on all levels.
    """

    first: str
    second: str
    levels: int
    seeds: int
    categories: dict[str, SuccessDifference]

    @property
    def sentence(self) -> str:
        """Result on all levels as a sentence."""
        total = self.categories[ALL]
        points = 100 * total.difference
        if total.ci95 is None:
            if total.difference:
                return f"{self.first} against {self.second}: {points:+.1f} points on every level, without an interval."
            return f"No difference found between {self.first} and {self.second} (0.0 points on every level)."
        low, high = (100 * bound for bound in total.ci95)
        over = (
            f"over {self.levels:,} levels and {self.seeds} seeds" if self.seeds > 1 else f"over {self.levels:,} levels"
        )
        interval = f"95 % interval {low:+.1f} to {high:+.1f} {over}"
        if total.clear:
            more = "more" if points > 0 else "LESS"
            return f"{self.first} finishes {abs(points):.1f} points {more} than {self.second} ({interval})."
        return f"No difference found between {self.first} and {self.second} ({points:+.1f} points, {interval})."

    def to_dict(self) -> dict:
        """Return the fields and the sentence as values for results.json."""
        return asdict(self) | {"sentence": self.sentence}


def compare(first: str, second: str, a: LevelWins, b: LevelWins) -> Comparison:
    """Compare success rates, a minus b, in every category, paired by level and seed.

    first, second: names of a and b.
    Raises ResultsError unless both have the same levels, episodes and number of seeds.
    """
    if a.levels != b.levels or a.wins.shape != b.wins.shape or (a.episodes != b.episodes).any():
        raise ResultsError(
            f"{first} and {second} were not evaluated on the same levels with the same numbers of episodes and seeds; "
            "evaluate them with the same settings"
        )
    names = (*dict.fromkeys(a.categories), ALL)
    rows = {name: _difference(a.of(name), b.of(name)) for name in names}
    return Comparison(first, second, len(a.levels), len(a.wins), rows)


def _difference(a: LevelWins, b: LevelWins) -> SuccessDifference:
    first, second = (float(np.average(wins.success.mean(axis=0), weights=wins.episodes)) for wins in (a, b))
    estimate = mean_over_levels(a.success - b.success, a.episodes)
    bounds = None if estimate.low is None or estimate.high is None else [estimate.low, estimate.high]
    return SuccessDifference(first, second, estimate.value, bounds)


def format_difference(difference: SuccessDifference) -> str:
    """Format a difference in percentage points with its interval, e.g. "+12.3 [9.1, 15.5]"."""
    text = f"{100 * difference.difference:+.1f}"
    if difference.ci95 is None:
        return f"{text} (no interval)"
    return f"{text} [{100 * difference.ci95[0]:.1f}, {100 * difference.ci95[1]:.1f}]"


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """Format a table with the result of each comparison on all levels, followed by the sentence of each comparison."""
    header = ("first", "second", "first, %", "second, %", "difference, points [95 %]")
    rows = [
        (c.first, c.second, f"{100 * total.first:.1f}", f"{100 * total.second:.1f}", format_difference(total))
        for c in comparisons
        for total in (c.categories[ALL],)
    ]
    return "\n".join([table(header, rows, align="llrrr"), *(c.sentence for c in comparisons)])


def write_levels(path: Path, methods: Mapping[str, LevelWins]) -> None:
    """Write a table of wins: a row per level, a column per method.  All methods must have the same levels."""
    (any_wins, *_) = methods.values()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *methods])
    columns = [
        any_wins.levels,
        any_wins.categories,
        any_wins.episodes,
        *(wins.wins.sum(axis=0) for wins in methods.values()),
    ]
    writer.writerows(zip(*columns, strict=True))
    write_text(path, text.getvalue())


def read_levels(paths: Sequence[Path], method: str) -> LevelWins:
    """Read the wins of a method in several runs, one seed each.  Raises ResultsError for a missing or invalid file."""
    runs = [_read(path, method) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if run.levels != runs[0].levels or (run.episodes != runs[0].episodes).any():
            raise ResultsError(f"{path}: other levels than in {paths[0]}; evaluate them with the same settings")
    return LevelWins(runs[0].levels, runs[0].categories, runs[0].episodes, np.concatenate([run.wins for run in runs]))


def _read(path: Path, method: str) -> LevelWins:
    data = read_bytes(path, ResultsError, _MAX_BYTES, "evaluate the run again")
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        levels, categories = (tuple(row[name] for row in rows) for name in _COLUMNS[:2])
        episodes, wins = (np.array([int(row[name]) for row in rows], np.int64) for name in ("episodes", method))
        if not rows or not all(map(isinstance, (*levels, *categories), itertools.repeat(str))):
            raise ValueError("rows without a level")
        if (episodes < 1).any() or (wins < 0).any() or (wins > episodes).any():
            raise ValueError("more wins than episodes")
    except (KeyError, TypeError, ValueError, OverflowError, csv.Error) as error:
        raise ResultsError(
            f"{path}: not a table of wins per level of {method!r} ({type(error).__name__}: {error}); evaluate the run again"
        ) from error
    return LevelWins(levels, categories, episodes, wins[None])
