"""Messages on stderr while Numba compiles kernels, in every program that uses the package.

Numba compiles a kernel at its first call.  Later processes load it from a cache (``nppsim._numba.cache``).
"""

import multiprocessing
import sys
import time
from collections.abc import Callable

from numba.core import event

from nppsim._numba import cache

_LINE_INTERVAL_S = 10.0  # seconds between two lines if stderr is not a terminal
_PACKAGE = __name__.partition(".")[0]


class CompilationProgress(event.Listener):
    """Prints a line when the first function of this package is compiled, and then the number of compiled functions."""

    def __init__(self, write: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic):
        self.count = 0  # functions compiled so far
        self._write = write
        self._clock = clock
        self._depth = 0  # nesting of compilations: compiling a function also compiles the functions that it calls
        self._began = self._printed = 0.0

    @property
    def busy(self) -> bool:
        """True while a function is being compiled."""
        return self._depth > 0

    def on_start(self, event: event.Event) -> None:
        """Handle the start of a compilation."""
        if not event.data["dispatcher"].py_func.__module__.startswith(f"{_PACKAGE}."):
            return
        if not self._printed:
            self._began = self._printed = self._clock()
            self._print(
                f"nppsim: compiling for this machine, once per version: up to {_count_kernels()} functions; this takes about "
                "two minutes on two fast idle cores, and longer on a slow or busy machine ...\n"
            )
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """Handle the end of a compilation, successful or not."""
        if not event.data["dispatcher"].py_func.__module__.startswith(f"{_PACKAGE}."):
            return
        self._depth -= 1
        self.count += 1
        now, terminal = self._clock(), sys.stderr is not None and sys.stderr.isatty()
        line = f"nppsim: {self.count} functions compiled in {now - self._began:.0f} s"
        if terminal:
            self._print(f"\r{line} " + ("" if self._depth else "\n"))
        elif now - self._printed > _LINE_INTERVAL_S:
            self._print(f"{line}\n")
            self._printed = now

    def _print(self, text: str) -> None:
        if self._write is not None:
            self._write(text)
        elif sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)


def _count_kernels() -> int:
    """Count the functions of the package that Numba can compile; a program compiles only those that it uses."""
    return sum(len(cache.COMPILED_FUNCTION.findall(text)) for text in cache.kernel_sources().values())


compilation = CompilationProgress()  # listener of this process


def print_progress() -> None:
    """Register the listener in the main process and in the first worker process, so that others print nothing."""
    if multiprocessing.parent_process() is None or multiprocessing.current_process().name.endswith("-1"):
        event.register("numba:compile", compilation)
