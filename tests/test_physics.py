"""The physics against numbers of the reference, and what must hold on any level.

Scenarios (V1 to V18) and pseudo-random levels: appendices A and B of the physics specification; properties: its section
13.  Bit-exact conformance with recorded traces is the business of ``nppsim verify``.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import FLOOR, Walk, corridor, random_level, room, tiles

import nppsim
from nppsim.level import Level, mirror
from nppsim.physics import state as s
from nppsim.shadow.geometry import clamped_cell, solid, stage


@dataclass
class Scenario:
    """cells: (cx, cy, tile) beside the floor.  inputs: (count, byte).  rows: frame, x, y, vx, vy, state."""

    cells: list
    spawn: tuple
    inputs: list
    rows: str
    floor: int = 12
    records: list = field(default_factory=list)

    def level(self):
        records = [(0, *self.spawn, 0, 0), *self.records]
        return Level(tiles(*self.cells, floor=self.floor), np.array(records))

    def bytes(self):
        return np.repeat([b for _, b in self.inputs], [n for n, _ in self.inputs]).astype(np.uint8)


def pillar(cx, rows):
    return [(cx, cy, 1) for cy in rows]


RAMP = [(20 + k, 11 - k, 8) for k in range(6)] + [c for k in range(1, 6) for c in pillar(20 + k, range(12 - k, 12))]
RAMP += [c for cx in range(26, 30) for c in pillar(cx, range(6, 12))]
HUMP = [(12, 11, 8), (13, 11, 1), (14, 11, 9), (22, 11, 8), (23, 11, 1)]
SLOPES = [(10, 11, 20), (11, 11, 24), (12, 11, 1), (13, 11, 25), (14, 11, 21), (20, 11, 28), (21, 11, 1)]
CURVES = [*pillar(30, range(4, 12)), (29, 11, 16), (15, 11, 12), (16, 11, 1), (17, 11, 13)]
THINGS = [(2, 30), (3, 124), (4, 60), (5, 70), (6, 90), (7, 80), (8, 130), (9, 110), (21, 40)]

SCENARIOS = {
    "V1 run, jump, land, brake": Scenario(
        [], (20, 46), [(10, 0), (60, 2), (20, 3), (60, 2), (60, 0)],
        """
        1 120.000000000 276.066666667 0.000000000 0.066666667 4
        2 120.000000000 276.199554812 0.000000000 0.132888145 4
        10 120.000000000 278.000000000 0.000000000 0.000000000 0
        11 120.000000000 278.000000000 0.066666667 0.000000000 1
        40 147.089141929 278.000000000 1.817887267 0.000000000 1
        70 223.417970932 278.000000000 3.304749874 0.000000000 1
        71 226.700652257 276.000000000 3.282681325 -2.000000000 3
        72 229.961412403 274.024466766 3.305204590 -1.975533234 3
        80 256.317158535 259.081625585 3.305800050 -1.785590223 3
        90 289.268313370 242.467601889 3.306500864 -1.562040704 3
        110 355.190452719 225.709310797 3.307769183 -0.163011474 4
        150 487.102746350 270.216386888 3.309848576 2.222373810 4
        170 531.753284384 278.000000000 1.125138788 0.000000000 2
        210 548.728648434 278.000000000 0.098467927 0.000000000 0
        """,
    ),
    "V2 wall slide and wall jumps": Scenario(
        pillar(20, range(5, 12)), (60, 46),
        [(40, 2), (30, 3), (20, 2), (1, 3), (30, 2), (1, 0), (20, 3), (40, 2)],
        """
        40 402.583540643 278.000000000 2.224833864 0.000000000 1
        41 404.793517451 276.000000000 2.276643474 -2.000000000 3
        60 452.544745521 242.467601889 2.800069753 -1.562040704 3
        70 470.000000000 228.008591100 0.044444444 -1.352978734 3
        88 470.000000000 215.177716735 0.044444444 -0.114582125 4
        90 470.000000000 215.150397665 0.044444444 0.019831229 5
        91 469.333333333 214.236763132 -0.666666667 -1.000000000 3
        110 464.750632847 207.634925123 0.208585993 0.263635385 4
        121 469.335283991 214.724783063 0.666653553 0.954235580 4
        122 469.997485747 215.739313088 0.662201756 1.014530026 4
        141 458.619767620 193.583480138 -0.130216598 -1.051896752 3
        182 470.000000000 198.944811339 0.044444444 0.651010657 5
        """,
    ),
    "V3 over a hump of 45 degrees": Scenario(
        HUMP, (20, 46), [(110, 2), (1, 3), (40, 2), (30, 4), (40, 0)],
        """
        60 216.180274206 278.000000000 3.197851332 0.000000000 1
        80 281.529955516 278.000000000 3.291857015 0.000000000 1
        90 298.959173536 262.898690841 1.734340778 -1.667674111 1
        100 317.006391338 248.150368691 2.015382053 -1.164639373 4
        110 338.386311335 240.517450891 2.316095269 -0.442176919 4
        111 340.686940119 240.144893420 2.345073229 -0.372557471 4
        130 389.654892797 245.693837073 2.860319808 0.865320644 4
        151 454.345968585 277.323973651 3.314308668 2.062091882 4
        181 483.694435676 278.000000000 -0.458014562 0.000000000 1
        221 476.667701036 278.000000000 -0.012620062 0.000000000 0
        """,
    ),
    "V4 jumps on a long ramp": Scenario(
        RAMP, (72, 46),
        [(80, 2), (1, 3), (40, 2), (40, 0), (10, 4), (1, 5), (60, 0), (40, 2), (1, 5), (40, 0)],
        """
        50 486.342925160 267.514939216 1.235404430 -1.168737763 1
        70 511.124153236 242.733711140 1.397658676 -1.330992010 1
        80 524.674767940 229.183096437 1.470987439 -1.404320773 1
        81 526.069488306 226.388376070 1.461387033 -2.794720367 3
        90 540.355348867 204.521277076 1.765347184 -2.099609377 4
        110 578.379605475 175.478258902 1.624781413 -1.558114747 1
        161 623.768102437 134.002689186 0.125527700 -0.002911740 2
        171 621.918970609 134.218930699 -0.562000961 0.105387785 1
        172 621.175042903 132.428490666 -0.806078984 -1.928584889 3
        190 607.552170211 109.869773826 -0.714496217 -0.624790713 4
        232 581.483536512 142.128559385 -0.539244075 1.977166101 4
        272 554.762205130 199.095659247 -0.501444715 0.596774848 2
        273 553.712024354 198.260221939 -1.116847442 -1.414213562 3
        290 535.827068244 184.563328246 -0.996611879 -0.237109796 4
        313 514.654950712 197.055847353 -0.854277648 1.222547993 4
        """,
    ),
    "V5 mild and steep slopes": Scenario(
        SLOPES, (20, 46), [(70, 2), (30, 0), (60, 2), (40, 4), (40, 0)],
        """
        40 162.583540643 278.000000000 2.224833864 0.000000000 1
        60 216.180274206 278.000000000 3.197851332 0.000000000 1
        70 246.795232573 273.422043826 2.820600798 -1.376967066 1
        85 276.865704019 258.386808103 1.257396722 -0.628698361 2
        100 289.090393508 254.000000000 0.490403585 0.000000000 2
        130 328.680356941 256.948164132 2.024255781 0.584325083 4
        160 402.994139576 278.000000000 3.124664983 0.000000000 1
        200 424.576302635 278.000000000 -1.078857082 0.000000000 1
        240 407.430036924 278.000000000 -0.099814599 0.000000000 0
        """,
    ),
    "V6 quarter pipe and quarter moons": Scenario(
        CURVES, (30, 46), [(200, 2), (60, 0)],
        """
        60 276.180274206 278.000000000 3.197851332 0.000000000 1
        80 341.529955516 278.000000000 3.291857015 0.000000000 1
        100 358.173570465 265.886756514 0.585727356 -0.606219721 1
        120 376.365584756 254.868207053 1.613532908 -0.356437674 1
        140 419.415798222 254.948176014 2.621921846 0.328911078 4
        160 476.389642653 274.509380674 3.127791496 1.539703525 4
        180 541.362525583 278.000000000 3.313219178 0.000000000 1
        200 606.807732618 278.000000000 3.273249336 0.000000000 1
        230 654.756888373 278.000000000 0.534048840 0.000000000 2
        260 662.187823598 278.000000000 0.072318999 0.000000000 0
        """,
    ),
    "V17 death by impact": Scenario(
        [], (40, 6), [(200, 0)],
        """
        30 240.000000000 65.089141929 0.000000000 1.817887267 4
        60 240.000000000 143.417970932 0.000000000 3.304749874 4
        100 240.000000000 309.195513595 0.000000000 4.874867692 4
        140 240.000000000 529.881367750 0.000000000 6.075852272 4
        141 240.000000000 535.983313195 0.000000000 6.101945445 4
        142 240.000000000 542.000000000 0.000000000 6.127864373 6
        """,
        floor=23,
    ),
    "V18 gold, switches, doors, mine, exit": Scenario(
        [], (20, 46), [(400, 2)],
        """
        60 216.180274206 278.000000000 3.197851332 0.000000000 1
        120 412.497613112 278.000000000 3.278064710 0.000000000 1
        180 609.479559926 278.000000000 3.287143448 0.000000000 1
        215 724.166238964 278.000000000 3.249470279 0.000000000 8
        """,
        records=[(kind, x, 46, 0, 0) for kind, x in THINGS],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_give_the_numbers_of_the_reference(name):
    scenario = SCENARIOS[name]
    run = nppsim.simulate(scenario.level(), scenario.bytes())
    rows = np.array([[float(v) for v in line.split()] for line in scenario.rows.strip().splitlines()])
    at = rows[:, 0].astype(int) - 1
    got = np.column_stack([run.position[at], run.velocity[at], run.ninja_state[at]])
    np.testing.assert_allclose(got, rows[:, 1:], atol=1e-6)
    ended = {6: "died", 8: "won"}.get(int(rows[-1, -1]), "running")
    assert run.outcome == ended
    assert run.frames == (rows[-1, 0] if ended != "running" else len(scenario.bytes()))


def events(run):
    """(frame, type, index, state) of every change, as in the event log of the reference (9.6)."""
    found = []
    active, mine, closed = run.entity_state & 1, run.entity_state >> 1 & 7, run.entity_state >> 4 & 1
    for k, (kind, index) in enumerate(run.entities.tolist()):
        for f in range(1, run.frames):
            if kind in (1, 21) and mine[f, k] != mine[f - 1, k]:
                found.append((f + 1, kind, index, int(mine[f, k])))
            elif kind in (2, 4) and active[f, k] != active[f - 1, k]:
                found.append((f + 1, kind, index, 1))
            elif kind in (5, 6, 8) and closed[f, k] != closed[f - 1, k]:
                found.append((f + 1, kind, index, 1 - int(closed[f, k])))
    return sorted(found)


def test_every_event_of_the_last_scenario_falls_on_its_frame():
    scenario = SCENARIOS["V18 gold, switches, doors, mine, exit"]
    run = nppsim.simulate(scenario.level(), scenario.bytes())
    wanted = [(41, 2, 0, 1), (65, 21, 0, 2), (73, 21, 0, 0), (100, 4, 0, 1), (117, 5, 0, 1), (134, 5, 0, 0)]
    assert events(run) == [*wanted, (137, 6, 0, 1), (191, 8, 0, 0)]
    assert run.gold[-1] == 1
    assert run.win_fraction == pytest.approx(0.361390908, abs=1e-6)


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


def test_the_generator_gives_the_numbers_of_the_specification():
    draw = Draws(1)
    assert [draw() for _ in range(5)] == [16838, 5758, 10113, 17515, 31051]


@pytest.mark.parametrize("row", [line.split() for line in RANDOM_RUNS.strip().splitlines()], ids=lambda row: row[0])
def test_pseudo_random_runs_give_the_numbers_of_the_reference(row):
    run = nppsim.simulate(*pseudo_random_run(int(row[0])))
    wanted = np.array(row[1:], float).reshape(4, 3)
    got = np.column_stack([run.position, run.ninja_state])[[149, 299, 449, 599]]
    np.testing.assert_allclose(got, wanted, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------- properties
def play(level, *inputs):
    """inputs: (count, byte)."""
    return nppsim.simulate(level, np.repeat([b for _, b in inputs], [n for n, _ in inputs]).astype(np.uint8))


def random_inputs(rng, frames):
    """Inputs that are held for some frames each."""
    return np.repeat(rng.integers(0, 8, frames), rng.integers(1, 20, frames))[:frames].astype(np.uint8)


@pytest.mark.parametrize("x", [21, 22, 23, 24])
@pytest.mark.parametrize("first", [0, 4])
def test_a_ninja_on_a_floor_stays_where_it_is_also_beside_a_wall(x, first):
    level = Level.build(tiles(*pillar(3, range(6, 12))), (x, FLOOR - 1))
    run = play(level, (100, first), (2000, 0))
    late = slice(400, None)
    assert run.walled[late].all() == run.walled[late].any() == (first == 4)
    assert np.ptp(run.position[late, 0]) < 1e-9
    np.testing.assert_allclose(run.position[late, 1], 278.0, atol=1e-9)
    assert (run.ninja_state[late] == s.STANDING).all()
    assert not run.airborne[late].any()


def test_free_flight_follows_its_closed_form_up_to_the_terminal_speed():
    run = play(Level.build(tiles(floor=None), (88, 5)), (140, 0))
    n = np.arange(1, 130)
    speed = s.GRAVITY_FALL * (1 - s.DRAG**n) / (1 - s.DRAG)
    np.testing.assert_allclose(run.velocity[: len(n), 1], speed, atol=1e-9)
    assert 9.982 < s.GRAVITY_FALL / (1 - s.DRAG) < 9.984


@pytest.mark.parametrize(("held", "slow"), [(1, 1), (10, 10), (46, 46), (60, 46)])
def test_a_jump_has_as_many_frames_of_low_gravity_as_it_is_held_up_to_46(held, slow):
    run = play(room(), (20, 0), (held, 1), (100 - held, 0))
    before, after = run.velocity[20:70, 1], run.velocity[21:71, 1]  # all in the air
    gravity = after - before * s.DRAG
    assert np.isclose(gravity, s.GRAVITY_JUMP, atol=1e-9).sum() == slow
    assert np.isclose(gravity, s.GRAVITY_FALL, atol=1e-9).sum() == 50 - slow


@pytest.mark.parametrize("early", range(7))
def test_a_jump_pressed_up_to_four_frames_before_landing_is_done_on_landing(early):
    level = room((88, 40))
    landing = int(np.flatnonzero(~play(level, (100, 0)).airborne)[0])
    run = play(level, (landing - early, 0), (1, 1), (early + 3, 0))
    assert (run.ninja_state[landing] == s.JUMPING) == (early <= 4)


@pytest.mark.parametrize("late", range(1, 7))
def test_a_jump_works_up_to_four_frames_after_the_floor_has_ended(late):
    ledge = Level.build(tiles(*pillar(5, [12]), *pillar(6, [12]), floor=None), (24, FLOOR))
    last = int(np.flatnonzero(~play(ledge, (100, 2)).airborne)[-1])
    run = play(ledge, (last + late, 2), (1, 3), (5, 2))
    assert (run.velocity[last:, 1].min() < -1.5) == (late <= 4)


@pytest.mark.parametrize("late", range(1, 7))
def test_a_wall_jump_works_up_to_four_frames_after_the_wall_was_touched(late):
    level = Level.build(tiles(*pillar(20, range(2, 22)), floor=None), (86, 30))
    away = play(level, (10, 4), (30, 2))
    last = int(np.flatnonzero(away.walled)[-1])
    run = play(level, (10, 4), (last + late - 10, 2), (1, 3), (5, 2))
    assert (run.velocity[last + late, 0] > 0.9) == (late <= 4)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_the_ninja_never_gets_into_solid_tiles(seed):
    level = random_level(seed, 0.35, num_entities=0, shapes=34)
    run = nppsim.simulate(level, random_inputs(np.random.default_rng(seed), 400))
    grid = stage(level)
    for x, y in run.position[::3]:
        cell = clamped_cell(x, y)
        assert not solid(grid[cell], np.array(x - 24 * cell[0]), np.array(y - 24 * cell[1]))


@pytest.mark.parametrize("seed", range(12))
def test_the_mirror_image_of_a_level_gives_the_mirror_image_of_a_run(seed):
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
def test_a_shifted_level_gives_a_shifted_run(seed, shift):
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


def test_the_same_inputs_give_the_same_run_bit_for_bit():
    level = random_level(9, 0.3, num_entities=60)
    inputs = random_inputs(np.random.default_rng(9), 600)
    first, again = nppsim.simulate(level, inputs), nppsim.simulate(level, inputs)
    for name in ("position", "velocity", "ninja_state", "entity_state", "gold"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_gold_switches_and_locked_doors_never_come_back(seed):
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


def test_a_dead_ninja_never_moves_again():
    inputs = random_inputs(np.random.default_rng(1), 300)
    inputs[:60] = 2
    x, y, state = play_on(corridor(entities=[(1, 30, FLOOR)]), inputs)
    death = int(np.flatnonzero(state == s.DEAD)[0])
    assert 0 < death < 60
    assert (state[death:] == s.DEAD).all()
    assert np.ptp(x[death:]) == np.ptp(y[death:]) == 0.0


def test_a_ninja_that_has_won_slides_on_and_cannot_die():
    level = corridor(20, 25, 32, entities=[(1, 44, FLOOR)])
    x, _, state = play_on(level, np.full(300, 2, np.uint8))
    win = int(np.flatnonzero(state == s.CELEBRATING)[0])
    assert (state[win:] == s.CELEBRATING).all()
    assert x[win] < x[win + 5] < x[-1]


def test_left_wins_over_right():
    both, left = (play(room(), (60, byte)).position for byte in (6, 4))
    assert both.tobytes() == left.tobytes()


def test_inputs_that_are_no_vector_of_bytes_are_refused():
    with pytest.raises(ValueError, match=r"one byte per frame, a vector of whole numbers 0..255; got uint8\[2, 2\]"):
        nppsim.simulate(room(), np.zeros((2, 2), np.uint8))
