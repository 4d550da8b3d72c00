"""A small share of the equality tests, in Chromium; ``make test-wasm`` runs all of them there."""

import chromium
import pytest

from nppsim import Level, simulate
from nppsim.generate import generate
from nppsim.verify import cases
from tests.nppsim.wasm import test_game, test_kernels, test_planner

from places import EXCERPT
from wasm_calls import ENGINE, recording
from worlds import KINDS, mixed_level

pytestmark = pytest.mark.skipif(chromium.CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")


@pytest.fixture(autouse=True)
def _engine(monkeypatch):
    monkeypatch.setenv(ENGINE, "chromium")


def test_conformance_cases_give_equal_bytes():
    with recording("game") as calls:
        for _theme, _case, trace in cases(EXCERPT):
            simulate(Level.from_bytes(trace["map"].tobytes()), trace["inputs"], completions=False)
        assert calls.differences() == []


def test_levels_and_games_give_equal_bytes(tmp_path):
    levels = [generate("complex", 7000)[0], *(mixed_level(seed, kinds=KINDS[seed]) for seed in range(3))]
    assert test_game.differences(levels, tmp_path) == {}
    assert test_kernels.differences(levels[:2]) == []


def test_planner_finds_equal_runs():
    level = generate("simple", 3)[0]
    assert test_planner.differences(test_planner.requests([level], objective="score")) == ([], 1)
