"""The text log of an experiment: what is told to people, kept in its folder."""

import errno
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType

from nppsim.errors import redact
from nppsim.files import append_text
from rl.experiment.data import Log

LOG_FILE = "log.txt"


class LogFile:
    """Passes lines on and keeps them: in ``log.txt`` from ``open`` on, until then in memory.

    with LogFile(print) as log:
        log("a line")
        log.open(folder)     # goes on with a file that is there

    ``open`` takes a function that raises an error where the folder is gone: it is asked before each line, so that nobody
    trains for hours into a folder that was made again without what was in it.

    The error that ends the block is in the file, too.  Secrets are in neither.
    """

    def __init__(self, log: Log):
        self._log = log
        self._waiting: list[str] = []
        self._path: Path | None = None
        self._check: Callable[[], None] = lambda: None

    def __call__(self, line: str) -> None:
        self._check()
        text = redact(line)
        try:
            self._log(text)
        except OSError as error:
            if error.errno != errno.EIO:  # the terminal has closed: SIGHUP says what to do then, not the next line
                raise
        self._keep(text)

    def open(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        """Write to this folder from now on, beginning with what has been told already."""
        self._check = check
        begun = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
        self._path = folder / LOG_FILE
        if self._path.exists():
            begun = f"\n{begun}, going on"
        waiting, self._waiting = self._waiting, []
        self._keep("\n".join([begun, *waiting]))

    def _keep(self, text: str) -> None:
        if self._path is None:
            self._waiting.append(text)
            return
        append_text(self._path, text + "\n")

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._path is not None and self._path.exists():
            with suppress(OSError):  # that error is told in any case, and this one would take its place
                self._keep(redact("".join(traceback.format_exception(error)).rstrip()))
