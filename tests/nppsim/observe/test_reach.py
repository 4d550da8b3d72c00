"""Foresight with omitted movers equals foresight with all movers."""

import numpy as np
import pytest

from nppsim.actions import INPUT_ACTION, JUMP, NUM_ACTIONS, RIGHT
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels import kinds
from nppsim.levels.campaign import levels_from_bytes
from nppsim.observe.foresight import ESCAPE_FRAMES
from nppsim.observe.foresight_settings import FORESIGHT, MAX_HORIZON, Foresight
from nppsim.observe.reach import PREPARED, find_near
from nppsim.physics.evil_ninjas import FOLLOW_FRAMES, TRAIL_SLACK
from nppsim.physics.rules import Rules
from nppsim.physics.shooters import CHAINGUN_PREFIRE, FIRING, GAUSS_TARGETING, LASER_DRONE_PREFIRE
from nppsim.physics.state import RADIUS

from places import SHARED
from worlds import KINDS, MIXED, UNFINISHED, mixed_level

CAMPAIGN = SHARED / "campaign"
EVERYTHING = (*MIXED, *UNFINISHED, kinds.EVIL_NINJA)
HALF_SIDE = 16.0  # px
JUMP_RIGHT = INPUT_ACTION[JUMP | RIGHT]
TOUCH, BLOCK_TOUCH = 23.0, 36.0  # px along an axis: distances at which the physics looks for contacts


def agrees_with_twin(levels, decisions, seed=0, foresight=FORESIGHT):
    """Play at random, jump back to older states now and then, and compare everything with the reference."""
    sim, rng = (
        BatchSimulator(levels, len(levels), observations=("foresight",), shadow=True, foresight=foresight),
        np.random.default_rng(seed),
    )
    sim.reset()
    saved = [sim.snapshot(i) for i in range(len(levels))]
    for step in range(decisions):
        if step % 4 == 0:
            actions = rng.integers(NUM_ACTIONS, size=len(levels))
        sim.step(actions)
        if step % 16 == 8:
            for i in range(len(levels)):
                older, saved[i] = saved[i], sim.snapshot(i)
                sim.restore(i, older)
    return sim.shadow.comparisons > 0 == sim.shadow.mismatches


@pytest.mark.parametrize("of", [EVERYTHING, *KINDS])
def test_foresight_random_levels_equals_all_movers(of):
    assert agrees_with_twin([mixed_level(seed, 0.05, 120, kinds=of) for seed in range(2)], 30)


SETTINGS = [
    Foresight(horizon=8),
    Foresight(horizon=21, branches=12, escapes=6),
    Foresight(horizon=MAX_HORIZON, branches=18),
    Foresight(branches=6, escapes=0, noise=0.3),
]


@pytest.mark.parametrize("foresight", SETTINGS)
def test_foresight_settings_equal_reference(foresight):
    levels = [mixed_level(seed, 0.05, 120, kinds=EVERYTHING) for seed in range(2)]
    assert agrees_with_twin(levels, 20, foresight=foresight)


def test_foresight_previous_lasers_are_not_simulated():
    levels = [mixed_level(0, 0.0, *of, doors=0) for of in ((120, (kinds.LASER,)), (3, (kinds.FLOOR_GUARD,)))]
    sim = BatchSimulator(levels, 1, observations=("foresight",), shadow=True)
    sim.reset(np.array([0], np.int32))
    sim.reset(np.array([1], np.int32))
    for _ in range(20):
        sim.step(np.array([JUMP_RIGHT]))
    assert sim.shadow.comparisons > 0 == sim.shadow.mismatches


def test_foresight_official_levels_equals_all_movers():
    if not CAMPAIGN.is_dir():
        pytest.skip("no levels of the game beside the project")
    levels = list(levels_from_bytes((CAMPAIGN / "S2.txt").read_bytes(), "S2.txt")[0].values())
    levels.sort(key=lambda level: -np.isin(level.records[:, 0], kinds.MOVERS).sum())
    assert agrees_with_twin(levels[:150:25], 30)


def test_shots_and_trails_take_longer_than_branches():
    credit = Foresight(horizon=PREPARED).record()["credit"][0]
    assert credit <= GAUSS_TARGETING  # a gauss turret without a target does not shoot within PREPARED
    assert min(LASER_DRONE_PREFIRE, CHAINGUN_PREFIRE) > PREPARED  # nor does a shooting drone
    assert MAX_HORIZON + ESCAPE_FRAMES < FOLLOW_FRAMES  # evil ninjas follow positions from before the branch
    assert TRAIL_SLACK > MAX_HORIZON


@pytest.mark.parametrize("seed", range(8))
def test_clearances_omitted_movers_cannot_reach_ninja(seed):
    level = mixed_level(seed, 0.05, 60, kinds=(*EVERYTHING, *KINDS[-1], 17, 18), doors=1)
    sim, rng = BatchSimulator([level], 1, frame_skip=1, observations=("state",)), np.random.default_rng(seed)
    sim.reset()
    ninja, movers = sim.state.ninja, sim.state.movers[0]
    shots = np.isin(movers["type"], (*kinds.SHOOTING_DRONES, kinds.GAUSS_TURRET))
    lasers = movers["type"] == kinds.LASER
    found = 0
    for _ in range(100):
        if sim.terminated[0]:
            sim.reset()
        run(sim, rng, int(rng.integers(1, 100)))
        near, before = np.ones(len(movers), bool), movers.copy()
        start_x, start_y = ninja[0]["x"], ninja[0]["y"]
        find_near_movers(sim, (start_x, start_y, HALF_SIDE, HALF_SIDE), near)
        far = ~near
        found += far.sum()
        reach = np.where(np.isin(before["type"], kinds.BLOCKS), BLOCK_TOUCH, TOUCH)
        for _ in range(FORESIGHT.horizon):
            run(sim, rng, 1)
            if sim.terminated[0] or max(abs(ninja[0]["x"] - start_x), abs(ninja[0]["y"] - start_y)) > HALF_SIDE:
                break
            x, y = np.abs(movers["x"] - ninja[0]["x"]), np.abs(movers["y"] - ninja[0]["y"])
            assert not (far & ~shots & ~lasers & (x < reach) & (y < reach)).any()
            assert not (far & lasers & (beam_gaps(movers, ninja[0]["x"], ninja[0]["y"]) < RADIUS)).any()
            assert (movers["beam"] == before["beam"])[far & ~lasers].all()
            assert not (far & shots & (movers["state"] == FIRING)).any()
    assert found > 1000


def test_clearances_bound_drone_distance():
    rng, frames = np.random.default_rng(0), 0
    for seed in range(30):
        level = mixed_level(seed, 0.05, 40, kinds=(kinds.ZAP_DRONE, kinds.MINI_DRONE))
        sim = BatchSimulator([level], 1, frame_skip=1, observations=("state",))
        sim.reset()
        movers, x, y = sim.state.movers[0], rng.uniform(0, 1056, 200), rng.uniform(0, 600, 200)
        near = np.empty((len(x), len(movers)), bool)
        for area in range(len(x)):
            find_near_movers(sim, (x[area], y[area], HALF_SIDE, HALF_SIDE), near[area])
        for _ in range(FORESIGHT.horizon):
            run(sim, rng, 1)
            gap_x = np.abs(movers["x"] - x[:, None]) - HALF_SIDE
            gap_y = np.abs(movers["y"] - y[:, None]) - HALF_SIDE
            assert not (~near & (gap_x < TOUCH) & (gap_y < TOUCH)).any()
            frames += not sim.terminated[0]
    assert frames > 15 * FORESIGHT.horizon


def beam_gaps(movers, x, y):
    """Distance of a point from each line (x, y) to (target_x, target_y), px."""
    ex, ey = movers["target_x"] - movers["x"], movers["target_y"] - movers["y"]
    dx, dy = x - movers["x"], y - movers["y"]
    along = np.clip((dx * ex + dy * ey) / np.maximum(ex * ex + ey * ey, 1e-9), 0.0, 1.0)
    return np.hypot(dx - along * ex, dy - along * ey)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("doors", [0, 20])
def test_clearances_bound_beam_distance(fast, doors):
    """Also if doors, on which lasers can stand, open and close."""
    rng, counts = np.random.default_rng(0), np.zeros(2, int)
    for seed in range(10):
        level = mixed_level(seed, 0.02, 40, kinds=(kinds.LASER,), doors=doors)
        bank = LevelBank([level], rules=Rules(fast_lasers=fast))
        sim = BatchSimulator(bank, 1, frame_skip=1, observations=("state",))
        sim.reset()
        run(sim, rng, 10 * seed)
        is_door = sim.bank.world.entity["edge"] >= 0
        movers, places = sim.state.movers[0], rng.uniform((0, 0), (1056, 600), (400, 2))
        near = np.empty((len(places), len(movers)), bool)
        for number, (x, y) in enumerate(places.tolist()):
            find_near_movers(sim, (x, y, 0.0, 0.0), near[number])
        for _ in range(FORESIGHT.horizon):
            gaps = beam_gaps(movers, places[:, :1], places[:, 1:])
            assert not (~near & (movers["type"] == kinds.LASER) & (gaps < RADIUS)).any()
            sim.state.entities[0]["closed"][is_door] = rng.random(is_door.sum()) < 0.5
            run(sim, rng, 1)
        counts += np.bincount(near[:, movers["type"] == kinds.LASER].ravel(), minlength=2)
    assert (counts > 1000).all()


def find_near_movers(sim, area, near):
    entities, movers = sim.state.entities[0], sim.state.movers[0]
    find_near(0, entities, movers, sim.bank.world, area, FORESIGHT.record(), movers.copy(), np.empty(len(movers)), near)


def run(sim, rng, frames):
    action = rng.integers(NUM_ACTIONS, size=1)
    for _ in range(frames):
        if not sim.terminated[0]:
            sim._step(action, np.array([-1], np.int32), every_end=False)
