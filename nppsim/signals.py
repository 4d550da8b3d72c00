"""What must not be cut short: a block in which Ctrl-C, SIGTERM and SIGHUP are noted and answered later.

    with postponed(tell) as asked:
        ...
        if asked.by:  # "SIGTERM"
            save()

``nppsim.errors.run`` answers them everywhere else.  A signal that is ignored, SIGHUP under nohup or SIGINT of a background
job, stays ignored.
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
class Asked:
    """by: name of the first signal that asked the program to end; "" as long as none has."""

    by: str = ""


@contextmanager
def postponed(tell: Callable[[str], None]) -> Iterator[Asked]:
    """In this block such signals are only noted; a second Ctrl-C raises KeyboardInterrupt.

    tell: told the name of the first.  Only the main thread hears signals; in another one nothing is postponed.
    """
    asked = Asked()

    def note(number: int, _: FrameType | None) -> None:
        if asked.by and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked.by:  # a terminal that closes sends SIGHUP twice
            asked.by = signal.Signals(number).name
            tell(asked.by)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
    heard = [number for number, present in before.items() if present not in (signal.SIG_IGN, None)]
    for number in heard:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number in heard:
            signal.signal(number, before[number])


def end_interrupted(process: subprocess.Popen, interruption: KeyboardInterrupt, seconds: float) -> None:
    """Wait until a child has saved what it has and ended, as this process has been told to; kill it after so many seconds.

    interruption: as ``nppsim.errors.run`` raises it: by SIGTERM, which comes to this process alone, or by Ctrl-C, which the
        terminal has sent to the child, too.
    """
    if interruption.args:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
