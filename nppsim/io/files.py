"""Atomic writing of files, locks of folders, checks of output paths, and tables as text."""

import errno
import itertools
import json
import math
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from nppsim.errors import ConfigError, UserError, escaped

LOCK = ".lock"
_HOST = re.sub(r"[^\w-]", "-", socket.gethostname())[:16]
_TEMPORARY = re.compile(r"\..+\.(?P<host>[\w-]+)\.(?P<process>\d{1,9})\.tmp", re.DOTALL)
_ABANDONED_SECONDS = 3600.0  # age; containers may share folder and host name, but not process numbers
_searched: set[Path] = set()  # folders in which this process has removed abandoned temporary files
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # errors of network file systems that have no locks


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path to write to.  At the end of the block, the temporary file replaces ``path`` atomically.

    Readers see either the old file or the new file, even after a power failure.  If the block raises an exception, the
    old file remains.  Missing folders are created.  If ``path`` is a symbolic link, the target of the link is replaced.
    If several processes write to the same path, the last one wins.  Temporary files that processes of this machine left in
    the folder when they were killed are removed an hour later, by the first write of a process to the folder.
    Raises OSError with ``path`` as its file name, also for pipes and devices, which cannot be replaced.
    HDF5 and torch do not report full disks reliably: let them write to memory, then use ``write_bytes``.
    """
    path = Path(path)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "is a pipe or a device; give the name of a file", os.fspath(path))
    temporary = path.with_name(f".{path.name}.{_HOST}.{os.getpid()}.tmp")
    try:
        with naming(path, temporary):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path.parent)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            if hasattr(os, "O_DIRECTORY"):  # not on Windows, which has no handles of folders
                folder = os.open(path.parent, os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove old temporary files of ``replacing`` whose process has ended; later calls for a folder have no effect."""
    if (folder := folder.absolute()) in _searched:
        return
    _searched.add(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if not match or match["host"] != _HOST or _is_running(int(match["process"])):
                continue
            if time.time() - entry.stat().st_mtime > _ABANDONED_SECONDS:
                os.unlink(entry.path)


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # os.kill would send Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True


@contextmanager
def naming(path: str | os.PathLike, alias: str | os.PathLike | None = None) -> Iterator[None]:
    """Set ``path`` as the file name of an OSError from the block, unless the error names a file other than ``alias``.

    Errors of ``write`` and ``close`` name no file.  alias: e.g. the temporary file that replaces ``path`` later.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, alias and os.fspath(alias)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_bytes(path: str | os.PathLike, data: bytes | memoryview) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a UTF-8 file atomically.  Undecodable bytes of file names are escaped as in JSON."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def append_text(path: str | os.PathLike, text: str) -> None:
    """Append UTF-8 text to a file.  If the disk is full, the file is left unchanged, and an OSError names it."""
    remaining = memoryview(text.encode("utf-8", "backslashreplace"))
    with naming(path), open(path, "ab", buffering=0) as file:
        size = file.tell()
        try:
            while remaining:
                remaining = remaining[file.write(remaining) :]
        except OSError:
            file.truncate(size)
            raise


def write_json(path: str | os.PathLike, data: object) -> None:
    """Write JSON atomically.

    Numpy values become numbers and lists, paths become strings.  Non-finite numbers become null, as JSON lacks them.
    """
    text = json.dumps(_plain(data), indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def new_folder(path: str | os.PathLike) -> Path:
    """Create a new folder and return it: ``path``, or the first of ``path_2``, ``path_3``, ... that does not exist."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}_{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError  # never reached; for the type checker


def check_output_folder(folder: str | os.PathLike, flag: str, needed_bytes: int = 0) -> None:
    """Raise ConfigError unless the folder can be created and written, and the disk has ``needed_bytes`` free.

    flag: name of the setting that contains the folder, for the message.
    """
    folder = Path(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError(f"cannot be written ({existing} is a file); choose another folder", flag, folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot be written (no permission for {existing}); choose another folder", flag, folder)
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        room = f"{needed_bytes / 1e9:.1f} GB may be needed, {free / 1e9:.1f} GB are free"
        raise ConfigError(f"the disk is too full: {room}; make room, or choose another folder", flag, folder)


def check_output_file(
    path: str | os.PathLike, flag: str, suffixes: str | Sequence[str] = (), inputs: Iterable[str | os.PathLike] = ()
) -> None:
    """Raise ConfigError unless the file can be written.

    flag: name of the setting that contains the path, for the message.
    suffixes: one or several suffixes, of which the file name must have one; (): any.
    inputs: input files, which must not be overwritten.
    """
    path = Path(path)
    suffixes = [suffixes] if isinstance(suffixes, str) else suffixes
    if suffixes and path.suffix.lower() not in suffixes:
        raise ConfigError(f"give a name that ends in {' or '.join(suffixes)}", flag, path)
    if path.is_dir():
        raise ConfigError("is a folder; give the name of a file", flag, path)
    if path.exists() and not path.is_file():
        raise ConfigError("is a pipe or a device; give the name of a file", flag, path)
    if path.exists() and any(Path(source).exists() and path.samefile(source) for source in inputs):
        raise ConfigError("is an input, which would be overwritten; give another name", flag, path)
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError("cannot be written (no permission); choose another file", flag, path)
    check_output_folder(path.parent, flag)


class FolderError(UserError, RuntimeError):
    """A folder is locked by another process, or was removed while it was locked."""


@contextmanager
def locked(folder: str | os.PathLike) -> Iterator[Callable[[], None]]:
    """Lock ``folder`` for the duration of the block; create the folder if it is missing.

    The lock (flock on ``folder/.lock``) is released when the process ends, even after a crash.  The file remains and
    names the process that had the lock last.

    Yields a function that raises FolderError if the folder was removed or replaced.  Call it before adding files.  It is
    also called at the end of the block.
    Raises FolderError if another process has the lock; the message contains the id and machine of that process, and the
    time at which it locked the folder.
    On Windows nothing is locked.  On file systems without locks, a warning is printed instead.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(file, folder)
        who = f"process {os.getpid()} on {socket.gethostname()} since {datetime.now():%Y-%m-%d %H:%M:%S}"
        with naming(folder / LOCK):
            os.truncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)  # not pwrite: Windows has none
            os.write(file, who.encode())
        check = partial(_check_exists, file, folder)
        yield check
        check()
    finally:
        os.close(file)


def _lock(file: int, folder: Path) -> None:
    if sys.platform != "win32":
        import fcntl  # not on Windows

        try:
            with naming(folder / LOCK):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(file, 1000).decode(errors="replace") or "another process"
            raise FolderError(
                f"{folder}: {who} is writing to it; wait until that process ends, stop it, or choose another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            print(
                f"{folder}: the file system has no locks; make sure that no other process writes here", file=sys.stderr
            )


def _check_exists(file: int, folder: Path) -> None:
    """Raise FolderError unless the folder still contains the locked file."""
    try:
        exists = os.path.samestat(os.stat(folder / LOCK), os.fstat(file))
    except FileNotFoundError:
        exists = False
    if not exists:
        raise FolderError(
            f"{folder}: was removed or replaced while this process was writing to it, and its contents are lost; "
            "repeat the command and leave the folder in place"
        )


def _plain(value: object) -> object:
    """Convert a value to types that JSON has; raise TypeError if this is impossible."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be stored as JSON")


def table(header: Sequence[str], rows: Sequence[Sequence[object]], align: str = "") -> str:
    """Format a Markdown table with padded columns, readable as plain text; control characters are escaped.

    align: "l" (left) or "r" (right) for each column; "": first column left, all others right.
    """
    align = align or "l" + "r" * (len(header) - 1)
    cells = [[escaped(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        columns = zip(row, widths, align, strict=True)
        return f"| {' | '.join(c.ljust(width) if side == 'l' else c.rjust(width) for c, width, side in columns)} |"

    rule = "|".join(
        "-" * (width + 1) + ("-" if side == "l" else ":") for width, side in zip(widths, align, strict=True)
    )
    return "\n".join([line(cells[0]), f"|{rule}|", *map(line, cells[1:])])
