"""Freed memory stays in the process; tested in a new process, because the setting cannot be undone."""

import subprocess
import sys

import pytest

# Two threads make and drop arrays, as those of a pool do; prints the fewest page faults per array in five rounds.
PROGRAM = """
import resource, sys, threading
import torch
if sys.argv[1] == "stays":
    from hardware.malloc import keep_freed_memory
    keep_freed_memory()

def rounds(count):
    for _ in range(count):
        for _ in range(4):
            torch.ones(1 << 20)  # 4 MiB

def faults():
    threads = [threading.Thread(target=rounds, args=(20,)) for _ in range(2)]
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin) / 160

print(min(faults() for _ in range(5)))  # the heap may still grow in the first ones
"""


def faults_per_array(how: str) -> float:
    found = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return float(found.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_threads_reuse_freed_memory():
    assert faults_per_array("stays") < 100, "a page fault is 4 KiB: 1,024 for a new array of 4 MiB"
