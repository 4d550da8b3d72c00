"""Cores and memory of a process, and pools of worker processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nppsim.errors import MissingPackageError
from nppsim.parallel import workers

from places import ROOT


def test_usable_cores_and_memory_of_this_process_are_positive():
    total, free = workers.usable_memory()
    assert workers.usable_cores() >= 1
    assert 0 < free <= total


@pytest.mark.parametrize(
    ("membership", "files", "cores", "memory"),
    [
        (
            "0::/job/task\n",
            {
                "job/cpu.max": "150000 100000",
                "job/memory.max": "3000000000",
                "job/memory.current": "1700000000",
                "job/memory.stat": "anon 1000000000\ninactive_file 700000000\nactive_file 0",
            },
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
        ("0::/job\n", {"job/cpu.max": "50000 100000"}, 1, None),  # half a core
    ],
)
def test_usable_cores_and_memory_in_control_group_are_limited(tmp_path, monkeypatch, membership, files, cores, memory):
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


@pytest.fixture
def other_system(monkeypatch):
    """A system without /proc, affinity and sysconf."""
    monkeypatch.setattr(workers, "kernel_text", lambda path: None)
    monkeypatch.delattr(workers.os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(workers.os, "sysconf", raising=False)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 6)


def test_usable_memory_on_other_systems_comes_from_psutil(other_system, monkeypatch):
    memory = SimpleNamespace(total=8_000, available=3_000)
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(virtual_memory=lambda: memory))
    assert workers.usable_cores() == 6
    assert workers.usable_memory() == (8_000, 3_000)


def test_usable_memory_without_psutil_raises_missing_package_error(other_system, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(MissingPackageError, match=r"psutil is needed .* pip install 'nppsim\[train\]'"):
        workers.usable_memory()


@pytest.mark.skipif(not hasattr(workers.os, "sched_getaffinity"), reason="no CPU affinity on this system")
def test_other_programs_share_excludes_this_process_and_other_cores(monkeypatch):
    """This process may use two of three cores; in 10 s they are busy for 9 and 3 s (stolen time included), 4 s of it
    with this process."""
    readings = iter(
        [
            "cpu  9 9\ncpu0 100 0 0 50 0 0 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0 0 0\nintr 5\n",
            "cpu  9 9\ncpu0 800 0 100 70 9 0 0 100 0 0\ncpu1 100 300 0 0 0 0 0 0 0 0\ncpu2 900 0 0 0 0 0 0 0 0 0\nintr 5\n",
        ]
    )
    monkeypatch.setattr(workers, "kernel_text", lambda path: next(readings))
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(workers.os, "sysconf", lambda name: 100)
    clock, ours = iter([50.0, 60.0]), iter([6.0, 10.0])
    monkeypatch.setattr(
        workers, "time", SimpleNamespace(perf_counter=lambda: next(clock), process_time=lambda: next(ours))
    )
    assert workers.OtherPrograms().share() == pytest.approx((7 + 1 + 1 + 3 - 4) / 2 / 10)


def test_other_programs_share_without_proc_stat_is_zero(monkeypatch):
    monkeypatch.setattr(workers, "kernel_text", lambda path: None)
    assert workers.OtherPrograms().share() == 0


PARENT = """
import os, time
from nppsim.parallel.workers import worker_pool
with worker_pool(1, RuntimeError) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for the process in /proc")
def test_worker_pool_killed_parent_ends_workers():
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        worker = Path("/proc") / parent.stdout.readline().decode().strip()
        assert worker.exists()
        parent.kill()
    for _ in range(100):
        if not worker.exists() or ") Z " in (worker / "stat").read_text():  # ended, though perhaps not yet waited for
            break
        time.sleep(0.1)
    else:
        pytest.fail("the worker still runs")


def test_worker_pool_in_script_without_main_guard_raises_error(tmp_path):
    script = tmp_path / "mine.py"

    def run(text):
        script.write_text(text)
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, str(script)], cwd=ROOT, env=env, capture_output=True, text=True)

    unguarded = PARENT.replace("    time.sleep(60)\n", "")
    failed = run(unguarded)
    assert failed.returncode and f"RuntimeError: {script} starts processes, which import it again" in failed.stderr
    passed = run(f'if __name__ == "__main__":\n{textwrap.indent(unguarded, "    ")}')
    assert passed.returncode == 0 and int(passed.stdout)


GROUP = """
import time
from nppsim import errors
from nppsim.parallel.executor import open_executor

def job():
    with open_executor(2, RuntimeError) as executor, executor.map(time.sleep, [0.0] + [60.0] * 20) as results:
        next(results)
        print("started", flush=True)
        next(results)

if __name__ == "__main__":
    raise SystemExit(errors.run(job))
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Windows has no groups of processes")
def test_sigterm_to_all_processes_of_a_job_is_reported_once(tmp_path):
    (tmp_path / "job.py").write_text(GROUP)
    command = [sys.executable, str(tmp_path / "job.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGTERM)
        _, message = process.communicate(timeout=30)
    assert (process.returncode, message.strip()) == (130, "interrupted: by SIGTERM")
