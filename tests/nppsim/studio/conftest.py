"""A studio with a few levels, and a client."""

from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

import nppsim
from nppsim.levels.campaign import to_line
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.replays.replay import Replay
from nppsim.studio.app import Studio, create_app
from nppsim.studio.library import Library
from nppsim.studio.security import Access

from worlds import moving_level, straight

ADDRESS = "http://127.0.0.1:8765"


class Page:
    """Client that sends requests with the token and origin of a page.  Unless entered, it leaves no thread."""

    def __init__(self, studio, access):
        self.studio, self.access = studio, access
        self.client = TestClient(create_app(studio, access), ADDRESS, raise_server_exceptions=False)
        self.headers = {"X-Studio-Token": access.token, "Origin": ADDRESS}

    def get(self, path, status=200):
        answer = self.client.get(f"/api/{path}", headers=self.headers)
        assert answer.status_code == status, answer.text
        return answer

    def post(self, path, content=b"", status=200, **headers):
        answer = self.client.post(f"/api/{path}", content=content, headers=self.headers | headers)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def levels(tmp_path):
    """Two levels, one to be finished by holding right, one with things that move."""
    folder = tmp_path / "levels"
    entries = [(straight(), LevelEntry("simple", par_frames=70)), (moving_level(), LevelEntry("odd"))]
    LevelSet.write(folder, entries)
    return folder


@pytest.fixture
def pack(tmp_path):
    """A campaign file of six levels."""
    levels = [straight(length=13 + number) for number in range(6)]
    lines = [to_line(replace(level, title=f"level {number}")) for number, level in enumerate(levels)]
    (tmp_path / "pack.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "pack.txt"


@pytest.fixture
def winning():
    """A replay that finishes the first of them."""
    run = nppsim.simulate(straight(), np.full(600, 2, np.uint8))
    return Replay(straight(), np.full(run.frames, 2, np.uint8), success=True)


@pytest.fixture
def page(levels, winning, tmp_path):
    winning.save(tmp_path / "replays" / "won.replay")
    library = Library([levels], [tmp_path / "replays"])
    return Page(Studio(library, tmp_path / "demonstrations"), Access())
