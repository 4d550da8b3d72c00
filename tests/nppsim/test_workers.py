"""What a process may use: affinity, quotas of control groups, memory; here and on other systems."""

import sys
from types import SimpleNamespace

import pytest

from nppsim import workers
from nppsim.errors import MissingPackageError


def test_this_process_may_use_something():
    total, free = workers.usable_memory()
    assert workers.usable_cores() >= 1
    assert 0 < free <= total


@pytest.mark.parametrize(
    ("membership", "files", "cores", "memory"),
    [
        (
            "0::/job/task\n",
            {"job/cpu.max": "150000 100000", "job/memory.max": "3000000000", "job/memory.current": "1000000000"},
            1,
            3_000_000_000,
        ),
        ("0::/job\n", {"job/cpu.max": "max 100000", "job/memory.max": "max"}, None, None),
        (
            "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
                "memory/job/memory.limit_in_bytes": "2000000000",
                "memory/job/memory.usage_in_bytes": "1000000000",
            },
            2,
            2_000_000_000,
        ),
        (
            "1:cpu:/job\n0::/\n",
            {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"},
            None,
            None,
        ),
    ],
)
def test_control_groups_limit_cores_and_memory(tmp_path, monkeypatch, membership, files, cores, memory):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "self").write_text(membership)

    real = workers.control_groups
    monkeypatch.setattr(workers, "control_groups", lambda kind: real(kind, tmp_path / "self", tmp_path))
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.setattr(workers, "_host_memory", lambda: (10**12, 10**11))
    assert workers.usable_cores() == (64 if cores is None else cores)
    total, free = workers.usable_memory()
    assert total == (10**12 if memory is None else memory)
    assert free == (10**11 if memory is None else memory - 1_000_000_000)


def test_a_quota_below_one_core_is_one_core(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("50000 100000")
    monkeypatch.setattr(workers, "control_groups", lambda kind: [tmp_path])
    assert workers.usable_cores() == 1


@pytest.fixture
def elsewhere(monkeypatch):
    """A system without /proc, affinity and sysconf."""
    monkeypatch.setattr(workers, "kernel_text", lambda path: None)
    monkeypatch.delattr(workers.os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(workers.os, "sysconf", raising=False)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 6)


def test_other_systems_are_asked_through_psutil(elsewhere, monkeypatch):
    memory = SimpleNamespace(total=8_000, available=3_000)
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(virtual_memory=lambda: memory))
    assert workers.usable_cores() == 6
    assert workers.usable_memory() == (8_000, 3_000)


def test_without_psutil_they_say_what_to_install(elsewhere, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(MissingPackageError, match=r"psutil is needed .* pip install 'nppsim\[train\]'"):
        workers.usable_memory()
