"""Improvement at single frames: better runs that win, equal for equal seeds, within the budget."""

import numpy as np
import pytest

from nppsim.bank import GAME_TIME, LevelBank
from nppsim.generate import generate
from nppsim.levels import kinds
from nppsim.planner import plan
from nppsim.planner.budget import FrameBudget
from nppsim.planner.settings import ALL_GOLD, LOW_GOLD, SCORE, TIME
from nppsim.planner.single_frames import CHAINS, ROUNDS, anneal, improve
from nppsim.replays.score import score
from nppsim.simulate import simulate

from worlds import FLOOR, corridor

LEVEL = corridor(spawn=20, switch=60, door=100)
SLOW = np.concatenate([np.zeros(9, np.uint8), plan(LEVEL).inputs])  # waits, and then changes actions every four frames
SLOW = SLOW[: simulate(LEVEL, SLOW).frames]
GOLDEN = corridor(40, 60, 80, entities=[(kinds.GOLD, 37, FLOOR), (kinds.GOLD, 70, FLOOR)])  # to the left, on the way


def improved(level, inputs, objective=TIME, seed=0, frames=300_000):
    bank, budget = LevelBank([level], least_time=GAME_TIME), FrameBudget(frames)
    runs = list(anneal(bank, inputs, objective, np.random.default_rng(seed), budget))
    assert frames <= budget.simulated < frames + 3 * len(inputs) + 300
    return runs


def value(level, inputs, objective):
    """What the objective maximises, from playback and the displayed numbers."""
    run = simulate(level, inputs)
    assert run.won and run.frames == len(inputs)
    gold = int(run.gold[-1])
    return {
        TIME: (-run.frames,),
        SCORE: (score(run.frames, gold), -run.frames),
        ALL_GOLD: (gold, -run.frames),
        LOW_GOLD: (-gold, -run.frames),
    }[objective]


def test_anneal_removes_frames_that_are_not_needed():
    runs = improved(LEVEL, SLOW)
    lengths = [len(inputs) for inputs in runs]
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] <= len(plan(LEVEL).inputs)
    for inputs in runs:
        run = simulate(LEVEL, inputs)
        assert run.won
        assert run.frames == len(inputs)
        assert not ((inputs & 6) == 6).any()


def test_anneal_finds_a_jump_at_a_better_frame():
    level = generate("simplest_with_mines", 3)[0]
    planned = plan(level).inputs
    runs = improved(level, planned, frames=1_000_000)
    assert runs
    assert simulate(level, runs[-1]).frames == len(runs[-1]) < len(planned)


@pytest.mark.parametrize("objective", [TIME, SCORE, ALL_GOLD, LOW_GOLD])
def test_anneal_values_of_runs_increase(objective):
    runs = improved(GOLDEN, plan(GOLDEN).inputs, objective)
    values = [value(GOLDEN, inputs, objective) for inputs in (plan(GOLDEN).inputs, *runs)]
    assert values == sorted(set(values))


@pytest.mark.parametrize(("objective", "gold"), [(TIME, 1), (SCORE, 2), (ALL_GOLD, 2), (LOW_GOLD, 0)])
def test_anneal_is_nearly_as_good_as_the_best_of_all_short_detours(objective, gold):
    """Naive check: all runs that turn left for up to 40 frames, and then run right."""
    planned = plan(GOLDEN).inputs
    *_, best = planned, *improved(GOLDEN, planned, objective, frames=1_000_000 if gold == 2 else 200_000)
    found = simulate(GOLDEN, best)
    assert found.gold[-1] == gold
    detours = [simulate(GOLDEN, np.repeat(np.array([4, 2], np.uint8), (left, 140))) for left in range(40)]
    lengths = [run.frames for run in detours if run.won and run.gold[-1] == gold]
    assert (not lengths) if objective == LOW_GOLD else found.frames <= min(lengths) + 3


def test_anneal_depends_only_on_the_seed():
    first, again = (improved(LEVEL, SLOW, seed=1) for _ in range(2))
    assert [one.tobytes() for one in first] == [one.tobytes() for one in again]


def test_improve_yields_better_runs_within_the_budget():
    budget = FrameBudget(100_000)
    runs = list(improve(LEVEL, SLOW, TIME, 0, budget, 1))
    lengths = [len(inputs) for inputs in (SLOW, *runs)]
    assert lengths == sorted(set(lengths), reverse=True)
    assert 100_000 <= budget.simulated < 100_000 + CHAINS * ROUNDS * 3 * len(SLOW)


def test_improve_without_a_budget_yields_nothing():
    assert list(improve(LEVEL, SLOW, TIME, 0, FrameBudget(0), 1)) == []
