"""Shortening at single frames: shorter runs that win, equal for equal seeds, within the budget."""

import numpy as np

from nppsim.bank import GAME_TIME, LevelBank
from nppsim.generate import generate
from nppsim.planner import plan
from nppsim.simulate import simulate
from rl.search.guided_search import FrameBudget
from rl.search.single_frames import run_of, shorten

from worlds import RIGHT, corridor

LEVEL = corridor(spawn=20, switch=60, door=100)
SLOW = np.concatenate([np.zeros(9, np.uint8), plan(LEVEL).inputs])  # waits, and then changes actions every four frames


def shortened(level, inputs, seed=0, frames=300_000):
    bank, budget = LevelBank([level], least_time=GAME_TIME), FrameBudget(frames)
    runs = list(shorten(bank, inputs, np.random.default_rng(seed), budget))
    assert frames <= budget.simulated < frames + 2 * len(inputs) + 16
    return runs


def test_shorten_removes_frames_that_are_not_needed():
    runs = shortened(LEVEL, SLOW)
    lengths = [len(inputs) for inputs in runs]
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] <= len(plan(LEVEL).inputs)
    for inputs in runs:
        run = simulate(LEVEL, inputs)
        assert run.won
        assert run.frames == len(inputs)
        assert not ((inputs & 6) == 6).any()


def test_shorten_finds_a_jump_at_a_better_frame():
    level = generate("simplest_with_mines", 3)[0]
    planned = plan(level).inputs
    runs = shortened(level, planned, frames=1_000_000)
    assert runs
    assert simulate(level, runs[-1]).frames == len(runs[-1]) < len(planned)


def test_shorten_depends_only_on_the_seed():
    first, again = (shortened(LEVEL, SLOW, seed=1) for _ in range(2))
    assert [one.tobytes() for one in first] == [one.tobytes() for one in again]


def test_shorten_without_a_budget_yields_nothing():
    assert list(shorten(LevelBank([LEVEL], least_time=GAME_TIME), SLOW, np.random.default_rng(0), FrameBudget(0))) == []


def test_run_of_has_an_action_per_frame():
    run = run_of(SLOW)
    assert len(run.actions) == len(SLOW)
    assert run.actions[0] == 0
    assert RIGHT in run.actions
