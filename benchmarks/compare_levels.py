"""Classifier two-sample test between sets of levels: how well a classifier separates them from a reference set.

    python benchmarks/compare_levels.py REFERENCE... --with SET...      # folders of levels, or campaign files
    python benchmarks/compare_levels.py REFERENCE... --with SET --min-path 1000 --write nppsim/generate/official_like.json

For each SET, the program prints the accuracy of the classifier on levels that it was not fitted to, with its 95 % interval
(50 %: no difference found; 100 %: complete separation), and the statistics that differ most.  It uses a random part of the
larger set, as many levels as the smaller one has.  Gold is not compared.  ``--write`` stores a classifier of all levels, for
``nppsim.generate.resemblance``.  See docs/lab/results.md.

Source: Lopez-Paz & Oquab 2017 (classifier two-sample tests); ridge logistic regression on the statistics of a level.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nppsim import errors
from nppsim.bank import LevelBank
from nppsim.errors import ConfigError
from nppsim.generate.resemblance import NAMES, Classifier, statistics
from nppsim.io.files import table
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.settings import Parser, Setting

FOLDS = 5
SHOWN = 4  # number of statistics that are printed


def accuracy(one: np.ndarray, other: np.ndarray, rng: np.random.Generator) -> tuple[float, float, int]:
    """Return (accuracy of cross-validation, half-width of its 95 % interval, number of levels)."""
    size = min(len(one), len(other))
    x = np.vstack([rows[rng.permutation(len(rows))[:size]] for rows in (one, other)])
    y = np.repeat([False, True], size)
    fold = np.concatenate([np.arange(size), np.arange(size)]) % FOLDS
    right = 0
    for k in range(FOLDS):
        fitted = Classifier.fit(x[fold != k], y[fold != k])
        right += ((fitted.log_odds(x[fold == k]) > 0) == y[fold == k]).sum()
    share = right / len(y)
    return share, 1.96 * (share * (1 - share) / len(y)) ** 0.5, len(y)


def separation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return for each statistic the share of pairs in which ``other`` is larger (ties count half), float64[statistics]."""
    columns = zip(one.T, other.T, strict=True)
    return np.array([(0.5 + 0.5 * np.sign(b - a[:, None])).mean() for a, b in columns])


def main(argv: list[str]) -> int:
    """Run the command; return the exit status: 0 for success, 2 for bad input."""

    def job() -> None:
        arguments = parse(argv)
        reference = statistics(_levels(arguments.reference, arguments.min_path))
        rng, rows = np.random.default_rng(0), []
        for path in arguments.others:
            values = statistics(_levels([path], arguments.min_path))
            share, half, count = accuracy(reference, values, rng)
            larger = separation(reference, values)
            most = np.argsort(-np.abs(larger - 0.5))[:SHOWN]
            text = ", ".join(f"{NAMES[i]} {'more' if larger[i] > 0.5 else 'less'} ({larger[i]:.2f})" for i in most)
            rows.append((str(path), count, f"{100 * share:.0f} % ± {100 * half:.0f}", text))
            if arguments.write:
                x = np.vstack([reference, values])
                Classifier.fit(x, np.arange(len(x)) < len(reference)).save(arguments.write)
        print(table(("set", "levels", "accuracy", "statistics that differ most (share of pairs)"), rows))

    return errors.run(job)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", nargs="+", type=Path, metavar="REFERENCE", help="levels to compare with")
    parser.add_argument(
        "--with", dest="others", nargs="+", type=Path, required=True, metavar="SET", help="sets of levels"
    )
    path = "compare only levels whose path from the spawn to the exit has at least this length, px"
    parser.add_flag(Setting(path, flag="min-path", kind=float, default=0.0, low=0))
    parser.add_argument("--write", type=Path, metavar="FILE.json", help="write a classifier of the last SET")
    return parser.parse_args(argv)


def _levels(paths: Sequence[Path], min_path: float) -> list[Level]:
    levels = [level for path in paths for level in LevelSet.at(path)]
    if min_path:
        bank = LevelBank(levels)
        lengths = np.where(bank.reachable, bank.path_length, 0)
        levels = [level for level, length in zip(levels, lengths, strict=True) if length >= min_path]
    if len(levels) < 2 * FOLDS:
        raise ConfigError(f"{', '.join(map(str, paths))}: {len(levels)} levels, at least {2 * FOLDS} needed")
    return levels


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
