"""The search that draws levels finds what numpy's does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rl.curriculum.strategy import search_sorted

NUMBERS = st.floats(-10, 10) | st.integers(-3, 3).map(float)  # the latter so that some are equal


@given(st.lists(NUMBERS, min_size=1, max_size=70), st.lists(NUMBERS, max_size=20))
def test_positions_are_those_of_searchsorted(entries, values):
    rising, values = np.sort(entries), np.array(values, np.float64)
    found = search_sorted(rising, values)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, rising.searchsorted(values, side="right"))


def test_positions_among_many():
    rng = np.random.default_rng(0)
    rising = np.cumsum(rng.random(100_003) * rng.integers(0, 2, 100_003))
    values = np.concatenate([rng.random(512) * rising[-1], rising[:50], rising[-50:], [-1.0, rising[-1] + 1]])
    np.testing.assert_array_equal(search_sorted(rising, values), rising.searchsorted(values, side="right"))
