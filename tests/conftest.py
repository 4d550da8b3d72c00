"""Fixtures of all tests."""

import pytest


@pytest.fixture
def one_thread():
    """torch computes with one thread, so that sums are the same in every run."""
    import torch  # not at the top: the tests of the simulator do without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
