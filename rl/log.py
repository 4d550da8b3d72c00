"""Messages of an experiment on the terminal and in log.txt, with time and level.

    with ExperimentLog(print) as log:
        log("a line")                       # INFO
        warn(log, "ppo: ...")               # WARNING
        log.open(folder)                    # writes folder/log.txt, starting with earlier messages

Functions that log take any function of a message, such as ``print``.
"""

import errno
import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import MemoryHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from nppsim.errors import InputWarning, redact

LOG_FILE = "log.txt"
Log = Callable[[str], None]  # receives messages


def warn(log: Log, message: str) -> None:
    """Log a warning."""
    if isinstance(log, ExperimentLog):
        log.write(logging.WARNING, message)
    else:
        log(f"warning: {message}")


class ExperimentLog:
    """Function that logs a message to ``log`` and to ``log.txt``.  Secrets are redacted.

    An InputWarning within the block, such as one on skipped files, is logged as a warning.  An exception that ends the
    block is logged with its traceback and the level ERROR.
    """

    def __init__(self, log: Log):
        self._terminal = _FunctionHandler(log)
        self._early = MemoryHandler(10_000, flushLevel=logging.CRITICAL + 1)  # messages before ``open``
        self._logger = logging.Logger("experiment")
        self._logger.addHandler(self._early)
        self._check: Callable[[], None] = lambda: None

    def __call__(self, message: str) -> None:
        self.write(logging.INFO, message)

    def write(self, level: int, message: str) -> None:
        """Log a message with a level of ``logging``."""
        self._check()
        record = self._logger.makeRecord("experiment", level, "", 0, redact(message), (), None)
        self._terminal.handle(record)
        self._logger.handle(record)

    def open(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        """Write log.txt in this folder from now on, starting with the messages before this call.

        check: called before each message; raises an error if the folder was removed.
        """
        self._check = check
        resumed = (folder / LOG_FILE).exists()
        file = _RaisingFileHandler(folder / LOG_FILE, encoding="utf-8")
        file.setFormatter(_LineFormatter("%(asctime)s %(levelname)s ", "%Y-%m-%d %H:%M:%S"))
        self._logger.removeHandler(self._early)
        self._logger.addHandler(file)
        if resumed:
            self._logger.info("resumed")
        self._early.setTarget(file)
        self._early.close()

    def __enter__(self) -> "ExperimentLog":
        self._show = show = warnings.showwarning

        def show_warning(message: Warning | str, category: type[Warning], *where: Any, **named: Any) -> None:
            if issubclass(category, InputWarning):
                self.write(logging.WARNING, str(message))
            else:
                show(message, category, *where, **named)

        warnings.showwarning = show_warning
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        warnings.showwarning = self._show
        for handler in self._logger.handlers:
            if isinstance(handler, logging.FileHandler):
                if error is not None and Path(handler.baseFilename).exists():
                    text = redact("".join(logging.Formatter().formatException((type(error), error, trace))))
                    with suppress(OSError):  # must not replace the error that ended the block
                        self._logger.error(text)
                handler.close()


class _FunctionHandler(logging.Handler):
    """Handler that calls a function; warnings have a prefix."""

    def __init__(self, log: Log):
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno == logging.WARNING else ""
        try:
            self._log(prefix + record.getMessage())
        except OSError as error:
            if error.errno != errno.EIO:  # EIO: the terminal was closed; SIGHUP, not this error, ends the program
                raise


class _RaisingFileHandler(logging.FileHandler):
    """FileHandler whose errors end the program, e.g. on a full disk."""

    def handleError(self, record: logging.LogRecord) -> None:  # name in ``logging``
        raise  # called in an except block


class _LineFormatter(logging.Formatter):
    """Formatter that starts every line of a message with time and level."""

    def format(self, record: logging.LogRecord) -> str:
        record.asctime = self.formatTime(record, self.datefmt)
        prefix = self.formatMessage(record)
        return "\n".join(prefix + line for line in record.getMessage().splitlines())
