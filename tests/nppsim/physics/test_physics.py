"""The physics against numbers of the reference, and what must hold on any level.

The end of pseudo-random levels as the reference simulator has it, and the properties of docs/physics.md, section 13.
Bit-exact conformance with recorded traces is the business of ``nppsim verify``.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nppsim
from nppsim.levels.level import Level, mirror
from nppsim.physics import state as s
from nppsim.shadow.geometry import clamped_cell, solid, stage

from worlds import FLOOR, Walk, corridor, pillar, random_level, room, tiles

# Appendix B.1: seed, then x, y, state at frames 150, 300, 450 and 600.
RANDOM_RUNS = """
3 409.2992735 495.3484200 4 370.3063901 549.4190738 4 420.2641410 518.6240786 4 376.1090289 566.0000000 2
7 464.6769001 347.2375191 3 326.1817892 398.2409121 2 247.4411219 366.9234887 4 249.9990039 383.8588605 1
10 546.9367156 283.1390620 4 508.7890088 389.0688556 2 394.3651032 543.7543434 4 445.7934484 540.4370579 4
11 526.8642302 450.3678192 4 561.4543482 518.6635213 4 553.8203603 566.0000000 1 552.1421355 566.0000000 1
14 405.2433474 397.7901196 4 273.9961809 566.0000000 2 269.4959870 538.1651901 3 221.2552268 479.7343272 3
16 502.0024860 309.2825416 3 538.7967236 356.5245111 4 440.2323281 518.0000000 2 394.8692900 533.2765914 4
18 506.1230497 316.3091089 3 542.0701990 423.1288757 4 362.0710438 555.7516356 4 319.9867979 560.7642120 3
19 475.6157662 375.0123143 2 472.4245090 309.6744266 4 330.8841705 447.4076612 2 360.5102681 422.0000000 2
20 318.9885387 398.0000000 2 137.9592814 496.9184108 4 122.1557939 542.2513768 3 34.0000000 566.0000000 1
23 520.3682241 442.3757684 1 433.8033335 514.0530772 3 406.0000000 513.0956815 5 451.5383889 541.6175217 4
"""


class Draws:
    """The generator of appendix B."""

    def __init__(self, seed):
        self.x = seed

    def __call__(self, n=32768):
        self.x = (1103515245 * self.x + 12345) % 2**31
        return self.x // 65536 % n


def pseudo_random_run(seed, density=30):
    """(level, inputs) of appendix B, tiles only."""
    draw = Draws(seed)
    grid = np.zeros((23, 42), np.uint8)
    for cell in range(966):
        if draw(100) < density:
            grid.flat[cell] = 1 + draw(33)
    grid[10:13, 19:22] = 0  # cells 20 to 22, 11 to 13 of the stage
    inputs = []
    while len(inputs) < 600:
        length = 1 + draw(20)
        inputs += [draw(8)] * length
    return Level(grid, np.array([(0, 86, 50, 0, 0)])), np.array(inputs[:600], np.uint8)


def test_random_generator_matches_documented_numbers():
    draw = Draws(1)
    assert [draw() for _ in range(5)] == [16838, 5758, 10113, 17515, 31051]


@pytest.mark.parametrize("row", [line.split() for line in RANDOM_RUNS.strip().splitlines()], ids=lambda row: row[0])
def test_simulate_random_inputs_match_recorded_numbers(row):
    run = nppsim.simulate(*pseudo_random_run(int(row[0])))
    wanted = np.array(row[1:], float).reshape(4, 3)
    got = np.column_stack([run.position, run.ninja_state])[[149, 299, 449, 599]]
    np.testing.assert_allclose(got, wanted, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------- properties
def play(level, *inputs):
    """inputs: (count, byte)."""
    return nppsim.simulate(level, np.repeat([b for _, b in inputs], [n for n, _ in inputs]).astype(np.uint8))


def random_inputs(rng, frames):
    """Inputs that last some frames each."""
    return np.repeat(rng.integers(0, 8, frames), rng.integers(1, 20, frames))[:frames].astype(np.uint8)


@pytest.mark.parametrize("x", [21, 22, 23, 24])
@pytest.mark.parametrize("first", [0, 4])
def test_ninja_rests_on_floor_beside_wall(x, first):
    level = Level.build(tiles(*pillar(3, range(6, 12))), (x, FLOOR - 1))
    run = play(level, (100, first), (2000, 0))
    late = slice(400, None)
    assert run.walled[late].all() == run.walled[late].any() == (first == 4)
    assert np.ptp(run.position[late, 0]) < 1e-9
    np.testing.assert_allclose(run.position[late, 1], 278.0, atol=1e-9)
    assert (run.ninja_state[late] == s.STANDING).all()
    assert not run.airborne[late].any()


def test_free_flight_follows_closed_form():
    run = play(Level.build(tiles(floor=None), (88, 5)), (140, 0))
    n = np.arange(1, 130)
    speed = s.GRAVITY_FALL * (1 - s.DRAG**n) / (1 - s.DRAG)
    np.testing.assert_allclose(run.velocity[: len(n), 1], speed, atol=1e-9)
    assert 9.982 < s.GRAVITY_FALL / (1 - s.DRAG) < 9.984


@pytest.mark.parametrize(("pressed", "slow"), [(1, 1), (10, 10), (46, 46), (60, 46)])
def test_jump_low_gravity_lasts_while_pressed(pressed, slow):
    run = play(room(), (20, 0), (pressed, 1), (100 - pressed, 0))
    before, after = run.velocity[20:70, 1], run.velocity[21:71, 1]  # all in the air
    gravity = after - before * s.DRAG
    assert np.isclose(gravity, s.GRAVITY_JUMP, atol=1e-9).sum() == slow
    assert np.isclose(gravity, s.GRAVITY_FALL, atol=1e-9).sum() == 50 - slow


@pytest.mark.parametrize("early", range(7))
def test_jump_buffer_works_four_frames_before_landing(early):
    level = room((88, 40))
    landing = int(np.flatnonzero(~play(level, (100, 0)).airborne)[0])
    run = play(level, (landing - early, 0), (1, 1), (early + 3, 0))
    assert (run.ninja_state[landing] == s.JUMPING) == (early <= 4)


@pytest.mark.parametrize("late", range(1, 7))
def test_floor_buffer_works_four_frames_after_leaving(late):
    ledge = Level.build(tiles(*pillar(5, [12]), *pillar(6, [12]), floor=None), (24, FLOOR))
    last = int(np.flatnonzero(~play(ledge, (100, 2)).airborne)[-1])
    run = play(ledge, (last + late, 2), (1, 3), (5, 2))
    assert (run.velocity[last:, 1].min() < -1.5) == (late <= 4)


@pytest.mark.parametrize("late", range(1, 7))
def test_wall_jump_works_four_frames_after_contact(late):
    level = Level.build(tiles(*pillar(20, range(2, 22)), floor=None), (86, 30))
    away = play(level, (10, 4), (30, 2))
    last = int(np.flatnonzero(away.walled)[-1])
    run = play(level, (10, 4), (last + late - 10, 2), (1, 3), (5, 2))
    assert (run.velocity[last + late, 0] > 0.9) == (late <= 4)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_ninja_never_enters_solid_tiles(seed):
    level = random_level(seed, 0.35, num_entities=0, shapes=34)
    run = nppsim.simulate(level, random_inputs(np.random.default_rng(seed), 400))
    grid = stage(level)
    for x, y in run.position[::3]:
        cell = clamped_cell(x, y)
        assert not solid(grid[cell], np.array(x - 24 * cell[0]), np.array(y - 24 * cell[1]))


@pytest.mark.parametrize("seed", range(12))
def test_mirrored_level_gives_mirrored_run(seed):
    """For a short while: rounding differs, and in narrow places the left wall wins."""
    level = random_level(seed, 0.15, num_entities=20, doors=False, shapes=34)
    inputs = random_inputs(np.random.default_rng(seed), 150)
    swapped = inputs & 1 | np.where(inputs & 4, 2, np.where(inputs & 2, 4, 0)).astype(np.uint8)
    run, image = nppsim.simulate(level, inputs), nppsim.simulate(mirror(level), swapped)
    assert run.frames == image.frames
    np.testing.assert_allclose(image.position, [1056, 0] + run.position * [-1, 1], atol=1e-6)
    np.testing.assert_allclose(image.velocity, run.velocity * [-1, 1], atol=1e-6)
    np.testing.assert_array_equal(image.ninja_state, run.ninja_state)
    np.testing.assert_array_equal(image.gold, run.gold)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shift", [(3, 0), (-5, 2), (0, -4)])
def test_shifted_level_gives_shifted_run(seed, shift):
    rng = np.random.default_rng(seed)
    block = np.where(rng.random((9, 20)) < 0.2, rng.integers(1, 38, (9, 20)), 0).astype(np.uint8)
    block[-1] = 1
    block[3:6, 9:12] = 0
    inputs = random_inputs(rng, 120)
    runs = []
    for dx, dy in ((0, 0), shift):
        grid = np.zeros((23, 42), np.uint8)
        grid[6 + dy : 15 + dy, 10 + dx : 30 + dx] = block
        runs.append(nppsim.simulate(Level.build(grid, (86 + 4 * dx, 46 + 4 * dy)), inputs))
    plain, moved = runs
    assert plain.frames == moved.frames
    np.testing.assert_allclose(moved.position, plain.position + np.multiply(shift, 24), atol=1e-6)
    np.testing.assert_array_equal(moved.ninja_state, plain.ninja_state)


def test_simulate_same_inputs_bit_identical():
    level = random_level(9, 0.3, num_entities=60)
    inputs = random_inputs(np.random.default_rng(9), 600)
    first, again = nppsim.simulate(level, inputs), nppsim.simulate(level, inputs)
    for name in ("position", "velocity", "ninja_state", "entity_state", "gold"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_collected_entities_never_return(seed):
    level = random_level(seed, 0.1, num_entities=80)
    run = nppsim.simulate(level, random_inputs(np.random.default_rng(seed), 600))
    active, closed = (run.entity_state & 1).astype(int), (run.entity_state >> 4 & 1).astype(int)
    assert (np.diff(run.gold) >= 0).all()
    assert (np.diff(active, axis=0) <= 0).all()
    assert (np.diff(closed[:, run.entities[:, 0] == 6], axis=0) <= 0).all()
    assert (np.diff(closed[:, run.entities[:, 0] == 8], axis=0) >= 0).all()
    assert (run.ninja_state != s.DYING).all()
    assert 0.0 <= run.win_fraction <= 1.0


def play_on(level, inputs):
    """x, y and state after each frame, also after death and win."""
    walk = Walk(level)
    return np.array([[float(ninja[name]) for name in ("x", "y", "state")] for ninja, _ in map(walk.frame, inputs)]).T


def test_dead_ninja_never_moves():
    inputs = random_inputs(np.random.default_rng(1), 300)
    inputs[:60] = 2
    x, y, state = play_on(corridor(entities=[(1, 30, FLOOR)]), inputs)
    death = int(np.flatnonzero(state == s.DEAD)[0])
    assert 0 < death < 60
    assert (state[death:] == s.DEAD).all()
    assert np.ptp(x[death:]) == np.ptp(y[death:]) == 0.0


def test_won_ninja_slides_and_cannot_die():
    level = corridor(20, 25, 32, entities=[(1, 44, FLOOR)])
    x, _, state = play_on(level, np.full(300, 2, np.uint8))
    win = int(np.flatnonzero(state == s.CELEBRATING)[0])
    assert (state[win:] == s.CELEBRATING).all()
    assert x[win] < x[win + 5] < x[-1]


def test_left_overrides_right():
    both, left = (play(room(), (60, byte)).position for byte in (6, 4))
    assert both.tobytes() == left.tobytes()


def test_simulate_invalid_inputs_raise_error():
    with pytest.raises(ValueError, match=r"one byte per frame, a vector of whole numbers 0..255; got uint8\[2, 2\]"):
        nppsim.simulate(room(), np.zeros((2, 2), np.uint8))
