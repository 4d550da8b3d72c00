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
    """With a lasting file, do not come back in a test's time; it says which process that is."""
    if path.suffix == ".lasting":
        path.with_suffix(".new").write_text(str(os.getpid()))
        path.with_suffix(".new").rename(path)
        time.sleep(600)
