"""Fuzzing: nothing fails, what is broken is found, and cases are reproducible."""

import numpy as np
import pytest

from nppsim.levels.level import Level, LevelError
from nppsim.replays.replay import Replay, ReplayError
from tests.fuzz import level_fuzzer as fuzzing
from tests.fuzz.level_fuzzer import KINDS, case, fuzz, main

LOADERS = [pytest.param(Level, LevelError, id="level"), pytest.param(Replay, ReplayError, id="replay")]


def test_no_case_fails_and_every_kind_is_tried():
    done = []
    report = fuzz(256, seed=1, progress=done.append)
    assert report.failures == []
    assert set(report.tried) == set(KINDS) and report.tried.total() == 256
    assert report.played.total() + report.refused.total() == 256
    assert report.played["random level"] == report.tried["random level"]  # every one can be played
    assert set(report.refused) == {"LevelError", "ReplayError"}
    assert report.frames > 200 * report.played.total()
    assert done == [64, 128, 192, 256]


def test_a_case_depends_on_nothing_but_seed_and_index():
    assert [case(3, i) for i in range(20)] == [case(3, i) for i in range(20)]
    assert case(3, 0) != case(4, 0)
    whole, parts = fuzz(128, seed=5), [fuzz(64, seed=5), fuzz(64, seed=5, first=64)]
    for name in ("tried", "played", "refused"):
        assert getattr(whole, name) == sum((getattr(part, name) for part in parts), start=type(whole.tried)())
    assert whole.frames == sum(part.frames for part in parts)


@pytest.mark.parametrize(("loader", "_error"), LOADERS)
def test_an_error_that_is_none_of_the_loaders_own_stops_the_run(loader, _error, monkeypatch):
    def broken(data, name):
        raise ValueError("invalid literal")

    monkeypatch.setattr(loader, "from_bytes", broken)
    with pytest.raises(ValueError, match="invalid literal"):
        fuzz(64)


@pytest.mark.parametrize(("loader", "error"), LOADERS)
@pytest.mark.parametrize("message", ["{name}: two\nlines", "no name"])
def test_a_message_of_two_lines_or_without_the_name_is_a_failure(loader, error, message, monkeypatch):
    def broken(data, name):
        raise error(message.format(name=name))

    monkeypatch.setattr(loader, "from_bytes", broken)
    report = fuzz(64)
    assert len(report.failures) >= report.refused[error.__name__] > 10
    assert "of seed 0: the message is not one line with the name" in report.failures[0]


def test_a_position_that_is_no_number_is_a_failure(monkeypatch):
    monkeypatch.setattr(fuzzing, "_lost", lambda player: np.array([1]))
    report = fuzz(64)
    assert len(report.failures) == 1
    assert "a position or velocity is no finite number" in report.failures[0]


def test_an_observation_that_is_no_number_is_a_failure(monkeypatch):
    class Broken(fuzzing.BatchSimulator):
        def step(self, actions):
            observations = super().step(actions)
            observations["game_state"][0, 3] = np.nan
            return observations

    monkeypatch.setattr(fuzzing, "BatchSimulator", Broken)
    report = fuzz(64)
    assert len(report.failures) == 1
    assert report.failures[0].endswith("game_state is not finite")


def test_the_command_prints_the_numbers_and_fails_if_anything_did(monkeypatch, capfd):
    assert main(["--count", "70", "--seed", "2", "--first", "10"]) == 0
    printed = capfd.readouterr()
    assert "70 cases tried, " in printed.out and "\n0 failures; bounds check o" in printed.out
    assert printed.err.rstrip().endswith("70 of 70 cases; next: 80 to 143")

    def broken(data, name):
        raise LevelError("no name")

    monkeypatch.setattr(Level, "from_bytes", broken)
    assert main(["--count", "10"]) == 1
    assert "FAILED: case " in capfd.readouterr().out
