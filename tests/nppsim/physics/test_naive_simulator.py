"""The naive simulator is right: it reproduces the recorded traces bit for bit.

What it adds beyond the traces (damaged levels, unfinished entities, self-destruct) is tested on small levels here.
"""

import math

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.levels.level import Level

from naive_simulator import DEAD, MOVERS, Simulator
from places import EXCERPT, SHARED
from worlds import MIXED, UNFINISHED, corridor, mixed_level, room, tiles

CONFORMANCE = SHARED / "conformance"


def first_difference(case):
    """Where the reference leaves a recorded case (a group of the traces), as text; None if it never does."""
    simulator = Simulator(Level.from_bytes(case["map"][:].tobytes(), name=case.name))
    identities = [[entity.type, entity.number] for entity in simulator.entities]
    if identities != case["entities"][:].tolist():
        return f"{case.name}: entities are {identities}"
    if [pair for pair in identities if pair[0] in MOVERS] != case["movers"][:].tolist():
        return f"{case.name}: the movers differ"
    frames = case["frames"][:].tolist()
    # A level without entities, or without movers, has no dataset for them.
    bits = case["entity_state"][:].tolist() if "entity_state" in case else [[]] * len(frames)
    positions = case["mover_pos"][:].tolist() if "mover_pos" in case else [[]] * len(frames)
    for k, input_byte in enumerate(case["inputs"][: len(frames)].tolist()):
        simulator.tick(input_byte)
        for what, found, wanted in (
            ("ninja", list(simulator.frame()), frames[k]),
            ("entity_state", simulator.entity_bits(), bits[k]),
            ("mover_pos", simulator.mover_positions(), positions[k]),
        ):
            if found != wanted:
                return f"{case.name}, frame {k + 1}: {what} is {found}, recorded {wanted}"
    return None


def test_naive_excerpt_is_bit_exact():
    with h5py.File(EXCERPT) as file:
        cases = [file[theme][name] for theme in file for name in file[theme]]
        assert len(cases) == 30
        assert [difference for case in cases if (difference := first_difference(case))] == []


@pytest.mark.parametrize(("name", "themes"), [("synthetic.h5", 19), ("replays.h5", 6)])
def test_naive_themes_are_bit_exact(name, themes):
    if not (CONFORMANCE / name).exists():
        pytest.skip(f"no {name} beside the repository")
    with h5py.File(CONFORMANCE / name) as file:
        cases = [group[next(iter(group))] for group in file.values()]
        assert len(cases) == themes
        assert [difference for case in cases if (difference := first_difference(case))] == []


@given(
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0, 0.05, 0.15, 0.4]),
    inputs=st.lists(st.integers(0, 7), min_size=10, max_size=20),
)
@settings(max_examples=20, deadline=None)
def test_naive_mixed_levels_play(seed, density, inputs):
    simulator = Simulator(mixed_level(seed, density, kinds=MIXED + UNFINISHED), completions=True)
    assert {3, 4, 6, 8} < {entity.type for entity in simulator.entities}
    for input_byte in np.repeat(inputs, 10).tolist():
        simulator.tick(input_byte)
        numbers = [*simulator.frame(), *simulator.mover_positions()]
        assert all(math.isfinite(number) for number in numbers)
        cells = [entity.cell for entity in simulator.entities if getattr(entity, "cell", None)]
        assert sum(len(cell) for column in simulator.grid for cell in column) == len(cells)


def test_naive_missing_switch_inactive_at_origin():
    records = [(0, 88, 46, 0, 0), (3, 20, 20, 0, 0), (6, 20, 20, 0, 0)]
    with_lock = Simulator(Level(tiles(), np.array(records), exit_count=2))
    _, switch, lock = with_lock.entities
    assert (switch.type, switch.x, switch.y, switch.active) == (4, 0, 0, False)
    assert (lock.x, lock.y, lock.active, lock.closed) == (0, 0, False, True)
    assert with_lock.entity_bits() == [1, 0, 16]


def test_naive_long_touched_regular_door_stays_closed():
    simulator = Simulator(room((88, 46), entities=[(5, 88, 46, 0)]))
    (door,) = simulator.entities
    i, j = door.edges[0]
    for _ in range(4):
        simulator.tick(0)
    assert not door.closed and simulator.stage.door_v[i][j] == 1 - 4


def test_naive_self_destruct_needs_two_frames():
    simulator = Simulator(room())
    for input_byte in (8, 0, 9):
        simulator.tick(input_byte)
        assert simulator.ninja.state < DEAD
    simulator.tick(10)
    assert simulator.ninja.state == DEAD


def test_naive_unfinished_entities_only_on_request():
    level = room(entities=[(15, 20, 20, 0, 0), (23, 30, 30, 0, 0), (2, 20, 20)])
    assert [entity.type for entity in Simulator(level).entities] == [2]
    assert [entity.type for entity in Simulator(level, completions=True).entities] == [2, 15, 23]


def test_naive_chaser_turns_towards_ninja():
    level = room((126, 46), entities=[(15, 58, 46, 6, 0)])  # it flies up first, in the open
    simulator = Simulator(level, completions=True)
    (chaser,) = simulator.entities
    while simulator.ninja.state != DEAD:
        x = chaser.x
        simulator.tick(0)
        assert chaser.x - x <= 16 / 7 + 1e-9
    assert simulator.ninja.state == DEAD and chaser.chasing


def test_naive_spinner_kills_with_beam():
    simulator = Simulator(room((120, 46), entities=[(23, 90, 34, 0, 0)]), completions=True)
    (laser,) = simulator.entities
    assert laser.spins
    frames = 0
    while simulator.ninja.state < DEAD:
        simulator.tick(0)
        frames += 1
    angle = math.atan2(simulator.ninja.y - laser.y, simulator.ninja.x - laser.x)
    reach = math.asin(10 / math.hypot(simulator.ninja.y - laser.y, simulator.ninja.x - laser.x))
    assert frames == pytest.approx((angle - reach) / 0.010471975, abs=2)


@pytest.mark.parametrize("mode", [0, 1])
def test_naive_surface_laser_circles_block(mode):
    block = [(10, 5, 1)]
    level = Level.build(tiles(*block), (100, 46), entities=[(23, 42, 20, 0, mode)])  # on the block's top
    laser = Simulator(level, completions=True).entities[0]
    assert not laser.spins and (laser.x, laser.y) == (252, 120 - 5.9)
    turn = -1 if mode else 1
    visited, lap = set(), round(4 * 24 / 0.1 + 2 * math.pi / 0.005524805665672641)
    for frame in range(lap):
        laser.think()
        visited.add((round(laser.nx), round(laser.ny)))
        if frame == 0:
            assert laser.x == pytest.approx(252 + 0.1 * turn)
    assert {(0, -1), (1, 0), (0, 1), (-1, 0)} <= visited
    assert math.hypot(laser.x - 252, laser.y - 114.1) < 1


def test_naive_surface_laser_turns_corner():
    laser = Simulator(corridor(entities=[(23, 166, 48, 0, 0)]), completions=True).entities[-1]  # on the floor
    for _ in range(400):
        laser.think()
    assert (laser.nx, laser.ny) == (-1, 0) and laser.x == pytest.approx(1032 - 5.9)
    assert laser.y < 288 - 5.9
