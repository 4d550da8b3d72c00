"""Parallel map with ordered results: in this process, in several processes, or on a cluster.

with open_executor(workers, GenerateError, cluster) as executor:
    with executor.map(function, items) as results:
        for result in results: ...
"""

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

from nppsim.parallel.cluster import connect
from nppsim.parallel.workers import run_batch, usable_cores, worker_pool

# Maximum number of submitted batches per process whose results were not yielded yet.  Needed because iterables may be
# infinite, and because one slow batch delays the results of all later batches.
WINDOW = 64

Item = TypeVar("Item")
Result = TypeVar("Result")


class Backend(Protocol):
    """Backend that runs batches."""

    cores: int  # number of batches that run in parallel

    def prepare(self, function: bytes) -> Any:
        """Convert a pickled function to the argument of ``submit``."""

    def submit(self, function: Any, batch: bytes) -> Any:
        """Start a pickled batch and return its handle."""

    def result(self, handle: Any) -> list:
        """Wait for a batch and return its results; raise the exception if the function has raised one."""

    def cancel(self, handle: Any) -> None:
        """Cancel a batch."""


class Executor:
    """Maps functions over items.  backend: backend that runs the batches; None: run everything in this process."""

    def __init__(self, backend: Backend | None = None):
        self._backend = backend

    @contextmanager
    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], chunk: int = 1
    ) -> Iterator[Iterator[Result]]:
        """Yield an iterator over the results, in the order of the items.

        function, items: must be picklable if other processes run the function; ``items`` may be infinite.
        chunk: number of items per batch.
        An exception of the function is raised in place of its result.  Pending batches are cancelled at the end of the block.
        """
        if self._backend is None:
            yield map(function, items)
            return
        with closing(_results(self._backend, function, items, chunk)) as results:
            yield results


@contextmanager
def open_executor(
    workers: int | None, error: Callable[[str], Exception], cluster: str | None = None
) -> Iterator[Executor]:
    """Open an executor for the duration of the block.

    workers: number of processes; 1: this process; None: one per core.
    error: makes the exception to raise if a process dies; on a cluster, if the processes of one batch die repeatedly.
    cluster: address (``nppsim.parallel.cluster``); "local" starts ``workers`` processes of Ray; None: no cluster, and no Ray.
    Raises ClusterError if the cluster cannot be used.
    """
    if cluster is not None:
        with connect(cluster, workers, error) as backend:
            yield Executor(backend)
    elif workers == 1:
        yield Executor()
    else:
        workers = workers or usable_cores()
        with worker_pool(workers, error) as pool:
            yield Executor(_ProcessBackend(pool, workers))


class _ProcessBackend:
    """Backend of local processes."""

    def __init__(self, pool: ProcessPoolExecutor, cores: int):
        self._pool, self.cores = pool, cores

    def prepare(self, function: bytes) -> bytes:
        return function

    def submit(self, function: bytes, batch: bytes) -> Future[list]:
        return self._pool.submit(run_batch, function, batch)

    def result(self, handle: Future[list]) -> list:
        return handle.result()

    def cancel(self, handle: Future[list]) -> None:
        handle.cancel()


def _results(
    backend: Backend, function: Callable[[Item], Result], items: Iterable[Item], chunk: int
) -> Generator[Result, None, None]:
    prepared = backend.prepare(pickle.dumps(function))
    items = iter(items)
    handles: deque[Any] = deque()
    try:
        while batch := list(islice(items, chunk)):
            handles.append(backend.submit(prepared, pickle.dumps(batch)))
            if len(handles) == WINDOW * backend.cores:
                yield from backend.result(handles.popleft())
        while handles:
            yield from backend.result(handles.popleft())
    finally:
        for handle in handles:
            backend.cancel(handle)
