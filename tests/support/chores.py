"""What workers of a cluster are asked to do in tests; they import it, so it is no part of a test module."""

import os
import signal
import time
from pathlib import Path


def die_once(path: Path) -> str:
    """The first process that gets this file is killed; what the next one does is known by its name."""
    if path.suffix == ".deadly" and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name


def stay(path: Path) -> None:
    """With a lasting file, do not come back in a test's time; it is there as long as the work goes on."""
    if path.suffix == ".lasting":
        path.touch()
        try:
            for _ in range(6000):
                time.sleep(0.1)  # Ray interrupts between two steps of Python
        finally:
            path.unlink()
