"""Path fields of the kernels against a heap-based search; doors, mines and one-ways."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nppsim
from nppsim import bank as bank_module
from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.paths import MAX_PATH
from nppsim.physics.outcomes import NAMES, WON
from nppsim.shadow.paths import NO_STEP, follow
from nppsim.shadow.reference_level import ReferenceLevel

from worlds import callable_kernel, corridor, mixed_level, random_level, tiles

node_ahead = callable_kernel(paths.waypoint)


def compiled_fields(bank, closed=None, index=0):
    """(distance, next_step, units from switch to exit); closed: indices of the closed doors, None: as at the start."""
    level = bank.world.level[index]
    if closed is None:
        return bank.paths.distance[index], bank.paths.next_step[index], int(bank.paths.switch_to_exit[index])
    rows = range(level["switches_first"], level["switches_end"])
    flags = np.array([k - level["entity_first"] in closed for k in rows], np.uint8)
    distance, next_step = np.empty((2, paths.NUM_NODES), np.uint16), np.empty((2, paths.NUM_NODES), np.uint8)
    opened = np.zeros(level["exits_end"] - level["exits_first"], np.uint8)
    units = paths.compute_fields(bank.world, *bank.paths.lattice(index), index, flags, opened, distance, next_step)
    return distance, next_step, int(units)


def test_playing_computes_no_path_fields(monkeypatch):
    monkeypatch.setattr(bank_module, "_search_paths", lambda *_: pytest.fail("ways were searched"))
    level = corridor(20, 60, 120)
    assert nppsim.simulate(level, np.full(400, 2, np.uint8)).outcome == NAMES[WON]
    LevelBank([level, level])


def test_threads_share_path_fields_of_bank():
    bank = LevelBank([corridor(20, 60, 120)] * 3)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: bank.paths, range(8)))
    assert all(paths is bank.paths for paths in found)
    alone = LevelBank(bank.levels)
    assert [a.tobytes() for a in alone.paths] == [b.tobytes() for b in bank.paths]


def switched(level):
    """Indices of the doors with switches."""
    return [e.index for e in ReferenceLevel(level).doors]


@given(
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([0.1, 0.3, 0.45]),
    exits=st.integers(0, 3),
    one_ways=st.booleans(),
)
@example(seed=79559, density=0.45, exits=2, one_ways=True)  # a door that reaches beyond the stage
@settings(max_examples=8, deadline=None)
def test_path_fields_any_door_state_equal_reference(seed, density, exits, one_ways):
    if one_ways:
        level = mixed_level(seed, density, kinds=(kinds.ONE_WAY,), exits=exits)
    else:
        level = random_level(seed, density, exits=exits)
    bank, reference = LevelBank([level]), ReferenceLevel(level)
    rng = np.random.default_rng(seed)
    for closed in (None, tuple(e.index for e in reference.doors if rng.integers(2))):
        distance, next_step, units = compiled_fields(bank, closed)
        fields = reference.fields_for(*(reference.at_start if closed is None else (closed, ())))
        np.testing.assert_array_equal(distance, fields.distances)
        assert len(fields.wrong_steps(next_step)) == 0
        assert units == (paths.UNREACHABLE if fields.switch_to_exit is None else fields.switch_to_exit)
    assert bank.path_length[0] == reference.path_start
    assert bool(bank.reachable[0]) == (reference.path_start < MAX_PATH)


def test_wrong_next_step_is_detected():
    level = corridor(20, 60, 120)
    fields = ReferenceLevel(level).fields_for((), ())
    next_step = LevelBank([level]).paths.next_step[0].copy()
    assert len(fields.wrong_steps(next_step)) == 0
    goal = next(point for point, length in fields.to_switch.seeds.items() if fields.to_switch.distance[point] == length)
    beside = (15, 23)  # in the corridor, 180 px left of the switch
    for (column, row), wrong in ((beside, 1), (beside, 7), (beside, NO_STEP), (goal, 0), ((5, 5), 0)):
        broken = next_step.copy()
        broken[0, column * paths.NODES_Y + row] = wrong
        assert fields.wrong_steps(broken).tolist() == [[0, column, row]]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_waypoint_follows_next_steps(seed):
    level = random_level(seed, 0.3)
    bank, reference = LevelBank([level]), ReferenceLevel(level)
    distance, next_step, _ = compiled_fields(bank)
    fields = reference.fields_for(*reference.at_start)
    rng = np.random.default_rng(seed)
    for x, y in rng.uniform((24, 24), (1032, 576), (100, 2)).tolist():
        for phase, field in enumerate((fields.to_switch, fields.to_exit)):
            length, node = paths.nearest_node(distance[phase], x, y)
            way, point = field.path(x, y)
            assert (length, node) == (way, -1 if point is None else point[0] * paths.NODES_Y + point[1])
            for steps in (0, 1, 3, 10) if point else ():
                got = divmod(int(node_ahead(next_step[phase], node, steps)), paths.NODES_Y)
                assert got == follow(next_step[phase].reshape(paths.NODES_X, paths.NODES_Y), point, steps)


def test_path_length_corridor_is_its_length():
    bank = LevelBank([corridor(spawn=20, switch=60, door=120)])
    # 40 steps of 6 px to the switch and 60 on to the exit; they are touched from 16 and 22 px.
    assert bank.path_length[0] == pytest.approx(240 + 360, abs=24)
    assert bank.time_limit[0] == int(300 + 2 * bank.path_length[0])
    assert LevelBank(bank.levels, least_time=5400).time_limit[0] == 5400


def test_path_switch_behind_goes_there_and_back():
    ahead, behind = LevelBank([corridor(60, 60, 120), corridor(60, 30, 120)]).path_length
    assert behind - ahead == pytest.approx(2 * 180, abs=15)


def wall_with_door(kind, switch, door_x=80, **more):
    """A corridor with a closed or closing door in the middle; exit switch and exit are beyond it."""
    doors = {f"{kind}_doors": [(switch, (door_x, 44), 0)]}
    return corridor(spawn=40, switch=120, door=140, **doors, **more)


def test_path_locked_door_leads_to_switch_first():
    bank = LevelBank([wall_with_door("locked", (20, 46))])
    ways = {}
    for name, closed in (("shut", None), ("open", [])):
        distance, next_step, _ = compiled_fields(bank, closed)
        ways[name], node = paths.nearest_node(distance[0], 240.0, 276.0)
        waypoint = 12 * (node_ahead(next_step[0], node, 3) // paths.NODES_Y)
        assert waypoint < 240 if name == "shut" else waypoint > 240
    # To the door's switch, on to the exit switch and to the exit; touched from 15, 16 and 22 px.
    assert ways["shut"] == pytest.approx(120 + 600 + 120, abs=60)
    assert ways["open"] == pytest.approx(480 + 120, abs=40)


def test_path_exit_and_switch_behind_own_doors():
    """Exit switch, door, spawn with both doors' switches, door, exit: behind the first door lies no door's switch."""
    doors = [((70, 46), (50, 44), 0), ((80, 46), (100, 44), 0)]
    bank = LevelBank([corridor(spawn=75, switch=30, door=130, locked_doors=doors)])
    assert bank.reachable[0]
    # To a door's switch, to the exit switch, and to the exit; touched from 15, 16 and 22 px.
    assert bank.path_length[0] == pytest.approx(6 * (5 + 40 + 100), abs=60)


@pytest.mark.parametrize("steps", range(-4, 5))
def test_path_switch_near_door_opens_where_touched(steps):
    """6 px a step; the ninja's centre comes within 10 px of the door, and touches the switch from 15 px."""
    bank = LevelBank([wall_with_door("locked", (80 + steps, 46))])
    assert bool(bank.reachable[0]) == (steps <= 0)


@pytest.mark.parametrize("gap", [10.0, 10.5, 12.0, 18.0])
@pytest.mark.parametrize("door_x", [80, 81])
def test_path_touching_closed_door_is_not_beyond(gap, door_x):
    level = wall_with_door("trap", (20, 46), door_x)
    bank = LevelBank([level])
    assert bank.reachable[0]
    distance, _, _ = compiled_fields(bank, closed=switched(level))
    assert paths.nearest_node(distance[0], 6.0 * door_x - gap, 276.0) == (MAX_PATH, -1)
    assert paths.nearest_node(distance[0], 6.0 * door_x + gap, 276.0)[0] < MAX_PATH


def test_path_switch_beyond_its_door_is_unreachable():
    bank = LevelBank([wall_with_door("locked", (100, 46))])
    assert not bank.reachable[0]
    assert bank.path_length[0] == MAX_PATH


def test_path_two_locked_doors_in_sequence():
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


def test_path_ignores_switch_of_unneeded_door():
    """Decoy door at the left end, needed switch, decoy switch, spawn, needed door, exit."""
    doors = [((20, 46), (90, 44), 0), ((70, 46), (10, 44), 0)]
    bank = LevelBank([corridor(spawn=75, switch=120, door=140, locked_doors=doors)])
    # To the needed switch and back, to the exit switch and to the exit; touched from 15, 16 and 22 px.
    assert bank.path_length[0] == pytest.approx(6 * (55 + 100 + 20), abs=60)


def test_path_switch_behind_other_door_uses_other_switch():
    """Exit, its switch, door B, switch A, spawn, door A, switch B: first A, then B."""
    doors = [((70, 46), (90, 44), 0), ((110, 46), (40, 44), 0)]
    bank = LevelBank([corridor(spawn=75, switch=20, door=8, locked_doors=doors)])
    assert bank.path_length[0] == pytest.approx(6 * (5 + 40 + 90 + 12), abs=60)


def test_path_longer_than_observed_maximum_counts():
    grid = np.ones((23, 42), np.uint8)
    grid[::2, 1:41] = 0  # a serpentine of twelve corridors
    for row in range(1, 23, 2):
        grid[row, 40 if row % 4 == 1 else 1] = 0
    level = Level.build(grid, (10, 6), exits=[((162, 94), (10, 6))])
    bank = LevelBank([level])
    assert bank.reachable[0] and bank.path_length[0] == pytest.approx(MAX_PATH, abs=2)


def test_path_armed_mine_lengthens_but_does_not_block():
    mine = Level.build(corridor().tiles, (20, 46), exits=[((60, 46), (120, 46))], entities=[(1, 40, 46)])
    plain, mined = LevelBank([corridor(20, 60, 120), mine]).path_length
    assert plain + 10 < mined < plain + 300


def test_path_gap_of_one_tile_passes_half_tile_blocks():
    grids = [np.ones((23, 42), np.uint8) for _ in range(2)]
    for grid in grids:
        grid[10] = 0
        grid[10, 20] = 4  # the lower half is solid
    grids[0][9, 17:24] = 0
    grids[0][9, 20] = 2  # the upper half is solid
    levels = [Level.build(grid, (20, 46), exits=[((120, 46), (140, 46))]) for grid in grids]
    assert LevelBank(levels).reachable.tolist() == [True, False]


def path_field(level, phase=0):
    """Function of a place: px of its path."""
    distance = LevelBank([level]).paths.distance[0, phase]
    return lambda x, y: paths.nearest_node(distance, x, y)[0]


@pytest.mark.parametrize(("orientation", "passes_to_the_right"), [(0, True), (4, False), (2, None)])
def test_path_one_way_crossed_along_normal(orientation, passes_to_the_right):
    """A corridor of one tile, closed by a one-way in its middle unless it lies along the corridor."""
    grid = np.ones((23, 42), np.uint8)
    grid[10, 5:35] = 0
    for exit_x, there in ((130, True), (30, False)):
        one_way = [(kinds.ONE_WAY, 80, 46, orientation)]
        level = Level.build(grid, (exit_x, 46), exits=[((exit_x, 46), (exit_x, 46))], entities=one_way)
        length = path_field(level, phase=1)
        before, beyond = (480 - 60, 480 + 60) if there else (480 + 60, 480 - 60)
        assert length(beyond, 276.0) < MAX_PATH
        passes = passes_to_the_right is None or passes_to_the_right == there
        assert (length(before, 276.0) < MAX_PATH) == passes


def test_path_avoids_one_way_if_possible():
    """The room has a wall with two gaps; a one-way bars the upper one."""
    grid = np.ones((23, 42), np.uint8)
    grid[3:20, 5:35] = 0
    grid[3:20, 19] = 1
    grid[5, 19] = grid[17, 19] = 0
    exits = [((110, 26), (120, 26))]
    free = Level.build(grid, (60, 26), exits=exits)
    # The gap's tile spans x from 480 to 504 px, y from 144 to 168 px.
    barred = Level.build(grid, (60, 26), exits=exits, entities=[(kinds.ONE_WAY, 82, 26, 4)])
    short, long = LevelBank([free, barred]).path_length
    assert short + 300 < long < MAX_PATH


def test_path_through_one_way_as_last_resort():
    """Players pass one-ways at corners and by pushes."""
    grid = np.ones((23, 42), np.uint8)
    grid[10, 5:35] = 0
    level = Level.build(grid, (60, 46), exits=[((120, 46), (130, 46))], entities=[(kinds.ONE_WAY, 80, 46, 4)])
    assert LevelBank([level]).reachable[0]


@pytest.mark.parametrize(("height", "touches"), [(4, False), (1, True)])
def test_path_avoids_trap_switch_if_possible(height, touches):
    """Spawn, trap switch on the floor, trap door, exit; the ninja can pass above the switch if there is room."""
    grid = np.ones((23, 42), np.uint8)
    grid[11 - height : 11, 5:35] = 0
    grid[:10, 25] = 1
    doors = [((70, 46), (104, 46), 0)]
    level = Level.build(grid, (40, 46), exits=[((120, 46), (130, 46))], trap_doors=doors)
    bank = LevelBank([level])
    assert bank.reachable[0]
    distance, next_step, _ = compiled_fields(bank)
    _, node = paths.nearest_node(distance[0], 240.0, 276.0)
    gaps = []
    while next_step[0, node] != NO_STEP:
        node = node_ahead(next_step[0], node, 1)
        column, row = divmod(int(node), paths.NODES_Y)
        gaps.append(np.hypot(12 * column - 420, 12 * row - 276))
    assert (min(gaps) < paths.DOOR_SWITCH_REACH) == touches


def test_path_touches_trap_switch_in_front_of_it():
    """Trap door, spawn, trap switch, exit: the door is not on the path."""
    grid = np.ones((23, 42), np.uint8)
    grid[7:11, 5:35] = 0
    exits = [((120, 46), (130, 46))]
    without = Level.build(grid, (40, 46), exits=exits)
    level = Level.build(grid, (40, 46), exits=exits, trap_doors=[((70, 46), (30, 46), 0)])
    assert np.equal(*LevelBank([without, level]).path_length)


def test_path_one_sided_tiles_lead_inside():
    """Their face and that of the full tile below cancel out."""
    grid = np.ones((23, 42), np.uint8)
    grid[10, 5:35] = 0
    closed = Level.build(grid, (60, 46), exits=[((60, 70), (100, 70))])
    grid[10, 5:35] = 36
    open_ = Level.build(grid, (60, 46), exits=[((60, 70), (100, 70))])
    assert LevelBank([closed, open_]).reachable.tolist() == [False, True]


def test_path_narrow_diagonal_corridor_passes():
    """24 px along x between slopes of 45 degrees, 17 px across."""
    grid = np.ones((23, 42), np.uint8)
    for k in range(8):
        grid[5 + k, 10 + k], grid[5 + k, 11 + k] = 9, 7
    grid[3:5, 8:12] = 0
    grid[13:15, 16:22] = 0
    level = Level.build(grid, (42, 18), exits=[((78, 58), (84, 58))])
    assert LevelBank([level]).reachable[0]


def test_path_level_without_exit_is_none():
    bank = LevelBank([Level.build(tiles(), (20, 46))])
    assert bank.path_length[0] == MAX_PATH
    assert bank.time_limit[0] == 6000


def test_path_several_exits_uses_own_switch_then_open_exit():
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


def test_path_many_switches_reach_exit():
    """A wall with a door in its only gap, and switches all over the other side, those far from the door first."""
    grid = np.zeros((23, 42), np.uint8)
    grid[1:, 40] = 1
    near = sorted((max(164 - x, y - 6), x, y) for x in range(6, 160, 2) for y in range(6, 95))
    doors = [((x, y), (164, 6), 0) for _, x, y in reversed(near)]
    assert len(doors) > paths.NUM_NODES
    many, few = (
        Level.build(grid, (20, 50), exits=[((172, 90), (172, 60))], locked_doors=chosen)
        for chosen in (doors, doors[::40])
    )
    assert (LevelBank([many]).paths.distance[0] != paths.UNREACHABLE).all()
    bank, reference = LevelBank([few]), ReferenceLevel(few)  # the reference takes a minute with all of them
    fields = reference.fields_for(*reference.at_start)
    np.testing.assert_array_equal(bank.paths.distance[0], fields.distances)
    assert len(fields.wrong_steps(bank.paths.next_step[0])) == 0


def test_path_each_opened_exit_changes_fields():
    """Two switches near the ninja: that of an exit behind it, then that of one ahead; the other 28 are out of reach."""
    grid = np.ones((23, 42), np.uint8)
    grid[10] = 0
    exits = [((40, 46), (8, 46)), ((45, 46), (160, 46))] + [((166, 46), (10, 46))] * 28
    level = Level.build(grid, (30, 46), exits=exits)
    sim = BatchSimulator([level], 1, observations=("reachability",), shadow=True)
    sim.reset()
    for _ in range(40):
        sim.step(np.array([2]))
    assert (sim.state.entities["clock"][0] > 0).sum() == 2
    assert sim.shadow.kinds == {}
