"""Compile the kernel of decisions, for a process that compiles other kernels meanwhile (``batch.compile_ahead``).

Measured gain: the first step of a simulator takes about 63 instead of 93 s on two idle cores.
"""

from contextlib import suppress
from typing import Any

import numba
import numpy as np

from nppsim import bank, batch
from nppsim._numba.cache import CACHE_FOLDER
from nppsim.io.files import FolderError, locked
from nppsim.levels.level import Level


def _compile(*arguments: Any) -> None:
    kernel.compile(tuple(map(numba.typeof, arguments)))


if __name__ == "__main__":
    with suppress(FolderError), locked(CACHE_FOLDER):  # one such process per machine
        kernel: Any = batch.advance
        batch.usable_cores = lambda: 1  # no further process
        bank._compute_paths = lambda *_: None  # the other process compiles this kernel
        batch.advance = _compile  # only the types of the arguments matter
        batch.BatchSimulator([Level.build(np.zeros((23, 42), np.uint8), (80, 50))], 1, threads=1).reset()
