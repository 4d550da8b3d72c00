"""Fixtures of all tests."""

import os
from contextlib import contextmanager

import hypothesis
import pytest

# Read by torch and numpy when they are imported.  With a thread per core, each test process would wait for the other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile("here", deadline=None)  # a slow machine is not an error
hypothesis.settings.load_profile("here")


@pytest.fixture
def one_thread():
    """Let torch use one thread, so that sums are the same in every run."""
    import torch  # not at the top: the tests of the simulator do without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def largest_file():
    """``with largest_file(size):`` no file may exceed ``size`` bytes, as on a full disk.

    The limit ends within the test, because pytest itself may write to a longer file (``make test > log.txt``).
    """
    import resource  # not on Windows

    @contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


LONGEST = (
    "script", "viewer", "site", "cluster", "resume", "experiment", "gallery", "solve", "planner", "reach", "bench",
    "two_processes", "kernels", "shadow", "play", "edit", "policy_file", "architectures", "generate",
    "own_network_page", "agent", "config", "watch", "monitor", "onnx", "policy", "inference", "distillation",
    "inputs", "dev_evaluation", "distill", "stacked_experiment", "against_naive_simulator", "chromium",
    "planned_demonstrations", "extending_page",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first; at the end, one process would wait for the other."""
    rank = {f"test_{name}.py": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))
