"""A few threads that share the work on one batch; what comes out does not depend on which of them is faster.

torch's own threads split single operations, of which a small network has a hundred per step: waking them costs as much as
they gain.  Here each thread takes a part of the rows through the whole network.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch

Result = TypeVar("Result")


class Team:
    """So many threads, the caller's among them; torch computes with one thread in each."""

    def __init__(self, threads: int):
        self.threads = threads
        self._others = None
        if threads > 1:
            self._others = ThreadPoolExecutor(threads - 1, "team", torch.set_num_threads, (1,))

    def share(self, rows: int, work: Callable[[slice], Result]) -> list[Result]:
        """``work`` on as many parts of 0..rows as there are threads, their sizes as even as can be; results in order."""
        edges = [rows * i // self.threads for i in range(self.threads + 1)]
        parts = [slice(*pair) for pair in pairwise(edges) if pair[0] < pair[1]]
        if self._others is None or len(parts) < 2:
            return [work(part) for part in parts]
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            others = [self._others.submit(work, part) for part in parts[1:]]
            return [work(parts[0]), *(other.result() for other in others)]
        finally:
            torch.set_num_threads(before)
