"""Messages while kernels are compiled."""

import re
from types import SimpleNamespace

import numba
import pytest
from numba.core import event

from nppsim._numba.progress import CompilationProgress


class Clock:
    """A clock that advances by ``step`` seconds per reading."""

    def __init__(self, step):
        self.now, self.step = 100.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def compile_function(listener, module):
    details = {"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))}
    listener.on_start(event.Event("numba:compile", event.EventStatus.START, details))
    listener.on_end(event.Event("numba:compile", event.EventStatus.END, details))


def test_compilation_progress_prints_before_the_first_function_and_every_ten_seconds():
    printed = []
    listener = CompilationProgress(printed.append, Clock(step=4))
    compile_function(listener, "another.module")
    assert printed == []
    for _ in range(7):
        compile_function(listener, "nppsim.decision")
    assert re.search(r"compiling for this machine, once per version: up to \d{3} functions; .* minute", printed[0])
    assert printed[1:] == ["nppsim: 3 functions compiled in 12 s\n", "nppsim: 6 functions compiled in 24 s\n"]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_compilation_progress_receives_the_events_of_numba():
    printed = []
    with event.install_listener("numba:compile", CompilationProgress(printed.append, Clock(step=1))) as listener:
        add = numba.njit(lambda a: a + 1)
        add.py_func.__module__ = "nppsim.somewhere"
        assert add(1) == 2 and add(2) == 3
    assert listener.count == 1 and len(printed) == 1
