"""What all tests of whole runs share."""

import signal

import pytest

from hardware.compute import Timings
from rl.train.probe import UpdateProbe


@pytest.fixture(autouse=True)
def _same_plan(monkeypatch):
    """Precision and threads do not depend on what else is running: two runs that are compared have the same plan."""
    alike = staticmethod(lambda size, ways: Timings([1.0 + i for i in range(len(ways))], [1.0] * len(ways), 0.0))
    monkeypatch.setattr(UpdateProbe, "race", alike)


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also where whoever runs the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
