"""Exclusive lock on a folder, so that only one process at a time writes to it.

    with locked(folder):
        ...  # in a second process, locked(folder) raises FolderError with the name of this one

The lock is the kernel's (flock on ``folder/.lock``): it is released when its process ends, even after a crash.  The file
remains, with the name of the last owner.
"""

import errno
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from nppsim.errors import UserError
from nppsim.files import naming

LOCK = ".lock"
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # raised by some network file systems


class FolderError(UserError, RuntimeError):
    """A folder is locked by another process, or was removed while locked."""


@contextmanager
def locked(folder: str | os.PathLike) -> Iterator[Callable[[], None]]:
    """Lock ``folder`` for the block; create it if it is missing.

    Yields a function that raises FolderError if the folder was removed or replaced.  Call it before adding files; it is
    also called at the end of the block.
    Raises FolderError if another process holds the lock; the message names its id, machine and starting time.
    On Windows, and with a warning on file systems without locks, nothing is locked.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(file, folder)
        who = f"process {os.getpid()} on {socket.gethostname()} since {datetime.now():%Y-%m-%d %H:%M:%S}"
        with naming(folder / LOCK):
            os.truncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)  # not pwrite: Windows has none
            os.write(file, who.encode())
        check = partial(_check_there, file, folder)
        yield check
        check()
    finally:
        os.close(file)


def _take(file: int, folder: Path) -> None:
    if sys.platform != "win32":
        import fcntl  # not on Windows

        try:
            with naming(folder / LOCK):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(file, 1000).decode(errors="replace") or "another process"
            raise FolderError(
                f"{folder}: {who} is writing to it; wait for its end, stop it, or choose another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            print(
                f"{folder}: the file system has no locks; make sure that no other process writes here", file=sys.stderr
            )


def _check_there(file: int, folder: Path) -> None:
    """Raise FolderError unless the folder still contains the locked file."""
    try:
        there = os.path.samestat(os.stat(folder / LOCK), os.fstat(file))
    except FileNotFoundError:
        there = False
    if not there:
        raise FolderError(
            f"{folder}: was removed or replaced while this process was writing to it, and its contents are lost; "
            "repeat the command and leave the folder in place"
        )
