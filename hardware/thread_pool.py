"""A few threads that share the work on one batch; what comes out does not depend on which of them is faster.

    means, gradients = summed_gradients(ThreadPool(2), rows, loss, parameters)

torch's own threads split single operations, of which a small network has a hundred per step: waking them costs as much as
they gain.  Here each thread takes a part of the rows through the whole network.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


class ThreadPool:
    """So many threads, the caller's among them; torch computes with one thread in each."""

    def __init__(self, threads: int):
        self.threads = threads
        self._others = None
        if threads > 1:
            self._others = ThreadPoolExecutor(threads - 1, "pool", torch.set_num_threads, (1,))

    def map_rows(self, rows: int, work: Callable[[slice], Result], begins: np.ndarray | None = None) -> list[Result]:
        """``work`` on as many parts of 0..rows as there are threads, their sizes as even as can be; results in order.

        begins: int64[S], ascending from 0: rows at which a part may begin; None: at all.
        """
        edges = [rows * i // self.threads for i in range(self.threads + 1)]
        if begins is not None:
            inner = begins[np.searchsorted(begins, edges[1:-1], side="right") - 1]
            edges = [0, *inner.tolist(), rows]
        parts = [slice(*pair) for pair in pairwise(edges) if pair[0] < pair[1]]
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # also of one thread: a process begins with as many as it has cores
        try:
            if self._others is None or len(parts) < 2:
                return [work(part) for part in parts]
            others = [self._others.submit(work, part) for part in parts[1:]]
            return [work(parts[0]), *(other.result() for other in others)]
        finally:
            torch.set_num_threads(before)


def summed_gradients(
    pool: ThreadPool,
    rows: int,
    loss: Callable[[slice], tuple[torch.Tensor, torch.Tensor]],
    parameters: Sequence[torch.Tensor],
    begins: np.ndarray | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Means over a batch and the gradients of its loss, computed in parts and added in their order.

    rows: of the batch.
    loss: rows -> (the loss to differentiate, whatever else is to be averaged), means over those rows.
    parameters: of which the gradients are wanted.
    begins: as of ``ThreadPool.map_rows``.
    Returns the averages and, for each parameter, its gradient; None where the loss does not depend on it.
    """

    def part(of: slice) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        share = (of.stop - of.start) / rows
        minimised, averaged = loss(of)
        return averaged.detach() * share, torch.autograd.grad(minimised * share, parameters, allow_unused=True)

    averages, gradients = zip(*pool.map_rows(rows, part, begins), strict=True)
    return sum(averages[1:], averages[0]), [_sum(parts) for parts in zip(*gradients, strict=True)]


def _sum(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    known = [part for part in parts if part is not None]
    # Contiguous like the parameters: the fused optimiser reads memory as it lies.
    return sum(known[1:], known[0]).contiguous() if known else None
