"""Thread pool that splits batches by rows, with results that do not depend on the order of execution.

    means, gradients = summed_gradients(ThreadPool(2), rows, loss, parameters)

torch's own threads split single operations.  A small network has a hundred of them per step, and waking threads costs as
much as it gains.  Here each thread passes a part of the rows through the complete network.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


class ThreadPool:
    """Pool of ``threads`` threads, the caller's included; torch uses one thread in each."""

    def __init__(self, threads: int):
        self.threads = threads
        self._others = None
        if threads > 1:
            self._others = ThreadPoolExecutor(threads - 1, "pool", torch.set_num_threads, (1,))

    def map_rows(self, rows: int, work: Callable[[slice], Result], begins: np.ndarray | None = None) -> list[Result]:
        """Call ``work`` on one slice of 0..rows per thread, of nearly equal sizes; return the results in order.

        begins: int64[S], ascending from 0: rows at which a slice may begin; None: any row.
        """
        edges = [rows * i // self.threads for i in range(self.threads + 1)]
        if begins is not None:
            inner = begins[np.searchsorted(begins, edges[1:-1], side="right") - 1]
            edges = [0, *inner.tolist(), rows]
        parts = [slice(*pair) for pair in pairwise(edges) if pair[0] < pair[1]]
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # also for a pool of one: torch's default is one thread per core
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
    """Compute means over a batch and the gradients of its loss in slices, summed in a fixed order.

    rows: size of the batch.
    loss: slice -> (loss, vector of other quantities), both means over the rows of the slice.
    parameters: tensors to differentiate by.
    begins: as in ``ThreadPool.map_rows``.
    Returns the means of the other quantities, and the gradient of each parameter; None where the loss does not depend on it.
    """

    def part(of: slice) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        share = (of.stop - of.start) / rows
        minimised, averaged = loss(of)
        return averaged.detach() * share, torch.autograd.grad(minimised * share, parameters, allow_unused=True)

    averages, gradients = zip(*pool.map_rows(rows, part, begins), strict=True)
    return sum(averages[1:], averages[0]), [_sum(parts) for parts in zip(*gradients, strict=True)]


def _sum(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    known = [part for part in parts if part is not None]
    # The fused optimiser needs the memory layout of the parameters.
    return sum(known[1:], known[0]).contiguous() if known else None
