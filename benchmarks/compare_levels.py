"""Classifier two-sample test between sets of levels: how well a classifier separates them from a reference set.

    python benchmarks/compare_levels.py REFERENCE... --with SET...      # folders of levels, or campaign files

For each SET, the program prints the accuracy of the classifier on levels that it was not fitted to, with its 95 % interval
(50 %: no difference found; 100 %: complete separation), and the statistics that differ most.  It uses a random part of the
larger set, as many levels as the smaller one has.  Gold is not compared.  See docs/lab/results.md.

Source: Lopez-Paz & Oquab 2017 (classifier two-sample tests); ridge logistic regression on the statistics of a level.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.generate.variety import MEASURES, variety
from nppsim.io.files import table
from nppsim.levels import kinds
from nppsim.levels.level import TYPE, Level
from nppsim.levels.level_set import LevelSet
from nppsim.levels.tiles import SOLID
from nppsim.settings import Parser

FOLDS = 5
RIDGE = 1.0  # weight of the squared coefficients; the statistics have standard deviation 1
STEPS = 25  # of Newton's method
SHOWN = 4  # number of statistics that are printed
NARROW = 2  # tiles; free cells whose row and column are free over at most this length are narrow
TILES = ("free share", "narrow share", "open share", "share of slopes and curves")
COUNTED = [kind for kind in range(len(kinds.ENTITY_NAMES)) if kind != kinds.GOLD]
NAMES = (*(kinds.ENTITY_NAMES[kind] for kind in COUNTED), *MEASURES, *TILES)


def statistics(levels: Sequence[Level]) -> np.ndarray:
    """Return float64[levels, len(NAMES)]: logarithms of counts and lengths, and shares of tiles."""
    counts = [np.bincount(level.records[:, TYPE], minlength=len(kinds.ENTITY_NAMES))[COUNTED] for level in levels]
    measured = variety(("", level) for level in levels)[""].values
    tiles = [_of_tiles(level.tiles) for level in levels]
    return np.hstack([np.log1p(counts), np.log1p(np.maximum(measured, 0)), tiles])


def _of_tiles(tiles: np.ndarray) -> tuple[float, float, float, float]:
    """Return the statistics TILES of uint8[23, 42]."""
    free = tiles != SOLID
    runs = np.maximum(_runs(free), _runs(free.T).T)
    count = max(int(free.sum()), 1)
    return (
        float(free.mean()),
        float((free & (np.minimum(_runs(free), _runs(free.T).T) <= NARROW)).sum()) / count,
        float((runs >= 12).sum()) / count,
        float((free & (tiles > SOLID)).sum()) / count,
    )


def _runs(free: np.ndarray) -> np.ndarray:
    """Return for each cell the number of free cells in a row that contain it; 0 for other cells."""
    found = np.zeros(free.shape, int)
    for row, cells in zip(found, free, strict=True):
        edges = np.flatnonzero(np.diff([0, *cells, 0]))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            row[start:end] = end - start
    return found


def accuracy(one: np.ndarray, other: np.ndarray, rng: np.random.Generator) -> tuple[float, float, int]:
    """Return (accuracy of cross-validation, half-width of its 95 % interval, number of levels)."""
    size = min(len(one), len(other))
    x = np.vstack([rows[rng.permutation(len(rows))[:size]] for rows in (one, other)])
    y = np.repeat([0.0, 1.0], size)
    fold = np.concatenate([np.arange(size), np.arange(size)]) % FOLDS
    right = [((_fit(x[fold != k], y[fold != k])(x[fold == k]) > 0) == y[fold == k]).sum() for k in range(FOLDS)]
    share = sum(right) / len(y)
    return share, 1.96 * (share * (1 - share) / len(y)) ** 0.5, len(y)


def _fit(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Fit a ridge logistic regression; return the function from statistics to log-odds."""
    mean, std = x.mean(0), x.std(0)
    std[std == 0] = 1.0

    def prepared(rows: np.ndarray) -> np.ndarray:
        return np.hstack([((rows - mean) / std).clip(-5, 5), np.ones((len(rows), 1))])

    z, w = prepared(x), np.zeros(x.shape[1] + 1)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(z @ w).clip(-30, 30)))
        hessian = (z * (p * (1 - p))[:, None]).T @ z + RIDGE * np.eye(len(w))
        w -= np.linalg.solve(hessian, z.T @ (p - y) + RIDGE * w)
    return lambda rows: prepared(rows) @ w


def separation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return for each statistic the share of pairs in which ``other`` is larger (ties count half), float64[statistics]."""
    columns = zip(one.T, other.T, strict=True)
    return np.array([(0.5 + 0.5 * np.sign(b - a[:, None])).mean() for a, b in columns])


def main(argv: list[str]) -> int:
    """Run the command; return the exit status: 0 for success, 2 for bad input."""

    def job() -> None:
        arguments = parse(argv)
        reference = statistics(_levels(arguments.reference))
        rng, rows = np.random.default_rng(0), []
        for path in arguments.others:
            values = statistics(_levels([path]))
            share, half, count = accuracy(reference, values, rng)
            larger = separation(reference, values)
            most = np.argsort(-np.abs(larger - 0.5))[:SHOWN]
            text = ", ".join(f"{NAMES[i]} {'more' if larger[i] > 0.5 else 'less'} ({larger[i]:.2f})" for i in most)
            rows.append((str(path), count, f"{100 * share:.0f} % ± {100 * half:.0f}", text))
        print(table(("set", "levels", "accuracy", "statistics that differ most (share of pairs)"), rows))

    return errors.run(job)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", nargs="+", type=Path, metavar="REFERENCE", help="levels to compare with")
    parser.add_argument(
        "--with", dest="others", nargs="+", type=Path, required=True, metavar="SET", help="sets of levels"
    )
    return parser.parse_args(argv)


def _levels(paths: Sequence[Path]) -> list[Level]:
    levels = [level for path in paths for level in LevelSet.at(path)]
    if len(levels) < 2 * FOLDS:
        raise ConfigError(f"{', '.join(map(str, paths))}: {len(levels)} levels, at least {2 * FOLDS} needed")
    return levels


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
