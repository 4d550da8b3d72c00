"""Validation of states from files."""

import numpy as np
import pytest

from nppsim.batch import BatchSimulator
from nppsim.generate import CATEGORIES, generate
from nppsim.levels import kinds
from nppsim.states import impossible

from worlds import FLOOR, corridor

MOVING = corridor(entities=[(kinds.ZAP_DRONE, 30, FLOOR), (kinds.BOUNCE_BLOCK, 20, FLOOR)])


def play(decisions=40):
    levels = [MOVING, *(generate(category, 1)[0] for category in CATEGORIES)]
    sim = BatchSimulator(levels, len(levels), threads=1)
    rng = np.random.default_rng(0)
    sim.reset()
    for _ in range(decisions):
        sim.step(rng.integers(0, 6, sim.num_envs))
        sim.next_level[:] = rng.integers(0, len(levels), sim.num_envs)
        yield sim


def test_states_of_play_are_valid():
    for sim in play():
        assert impossible(sim.state, sim.bank, sim.num_envs) == ""


def test_states_starting_in_border_may_leave_stage():
    borders = [(kinds.ZAP_DRONE, 176, 48), (kinds.MINI_DRONE, 176, 0), (kinds.THWUMP, 0, 24)]
    sim = BatchSimulator([corridor(entities=[one]) for one in borders], len(borders), threads=1)
    sim.reset(np.arange(len(borders)))
    for _ in range(40):
        assert impossible(sim.state, sim.bank, sim.num_envs) == ""
        sim.step(np.zeros(len(borders), int))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("ninja", "level", 99),
        ("ninja", "level", -1),
        ("ninja", "x", np.nan),
        ("ninja", "vy", np.inf),
        ("ninja", "state", 10),
        ("ninja", "frame", -5),
        ("progress", "potential", np.nan),
        ("movers", "entity", 7),
        ("movers", "type", 0),
        ("movers", "direction", 9),
        ("movers", "mode", 77),
        ("movers", "cell_x", 44),
        ("movers", "x", -1e9),
        ("entities", "blocking", 2**31 - 1),
    ],
)
def test_invalid_states_raise_error(part, field, value):
    sim = next(play(1))
    sim.reset(np.zeros(sim.num_envs, np.int32))  # all on the level with movers
    states = getattr(sim.state, part)[field]
    states[(2, 1) if states.ndim > 1 and part == "movers" else (2,) + (0,) * (states.ndim - 1)] = value
    assert f"{part}.{field} of environment 2" in impossible(sim.state, sim.bank, sim.num_envs) or field == "level"
    assert "environment 2" in impossible(sim.state, sim.bank, sim.num_envs)
