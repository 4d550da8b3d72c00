"""Fixtures of the tests of whole runs."""

import signal

import pytest

from hardware.compute import Timings
from nppsim.report import charts
from rl.experiment import data, report
from rl.ppo import update_benchmark
from rl.ppo.update_benchmark import UpdateBenchmark


@pytest.fixture(autouse=True, scope="module")
def _same_plan(tmp_path_factory):
    """Precision and threads do not depend on what else is running: two runs that are compared have the same plan.

    For the whole module, so also for the runs that its own fixtures make.  Random play for statistics is short.
    """
    alike = staticmethod(lambda _, found: Timings([1.0 + i for i in range(len(found))], [1.0] * len(found), 0.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpdateBenchmark, "benchmark", alike)
        patch.setattr(update_benchmark, "FILE", tmp_path_factory.mktemp("timings") / "timings.json")
        patch.setattr(data, "RANDOM_PLAY_DECISIONS", 1000)
        yield


@pytest.fixture(scope="module")
def blank_charts():
    """Reports contain empty pictures: drawing takes longer than a tiny run.  test_report.py draws them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "_rendered", lambda axes: b"")
        patch.setattr(report, "curve_chart", lambda *arguments: b"")
        yield


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also where whoever runs the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
