"""Deferred handling of Ctrl-C, SIGTERM and SIGHUP for blocks that must not be interrupted.

    with deferred_signals(log) as stop:
        ...
        if stop.by:  # "SIGTERM"
            save()

Outside such blocks ``nppsim.errors.run`` handles these signals.  Signals that the process ignores stay ignored, such as
SIGHUP under nohup or SIGINT of a background job.
"""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass
class StopRequest:
    """Request to end the program.  by: name of the first signal, "" before there is one."""

    by: str = ""


@contextmanager
def deferred_signals(on_first: Callable[[str], None]) -> Iterator[StopRequest]:
    """Record ending signals during the block instead of acting on them; a second Ctrl-C raises KeyboardInterrupt.

    on_first: called with the name of the first signal.
    Python delivers signals to the main thread only; in another thread the block changes nothing.
    """
    stop = StopRequest()

    def note(number: int, _: FrameType | None) -> None:
        if stop.by and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.by:  # a terminal that closes sends SIGHUP twice
            stop.by = signal.Signals(number).name
            on_first(stop.by)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
    active = [number for number, present in before.items() if present not in (signal.SIG_IGN, None)]
    for number in active:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        for number in active:
            signal.signal(number, before[number])


def end_interrupted(process: subprocess.Popen, interruption: KeyboardInterrupt, seconds: float) -> None:
    """Wait until an interrupted child process has saved its state and ended; kill it after ``seconds``.

    interruption: exception that ``nppsim.errors.run`` raises.  After Ctrl-C, which the terminal also sends to the
        child, the exception has no arguments.  For other signals, its argument names the signal, and this function
        sends SIGTERM to the child.
    """
    if interruption.args:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
