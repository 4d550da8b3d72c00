"""Fixtures of the tests of training."""

import pytest

from nppsim.bank import GAME_TIME
from rl.evaluation import suite


@pytest.fixture(scope="module", autouse=True)
def short_evaluations():
    """Episodes of evaluations end after 10 instead of 90 s, as untrained agents hardly finish a level."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "GAME_TIME", 600)
        yield


@pytest.fixture
def whole_evaluations(monkeypatch):
    """Episodes of evaluations have the game's time limit, as in other processes."""
    monkeypatch.setattr(suite, "GAME_TIME", GAME_TIME)
