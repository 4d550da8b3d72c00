"""Runs that the page stores, the leaderboard, and agents that play on."""

import base64
import json
from dataclasses import replace

import pytest

from nppsim.levels.campaign import to_line
from nppsim.studio import documents, playing
from nppsim.studio.library import Library

from worlds import straight


def text(inputs):
    return base64.b64encode(bytes(inputs)).decode()


def post(page, path, message, status=200):
    return page.post(path, json.dumps(message).encode(), status)


def a_run(**changes):
    run = {"level": straight().fingerprint, "inputs": text([2, 2, 3]), "outcome": "running", "gold": 1, "label": "mine"}
    return run | changes


def test_stored_run_is_listed(page):
    stored = post(page, "recordings", a_run())["stored"]
    (listed,) = page.get("recordings").json()["recordings"]
    assert listed == stored
    wanted = {"label": "mine", "frames": 3, "outcome": "running", "gold": 1, "category": "simple", "score": None}
    assert stored.items() >= wanted.items()
    assert base64.b64decode(page.get(f"recordings/{stored['number']}/run").json()["inputs"]) == bytes([2, 2, 3])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"level": "nothing"}, "no such level"),
        ({"inputs": "!"}, "base64"),
        ({"inputs": 5}, "should be a text"),
        ({"inputs": text([16])}, "0 to 15"),
        ({"inputs": ""}, "nothing has been played"),
        ({"outcome": "lost"}, "give one of running, won, died"),
        ({"gold": "1"}, "whole number"),
        ({"label": "x" * 101}, "at most 100"),
        ({"label": "a\0b"}, "unprintable"),
    ],
)
def test_store_invalid_run_refused(page, change, expected):
    status = 404 if change.get("level") else 400
    assert expected in post(page, "recordings", a_run(**change), status)["error"]
    assert page.get("recordings").json()["recordings"] == []


def test_store_run_too_long_refused(page, monkeypatch):
    monkeypatch.setattr(playing, "MAX_RUN_FRAMES", 2)
    assert documents.MAX_RUN_FRAMES > 2
    assert "at most 2 are allowed" in post(page, "recordings", a_run(), 400)["error"]


def test_won_run_enters_leaderboard(page):
    id = straight().fingerprint
    best = post(page, f"levels/{id}/best", {"name": "Ann", "frames": 70, "gold": 2})
    assert [(run["name"], run["frames"], run["gold"]) for run in best["time"]] == [("Ann", 70, 2)]
    assert page.get(f"levels/{id}/best").json() == best
    for message, expected in (
        ({"name": "", "frames": 70, "gold": 2}, "1 to 100 characters"),
        ({"name": "Ann", "frames": 0, "gold": 2}, "impossible"),
        ({"name": "Ann", "frames": 70, "gold": -1}, "impossible"),
        ({"name": "Ann", "frames": 70}, "gold"),
    ):
        assert expected in post(page, f"levels/{id}/best", message, 400)["error"]
    assert page.get(f"levels/{id}/best").json() == best
    post(page, "levels/nothing/best", {"name": "Ann", "frames": 70, "gold": 2}, 404)


def test_episode_enters_leaderboard(page, tmp_path):
    lines = [to_line(replace(straight(), title=f"level {number}")) for number in range(125)]
    lines[:5] = [to_line(straight(length=12 + number)) for number in range(5)]
    (tmp_path / "SI.txt").write_text("\n".join(lines))
    page.studio.library = Library([tmp_path / "SI.txt"])
    found = page.get("episodes/SI-A-00").json()
    assert len(found["levels"]) == 5 and not found["best"]["time"]
    assert "of which 0 are here" in page.get("episodes/SI-Z-00", 404).json()["error"]
    best = post(page, "episodes/SI-A-00/best", {"name": "Ann", "frames": 400, "gold": 3})
    assert [(run["name"], run["frames"]) for run in best["time"]] == [("Ann", 400)]
    assert page.get("episodes/SI-A-00").json()["best"] == best
    assert "impossible" in post(page, "episodes/SI-A-00/best", {"name": "Ann", "frames": 4, "gold": 0}, 400)["error"]
