"""Compile the kernel of decisions, for a process that compiles other kernels meanwhile (``batch.compile_ahead``)."""

from typing import Any

import numba
import numpy as np

from nppsim import bank, batch
from nppsim.levels.level import Level


def _compile(*arguments: Any) -> None:
    kernel.compile(tuple(map(numba.typeof, arguments)))


if __name__ == "__main__":
    kernel: Any = batch.advance
    batch.compile_ahead = lambda: None
    bank._compute_paths = lambda *_: None  # the other process compiles this kernel
    batch.advance = _compile  # only the types of the arguments matter
    batch.BatchSimulator([Level.build(np.zeros((23, 42), np.uint8), (80, 50))], 1, threads=1).reset()
