"""Confidence intervals have their nominal coverage on data with a known mean."""

import numpy as np
import pytest

from nppsim.measure.intervals import (
    IntervalError,
    mean_of_ratios,
    mean_over_levels,
    ratio_of_means,
    wilson,
)  # fmt: skip


def test_ratios_of_constant_times_are_exact():
    for ratio in (ratio_of_means, mean_of_ratios):
        found = ratio([4.0, 4.0, 4.0], [2.0, 2.0, 2.0])
        assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    alone = mean_of_ratios([3.0], [2.0])
    assert (alone.value, alone.low) == (pytest.approx(1.5), None)
    assert "no interval" in str(alone)


def test_paired_differences_cancel_shared_variance():
    """Both sides slow down together: the paired interval stays narrow, the unpaired one cannot."""
    shared = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    paired, unpaired = mean_of_ratios(1.1 * shared, shared), ratio_of_means(1.1 * shared, shared)
    assert paired.high - paired.low < 1e-9
    assert unpaired.high - unpaired.low > 0.3


def test_intervals_have_their_nominal_coverage():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        found = ratio_of_means(rng.normal(3.0, 0.3, 20), rng.normal(2.0, 0.2, 20))
        covered += found.low <= 1.5 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


# By hand with z = 1.959964: centre (k + z²/2) / (n + z²), half width z / (n + z²) · sqrt(k (n - k) / n + z² / 4).
@pytest.mark.parametrize(("wins", "trials", "low", "high"), [
    (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0),
    (95, 100, 0.8882, 0.9785), (990, 1000, 0.9817, 0.9946),
])  # fmt: skip
def test_wilson_intervals_equal_textbook_values(wins, trials, low, high):
    assert wilson(wins, trials) == pytest.approx((low, high), abs=1e-4)


def test_one_sided_bound_uses_one_sided_quantile():
    assert wilson(70, 100, 1.645) == pytest.approx((0.6198, 0.7690), abs=1e-3)


def test_wilson_without_trials_and_with_invalid_counts():
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(IntervalError, match="3 wins in 2 trials"):
        wilson(3, 2)


def test_interval_solves_defining_equation():
    low, high = wilson(37, 120)
    for p in (low, high):
        assert abs(37 / 120 - p) == pytest.approx(1.959963984540054 * np.sqrt(p * (1 - p) / 120), abs=1e-12)


def coverage(draw, interval, truth, rounds=200):
    """Share of ``rounds`` data sets whose interval contains the true value."""
    rng = np.random.default_rng(2)
    bounds = (interval(draw(rng)) for _ in range(rounds))
    return sum(low <= truth <= high for low, high in bounds) / rounds


def bounds(values):
    found = mean_over_levels(values)
    return found.low, found.high


def levels_that_differ(rng, seeds=1, levels=60, episodes=10, seed_sd=0.0):
    """wins[seeds, levels]: most levels are nearly always won or nearly always lost; half on average."""
    easiness = rng.beta(0.3, 0.3, levels) + seed_sd * rng.standard_normal((seeds, 1))
    return rng.binomial(episodes, np.clip(easiness, 0, 1))


def test_episodes_on_one_level_are_not_independent():
    """Wilson's interval treats them as independent and is far too narrow; the bootstrap over levels is not."""
    assert coverage(levels_that_differ, lambda wins: wilson(wins.sum(), wins.size * 10), 0.5) < 0.6
    assert 0.9 <= coverage(levels_that_differ, lambda wins: bounds(wins / 10), 0.5) <= 0.99


def test_one_episode_per_level_equals_wilson_interval():
    def draw(rng):
        return rng.binomial(1, 0.8, 150)

    for interval in (bounds, lambda wins: wilson(wins.sum(), wins.size)):
        assert 0.9 <= coverage(draw, interval, 0.8) <= 0.99
    wins = np.arange(300) < 240
    assert bounds(wins) == pytest.approx(wilson(240, 300), abs=0.01)


def test_seeds_that_differ_widen_the_interval():
    def draw(rng):
        return levels_that_differ(rng, seeds=5, levels=200, episodes=1, seed_sd=0.15)

    assert coverage(draw, lambda values: bounds(values.mean(axis=0)), 0.5) < 0.8, "levels alone"
    assert 0.87 <= coverage(draw, bounds, 0.5) <= 0.99


def test_seeds_that_do_not_differ_hardly_widen_it():
    """The variance of the seeds' means over levels is part of the variance over levels and is not counted twice."""
    rng = np.random.default_rng(5)
    wins = rng.binomial(1, rng.beta(2, 0.5, 400), (3, 400))
    low, high = bounds(wins)
    alone_low, alone_high = bounds(wins.mean(axis=0))
    assert alone_high - alone_low <= high - low + 1e-9 <= 1.15 * (alone_high - alone_low)


def test_paired_differences_cancel_level_difficulty():
    rng = np.random.default_rng(3)
    easiness = rng.beta(0.5, 0.5, 400)
    a, b = rng.binomial(10, easiness) / 10, rng.binomial(10, 0.9 * easiness) / 10
    paired = mean_over_levels(a - b)
    assert paired.low <= 0.05 <= paired.high and paired.low > 0
    (low_a, _), (_, high_b) = bounds(a), bounds(b)
    assert low_a < high_b, "each alone is too uncertain to tell them apart"


def test_mean_over_levels_weights_levels_and_seeds_equally():
    values = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 1.0]])
    assert mean_over_levels(values).value == pytest.approx(2.5 / 6)
    assert mean_over_levels(values, weights=[2, 1, 1]).value == pytest.approx((2 * 0.5 + 0 + 0.75) / 4)
    even, uneven = np.array([0, 1] * 50), np.array([1, 99] * 50)
    assert mean_over_levels(even, uneven).low > 0.9
    assert mean_over_levels(even) == mean_over_levels(even), "seeded"


def test_two_seeds_on_two_levels_by_hand():
    """A redraw has one of two levels and seeds: the mean of a level, here 0.2 or 0.3, plus the effect of a seed, ± 0.1."""
    found = mean_over_levels([[0.1, 0.2], [0.3, 0.4]])
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.1, 0.4))


def test_equal_values_have_no_interval():
    for values in ([0.7], [0.7] * 50, np.zeros((3, 4)), [[0.7], [0.7]]):
        found = mean_over_levels(values)
        assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(("values", "weights"), [([], None), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, 0.0])])
def test_values_without_a_mean_over_levels_are_refused(values, weights):
    with pytest.raises(IntervalError, match=r"values must be \[seeds, levels\]"):
        mean_over_levels(values, weights)


def test_large_table_bootstrapped_in_chunks():
    rng = np.random.default_rng(4)
    found = mean_over_levels(rng.random((2, 1000)))
    assert found.low < 0.5 < found.high and found.high - found.low < 0.08
