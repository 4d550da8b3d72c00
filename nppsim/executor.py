"""One function over many items: in this process, in several, or on a cluster, with the same results in the same order.

with open_executor(workers, GenerateError, cluster) as executor:
    with executor.map(function, items) as results:
        for result in results: ...
"""

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol, TypeVar

from nppsim.cluster import connected
from nppsim.workers import usable_cores, worker_pool

# Batches for each process that are under way, or done before their turn: items may have no end, and one may take long.
WINDOW = 64

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workforce(Protocol):
    """Who works on batches.  cores: how many at once."""

    cores: int

    def prepare(self, function: bytes) -> Any:
        """The pickled function as ``submit`` wants it."""

    def submit(self, function: Any, batch: bytes) -> Any:
        """A handle of the work on a pickled batch."""

    def result(self, handle: Any) -> list:
        """What became of a batch; raises what the function raised."""

    def cancel(self, handle: Any) -> None:
        """Give up what has not been done."""


class Executor:
    """Maps functions over items.  workforce: None for this process alone."""

    def __init__(self, workforce: Workforce | None = None):
        self._workforce = workforce

    @contextmanager
    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], chunk: int = 1
    ) -> Iterator[Iterator[Result]]:
        """What ``function`` returns for each item, in their order; an error comes where its result would have come.

        function, items: whatever can be pickled, except in this process; items may have no end.
        chunk: items that are handed out together.
        What is under way when the block ends is cancelled.
        """
        if self._workforce is None:
            yield map(function, items)
            return
        with closing(_results(self._workforce, function, items, chunk)) as results:
            yield results


@contextmanager
def open_executor(
    workers: int | None, error: Callable[[str], Exception], cluster: str | None = None
) -> Iterator[Executor]:
    """An executor of ``workers`` processes, 1 being this one and None as many as there are cores, or of a cluster.

    error: raised where a process dies and, on a cluster, dies again and again.
    cluster: its address (``nppsim.cluster``); "local" has as many processes as workers.
    Raises ClusterError for a cluster that cannot be used.
    """
    if cluster is not None:
        with connected(cluster, workers, error) as nodes:
            yield Executor(nodes)
    elif workers == 1:
        yield Executor()
    else:
        workers = workers or usable_cores()
        with worker_pool(workers, error) as pool:
            yield Executor(_Processes(pool, workers))


class _Processes:
    """The processes of a pool."""

    def __init__(self, pool: ProcessPoolExecutor, cores: int):
        self._pool, self.cores = pool, cores

    def prepare(self, function: bytes) -> bytes:
        return function

    def submit(self, function: bytes, batch: bytes) -> Future[list]:
        return self._pool.submit(work, function, batch)

    def result(self, handle: Future[list]) -> list:
        return handle.result()

    def cancel(self, handle: Future[list]) -> None:
        handle.cancel()


def _results(
    workforce: Workforce, function: Callable[[Item], Result], items: Iterable[Item], chunk: int
) -> Generator[Result, None, None]:
    prepared = workforce.prepare(pickle.dumps(function))
    items = iter(items)
    handles: deque[Any] = deque()
    try:
        while batch := list(islice(items, chunk)):
            handles.append(workforce.submit(prepared, pickle.dumps(batch)))
            if len(handles) == WINDOW * workforce.cores:
                yield from workforce.result(handles.popleft())
        while handles:
            yield from workforce.result(handles.popleft())
    finally:
        for handle in handles:
            workforce.cancel(handle)


def work(function: bytes, batch: bytes) -> list:
    """In a worker: what a pickled function returns for each item of a pickled batch."""
    return list(map(_unpickled(function), pickle.loads(batch)))


@lru_cache(maxsize=1)
def _unpickled(function: bytes) -> Callable[[Any], Any]:
    return pickle.loads(function)
