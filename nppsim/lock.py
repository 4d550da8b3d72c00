"""One process at a time writes to a folder.

    with locked(folder):
        ...  # a second process that asks for the folder is told who has it

The lock is the kernel's (flock on ``folder/.lock``): it ends with its process, however that ends, so none is ever left over.
The file stays, with the name of who had it last.
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
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # some file systems of clusters have none, as Windows


class FolderError(UserError, RuntimeError):
    """A folder that another process is writing to, or that went away meanwhile; the message names both."""


@contextmanager
def locked(folder: str | os.PathLike) -> Iterator[Callable[[], None]]:
    """Keep other processes that ask for ``folder`` out of it during the block; the folder is made if it is missing.

    Gives a function that raises FolderError where the folder is no longer the one that was locked: to be asked before
    something is added to what should be there; it is asked at the end of the block, too.
    Raises FolderError where another process has the folder, named by its id, its machine and the time it began.
    Windows has no such locks, nor have some file systems, which is said: there, none is taken.
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
            print(f"{folder}: its file system has no locks: let no second process write here", file=sys.stderr)


def _check_there(file: int, folder: Path) -> None:
    """FolderError unless the folder still holds this very lock file."""
    try:
        there = os.path.samestat(os.stat(folder / LOCK), os.fstat(file))
    except FileNotFoundError:
        there = False
    if not there:
        raise FolderError(
            f"{folder}: was removed or replaced while this process was writing to it, and what was in it is gone; "
            "repeat the command and leave its folder alone"
        )
