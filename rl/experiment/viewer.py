"""The studio beside a training (``--visualize-training``): a process of its own, which reads what the run writes.

    with viewed(folder, log):
        ...                             # train; the page ends with the block

It knows the run by its files alone, so that the run computes the same with and without it.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from nppsim.errors import UserError
from rl.experiment.data import Log

START_S = 300  # that it may take to start: on a fresh machine it compiles first
END_S = 10
_NICE = 10  # the training goes first
_SAID = "the studio is at "


class ViewerError(UserError, RuntimeError):
    """The studio could not be started; the message has its own words."""


@contextmanager
def viewed(folder: Path, log: Log) -> Iterator[None]:
    """Show an experiment's folder in the studio during the block, and tell the address, on the terminal alone: who has it can
    use the studio, and logs are read by others, and uploaded.

    ViewerError where it does not start.
    """
    command = [sys.executable, "-m", "nppsim", "studio", "--run", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        [*command, "--end-with-input", "--demonstrations", str(folder / "demonstrations")],
        stdin=subprocess.PIPE,  # closed when this process ends, however it ends
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        start_new_session=True,  # Ctrl-C is for the training, which may want to save first
    )
    try:
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        print(f"watch it: {_address(process)} (until the training ends)", flush=True)
        log("the studio shows it; its address is on the terminal alone")
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen) -> str:
    """Where the page is; what the process says later is read, too, so that it never waits for a reader."""
    lines: Queue[str] = Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put("")  # the end

    threading.Thread(target=read, name="viewer", daemon=True).start()
    said = []
    try:
        while line := lines.get(timeout=START_S):
            said.append(line.strip())
            if found := re.search(f"{_SAID}(\\S+)", line):
                return found[1]
    except Empty:
        raise ViewerError(f"--visualize-training: the studio did not start within {START_S} s; leave it out") from None
    words = " ".join(said[-3:]) or "it said nothing"
    raise ViewerError(f"--visualize-training: the studio did not start ({words}); mend that, or leave it out")
