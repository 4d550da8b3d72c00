"""SQLite leaderboard with the best runs of people and agents on each level.

    board = Leaderboard(data_folder() / "leaderboard.sqlite3")
    board.add(level.fingerprint, "agent", "vision_free", frames=130, gold=2)
    board.best(level.fingerprint)["score"][0]["name"]

Runs of a player with equal numbers of frames and gold pieces are stored once.
"""

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from nppsim.errors import ConfigError
from nppsim.replays.score import score
from nppsim.studio.errors import StudioError

PERSON, AGENT = "person", "agent"
FILE = "leaderboard.sqlite3"
_SHOWN = 5  # maximum number of runs in a list
_SCHEMA = """CREATE TABLE IF NOT EXISTS runs (
    level TEXT, kind TEXT, name TEXT, frames INTEGER, gold INTEGER, score REAL, PRIMARY KEY (level, kind, name, frames, gold)
)"""


def data_folder() -> Path:
    """Return the folder of user data: ``$XDG_DATA_HOME/nppsim``, by default ``~/.local/share/nppsim``."""
    given = os.environ.get("XDG_DATA_HOME")
    return (Path(given) if given else Path.home() / ".local" / "share") / "nppsim"


class Leaderboard:
    """Best runs per level.

    file: database file, created if it is missing; ":memory:" stores nothing on disk.
    Raises ConfigError if the file cannot be opened.
    """

    def __init__(self, file: str | Path = ":memory:"):
        try:
            if file != ":memory:":
                Path(file).parent.mkdir(parents=True, exist_ok=True)
            self._runs = sqlite3.connect(file, check_same_thread=False)
            self._runs.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            advice = f"the leaderboard cannot be opened ({error}); give a writable folder, or move the file away"
            raise ConfigError(advice, "XDG_DATA_HOME", file) from error
        self._file = file
        self._lock = threading.Lock()

    def _execute(self, statement: str, values: tuple) -> list[tuple]:
        """Execute a statement and return its rows.  Raises StudioError for a damaged file or a full disk."""
        try:
            with self._lock, self._runs:
                return self._runs.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            reason = " ".join(str(error).split())  # may quote a damaged text
            raise StudioError(
                f"{self._file}: the leaderboard cannot be read or written ({reason}); make room on its disk, or move the "
                "file away and start the studio again",
                500,
            ) from error

    def add(self, level: str, kind: str, name: str, frames: int, gold: int, levels: int = 1) -> None:
        """Add a run that won.  A run with a negative score is ignored: the game's clock would have ended the run.

        level: fingerprint of the level, or id of the episode.  kind: PERSON or AGENT.
        levels: number of levels, more than 1 for an episode.
        """
        points = score(frames, gold, levels)
        if points < 0:
            return
        self._execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?)", (level, kind, name, frames, gold, points))

    def best(self, level: str) -> dict[str, list[dict[str, Any]]]:
        """Return {"time": fastest runs, "score": highest-scoring runs}: at most one run per player, best first.

        Each run is {"kind", "name", "frames", "gold", "score"}.  level: fingerprint of the level.
        """
        runs = self.runs(level)
        return {
            "time": _first_of_each(sorted(runs, key=lambda run: (run["frames"], -run["score"]))),
            "score": _first_of_each(sorted(runs, key=lambda run: (-run["score"], run["frames"]))),
        }

    def runs(self, level: str) -> list[dict[str, Any]]:
        """Return all runs of a level, each as in ``best``."""
        rows = self._execute("SELECT kind, name, frames, gold, score FROM runs WHERE level = ?", (level,))
        return [dict(zip(("kind", "name", "frames", "gold", "score"), row, strict=True)) for row in rows]


def _first_of_each(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first run of each player, at most _SHOWN runs."""
    players: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        players.setdefault((run["kind"], run["name"]), run)
    return list(players.values())[:_SHOWN]
