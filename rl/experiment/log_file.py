"""Text log of an experiment, log.txt in its folder."""

import errno
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType

from nppsim.errors import redact
from nppsim.io.files import append_text
from rl.experiment.data import Log

LOG_FILE = "log.txt"
_WARNING = re.compile(r"(.*: )?warning: ")


class LogFile:
    """Message function that calls ``log`` and also writes to ``log.txt``, with local time and level.  Secrets are redacted.

    with LogFile(print) as log:
        log("a line")
        log.open(folder)     # writes folder/log.txt, starting with earlier messages

    The level is INFO, WARNING for lines with "warning: ", or ERROR for the traceback of an exception that ends the block.
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
            if error.errno != errno.EIO:  # EIO: the terminal was closed; SIGHUP, not this error, ends the program
                raise
        self._write(text)

    def open(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        """Write log.txt in this folder from now on, starting with the messages before this call.

        check: called before each message; raises an error if the folder was removed.
        """
        self._check = check
        self._path = folder / LOG_FILE
        if self._path.exists():
            self._write("resumed")
        if self._waiting:
            append_text(self._path, "".join(self._waiting))

    def _write(self, text: str, level: str = "INFO") -> None:
        time = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
        levels = ("WARNING" if _WARNING.match(line) else level for line in text.splitlines())
        lines = "".join(f"{time} {level} {line}\n" for level, line in zip(levels, text.splitlines(), strict=True))
        if self._path is None:
            self._waiting.append(lines)
        else:
            append_text(self._path, lines)

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._path is not None and self._path.exists():
            with suppress(OSError):  # must not replace the error that ended the block
                self._write(redact("".join(traceback.format_exception(error)).rstrip()), "ERROR")
