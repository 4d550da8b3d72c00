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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
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


@contextmanager
def child_process(command: Sequence[str], log_file: Path, seconds: float) -> Iterator[subprocess.Popen]:
    """Run a command in the block, with its output in a file; it ends with the block.

    If ``nppsim.errors.run`` interrupts the block, the child has ``seconds`` to save its state; otherwise it is killed.
    """
    with open(log_file, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        except KeyboardInterrupt as interruption:
            if interruption.args:  # names a signal; Ctrl-C has none, as the terminal also sends it to the child
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            raise
        finally:
            process.kill()  # has no effect on a process that has ended
            process.wait()
