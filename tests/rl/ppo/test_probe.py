"""The probe update that the hardware plan measures with."""

import pytest
import torch

from hardware import Candidate, Timings
from rl.ppo import probe as module
from rl.ppo.probe import UpdateProbe


@pytest.mark.parametrize("name", ["mlp_baseline", "vision_free"])
def test_an_update_needs_more_bytes_for_more_samples_and_at_least_its_weights_four_times(name):
    probe = UpdateProbe(name, "cpu", "float32")
    small, large = probe.peak_bytes(8), probe.peak_bytes(32)
    assert 4 * 200_000 * 4 < small < large
    assert probe.policy.precision == "float32"


def test_every_way_is_timed_and_the_fastest_update_of_each_counts(monkeypatch):
    """Clocks that only updates move: they take 5, 1, 4 ... seconds, in turn for the two candidates."""
    clock, durations = [0.0], iter([5, 1, 4, 2, 3, 3])
    updated = []

    def update(policy, minibatch, pool):
        updated.append((policy.precision, pool.threads, len(minibatch.index)))
        clock[0] += next(durations)

    monkeypatch.setattr(module, "_update", update)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(module.time, "process_time", lambda: 2 * clock[0])
    monkeypatch.setattr(module.OtherPrograms, "share", lambda self: 0.125)
    monkeypatch.setattr(module, "ENOUGH_SECONDS", 16)
    found = UpdateProbe("vision_free", "cpu", "float32").benchmark(8, [Candidate("float32", 1), Candidate("bf16", 2)])
    assert found == Timings(wall=[3, 1], processor=[6, 2], others=0.125)
    assert updated == [("float32", 1, 8), ("bf16", 2, 8)] * 3, "the fourth round would have begun after 18 s"


def test_a_way_with_one_thread_is_timed_with_one_thread(monkeypatch):
    """Whatever torch begins with: with two, one thread seemed as fast as two, and training took one."""
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    probe = UpdateProbe("vision_free", "cpu", "float32")
    step = probe.policy.logits_and_values

    def watched(observations):
        seen.append((len(observations["surroundings"]), torch.get_num_threads()))
        return step(observations)

    monkeypatch.setattr(probe.policy, "logits_and_values", watched)
    try:
        probe.benchmark(16, [Candidate("float32", 1), Candidate("float32", 2)])
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {(16, 1), (8, 1)}


def test_probing_leaves_random_numbers_and_threads_as_they_were():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    probe = UpdateProbe("vision_free", "cpu", "float32")
    found = probe.benchmark(16, [Candidate("bf16", 1), Candidate("float32", 3)])
    assert all(seconds > 0 for seconds in found.wall + found.processor)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
