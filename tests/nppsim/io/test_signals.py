"""Signals are delayed until the end of a critical section."""

import os
import signal
import sys
import time

import pytest

from nppsim.io.signals import child_process, deferred_signals


@pytest.fixture(autouse=True)
def usual(monkeypatch):
    """Default handlers, because the program that runs the tests may ignore signals."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_first_signal_is_recorded_and_second_interrupts():
    message = []
    with deferred_signals(message.append) as stop:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.by, message) == ("SIGTERM", ["SIGTERM"])
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with deferred_signals(print) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.by == ""
    assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


@pytest.mark.parametrize(("interruption", "status"), [(("by SIGTERM",), 7), ((), -signal.SIGKILL)])
def test_child_process_gets_the_signal_and_is_killed_after_the_limit(interruption, status, tmp_path):
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print(flush=True); time.sleep(60)"
    log_file, seconds = tmp_path / "log", 20 if interruption else 0.01
    children = []

    def interrupted():
        with child_process([sys.executable, "-c", code], log_file, seconds) as child:
            children.append(child)
            while not log_file.read_text():  # until it listens
                time.sleep(0.01)
            raise KeyboardInterrupt(*interruption)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert children[0].returncode == status
