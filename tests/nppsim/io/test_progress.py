"""Message while kernels are compiled: before compilation, in any program; none if they are cached."""

import re
from types import SimpleNamespace

import numba
import pytest
from numba.core import event

from nppsim.io.progress import Announcement


class Clock:
    """A clock that goes on by some seconds at each look."""

    def __init__(self, step):
        self.now, self.step = 100.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def compile_function(announcement, module):
    details = {"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))}
    announcement.on_start(event.Event("numba:compile", event.EventStatus.START, details))
    announcement.on_end(event.Event("numba:compile", event.EventStatus.END, details))


def test_it_is_said_before_the_first_function_and_now_and_then_later():
    said = []
    announcement = Announcement(said.append, Clock(step=4))
    compile_function(announcement, "another.module")
    assert said == []
    for _ in range(7):
        compile_function(announcement, "nppsim.decision")
    assert re.search(r"compiling for this machine, once per version: up to \d{3} functions; .* minute", said[0])
    assert said[1:] == ["nppsim: 3 functions compiled in 12 s\n", "nppsim: 6 functions compiled in 24 s\n"]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_numba_tells_when_it_compiles():
    said = []
    with event.install_listener("numba:compile", Announcement(said.append)) as announcement:
        add = numba.njit(lambda a: a + 1)
        add.py_func.__module__ = "nppsim.somewhere"
        assert add(1) == 2 and add(2) == 3
    assert announcement.count == 1 and len(said) == 1
