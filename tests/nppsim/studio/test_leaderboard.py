"""Leaderboard: best runs per level and player, stored on disk."""

import pytest

from nppsim.errors import ConfigError
from nppsim.studio.errors import StudioError
from nppsim.studio.leaderboard import AGENT, PERSON, Leaderboard


def test_best_lists_fastest_and_highest_score_per_player(tmp_path):
    board = Leaderboard(tmp_path / "data" / "board.sqlite3")
    for frames, gold in ((300, 0), (200, 0), (250, 1), (260, 1), (201, 0)):
        board.add("level", PERSON, "Ann", frames, gold)
    board.add("level", AGENT, "agent", 190, 0)
    board.add("other", AGENT, "agent", 100, 0)
    board.add("level", PERSON, "late", 5402, 0)  # the clock of the game has ended this run
    best = Leaderboard(tmp_path / "data" / "board.sqlite3").best("level")
    assert [(run["name"], run["frames"], run["gold"]) for run in best["time"]] == [("agent", 190, 0), ("Ann", 200, 0)]
    assert [(run["name"], run["score"]) for run in best["score"]] == [("Ann", 87.85), ("agent", 86.85)]


def test_leaderboard_unwritable_file_raises_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        Leaderboard(tmp_path / "file" / "board.sqlite3")


def test_leaderboard_damaged_file_raises_error(tmp_path):
    file = tmp_path / "board.sqlite3"
    Leaderboard(file).add("level", PERSON, "Ann", 200, 0)
    data = bytearray(file.read_bytes())
    data[4096:4196] = b"\xff" * 100  # the beginning of the second page, which has the runs
    file.write_bytes(data)
    board = Leaderboard(file)
    for use in (board.best, lambda level: board.add(level, PERSON, "Ben", 100, 0)):
        with pytest.raises(
            StudioError, match="board.sqlite3: .*malformed.*; make room on its disk, or move the file away"
        ):
            use("level")
