"""Ways through a level: the fields of the kernels against a heap-based search, and what doors do to them."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import corridor, random_level, tiles

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.level import LOCKED_DOOR, TRAP_DOOR, Level
from nppsim.observe.layout import MAX_PATH


def compiled_fields(bank, closed=None, index=0):
    """(distance, hop, units from switch to exit); closed: indices of the closed doors, None: as at the start."""
    level = bank.world.level[index]
    if closed is None:
        return bank.distance[index], bank.hop[index], int(level["switch_to_exit"])
    rows = range(level["switches_first"], level["switches_end"])
    flags = np.array([k - level["entity_first"] in closed for k in rows], np.uint8)
    distance, hop = np.empty((2, paths.NUM_NODES), np.uint16), np.empty((2, paths.NUM_NODES), np.uint8)
    opened = np.zeros(level["exits_end"] - level["exits_first"], np.uint8)
    units = paths.compute_fields(bank.world, bank.nodes[index], index, flags, opened, distance, hop)
    return distance, hop, int(units)


def as_dict(distance):
    """{(column, row): units} of the lattice points that are reached."""
    return {divmod(int(n), paths.NODES_Y): int(distance[n]) for n in np.flatnonzero(distance < paths.WALL)}


def switched(level):
    return [k for k, e in enumerate(naive.entities(level)) if e.kind in (LOCKED_DOOR, TRAP_DOOR)]


@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.1, 0.3, 0.45]))
@settings(max_examples=12, deadline=None)
def test_path_fields_agree_with_a_search_by_heap_for_any_state_of_the_doors(seed, density):
    level = random_level(seed, density)
    bank = LevelBank([level])
    rng = np.random.default_rng(seed)
    start = [k for k in switched(level) if naive.entities(level)[k].closed]
    for closed in (None, [k for k in switched(level) if rng.integers(2)]):
        distance, _, units = compiled_fields(bank, closed)
        to_switch, to_exit, onward = naive.fields(level, start if closed is None else closed)
        assert as_dict(distance[1]) == to_exit.distance
        assert as_dict(distance[0]) == to_switch.distance
        assert units == (paths.UNREACHABLE if onward is None else onward)
    way, _ = naive.fields(level, start)[0].way(*level.spawn)
    assert bank.path_length[0] == pytest.approx(way, rel=1e-6)
    assert bool(bank.reachable[0]) == (way < MAX_PATH)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_each_hop_goes_down_a_shortest_way_to_a_goal(seed):
    level = random_level(seed, 0.2)
    bank = LevelBank([level])
    _, hop, _ = compiled_fields(bank)
    field = naive.fields(level, [k for k in switched(level) if naive.entities(level)[k].closed])[1]
    rng = np.random.default_rng(seed)
    reached = sorted(field.distance)
    for p in [reached[i] for i in rng.integers(0, len(reached), 20)] if reached else ():
        for steps in (0, 1, 3, 10):
            got = paths.waypoint(hop[1], p[0] * paths.NODES_Y + p[1], steps)
            assert divmod(int(got), paths.NODES_Y) in naive.descents(field, p, steps)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_the_way_from_a_place_leads_over_the_best_lattice_point_around_it(seed):
    level = random_level(seed, 0.3)
    bank = LevelBank([level])
    distance, _, _ = compiled_fields(bank)
    fields = naive.fields(level, [k for k in switched(level) if naive.entities(level)[k].closed])
    rng = np.random.default_rng(seed)
    for x, y in rng.uniform((24, 24), (1032, 576), (100, 2)).tolist():
        for phase in (0, 1):
            length, node = paths.nearest_node(distance[phase], x, y)
            way, point = fields[phase].way(x, y)
            assert length == pytest.approx(way, abs=1e-9)
            assert node == (-1 if point is None else point[0] * paths.NODES_Y + point[1])


def test_the_way_along_a_corridor_is_its_length():
    bank = LevelBank([corridor(spawn=20, switch=60, door=120)])
    # 40 steps of 6 px to the switch and 60 on to the exit; they are touched from 16 and 22 px.
    assert bank.path_length[0] == pytest.approx(240 + 360, abs=24)
    assert bank.time_limit[0] == int(300 + 2 * bank.path_length[0])


def test_a_switch_behind_the_ninja_makes_the_way_go_there_and_back():
    ahead, behind = LevelBank([corridor(60, 60, 120), corridor(60, 30, 120)]).path_length
    assert behind - ahead == pytest.approx(2 * 180, abs=15)


def wall_with_door(kind, switch, door_x=80, **more):
    """A corridor with a closed or closing door in the middle; exit switch and exit are beyond it."""
    doors = {f"{kind}_doors": [(switch, (door_x, 44), 0)]}
    return corridor(spawn=40, switch=120, door=140, **doors, **more)


def test_a_closed_locked_door_leads_the_way_to_its_switch_first():
    bank = LevelBank([wall_with_door("locked", (20, 46))])
    ways = {}
    for name, closed in (("shut", None), ("open", [])):
        distance, hop, _ = compiled_fields(bank, closed)
        ways[name], node = paths.nearest_node(distance[0], 240.0, 276.0)
        waypoint = 12 * (paths.waypoint(hop[0], node, 3) // paths.NODES_Y)
        assert waypoint < 240 if name == "shut" else waypoint > 240
    # To the door's switch, on to the exit switch and to the exit; touched from 15, 16 and 22 px.
    assert ways["shut"] == pytest.approx(120 + 600 + 120, abs=60)
    assert ways["open"] == pytest.approx(480 + 120, abs=40)


@pytest.mark.parametrize("steps", range(-4, 5))
def test_a_switch_close_to_its_door_opens_the_way_where_it_can_be_touched(steps):
    """6 px a step; the ninja's centre comes within 10 px of the door, and touches the switch from 15 px."""
    bank = LevelBank([wall_with_door("locked", (80 + steps, 46))])
    assert bool(bank.reachable[0]) == (steps <= 0)


@pytest.mark.parametrize("gap", [10.0, 10.5, 12.0, 18.0])
@pytest.mark.parametrize("door_x", [80, 81])
def test_a_ninja_that_touches_a_shut_door_is_not_beyond_it(gap, door_x):
    level = wall_with_door("trap", (20, 46), door_x)
    bank = LevelBank([level])
    assert bank.reachable[0]
    distance, _, _ = compiled_fields(bank, closed=switched(level))
    assert paths.nearest_node(distance[0], 6.0 * door_x - gap, 276.0) == (MAX_PATH, -1)
    assert paths.nearest_node(distance[0], 6.0 * door_x + gap, 276.0)[0] < MAX_PATH


def test_a_locked_door_whose_switch_is_beyond_it_cannot_be_opened():
    bank = LevelBank([wall_with_door("locked", (100, 46))])
    assert not bank.reachable[0]
    assert bank.path_length[0] == MAX_PATH


def test_two_locked_doors_are_opened_one_after_the_other():
    level = corridor(60, 120, 140, locked_doors=[((20, 46), (80, 44), 0), ((90, 46), (100, 44), 0)])
    bank = LevelBank([level])
    first, second = switched(level)
    way = {}
    for name, closed in (("both", [first, second]), ("second", [second]), ("none", [])):
        distance, _, _ = compiled_fields(bank, closed)
        way[name] = paths.nearest_node(distance[0], 360.0, 276.0)[0]
    assert way["both"] == bank.path_length[0]
    # The way back to the first switch is gone after the first; the second switch is on the way.
    assert way["both"] - way["second"] == pytest.approx(2 * 240, abs=40)
    assert way["second"] == pytest.approx(way["none"], abs=40)


def test_an_armed_mine_makes_a_way_longer_but_does_not_block_it():
    mine = Level.build(corridor().tiles, (20, 46), exits=[((60, 46), (120, 46))], entities=[(1, 40, 46)])
    plain, mined = LevelBank([corridor(20, 60, 120), mine]).path_length
    assert plain + 10 < mined < plain + 300


def test_a_gap_of_one_tile_is_wide_enough_and_one_of_half_a_tile_is_not():
    grids = [np.ones((23, 42), np.uint8) for _ in range(2)]
    for grid in grids:
        grid[10] = 0
        grid[10, 20] = 4  # the lower half is solid
    grids[0][9, 17:24] = 0
    grids[0][9, 20] = 2  # the upper half is solid
    levels = [Level.build(grid, (20, 46), exits=[((120, 46), (140, 46))]) for grid in grids]
    assert LevelBank(levels).reachable.tolist() == [True, False]


def test_a_level_without_an_exit_has_no_way():
    bank = LevelBank([Level.build(tiles(), (20, 46))])
    assert bank.path_length[0] == MAX_PATH
    assert bank.time_limit[0] == 6000


def test_with_several_exits_the_way_leads_over_a_switch_to_its_own_exit_and_then_to_the_open_one():
    """A corridor: exit B, spawn, switch A, switch B, exit A, from left to right."""
    tiles = np.ones((23, 42), np.uint8)
    tiles[10, 2:40] = 0
    y = 46  # 276 px, in the middle of the corridor
    exits = [((60, y), (140, y)), ((100, y), (20, y))]  # (switch, exit door), in steps of 6 px
    level = Level.build(tiles, (40, y), exits=exits)
    sim = BatchSimulator([level], 2, observations=("reachability",))
    sim.reset(np.zeros(2, int))
    spawn, switch_a, exit_a = 240.0, 360.0, 840.0
    assert sim.obs["reachability_features"][0, 1] == pytest.approx(exit_a - spawn, abs=12)
    while not sim.state.ninja["switch_taken"][0]:
        before = sim.obs["reachability_features"][0, 1]
        sim.step(np.array([2, 0]))
    after, x = sim.obs["reachability_features"][0, 1], sim.state.ninja["x"][0]
    assert x < switch_a
    assert after == pytest.approx(exit_a - x, abs=12)  # not back to exit B, which is nearer and closed
    assert before > after
