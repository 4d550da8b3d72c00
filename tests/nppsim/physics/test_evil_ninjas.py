"""Evil ninjas against the naive simulator, and their dependence on earlier positions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.batch import BatchSimulator
from nppsim.levels import kinds
from nppsim.physics.state import FOLLOWING
from nppsim.simulate import simulate

from naive_simulator import Simulator
from worlds import FLOOR, Walk, corridor, mixed_level

LEVEL = corridor(entities=[(kinds.EVIL_NINJA, 20, FLOOR)])  # where the ninja starts
AWAY = np.repeat([0, 2], [90, 300])  # waits, then runs to the right into the exit


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None)
def test_evil_ninjas_follow_like_naive_simulator(seed):
    rng = np.random.default_rng(seed)
    level = mixed_level(seed, density=0.05, num_entities=30, kinds=(kinds.BOUNCE_BLOCK, kinds.EVIL_NINJA))
    reference, walk = Simulator(level, completions=True), Walk(level)
    evil = [k for k, entity in enumerate(reference.entities) if entity.type == kinds.EVIL_NINJA]
    movers = walk.bank.world.entity["mover"][evil]
    for byte in np.repeat(rng.integers(0, 8, 500), rng.integers(1, 16, 500))[:500].tolist():
        reference.tick(byte)
        ninja, _ = walk.frame(byte)
        assert (ninja["x"], ninja["y"], ninja["state"]) == (reference.ninja.x, reference.ninja.y, reference.ninja.state)
        found = walk.movers[0, movers]
        wanted = [(reference.entities[k].x, reference.entities[k].y, reference.entities[k].state) for k in evil]
        assert list(zip(found["x"], found["y"], found["state"], strict=True)) == wanted


def test_evil_ninja_kills_120_frames_behind():
    run = simulate(LEVEL, np.zeros(300, np.uint8))
    assert (run.outcome, run.frames) == ("died", 121), "touched in frame 1, and the ninja still stands there"
    run = simulate(LEVEL, AWAY)
    assert run.outcome == "won", "it only repeats what the ninja did"


def test_nth_evil_ninja_is_120_frames_later():
    walk = Walk(corridor(entities=[(kinds.EVIL_NINJA, 20, FLOOR), (kinds.EVIL_NINJA, 20, FLOOR)]))
    way, ways = [], []
    for byte in np.tile(np.repeat([2, 4], 15), 10).tolist():
        ninja, _ = walk.frame(byte)
        way.append((ninja["x"], ninja["y"]))
        evil = walk.movers[0][walk.movers[0]["type"] == kinds.EVIL_NINJA]
        ways.append(list(zip(evil["x"], evil["y"], strict=True)))
    for frame in (250, 299):
        assert ways[frame] == [way[frame - 119], way[frame - 239]]


@pytest.mark.parametrize("evil", [1, 3])
def test_foresight_and_snapshots_include_trail(evil):
    """The reference of foresight plays all branches on copies of the state, each with its own trail."""
    level = corridor(entities=[(kinds.EVIL_NINJA, 20 + 3 * i, FLOOR) for i in range(evil)])
    simulator = BatchSimulator([level], 2, observations=("foresight", "hazards"), shadow=True)
    rng = np.random.default_rng(0)
    simulator.reset()
    followed = False
    for step in range(60):
        simulator.step(rng.integers(1, 3, 2))
        movers = simulator.state.movers[:2]
        followed |= bool((movers["state"][movers["type"] == kinds.EVIL_NINJA] == FOLLOWING).any())
        if step == 20:
            simulator.restore(1, simulator.snapshot(0))
    assert followed and simulator.shadow.mismatches == 0 < simulator.shadow.comparisons
