"""Foresight against simulation; test_observations and the shadow tests use its reference implementation."""

import numpy as np
import pytest

from nppsim.actions import NUM_ACTIONS
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.observe.foresight import AHEAD, DEAD_END
from nppsim.observe.foresight_settings import BRANCHES, HORIZON, Foresight
from nppsim.paths import MAX_PATH
from nppsim.physics.outcomes import DIED, WON

from worlds import corridor, mixed_level, random_level, room, tiles

NO_OP, LEFT, RIGHT, JUMP, JUMP_LEFT, JUMP_RIGHT = range(NUM_ACTIONS)
HOLD, RELEASE, OTHER_JUMP, TURN = (layout.CONTINUATIONS.index(name) for name in ("hold", "release", "jump", "turn"))
ONWARD = {  # continuation -> what is pressed after each action
    HOLD: [NO_OP, LEFT, RIGHT, JUMP, JUMP_LEFT, JUMP_RIGHT],
    RELEASE: [NO_OP] * NUM_ACTIONS,
    OTHER_JUMP: [JUMP, JUMP_LEFT, JUMP_RIGHT, NO_OP, LEFT, RIGHT],
    TURN: [NO_OP, RIGHT, LEFT, JUMP, JUMP_RIGHT, JUMP_LEFT],
}
DECISIONS = HORIZON // 4


def simulator(level, **options):
    sim = BatchSimulator([level], 1, observations=("state", "foresight", "reachability"), **options)
    sim.reset()
    return sim


def seen(sim):
    return sim.obs["foresight"][0].copy()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("continuation", ONWARD)
def test_foresight_random_play_equals_simulation(seed, continuation):
    level = mixed_level(seed) if seed % 2 else random_level(seed, 0.2, num_entities=30)
    sim, rng = simulator(level), np.random.default_rng(seed)
    for _ in range(12):
        for _ in range(rng.integers(1, 6)):
            sim.step(rng.integers(NUM_ACTIONS, size=1))
        before, said = sim.snapshot(0), seen(sim)
        start, taken = sim.state.ninja[0].copy(), int(sim.state.ninja["switch_taken"][0])
        for action in range(NUM_ACTIONS):
            message = said[action, continuation]
            sim.restore(0, before)
            played = 0
            for decision in range(DECISIONS):
                pressed = ONWARD[continuation][action] if decision else action
                sim._step(np.array([pressed]), np.array([-1], np.int32), every_end=False)
                played = int(sim.state.ninja["frame"][0]) - int(start["frame"])
                if sim.finished.size and sim.terminated[0]:
                    break
            now = sim.state.ninja[0]
            soon = np.float32(1 - (played - 1) / HORIZON)
            outcome = sim.episode["outcome"][0] if sim.terminated[0] else 0
            assert (
                message[AHEAD.death] == soon if outcome == DIED else message[AHEAD.death] in (0, np.float32(DEAD_END))
            )
            assert message[AHEAD.win] == (soon if outcome == WON else 0)
            assert message[AHEAD.dx] == np.float32(now["x"] - start["x"])
            assert message[AHEAD.dy] == np.float32(now["y"] - start["y"])
            assert message[AHEAD.vx] == np.float32(now["vx"])
            assert message[AHEAD.vy] == np.float32(now["vy"])
            assert message[AHEAD.airborne] == now["airborne"]
            assert message[AHEAD.switch] == now["switch_taken"] - taken
            assert message[AHEAD.gold] == now["gold"] - start["gold"]
        sim.restore(0, before)
        sim.observe()


def test_foresight_mine_ahead_kills_unless_turning():
    sim = simulator(room((80, 46), entities=[(1, 92, 46)]))
    while not (said := seen(sim))[RIGHT, HOLD, AHEAD.death]:
        sim.step(np.array([RIGHT]))
    assert not said[LEFT, :, AHEAD.death].any()
    deaths = said[RIGHT, HOLD, AHEAD.death]
    sim.step(np.array([RIGHT]))
    assert seen(sim)[RIGHT, HOLD, AHEAD.death] == pytest.approx(deaths + 4 / HORIZON)  # a decision nearer


def test_foresight_leap_into_mines_is_dead_end():
    ledge = tiles(*((cx, 4, 1) for cx in range(1, 8)), floor=22)
    mines = [(1, x, y) for x in range(30, 174) for y in (82, 84)]  # across the whole level, above the floor
    sim = simulator(Level.build(ledge, (26, 14), entities=mines))
    found = []
    while not sim.finished.size:
        said = seen(sim)
        found.append((said[RIGHT, :, AHEAD.death].min(), said[RIGHT, :, AHEAD.death].max()))
        sim.step(np.array([RIGHT]))
    assert sim.episode["outcome"][0] == DIED
    assert found[0] == (0, 0)
    dead_ends = [k for k, (low, high) in enumerate(found) if low == high == np.float32(DEAD_END)]
    deaths = [k for k, (low, _) in enumerate(found) if low > DEAD_END]
    assert dead_ends and deaths and dead_ends[-1] < deaths[0]


def test_foresight_switch_exit_and_progress():
    sim = simulator(corridor(spawn=20, switch=30, door=60))
    switches, wins = [], []
    while not sim.finished.size:
        said, left = seen(sim), sim.obs["reachability_features"][0, 1]
        switches.append(said[RIGHT, HOLD, AHEAD.switch])
        wins.append(said[RIGHT, HOLD, AHEAD.win])
        sim.step(np.array([RIGHT]))
        assert 0 <= left - sim.obs["reachability_features"][0, 1] <= said[RIGHT, HOLD, AHEAD.progress] + 12 or wins[-1]
    assert sim.episode["outcome"][0] == WON
    assert 0 < sum(switches) <= DECISIONS  # foreseen, taken, and no news any more
    assert np.count_nonzero(wins) in (DECISIONS - 1, DECISIONS)
    assert (np.diff(wins) >= 0).all()


def test_foresight_counts_opened_doors():
    sim = simulator(corridor(20, 100, 120, locked_doors=[((30, 46), (80, 44), 0)]))
    said = []
    while not said or not said[-1]:
        said.append(seen(sim)[RIGHT, HOLD, AHEAD.doors])
        sim.step(np.array([RIGHT]))
    assert said[-1] == 1


def test_foresight_counts_collected_gold():
    sim = simulator(room((80, 46), entities=[(2, 84, 46), (2, 85, 46)]))
    assert seen(sim)[RIGHT, HOLD, AHEAD.gold] == 2
    assert not seen(sim)[LEFT, HOLD, AHEAD.gold]


def test_foresight_leaves_state_unchanged():
    level = mixed_level(3)
    looking, plain = simulator(level), BatchSimulator([level], 1, observations=("state",))
    plain.reset()
    rng = np.random.default_rng(0)
    for _ in range(40):
        action = rng.integers(NUM_ACTIONS, size=1)
        looking.step(action), plain.step(action)
        assert looking.snapshot(0).tobytes() == plain.snapshot(0).tobytes()


@pytest.mark.parametrize(("seed", "frame_skip"), [(0, 4), (1, 4), (2, 1), (3, 7), (4, HORIZON)])
def test_foresight_independent_of_previous_calls(seed, frame_skip):
    """One simulator reuses branches of the last decision; the other one observed another state before."""
    level = mixed_level(seed) if seed % 2 else random_level(seed, 0.2, num_entities=30)
    going_on, afresh = (simulator(level, frame_skip=frame_skip) for _ in range(2))
    begin, rng = afresh.snapshot(0), np.random.default_rng(seed)
    action = NO_OP
    for _ in range(60):
        if rng.random() < 0.5:
            action = rng.integers(NUM_ACTIONS)
        going_on.step(np.array([action]))
        afresh.restore(0, begin)
        afresh.observe()
        afresh.restore(0, going_on.snapshot(0))
        afresh.observe()
        assert seen(going_on).tobytes() == seen(afresh).tobytes()


def test_foresight_finished_episode_is_zero():
    sim = simulator(room((80, 46), entities=[(1, 92, 46)]))
    while not sim.terminated[0]:
        sim._step(np.array([RIGHT]), np.array([-1], np.int32), every_end=False)
    assert not seen(sim).any()


def test_foresight_without_path_has_no_progress():
    sim = simulator(room(exits=()))
    assert sim.obs["reachability_features"][0, 1] == MAX_PATH
    assert not seen(sim)[..., AHEAD.progress].any()


def test_foresight_decision_as_long_as_horizon():
    sim = simulator(room((80, 46)), frame_skip=HORIZON)
    said = seen(sim)
    assert (said == said[:, :1]).all()
    sim.step(np.array([RIGHT]))
    assert said[RIGHT, HOLD, AHEAD.dx] == np.float32(sim.state.ninja["x"][0] - 6.0 * 80)


def test_foresight_fewer_branches_equals_part_of_all():
    level = mixed_level(1)
    every, some = (simulator(level, foresight=Foresight(branches=count, escapes=0)) for count in (24, 12))
    for _ in range(20):
        np.testing.assert_array_equal(seen(some)[:, :2], seen(every)[:, :2])
        np.testing.assert_array_equal(seen(some)[:, 2:], np.repeat(seen(every)[:, :1], 2, axis=1))
        for sim in (every, some):
            sim.step(np.array([JUMP_RIGHT]))


def test_foresight_without_escapes_marks_no_dead_ends():
    for escapes in (18, 0):
        sim = simulator(mixed_level(3, 0.2), foresight=Foresight(escapes=escapes))
        found, rng = 0, np.random.default_rng(0)
        for _ in range(200):
            found += (seen(sim)[..., AHEAD.death] == np.float32(DEAD_END)).any()
            sim.step(rng.integers(NUM_ACTIONS, size=1))
        assert bool(found) == bool(escapes)


def test_foresight_noise_exchanges_outcomes_and_leaves_play_unchanged():
    exact, noisy = (simulator(mixed_level(1), foresight=Foresight(noise=noise)) for noise in (0.0, 0.25))
    rng, changed, decisions = np.random.default_rng(0), 0, 200
    for _ in range(decisions):
        rows = [sorted(branches.tobytes() for branches in seen(sim)) for sim in (exact, noisy)]
        assert rows[0] == rows[1]
        changed += not np.array_equal(seen(exact), seen(noisy))
        again = seen(noisy)
        np.testing.assert_array_equal(noisy.observe()["foresight"][0], again)
        action = rng.integers(NUM_ACTIONS, size=1)
        for sim in (exact, noisy):
            sim.step(action)
        assert exact.snapshot(0).tobytes() == noisy.snapshot(0).tobytes()
    assert 0.4 < changed / decisions < 0.95


@pytest.mark.parametrize(
    "settings",
    [{}, {"horizon": 20}, {"branches": 6, "noise": 0.1}, {"horizon": 1, "branches": 12, "escapes": 0, "noise": 0.0001}],
)
def test_foresight_settings_name_round_trip(settings):
    one = Foresight(**settings)
    assert bool(one) == bool(settings) == bool(one.name)
    if one.name:
        assert Foresight.named(one.name) == one


@pytest.mark.parametrize(
    "name", ["", "horizon", "horizon40", "noise0.1-horizon20", "horizon020", "escapes19", "branches7"]
)
def test_foresight_settings_invalid_name_raises(name):
    with pytest.raises(ValueError, match="give|at most"):
        Foresight.named(name)


@pytest.mark.parametrize(
    "settings", [{"horizon": 0}, {"horizon": 60}, {"branches": 7}, {"noise": 1.5}, {"noise": 1e-5}]
)
def test_foresight_settings_out_of_range_raises_config_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Foresight(**settings)
    assert BRANCHES == (6, 12, 18, 24)
