"""Profiling files, and equal results with and without profiling."""

import csv
import gzip
import json
import sys
from types import ModuleType

import pytest
import torch

from rl.config import ProfilingConfig
from rl.ppo.base import PHASES
from rl.training.callbacks import FOLDER, gpu_utilisation, profilers
from rl.training.digests import DigestTrail, first_divergence, read_trail

from learners import make_ppo

pytestmark = pytest.mark.usefixtures("one_thread")
UPDATES = 4
TIME = ProfilingConfig(phases=True, pytorch=True, active=1)
MEMORY = ProfilingConfig(memory=True, memory_snapshot_freq=20)  # apart: it would record the objects of the trace


def train(folder, config):
    """Train for four updates with a digest trail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPPSIM_PROFILING", str(int(config.phases)))  # as the main job asks its simulator for it
        torch.set_num_threads(1)  # for first weights that are the same, too
        ppo, _ = make_ppo(rollout_length=16)
    folder.mkdir()
    ppo.learn(UPDATES * 64, callback=[*profilers(config, folder), DigestTrail(folder)])
    return ppo


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Folder of a run with time profiling; beside it, a run without profiling and one with memory profiling."""
    folder = tmp_path_factory.mktemp("runs") / "profiled"
    train(folder.with_name("plain"), ProfilingConfig())  # first: what is loaded once is not to be traced
    train(folder.with_name("memory"), MEMORY)
    train(folder, TIME)
    return folder


def test_profiling_does_not_change_results(profiled):
    plain = read_trail(profiled.with_name("plain"))
    for folder in (profiled, profiled.with_name("memory")):
        with_it = read_trail(folder)
        assert len(plain) == len(with_it) == UPDATES + 1
        assert first_divergence(plain, with_it) is None
    assert not (profiled.with_name("plain") / FOLDER).exists()


def test_phases_sum_to_one(profiled):
    facts = json.loads((profiled / FOLDER / "phases.json").read_text())
    rows = list(csv.DictReader((profiled / FOLDER / "phases.csv").open()))
    assert facts["updates"] == UPDATES and [int(row["number"]) for row in rows] == [1, 2, 3, 4]
    for phase in (*PHASES, "curriculum", "profilers", "other"):
        assert facts["seconds"][phase] == pytest.approx(sum(float(row[phase]) for row in rows), abs=1e-4)
    assert sum(facts["share"].values()) == pytest.approx(1) == sum(facts["share_of_a_step"].values())
    assert "gpu" not in facts
    assert facts["share_of_a_step"]["ninja"] > 0 and facts["busy_cores"] > 0


class OnGPU:
    """PPO whose device is "cuda"."""

    device = torch.device("cuda")

    def __init__(self, ppo):
        self._ppo = ppo

    def __getattr__(self, name):
        return getattr(self._ppo, name)


@pytest.mark.parametrize("known", [True, False])
def test_phases_on_a_gpu_include_utilisation_and_memory(known, tmp_path, monkeypatch):
    answers = iter([10, 90, 30, 70])
    pynvml = ModuleType("pynvml")
    pynvml.NVMLError = type("NVMLError", (Exception,), {})

    def utilization(device):
        if known:
            return next(answers)
        raise pynvml.NVMLError("Not Supported")

    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setattr(torch.cuda, "utilization", utilization)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 3 << 20)
    (timings,) = profilers(ProfilingConfig(phases=True), tmp_path)
    timings.model = OnGPU(make_ppo()[0])
    timings._on_training_start()
    for update in (1, 2):
        timings._on_rollout_end()
        timings.model._ppo.updates = update
        timings._on_rollout_start()
    gpu = json.loads((tmp_path / FOLDER / "phases.json").read_text())["gpu"]
    assert gpu["peak_memory_mib"] == 3
    if known:
        assert gpu["utilisation_percent"] == {"rollout": 20, "update": 80}
    else:
        assert gpu["utilisation_percent"].startswith("unknown")
        monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
        assert gpu_utilisation(timings.model.device) is None


def test_time_of_profilers_is_separate(profiled):
    """A trace takes seconds, training takes a fraction of one."""
    share = json.loads((profiled / FOLDER / "phases.json").read_text())["share"]
    assert share["profilers"] > share["other"]


def test_trace_is_valid_json_with_a_table(profiled):
    with gzip.open(profiled / FOLDER / "trace_1.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert any(event.get("name") == "aten::addmm" for event in events)
    assert "aten::addmm" in (profiled / FOLDER / "trace_1.txt").read_text()
    assert not (profiled / FOLDER / "trace_2.json.gz").exists(), "only as often as asked for"


def test_memory_snapshots_are_text(profiled):
    text = (profiled.with_name("memory") / FOLDER / "memory.txt").read_text()
    assert text.count("decisions: process ") == 2, (
        "after the first update, and after the one in which 20 steps are over"
    )
    assert "MiB since the first" in text and "made in" in text


def test_profilers_are_off_by_default(tmp_path):
    assert profilers(ProfilingConfig(), tmp_path) == []
    assert not torch.autograd.profiler._is_profiler_enabled
