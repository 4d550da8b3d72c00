"""Timings that are kept, so that a run that is begun again has the same plan."""

import json
from itertools import count

import pytest

from hardware import Candidate, Machine, Timings
from rl.ppo import remembered as module
from rl.ppo.remembered import TimingsError, remembered

MACHINE = Machine("a processor", cores=2, memory_bytes=10**10, available_bytes=10**10)
CANDIDATES = [Candidate("float32", 1), Candidate("float32", 2)]


class Probe:
    """Each benchmark has other timings."""

    def __init__(self, name="vision_free"):
        self.name, self.times = name, count(1)

    def benchmark(self, size, candidates):
        now = float(next(self.times))
        return Timings([now, 2 * now][: len(candidates)], [now, now][: len(candidates)], 0.25)


@pytest.fixture(autouse=True)
def _file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FILE", tmp_path / "timings.json")


def test_the_first_timing_counts_until_a_new_one_is_asked_for():
    probe = Probe()
    first = remembered(probe, MACHINE)(4096, CANDIDATES)
    assert first.wall == [1.0, 2.0] and first.others == 0.25 and first.date
    assert remembered(Probe(), MACHINE)(4096, CANDIDATES) == remembered(probe, MACHINE)(4096, CANDIDATES) == first
    anew = remembered(probe, MACHINE, anew=True)(4096, CANDIDATES)
    assert anew.wall == [2.0, 4.0] and remembered(probe, MACHINE)(4096, CANDIDATES) == anew


def test_other_code_is_timed_anew(monkeypatch):
    probe = Probe()
    first = remembered(probe, MACHINE)(4096, CANDIDATES)
    monkeypatch.setattr(module, "code_digest", lambda: "other")
    assert remembered(probe, MACHINE)(4096, CANDIDATES) != first


def test_another_network_size_machine_or_choice_is_timed_by_itself():
    probe = Probe()
    benchmark = remembered(probe, MACHINE)
    found = [benchmark(4096, CANDIDATES), benchmark(2048, CANDIDATES), benchmark(4096, CANDIDATES[:1])]
    found += [
        remembered(probe, Machine("another", 2, 1, 1))(4096, CANDIDATES),
        remembered(probe, Machine("a processor", 4, 1, 1))(4096, CANDIDATES),
    ]
    probe.name = "mlp_baseline"
    found.append(benchmark(4096, CANDIDATES))
    assert [timings.wall[0] for timings in found] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text", ["{", json.dumps({"x": {"wall": [1], "processor": "?", "others": 0, "date": ""}})])
def test_a_damaged_file_is_refused_with_what_to_do(text):
    module.FILE.write_text(text)
    with pytest.raises(TimingsError, match=r"timings\.json: .*; remove it: all is timed again"):
        remembered(Probe(), MACHINE)(4096, CANDIDATES)


def test_timings_of_fewer_ways_are_refused():
    remembered(Probe(), MACHINE)(4096, CANDIDATES)
    known = json.loads(module.FILE.read_text())
    for timings in known.values():
        timings["wall"].pop()
    module.FILE.write_text(json.dumps(known))
    with pytest.raises(TimingsError, match="not 2 timings; remove it"):
        remembered(Probe(), MACHINE)(4096, CANDIDATES)
