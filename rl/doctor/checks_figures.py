"""Figures: what is counted of episodes, and how far it may be from the truth, where the answers are known."""

from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np

from nppsim.measure.intervals import wilson
from nppsim.outcomes import DIED, NAMES, TIMEOUT, WON
from rl.doctor.doctor import BEFORE, check, require
from rl.evaluation.comparison import compare
from rl.evaluation.results import ALL, EpisodeRecord, LevelWins, ResultsError, aggregate
from rl.evaluation.verify import check_counts

LEVELS, EPISODES, SEEDS = 60, 4, 6  # of the made-up policies
CATEGORIES = ("one", "other")
NEAR = 0.15  # share by which an interval may be wider or narrower than by formula: a bootstrap is drawn by chance
_PROGRAM = "this is a mistake in the program, not in your settings: please report it"
_Z95 = NormalDist().inv_cdf(0.975)


@check(BEFORE)
def figures_are_what_they_are_defined_as() -> str:
    """Success, lengths and returns of made-up episodes are those counted one by one; their intervals, over levels and seeds,
    are as wide as by formula; of two policies, the better one is said to be better."""
    better, worse = _chances(0.2), _chances(-0.2)
    played, others = (_episodes(chances) for chances in (better, worse))
    for seeds in (played, played[:1]):
        stats = aggregate(*seeds)
        try:
            check_counts([episode for seed in seeds for episode in seed], stats)
        except ResultsError as error:
            require(False, str(error), _PROGRAM)
        for category, figures in stats.items():
            _require_width(f"success of {category}", figures["ci95"], _shares(seeds, category))
    told = compare("A", "B", LevelWins.count(*played), LevelWins.count(*others))
    for category, row in told.categories.items():
        a, b = (_shares(seeds, category) for seeds in (played, others))
        require(
            np.allclose([row.first, row.second, row.difference], [a.mean(), b.mean(), a.mean() - b.mean()]),
            f"{category}: {row.first:.3f} and {row.second:.3f} differ by {row.difference:+.3f}, meant is "
            f"{a.mean():.3f} - {b.mean():.3f}",
            _PROGRAM,
        )
        _require_width(f"the difference in {category}", row.ci95, a - b)
    require(told.sentence.startswith("A finishes ") and " more than B" in told.sentence, told.sentence, _PROGRAM)
    for wins, trials in ((9, 10), (0, 10), (37, 120)):
        _require_wilson(wins, trials)
    return f"{2 * SEEDS * LEVELS * EPISODES} episodes; {told.sentence}"


def _chances(lead: float) -> np.ndarray:
    """float64[SEEDS, LEVELS]: chances of winning; levels and seeds are better and worse ones."""
    rng = np.random.default_rng(0)
    levels, seeds = rng.uniform(-0.45, 0.45, LEVELS), np.linspace(-0.12, 0.12, SEEDS)
    return np.clip(0.5 + lead + levels + seeds[:, None], 0, 1)


def _episodes(chances: np.ndarray) -> list[list[EpisodeRecord]]:
    rng = np.random.default_rng(1)
    made: list[list[EpisodeRecord]] = []
    for seed in chances:
        won = rng.random((LEVELS, EPISODES)) < seed[:, None]
        made.append([_episode(level, bool(one), rng) for level in range(LEVELS) for one in won[level]])
    return made


def _episode(level: int, won: bool, rng: np.random.Generator) -> EpisodeRecord:
    frames = int(rng.integers(10, 200)) if won else int(rng.integers(200, 400))
    stand_in: Any = SimpleNamespace(fingerprint=str(level))
    return EpisodeRecord(
        level_index=level,
        level_name=str(level),
        category=CATEGORIES[level % 3 == 0],
        level=stand_in,
        inputs=np.zeros(frames, np.uint8),
        outcome=NAMES[WON if won else (DIED, TIMEOUT)[frames % 2]],
        frames=frames,
        decisions=frames // 4,
        ret=float(rng.normal()),
        gold=int(rng.integers(0, 5)),
        path_length=0.0,
    )


def _shares(seeds: list[list[EpisodeRecord]], category: str) -> np.ndarray:
    """float64[seeds, levels]: share of episodes won on each level of a category."""
    of_all = np.array([[episode.won for episode in seed] for seed in seeds], float)
    shares = of_all.reshape(len(seeds), LEVELS, EPISODES).mean(axis=2)
    mine = [category in (CATEGORIES[level % 3 == 0], ALL) for level in range(LEVELS)]
    return shares[:, mine]


def _require_width(what: str, told: list[float] | None, shares: np.ndarray) -> None:
    """CheckFailed unless an interval is about that of levels and seeds drawn by chance: two-way analysis of variance."""
    seeds, levels = shares.shape
    variance = shares.mean(axis=0).var(ddof=1) / levels
    if seeds > 1:
        of_seeds = shares.mean(axis=1).var(ddof=1)
        left = shares - shares.mean(axis=0) - shares.mean(axis=1, keepdims=True) + shares.mean()
        by_chance = (left**2).sum() / ((seeds - 1) * (levels - 1)) / levels
        variance += max(0.0, of_seeds - by_chance) / seeds
    wanted = 2 * _Z95 * np.sqrt(variance)
    found = 0.0 if told is None else told[1] - told[0]
    middle = np.nan if told is None else sum(told) / 2
    require(
        abs(found - wanted) < NEAR * wanted and abs(middle - shares.mean()) < NEAR * wanted,
        f"the 95 % interval of {what} is {found:.3f} wide about {middle:.3f}, by formula {wanted:.3f} about "
        f"{shares.mean():.3f}",
        _PROGRAM,
    )


def _require_wilson(wins: int, trials: int) -> None:
    """CheckFailed unless at both ends of Wilson's interval, what was seen is 1.96 standard deviations away."""
    share = wins / trials
    for end in wilson(wins, trials):
        away = abs(share - end) - _Z95 * np.sqrt(end * (1 - end) / trials)
        require(
            abs(away) < 1e-6 or (end in (0.0, 1.0) and share == end),
            f"Wilson's interval of {wins} of {trials} ends at {end:.4f}",
            _PROGRAM,
        )
