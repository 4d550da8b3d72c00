"""Functions that workers of a cluster run in tests; workers import this module."""

import os
import signal
import time
from pathlib import Path


def die_once(path: Path) -> str:
    """Kill the first process that receives a ``*.deadly`` file; otherwise return the name of the file."""
    if path.suffix == ".deadly" and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name


def stay(path: Path) -> None:
    """Sleep for a ``*.lasting`` file, after writing the process id to it."""
    if path.suffix == ".lasting":
        path.with_suffix(".new").write_text(str(os.getpid()))
        path.with_suffix(".new").rename(path)
        time.sleep(600)
