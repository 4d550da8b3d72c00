"""Start of the studio, a web page that displays the training, in a separate process (``--visualize-training``).

    with studio_process(folder, log):
        ...                             # train; the studio ends with the block

The studio only reads the files of the run, so it does not affect the training.
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
from rl.log import Log

START_S = 300  # time limit of the studio's start, which may include compilation
END_S = 10  # time limit of its end, after which it is killed
_NICE = 10  # niceness, for a lower priority than the training
_READY = "the studio is at "


class ViewerError(UserError, RuntimeError):
    """The studio could not be started."""


@contextmanager
def studio_process(folder: Path, log: Log) -> Iterator[None]:
    """Show an experiment's folder in the studio during the block.

    The page's address grants access, so the address is printed on the terminal but not logged.
    Raises ViewerError if the studio does not start.
    """
    command = [sys.executable, "-m", "nppsim", "studio", "--run", str(folder), "--port", "0", "--no-browser"]
    command.append("--trust-plugins")  # the training has imported them
    process = subprocess.Popen(
        [*command, "--end-with-input", "--demonstrations", str(folder / "demonstrations")],
        stdin=subprocess.PIPE,  # the studio ends when this pipe is closed, at the latest with this process
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        start_new_session=True,  # Ctrl-C must not end the studio before the training has saved
    )
    try:
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        print(f"watch the training: {_address(process)}", flush=True)
        log("the studio shows this training; its address is on the terminal only")
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen) -> str:
    """Return the address that the studio prints.  A thread reads all output, so that the studio never blocks."""
    lines: Queue[str] = Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put("")  # the end

    threading.Thread(target=read, name="viewer", daemon=True).start()
    output = []
    try:
        while line := lines.get(timeout=START_S):
            output.append(line.strip())
            if match := re.search(f"{_READY}(\\S+)", line):
                return match[1]
    except Empty:
        raise ViewerError(
            f"--visualize-training: the studio did not start within {START_S} s; leave out the flag"
        ) from None
    words = " ".join(output[-3:]) or "no output"
    raise ViewerError(f"--visualize-training: the studio did not start ({words}); fix this, or leave out the flag")
