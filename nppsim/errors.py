"""The errors that are for the user to mend, and the way every command line ends.

Whatever a user can cause is a ``UserError`` (or an ``OSError`` that names its file), and so is what the machine lacks: room
on the disk, memory, open files.  Commands print it as one line and exit with status 2.  Anything else that is raised is a
bug of ours and is shown with its traceback.
"""

import difflib
import errno
import importlib
import io
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType

REFUSED = 2  # exit status of a job that could not do what the user asked for
INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it; SIGTERM and SIGHUP are treated alike
UNHEARD = 141  # exit status where nobody reads standard output any more, as shells have it
_REMEDIES = {
    errno.ENOSPC: "make room on that disk, or choose another one",
    errno.EDQUOT: "make room within your quota, or choose another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close other programs: the whole machine has too many open files",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "check its permissions, or choose another place",
    errno.EPERM: "check its permissions, or choose another place",
    errno.EISDIR: "give a file",
    errno.EIO: "the device fails: check it, or choose another one",
}
_NO_MEMORY = ("can't allocate memory", "can't start new thread")  # of RuntimeErrors, torch's and threading's
REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|ACCESS_KEY|API_?KEY|PRIVATE_KEY", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|(?<=://)[^/@\s]+(?=@)")  # AWS key ids; user:password@ in URLs


class UserError(Exception):
    """Something that the user can mend; the message says what is wrong, where, and what to do."""


class ConfigError(UserError, ValueError):
    """A setting that cannot work; reads "field value: advice".

    advice: what is wrong and what to do; the whole message if it concerns no single setting.
    field: the setting's name in its dataclass; a command line puts its flag there (``named``).
    value: what it was set to; None is not shown.
    """

    def __init__(self, advice: str, field: str = "", value: object = None):
        super().__init__(advice, field, value)
        self.advice, self.field, self.value = advice, field, value

    def __str__(self) -> str:
        value = " ".join(map(str, self.value)) if isinstance(self.value, (tuple, list)) else self.value
        place = " ".join(str(part) for part in (self.field, value) if part not in ("", None))
        return f"{place}: {self.advice}" if place else self.advice

    def named(self, flag: str) -> "ConfigError":
        """The same error, with the setting called by its flag."""
        return ConfigError(self.advice, flag, self.value)


class MissingPackageError(UserError, ImportError):
    """An optional package is needed that is not installed; the message names the extra to install."""


def run(job: Callable[[], int | None], *, debug: bool = False, refused: int = REFUSED) -> int:
    """Run ``job`` and return the exit status: what it returns (None: 0), 2 after "error: ..." on stderr, 130 after Ctrl-C,
    SIGTERM or SIGHUP, 141 where standard output is a pipe that nobody reads any more.

    debug: let errors through, with their traceback.  refused: the status after an error, where 2 means something else.
    """
    _prepare_streams()
    status, message = refused, ""
    try:
        with _stopped_by_signals():
            status = job() or 0
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt as interruption:
        status, message = INTERRUPTED, "\n" + ": ".join(["interrupted", *map(str, interruption.args)])
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        told = _told(error)
        if debug or not told:
            raise
        if isinstance(error, BrokenPipeError):
            status = UNHEARD
        message = f"error: {' '.join(redact(told).split())}"  # one line, whatever a library says
    _say_last(message)
    return status


def _prepare_streams() -> None:
    """No file takes the number of a standard stream that is closed; names that the locale cannot show are escaped."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed one is None, a notebook's is something else
            stream.reconfigure(errors="backslashreplace")


def _told(error: Exception) -> str:
    """What the user is told; "" for a bug of ours."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, BrokenPipeError):
        return "nobody reads the output any more, so the command was stopped; send it to a file to let it finish"
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        if error.errno is None and error.filename is None:
            return what
        where = "" if error.filename is None else os.fsdecode(error.filename)
        if error.filename is None and error.errno == errno.ENOSPC:
            where = _full_places() or "standard output"  # all other writing names its file (``nppsim.files.naming``)
        return f"{where and f'{where}: '}{what}; {_REMEDIES.get(error.errno or 0, 'check the path')}"
    if isinstance(error, MemoryError) or any(text in str(error) for text in _NO_MEMORY):
        said = str(error).partition("\n")[0]
        return f"out of memory{said and f' ({said})'}; choose smaller sizes, or end other programs"
    return ""


def _full_places() -> str:
    """Folders on full disks, among those that libraries write to."""
    places = {os.environ.get("NUMBA_CACHE_DIR", ""), tempfile.gettempdir(), os.curdir}
    return ", ".join(sorted(p for p in places if os.path.isdir(p) and shutil.disk_usage(p).free < 1_000_000))


def _say_last(message: str) -> None:
    """Print the message to stderr; what standard output still holds and cannot take is dropped.

    Else the interpreter would try once more at its end, and complain.
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
    """SIGTERM and SIGHUP raise KeyboardInterrupt, once: what saves its work at Ctrl-C does so then, too."""

    def stop(number: int, frame: FrameType | None) -> None:
        for handled in before:
            signal.signal(handled, signal.SIG_IGN)  # a terminal that closes sends SIGHUP twice
        raise KeyboardInterrupt(f"by {signal.Signals(number).name}")

    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows lacks SIGHUP
    before = {}
    if threading.current_thread() is threading.main_thread():  # others cannot
        before = {number: signal.getsignal(number) for number in known if signal.getsignal(number) == signal.SIG_DFL}
        for number in before:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def needed(module: str, extra: str) -> ModuleType:
    """An optional module, e.g. ``needed("PIL.Image", "video")``.

    Raises MissingPackageError, which names the extra of this project that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise  # the package is there, but one that it needs is not
        raise MissingPackageError(
            f"{error.name} is needed for this and is not installed; run pip install 'nppsim[{extra}]'"
        ) from error


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``"; did you mean 'x'?"``, or "" where nothing known is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


def redact(text: str) -> str:
    """The text without AWS key ids, passwords in URLs, and values of secret environment variables."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 8:
            text = text.replace(value, REDACTED)
    return _SECRET_TEXT.sub(REDACTED, text)
