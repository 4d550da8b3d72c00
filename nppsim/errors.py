"""User errors, and the common entry point ``run`` of all command lines.

Errors that a user can cause or remedy are a ``UserError``, or an ``OSError`` that names its file.  For these, and if memory
is exhausted, a command prints one line and exits with status 2.  Any other exception is a bug, and its traceback is printed.
"""

import difflib
import errno
import importlib
import io
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

REFUSED = 2  # exit status after a user error
INTERRUPTED = 130  # exit status after Ctrl-C, SIGTERM and SIGHUP; shells use it for Ctrl-C
BROKEN_PIPE = 141  # exit status after a broken pipe on standard output, as of other programs in a shell
_REMEDIES = {
    errno.ENOSPC: "make room on that disk, or choose another one",
    errno.EDQUOT: "make room within your quota, or choose another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close other programs: the machine has too many open files",
    errno.EROFS: "choose a writable folder",
    errno.EACCES: "check its permissions, or choose another path",
    errno.EPERM: "check its permissions, or choose another path",
    errno.EISDIR: "give a file",
    errno.EIO: "the device fails: check it, or choose another one",
}
_NO_MEMORY = ("can't allocate memory", "can't start new thread")  # in RuntimeErrors of torch and threading
# Characters that change how a terminal shows the text around them: controls, line ends, surrogates, text directions.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# In printed text, line ends and tabs are allowed, and a carriage return at the beginning or end, as in progress bars.
_UNPRINTED = re.compile(f"(?![\t\n]|^\r|\r\n?\\Z){CONTROL.pattern}")
REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|ACCESS_KEY|API_?KEY|PRIVATE_KEY", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|(?<=://)[^/@\s]+(?=@)")  # AWS key ids; user:password@ in URLs


class UserError(Exception):
    """Base class of errors that the user can remedy; the message names the problem, its place and the remedy."""


class ConfigError(UserError, ValueError):
    """Invalid setting.  The message is "field value: advice".

    advice: problem and remedy.
    field: name of the setting in its dataclass; "" if the error concerns several settings.  Command lines replace the
        name by the flag (``named``).
    value: value of the setting; None is not shown.
    """

    def __init__(self, advice: str, field: str = "", value: object = None):
        super().__init__(advice, field, value)
        self.advice, self.field, self.value = advice, field, value

    def __str__(self) -> str:
        value = " ".join(map(str, self.value)) if isinstance(self.value, (tuple, list)) else self.value
        subject = " ".join(str(part) for part in (self.field, value) if part not in ("", None))
        return f"{subject}: {self.advice}" if subject else self.advice

    def named(self, flag: str) -> "ConfigError":
        """Return the same error with the flag as the name of the setting."""
        return ConfigError(self.advice, flag, self.value)


class InputWarning(UserWarning):
    """Input that is skipped, or output that does not contain all of it; the message names the file and the reason."""


class MissingPackageError(UserError, ImportError):
    """Missing optional package; the message names the extra to install."""


def run(job: Callable[[], int | None], *, debug: bool = False, refused: int = REFUSED) -> int:
    """Run ``job`` and return the exit status.

    The status is the result of the job, where None counts as 0.  It is 2 after a user error, which is printed to stderr,
    130 after Ctrl-C, SIGTERM or SIGHUP.  If the reader of standard output has ended (``nppsim ... | head``), nothing is
    printed and the status is 141.

    debug: raise user errors instead of printing them, so that the traceback is shown.
    refused: exit status after a user error, for commands in which 2 has another meaning.
    """
    _prepare_streams()
    status, message = refused, ""
    try:
        with _stopped_by_signals(), _readable_output():
            status = job() or 0
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt as interruption:
        status, message = INTERRUPTED, "\n" + ": ".join(["interrupted", *map(str, interruption.args)])
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError) and _output_is_broken():
            status = BROKEN_PIPE
        else:
            text = _user_message(error)
            if debug or not text:
                raise
            one_line = " ".join(redact(text).split())  # messages of libraries may have several lines
            message = f"error: {escaped(one_line)}"
    _print_and_flush(message)
    return status


def _prepare_streams() -> None:
    """Open closed standard streams on the null device, and escape characters that a stream cannot encode.

    If a standard stream stayed closed, the next opened file would get its descriptor.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed stream is None; notebooks use another type
            stream.reconfigure(errors="backslashreplace")


class _EscapingStream:
    """Text stream that escapes control characters, so that a title or a file name cannot change what a terminal shows."""

    def __init__(self, stream: io.TextIOWrapper):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_UNPRINTED.sub(_escape, text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _readable_output() -> Iterator[None]:
    """Escape control characters in the output, and print an InputWarning as one line."""
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    changed = {name: _EscapingStream(old) for name, old in before.items() if isinstance(old, io.TextIOWrapper)}
    show = warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *arguments: Any, **named: Any) -> None:
        if issubclass(category, InputWarning):
            print(f"warning: {escaped(str(message))}", file=sys.stderr)
        else:
            show(message, category, *arguments, **named)

    for name, stream in changed.items():
        setattr(sys, name, stream)
    warnings.showwarning = show_warning
    try:
        yield
    finally:
        warnings.showwarning = show
        for name, stream in changed.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, before[name])


def escaped(text: str) -> str:
    """Replace control characters, as in a JSON string."""
    return CONTROL.sub(_escape, text)


def _escape(match: re.Match) -> str:
    return ascii(match[0])[1:-1]


def _output_is_broken() -> bool:
    """Return True if standard output is a pipe whose reader has ended."""
    if not hasattr(select, "poll"):  # Windows
        return True
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _user_message(error: Exception) -> str:
    """Return the message to print for an error; "" for a bug."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        if error.errno is None and error.filename is None:
            return what
        where = "" if error.filename is None else os.fsdecode(error.filename)
        if error.filename is None and error.errno == errno.ENOSPC:
            where = _full_folders() or "standard output"  # other writers name their file (``nppsim.io.files.naming``)
        return f"{where and f'{where}: '}{what}; {_REMEDIES.get(error.errno or 0, 'check the path')}"
    if isinstance(error, MemoryError) or any(text in str(error) for text in _NO_MEMORY):
        reason = str(error).partition("\n")[0]
        return f"out of memory{reason and f' ({reason})'}; choose smaller sizes, or end other programs"
    return ""


def _full_folders() -> str:
    """List the folders that libraries write to and whose disk is full."""
    folders = {os.environ.get("NUMBA_CACHE_DIR", ""), tempfile.gettempdir(), os.curdir}
    return ", ".join(sorted(p for p in folders if os.path.isdir(p) and shutil.disk_usage(p).free < 1_000_000))


def _print_and_flush(message: str) -> None:
    """Print the message to stderr, and discard buffered output that cannot be written.

    Otherwise the interpreter would try to write this output again at exit, and print another error.
    """
    for stream, text in ((sys.stdout, ""), (sys.stderr, message)):
        try:
            if stream is not None:
                print(text, end="\n" if text else "", file=stream, flush=True)
        except OSError:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), stream.fileno())


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM or SIGHUP, so that work is saved as after Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        for handled in before:
            signal.signal(handled, signal.SIG_IGN)  # a closing terminal sends SIGHUP twice
        raise KeyboardInterrupt(f"by {signal.Signals(number).name}")

    stops = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {}
    if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers
        before = {number: signal.getsignal(number) for number in stops if signal.getsignal(number) == signal.SIG_DFL}
        for number in before:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def import_optional(module: str, extra: str) -> ModuleType:
    """Import an optional module; raise MissingPackageError, which names the ``extra`` of this project that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise  # the package is installed, but one of its dependencies is not
        raise MissingPackageError(
            f"{error.name} is needed for this and is not installed; run pip install 'nppsim[{extra}]'"
        ) from error


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` with the most similar known name, or "" if none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


def redact(text: str) -> str:
    """Remove AWS key ids, passwords in URLs and values of secret environment variables from the text."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 8:
            text = text.replace(value, REDACTED)
    return _SECRET_TEXT.sub(REDACTED, text)
