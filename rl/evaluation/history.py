"""Success on the dev levels over training, level by level, so that two runs can be compared in pairs.

history = DevHistory(folder)                 # <folder>/dev_levels.jsonl
history.add(100_000, LevelWins.count(episodes))
read_history(folder).success                 # float64[evaluations, levels]
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nppsim.files import write_text
from nppsim.reading import MAX_JSON_BYTES, parse_json, read_bytes
from rl.evaluation.results import LevelWins, ResultsError

HISTORY_FILE = "dev_levels.jsonl"


@dataclass(frozen=True, eq=False)
class History:
    """E evaluations of one training on the same L dev levels.

    levels, categories: fingerprint and category of each level.
    episodes: int64[L], played in each evaluation.
    decisions: int64[E], of training before each evaluation; 0 is the BC policy.
    wins: int64[E, L].
    """

    levels: tuple[str, ...]
    categories: tuple[str, ...]
    episodes: np.ndarray
    decisions: np.ndarray
    wins: np.ndarray

    @property
    def success(self) -> np.ndarray:
        """float64[E, L]: share of wins."""
        return self.wins / self.episodes

    def delivered(self, guarded: bool) -> np.ndarray:
        """float64[L]: success of the policy that the training delivered.

        guarded: the best one on these levels, of equal ones the latest (the retention guard); else the last one.
        """
        means = self.success.mean(axis=1)
        return self.success[len(means) - 1 - int(np.argmax(means[::-1])) if guarded else -1]


def level_wins(histories: Sequence[History], shares: Sequence[np.ndarray]) -> LevelWins:
    """Shares of wins float64[L], one array for each seed, as wins, which may be broken numbers.

    Raises ResultsError unless all have played the same levels equally often.
    """
    first = histories[0]
    if any(h.levels != first.levels or (h.episodes != first.episodes).any() for h in histories):
        raise ResultsError("other dev levels, or other numbers of episodes: evaluate with the same settings")
    return LevelWins(first.levels, first.categories, first.episodes, np.stack(shares) * first.episodes)


class DevHistory:
    """Keeps the file of one run; an evaluation that is done again after a resume takes the place of the first one."""

    def __init__(self, folder: Path):
        self.path = folder / HISTORY_FILE

    def add(self, decisions: int, wins: LevelWins) -> None:
        """Note an evaluation of one policy after so many decisions; later ones are of a future that did not happen."""
        head = {
            "levels": list(wins.levels),
            "categories": list(wins.categories),
            "episodes": wins.episodes.tolist(),
        }
        kept = [row for row in _lines(self.path)[1:] if row["decisions"] < decisions] if self.path.is_file() else []
        self._write(head, [*kept, {"decisions": decisions, "wins": wins.wins[0].tolist()}])

    def cut(self, decisions: int) -> None:
        """Leave out what came after so many decisions, where training goes on from."""
        if self.path.is_file():
            head, *rows = _lines(self.path)
            self._write(head, [row for row in rows if row["decisions"] <= decisions])

    def _write(self, head: dict, rows: list[dict]) -> None:
        write_text(self.path, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in (head, *rows)))


_REMEDY = "compare without it, or train again"


def _lines(path: Path) -> list[dict]:
    """The head, then a row for each evaluation; ResultsError for a file that is too large, or damaged."""
    lines = read_bytes(path, ResultsError, MAX_JSON_BYTES, _REMEDY).splitlines()
    return [parse_json(line, path, ResultsError, _REMEDY) for line in lines]


def read_history(folder: Path) -> History | None:
    """What ``DevHistory`` has written; None where a run has no such file.  Raises ResultsError for a damaged one."""
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
        raise ResultsError(f"{path}: no history of evaluations ({type(error).__name__}: {error}); {_REMEDY}") from error
    return History(levels, categories, episodes, decisions, wins)
