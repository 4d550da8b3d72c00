"""Says on stderr that kernels are being compiled, before the silence begins, and how far that is.

Numba compiles a kernel at its first call, in whatever program that is; later starts load it (``nppsim._cache``).  So this
listens to Numba, and no program need think of it.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable

from numba.core import event

from nppsim import _cache

_PATIENCE_S = 10.0  # between two lines where stderr is no terminal
_PACKAGE = __name__.partition(".")[0]


class Announcement(event.Listener):
    """Prints a line when the first function of this package is compiled, and then how many have been.

    count: functions compiled so far.
    """

    def __init__(self, write: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic):
        self.count = 0
        self._write = write
        self._clock = clock
        self._depth = 0  # compilations that have begun and not ended: functions compile those that they call
        self._began = self._said = 0.0

    def on_start(self, event: event.Event) -> None:
        """A function is going to be compiled."""
        if not event.data["dispatcher"].py_func.__module__.startswith(f"{_PACKAGE}."):
            return
        if not self._said:
            self._began = self._said = self._clock()
            self._say(
                f"nppsim: compiling for this machine, once per version: up to {_functions()} functions, one to two minutes "
                "alone on a fast machine, several on a slow or busy one ...\n"
            )
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """It has been compiled, or could not be."""
        if not event.data["dispatcher"].py_func.__module__.startswith(f"{_PACKAGE}."):
            return
        self._depth -= 1
        self.count += 1
        now, terminal = self._clock(), sys.stderr is not None and sys.stderr.isatty()
        told = f"nppsim: {self.count} functions compiled in {now - self._began:.0f} s"
        if terminal:
            self._say(f"\r{told} " + ("" if self._depth else "\n"))
        elif now - self._said > _PATIENCE_S:
            self._say(f"{told}\n")
            self._said = now

    def _say(self, text: str) -> None:
        if self._write is not None:
            self._write(text)
        elif sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)


def _functions() -> int:
    """How many compiled functions the package has; a program needs some of them."""
    return sum(len(_cache.COMPILED_FUNCTION.findall(text)) for text in _cache.kernel_sources().values())


def announce() -> None:
    """Begin to listen; of several worker processes, only the first speaks."""
    if multiprocessing.parent_process() is None or multiprocessing.current_process().name.endswith("-1"):
        event.register("numba:compile", Announcement())
