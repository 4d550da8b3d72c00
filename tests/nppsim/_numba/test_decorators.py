"""Compiled kernels with index checks and shared caches, and kernels as plain Python."""

import os
import subprocess
import sys

from places import EXCERPT, ROOT

WRONG = """
import numpy as np
from nppsim._numba.decorators import allocating_entry, entry, inlined, kernel

@inlined
def read_inlined(values, i):
    return values[i]

@kernel
def read(values, i):
    return read_inlined(values, i)

@entry
def reads(parts, i):
    first, second = parts
    return read(first, i) + read(second, i)

@entry
def writes(parts, i):
    parts[1][i] = 1.0

@allocating_entry
def allocates(parts, i):
    copy = parts[0].copy()
    writes((copy, parts[1]), i)
    return copy

for function in (reads, writes, allocates):
    for i in (3, -4):
        try:
            function((np.zeros(3), np.zeros(3)), i)
        except IndexError:
            print(function.__name__, i)
"""
SHARED = """
from nppsim._numba.decorators import entry, kernel

@kernel
def inner(x):
    return x + 1

@entry
def outer(x):
    return inner(x) * 2

try:
    inner(1)
except TypeError as error:
    print(error)
print(outer(1), sum(outer.stats.cache_misses.values()))
try:
    inner(1)
except TypeError as error:
    print(error)
"""
PROFILED = """
import numpy as np
import nppsim
level = nppsim.Level.build(np.zeros((23, 42), int), (80, 50))
sim = nppsim.BatchSimulator([level], 40, profile=True)
sim.reset()
sim.step(np.zeros(40, int))
print(sim.step_timing["ninja"] > 0)
"""


def python(tmp_path, *arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path), **variables}
    done = subprocess.run([sys.executable, *map(str, arguments)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_bounds_check_index_outside_an_array_raises_index_error_in_all_kinds_of_kernels(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(WRONG)
    done = python(tmp_path, script, NUMBA_BOUNDSCHECK="1")
    assert done.stdout.split("\n")[:-1] == [f"{name} {i}" for name in ("reads", "writes", "allocates") for i in (3, -4)]


def test_kernel_in_two_processes_is_compiled_once_and_refuses_calls_from_python(tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, script]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate()[0].splitlines() for process in processes]
    for before, _, after in printed:
        assert before == after == "only kernels can call inner; decorate it with @entry to call it from Python"
    assert sorted(middle for _, middle, _ in printed) == ["4 0", "4 1"]


def test_disabled_jit_replays_traces_bit_for_bit_without_warnings(tmp_path):
    done = python(tmp_path, "-W", "error::RuntimeWarning", "-m", "nppsim", "verify", EXCERPT, NUMBA_DISABLE_JIT="1")
    assert "30 of 30 cases are bit-exact" in done.stdout


def test_disabled_jit_measures_phases(tmp_path):
    done = python(tmp_path, "-c", PROFILED, NUMBA_DISABLE_JIT="1")
    assert done.stdout == "True\n" and done.stderr == ""
