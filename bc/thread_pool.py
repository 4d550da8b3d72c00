"""Thread pool that splits batches by rows, with results that do not depend on the order of execution.

    means, gradients = summed_gradients(ThreadPool(2), rows, loss, parameters)

Torch's own threads split single operations.  A small network has about a hundred operations per step, and waking the threads
for each costs as much time as they save.  Here each thread passes a part of the rows through the complete network.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


class ThreadPool:
    """Pool of ``threads`` threads, including the thread of the caller.  Torch uses one thread in each of them."""

    def __init__(self, threads: int):
        self.threads = threads
        self._others = None
        if threads > 1:
            self._others = ThreadPoolExecutor(threads - 1, "pool", torch.set_num_threads, (1,))

    def map_rows(self, rows: int, work: Callable[[slice], Result], begins: np.ndarray | None = None) -> list[Result]:
        """Divide 0..rows into one slice per thread, of nearly equal sizes; return ``work(slice)`` for each, in order.

        begins: int64[S], rows at which a slice may begin, ascending from 0; None: any row.
        """
        edges = [rows * i // self.threads for i in range(self.threads + 1)]
        if begins is not None:
            inner = begins[np.searchsorted(begins, edges[1:-1], side="right") - 1]
            edges = [0, *inner.tolist(), rows]
        parts = [slice(*pair) for pair in pairwise(edges) if pair[0] < pair[1]]
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # even for a single thread, since the default of torch is one thread per core
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
    """Compute the gradients of a loss over a batch, and means of other quantities, in slices summed in a fixed order.

    rows: number of rows of the batch.
    loss: function of a slice that returns (loss, vector of other quantities), both as means over the rows of the slice.
    parameters: tensors to differentiate with respect to.
    begins: as for ``ThreadPool.map_rows``.
    Returns the means of the other quantities, and the gradient of each parameter, or None if the loss does not depend on it.
    """

    def part(part_rows: slice) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        share = (part_rows.stop - part_rows.start) / rows
        minimised, averaged = loss(part_rows)
        return averaged.detach() * share, torch.autograd.grad(minimised * share, parameters, allow_unused=True)

    averages, gradients = zip(*pool.map_rows(rows, part, begins), strict=True)
    return sum(averages[1:], averages[0]), [_sum(parts) for parts in zip(*gradients, strict=True)]


def _sum(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    present = [part for part in parts if part is not None]
    # The fused optimiser requires gradients with the memory layout of the parameters.
    return sum(present[1:], present[0]).contiguous() if present else None
