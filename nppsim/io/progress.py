"""Progress on stderr: a bar for long operations, and messages while Numba compiles kernels.

Numba compiles a kernel at its first call.  Later processes load it from a cache (``nppsim._numba.cache``).  A listener for
Numba's compilation events prints the progress in every program that uses the package.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from numba.core import event

from nppsim._numba import cache
from nppsim.errors import needed

MANY = 10_000  # from this number of items on, a bar abbreviates counts (12k, 3.4M)
_LINE_INTERVAL_S = 10.0  # seconds between two lines if stderr is not a terminal
_PACKAGE = __name__.partition(".")[0]


def progress_bar(
    items: Iterable | None = None, title: str = "playing back", *, total: int | None = None, unit: str = "it"
) -> Any:
    """Return a tqdm bar, which disappears when it is complete.

    items: iterable to wrap; None: the caller advances the bar with its ``update``.
    title: text before the bar.
    total: number of items, for iterables without a length.
    unit: singular noun for an item.
    Raises MissingPackageError without tqdm.
    """
    tqdm = needed("tqdm", "train").tqdm
    tqdm.monitor_interval = 0  # no monitoring thread
    large = total is not None and total >= MANY
    silent = sys.stderr is None or not sys.stderr.isatty()
    return tqdm(items, title, total, leave=False, unit=unit, unit_scale=large, disable=silent)


class Announcement(event.Listener):
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
                f"nppsim: compiling for this machine, once per version: up to {_functions()} functions; this takes about two "
                "minutes on two fast idle cores, and longer on a slow or busy machine ...\n"
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


def _functions() -> int:
    """Count the functions of the package that Numba can compile; a program compiles only those that it uses."""
    return sum(len(cache.COMPILED_FUNCTION.findall(text)) for text in cache.kernel_sources().values())


announcement = Announcement()  # listener of this process


def announce() -> None:
    """Register the listener in the main process and in the first worker process, so that others print nothing."""
    if multiprocessing.parent_process() is None or multiprocessing.current_process().name.endswith("-1"):
        event.register("numba:compile", announcement)
