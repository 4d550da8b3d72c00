"""ThreadPool: parts, order of results, torch threads, errors."""

import threading
import time

import pytest
import torch

from bc.thread_pool import ThreadPool

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("threads", "rows"), [(1, 5), (2, 5), (3, 100), (4, 3)])
def test_map_rows_covers_all_rows_evenly(threads, rows):
    parts = ThreadPool(threads).map_rows(rows, lambda part: part)
    assert [row for part in parts for row in range(rows)[part]] == list(range(rows))
    sizes = {part.stop - part.start for part in parts}
    assert len(parts) == min(threads, rows) and max(sizes) - min(sizes) <= 1


def test_map_rows_orders_results_and_restores_torch_threads():
    torch.set_num_threads(2)

    def slow_first(part):
        time.sleep(0.05 * (2 - part.start))
        return part.start, torch.get_num_threads(), threading.get_ident()

    a, b, c = zip(*(ThreadPool(3).map_rows(3, slow_first)), strict=True)
    assert (a, b, len(set(c))) == ((0, 1, 2), (1, 1, 1), 3)
    assert ThreadPool(1).map_rows(3, lambda part: torch.get_num_threads()) == [1], (
        "a pool of one is one thread, not torch's number"
    )
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("row", [0, 3])
def test_map_rows_raises_errors_of_any_part(row):
    def work(part):
        assert part.start != row, "no good"

    with pytest.raises(AssertionError, match="no good"):
        ThreadPool(2).map_rows(6, work)
