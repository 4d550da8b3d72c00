"""The probe update that the hardware plan measures with."""

import pytest
import torch

from rl.train.probe import UpdateProbe


@pytest.mark.parametrize("name", ["mlp_baseline", "vision_free"])
def test_an_update_needs_more_bytes_for_more_samples_and_at_least_its_weights_four_times(name):
    probe = UpdateProbe(name, "cpu", "float32")
    small, large = probe.peak_bytes(8), probe.peak_bytes(32)
    assert 4 * 200_000 * 4 < small < large
    assert probe.seconds(1) > 0


def test_probing_leaves_random_numbers_and_threads_as_they_were():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    UpdateProbe("vision_free", "cpu", "float32").seconds(1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
