"""Memory and speed of an update for the hardware plan, and the file of stored timings."""

import json
from itertools import count

import pytest
import torch

from hardware import ComputeOption, Machine, Timings
from rl.ppo import update_benchmark as module
from rl.ppo.update_benchmark import TimingsError, UpdateBenchmark, stored_timings


@pytest.mark.parametrize("name", ["mlp_baseline", "vision_free"])
def test_peak_bytes_includes_weights_gradients_and_moments(name):
    probe = UpdateBenchmark(name, "cpu", "float32")
    small, large = probe.peak_bytes(8), probe.peak_bytes(32)
    assert 4 * 200_000 * 4 < small < large
    assert probe.policy.precision == "float32"


def test_benchmark_returns_the_fastest_update_of_each_candidate(monkeypatch):
    """Only updates advance the clock, by 5, 1, 4 ... seconds, in turn for the two candidates."""
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
    found = UpdateBenchmark("vision_free", "cpu", "float32").benchmark(
        8, [ComputeOption("float32", 1), ComputeOption("bf16", 2)]
    )
    assert found == Timings(wall=[3, 1], processor=[6, 2], others=0.125)
    assert updated == [("float32", 1, 8), ("bf16", 2, 8)] * 3, "the fourth round would have begun after 18 s"


def test_benchmark_restores_random_generators_and_threads():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    probe = UpdateBenchmark("vision_free", "cpu", "float32")
    found = probe.benchmark(16, [ComputeOption("bf16", 1), ComputeOption("float32", 3)])
    assert all(seconds > 0 for seconds in found.wall + found.processor)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads


MACHINE = Machine("a processor", cores=2, memory_bytes=10**10, available_bytes=10**10)
CANDIDATES = [ComputeOption("float32", 1), ComputeOption("float32", 2)]


class Probe:
    """Benchmark whose timings increase with each call."""

    def __init__(self, name="vision_free"):
        self.name, self.times = name, count(1)

    def benchmark(self, size, candidates):
        now = float(next(self.times))
        return Timings([now, 2 * now][: len(candidates)], [now, now][: len(candidates)], 0.25)


@pytest.fixture(autouse=True)
def _file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FILE", tmp_path / "timings.json")


def test_stored_timings_are_reused_until_measured_again():
    probe = Probe()
    first = stored_timings(probe, MACHINE)(4096, CANDIDATES)
    assert first.wall == [1.0, 2.0] and first.others == 0.25 and first.date
    assert stored_timings(Probe(), MACHINE)(4096, CANDIDATES) == first
    again = stored_timings(probe, MACHINE, measure=True)(4096, CANDIDATES)
    assert again.wall == [2.0, 4.0] and stored_timings(probe, MACHINE)(4096, CANDIDATES) == again


def test_stored_timings_depend_on_network_size_machine_candidates_and_code(monkeypatch):
    probe = Probe()
    benchmark = stored_timings(probe, MACHINE)
    timings = [benchmark(4096, CANDIDATES), benchmark(2048, CANDIDATES), benchmark(4096, CANDIDATES[:1])]
    for machine in (Machine("another", 2, 1, 1), Machine("a processor", 4, 1, 1)):
        timings.append(stored_timings(probe, machine)(4096, CANDIDATES))
    probe.name = "mlp_baseline"
    timings.append(benchmark(4096, CANDIDATES))
    monkeypatch.setattr(module, "code_digest", lambda: "other")
    timings.append(benchmark(4096, CANDIDATES))
    assert [found.wall[0] for found in timings] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("text", ["{", json.dumps({"x": {"wall": [1], "processor": "?", "others": 0, "date": ""}})])
def test_stored_timings_damaged_file_is_an_error(text):
    module.FILE.write_text(text)
    with pytest.raises(TimingsError, match=r"timings\.json: .*; delete it"):
        stored_timings(Probe(), MACHINE)(4096, CANDIDATES)


def test_stored_timings_of_fewer_candidates_are_an_error():
    stored_timings(Probe(), MACHINE)(4096, CANDIDATES)
    known = json.loads(module.FILE.read_text())
    for timings in known.values():
        timings["wall"].pop()
    module.FILE.write_text(json.dumps(known))
    with pytest.raises(TimingsError, match="expected 2 timings; delete it"):
        stored_timings(Probe(), MACHINE)(4096, CANDIDATES)
