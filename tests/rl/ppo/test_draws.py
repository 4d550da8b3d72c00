"""Draws of levels against the stated chances: true ones never set off an alarm, false ones soon do."""

import numpy as np
import pytest

from rl.ppo.draws import LIMIT, Bet, Draws, not_drawn_anew


class Sampler:
    """What a curriculum tells of itself: L levels in two categories, of which the second has a share of 8 %."""

    stages = ("simplest", "simpler")

    def __init__(self, levels=24):
        self.stage_of = np.arange(levels) * 2 // levels
        self.chances = np.where(self.stage_of == 0, 0.92, 0.08) * 2 / levels

    def probabilities(self):
        return self.chances

    def shares(self):
        return np.bincount(self.stage_of, self.chances)

    def draw(self, rng, n):
        return rng.choice(len(self.chances), n, p=self.chances)


def looks(draw, sampler, updates=20, n=16):
    """Updates until something is said; None: nothing is."""
    draws, rng = Draws(sampler), np.random.default_rng(0)
    for update in range(1, updates + 1):
        draws.take(sampler, draw(rng, n))
        if draws.fault(sampler):
            return update
    return None


@pytest.mark.parametrize(("levels", "updates"), [(2, 1000), (24, 1000), (2000, 200)])
def test_true_chances_set_off_nothing(levels, updates):
    sampler = Sampler(levels)
    assert looks(sampler.draw, sampler, updates) is None


@pytest.mark.parametrize(
    ("draw", "within"),
    [
        (lambda rng, n: rng.integers(12, 24, n), 2),  # only the second category
        (lambda rng, n: np.arange(n) % 2, 3),  # always the same two levels
        (lambda rng, n: 23 - Sampler().draw(rng, n), 2),  # weights of other levels
        (lambda rng, n: rng.integers(0, 24, n), 6),  # evenly
    ],
)
def test_false_chances_are_noticed_within_few_updates(draw, within):
    found = looks(draw, Sampler())
    assert found is not None
    assert found <= within


def test_a_level_without_a_chance_is_noticed_at_once():
    bet = Bet(3)
    bet.take(np.array([0, 2]), np.array([0.5, 0.5, 0.0]))
    assert bet.won


def test_the_odds_are_fair():
    """The mean of what becomes of a stake is 1, whatever was drawn before: so a gain of X has a chance of 1 / X at most."""
    rng = np.random.default_rng(0)
    chances = np.array([0.5, 0.3, 0.2])
    stakes = []
    for _ in range(20_000):
        bet = Bet(3)
        bet.counts[:] = 5, 0, 1
        bet.take(rng.choice(3, 4, p=chances), chances)
        stakes.append(np.exp(bet.gains))
    assert np.mean(stakes, axis=0) == pytest.approx([1.0, 1.0], abs=0.03)


def test_what_is_remembered_comes_back():
    sampler, rng = Sampler(), np.random.default_rng(0)
    draws = Draws(sampler)
    draws.take(sampler, sampler.draw(rng, 16))
    again = Draws.of(draws.state_dict())
    for one in (draws, again):
        one.take(sampler, np.zeros(16, int))
    assert str(again.state_dict()) == str(draws.state_dict())


def test_levels_that_are_not_drawn_anew_are_noticed():
    sampler = Sampler()
    before = sampler.draw(np.random.default_rng(0), 16)
    assert "not drawn anew" in not_drawn_anew(sampler, before, before)
    assert not not_drawn_anew(sampler, before, before[::-1])
    few = before[:2]
    assert not not_drawn_anew(sampler, few, few), f"chance does that, more often than exp(-{LIMIT:.0f})"
