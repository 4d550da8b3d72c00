"""The errors that are for the user to mend, and the way every command line ends.

Whatever a user can cause is a ``UserError`` (or an ``OSError`` that names its file): commands print it as one line and
exit with status 2.  Anything else that is raised is a bug of ours and is shown with its traceback.
"""

import difflib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

REFUSED = 2  # exit status of a job that could not do what the user asked for
INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it
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
    """Run ``job`` and return the exit status: what it returns (None: 0), 2 after "error: ..." on stderr, 130 after Ctrl-C.

    debug: let errors through, with their traceback.  refused: the status after an error, where 2 means something else.
    """
    try:
        return job() or 0
    except KeyboardInterrupt as interruption:
        print("\n" + ": ".join(["interrupted", *map(str, interruption.args)]), file=sys.stderr)
        return INTERRUPTED
    except UserError as error:
        if debug:
            raise
        message = str(error)
    except OSError as error:
        if debug:
            raise
        message = f"{error.filename}: {error.strerror}; check the path" if error.filename else str(error)
    print(f"error: {' '.join(redact(message).split())}", file=sys.stderr)  # one line, whatever a library says
    return refused


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
