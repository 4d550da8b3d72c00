"""Kills come in the intended phase of a training."""

import os
import time

import pytest

from tests.chaos import kill_and_resume
from tests.chaos.kill_and_resume import _phases, _Process
from tests.chaos.machine_faults import AttackError


@pytest.fixture
def training(monkeypatch, tmp_path):
    """Start a process that prints these lines, 0.2 s apart, and ends."""

    def become(lines, output):
        for line in lines:
            with open(output, "a") as file:
                print(line, file=file)
            time.sleep(0.2)
        os._exit(0)

    monkeypatch.setattr(kill_and_resume, "_become", become)
    return lambda *lines: _Process(lines, tmp_path / "output.txt")


def test_a_kill_comes_in_the_phase_that_is_meant(training):
    process = training("experiment folder: x", "imitation, epoch 1 of 20: loss 1", "weights: all", *["..."] * 100)
    assert process.killed_in("imitation", 0.05)
    assert process.phase == "imitation"
    assert process.lasted["imitation"] < 0.2


def test_imitation_that_was_done_before_is_no_phase_to_be_killed_in(training):
    process = training("experiment folder: x", "imitation is done: BC policy", "resuming from x")
    assert not process.killed_in("imitation")
    assert process.phase == "PPO and its evaluations"
    with pytest.raises(AttackError, match="no line of: imitation, final evaluation"):
        _phases(process)
