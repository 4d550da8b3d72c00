"""Level graphs, and their identification by ``graph_state``."""

import itertools

import numpy as np
import pytest

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels import kinds
from nppsim.observe import graph as module
from nppsim.observe.graph import (
    CELL,
    DIRECTIONS,
    DOOR,
    DOOR_SWITCH,
    EXIT,
    FEATURES,
    HAZARD,
    MINE,
    NODE_TYPES,
    NONE,
    PARTNER,
    PATH,
    PLACE,
    SWITCH,
    GraphError,
    graph_of,
    register_bank,
    state_at_start,
)

from worlds import FLOOR, corridor, mixed_level, random_level, small_room

RIGHT = 2


def graph_at_start(level):
    bank = LevelBank([level])
    register_bank(bank)
    return graph_of(state_at_start(bank, 0)), bank


def column(graph, name):
    return graph.features[:, FEATURES.index(name)]


def nodes_of(graph, kind):
    return np.flatnonzero(graph.types == kind)


def test_graph_corridor_is_row_of_cells():
    graph, _ = graph_at_start(corridor(20, 30, 40))
    assert {NODE_TYPES[t]: int(n) for t, n in zip(*np.unique(graph.types, return_counts=True), strict=True)} == {
        "cell": 42 * 2, "switch": 1, "exit": 1,
    }  # fmt: skip
    assert (np.diff(graph.types) >= 0).all()
    (switch,), (leaving,) = nodes_of(graph, SWITCH), nodes_of(graph, EXIT)
    assert graph.neighbours[switch, PARTNER] == leaving
    assert graph.neighbours[leaving, PARTNER] == switch
    home = graph.neighbours[switch, PLACE]
    assert switch in graph.neighbours[home, PLACE:]
    assert abs(column(graph, "x")[home] - column(graph, "x")[switch]) <= 12 / 528


def test_path_edges_lead_to_shorter_paths():
    graph, _ = graph_at_start(corridor(20, 30, 40))
    cells = nodes_of(graph, CELL)
    for phase, name in enumerate(("switch", "exit")):
        way, reached = column(graph, f"{name}_path"), column(graph, f"{name}_reached")
        assert reached[cells].all()
        ahead = graph.neighbours[cells, PATH + phase]
        led = cells[ahead != NONE]
        assert len(led) > 60
        far = way[led] > 0.1
        assert (way[ahead[ahead != NONE]] <= way[led]).all()
        assert (way[ahead[ahead != NONE]] < way[led])[far].all()
        goal = column(graph, "x")[nodes_of(graph, SWITCH if name == "switch" else EXIT)[0]]
        far = led[np.abs(column(graph, "x")[led] - goal) > 0.2]
        assert (np.sign(goal - column(graph, "x")[far]) == np.sign(column(graph, f"{name}_dx")[far])).all()


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_match_free_lattice_points(seed):
    """One by one, by the definition."""
    graph, bank = graph_at_start(random_level(seed))
    distance = bank.paths.distance[0].reshape(2, paths.NODES_X, paths.NODES_Y)
    reached = (distance < paths.WALL).any(axis=0)
    cells = nodes_of(graph, CELL)
    place = {
        (round((column(graph, "x")[n] + 1) * 22 - 0.5), round((column(graph, "y")[n] + 1) * 12.5 - 0.5)): n
        for n in cells
    }
    assert len(place) == len(cells)
    spawn = tuple(int(v // 24) for v in bank.levels[0].spawn)
    for x, y in itertools.product(range(44), range(25)):
        is_node = reached[2 * x : 2 * x + 3, 2 * y : 2 * y + 3].any() or (x, y) == spawn
        assert ((x, y) in place) == is_node
        if is_node:
            assert graph.cell_node[x * 25 + y] == place[x, y]
    for (x, y), node in place.items():
        for slot, (dx, dy) in enumerate(DIRECTIONS, start=1):
            columns = range(2 * x, 2 * x + 3) if dx == 0 else [2 * x + 1 + dx]
            rows = range(2 * y, 2 * y + 3) if dy == 0 else [2 * y + 1 + dy]
            free = any(distance[0, i, j] != paths.WALL for i in columns for j in rows)
            wanted = place.get((x + dx, y + dy), NONE) if free else NONE
            assert graph.neighbours[node, slot] == wanted


@pytest.mark.parametrize("seed", range(2))
def test_edges_by_source_contains_all_edges(seed):
    graph, _ = graph_at_start(mixed_level(seed))
    indices, counts = graph.edges_by_source
    assert counts.sum() == len(indices) == (graph.neighbours != NONE).sum()
    assert (graph.neighbours.reshape(-1)[indices] == np.repeat(np.arange(len(graph)), counts)).all()
    links, types = graph.edges
    assert links.shape == (len(indices), 2)
    assert types.shape == (len(indices),)
    assert np.isfinite(graph.features).all()
    assert np.abs(graph.features).max() <= 5
    present = {NODE_TYPES[t] for t in np.unique(graph.types)}
    assert present == set(NODE_TYPES)


def test_graph_changes_when_door_opens():
    """The ninja runs right over the switch of a locked door, and on to where the door was."""
    level = corridor(20, 120, 140, locked_doors=[((30, FLOOR), (60, 44), 0)])
    sim = BatchSimulator([level], 1, observations=("graph_state",), threads=1)
    before = graph_of(sim.reset()["graph_state"][0])
    at_start = sim.obs["graph_state"][0].copy()
    assert at_start.tolist() == state_at_start(sim.bank, 0).tolist()
    for _ in range(12):
        sim.step(np.array([RIGHT]))
    after = graph_of(sim.obs["graph_state"][0])
    assert sim.obs["graph_state"][0, 0] == at_start[0]
    assert sim.obs["graph_state"][0, 1] != at_start[1]
    (door,), (switch,) = nodes_of(before, DOOR), nodes_of(before, DOOR_SWITCH)
    assert [column(graph, "on")[[door, switch]].tolist() for graph in (before, after)] == [[1, 1], [0, 0]]
    beside = [int((graph.neighbours[:, 1:9] != NONE).sum()) for graph in (before, after)]
    assert beside[0] < beside[1]


def test_graph_changes_only_for_armable_mines():
    mines = [(kinds.TOGGLE_MINE, 24, FLOOR), (kinds.MINE, 100, 40)]
    sim = BatchSimulator([corridor(20, 120, 140, entities=mines)], 1, observations=("graph_state",), threads=1)
    sim.reset()
    seen = {sim.obs["graph_state"][0].tobytes(): None}
    for _ in range(20):
        sim.step(np.array([RIGHT]))
        seen[sim.obs["graph_state"][0].tobytes()] = None
    graphs = [graph_of(np.frombuffer(state, np.int64)) for state in seen]
    assert len(graphs) == 2
    first, last = (column(graph, "on")[nodes_of(graph, MINE)] for graph in graphs)
    assert sorted(first) == [0, 1]
    assert last.tolist() == [1, 1]


def test_final_and_first_graph_state_are_separate():
    """The switch is taken in the step that ends the first episode by time."""
    level = corridor(20, 30, 140)
    for limit in range(8, 80, 4):
        bank = LevelBank([level])
        bank.time_limit[:] = limit
        sim = BatchSimulator(bank, 1, observations=("graph_state",), threads=1)
        at_start = sim.reset()["graph_state"][0].copy()
        while not len(sim.finished):
            before = sim.obs["graph_state"][0].copy()
            sim.step(np.array([RIGHT]))
        assert (sim.obs["graph_state"][0] == at_start).all()
        if (before != sim.final_obs["graph_state"][0]).any():
            return
    raise AssertionError("no limit cut the episode off at the switch")


def test_graph_of_deleted_level_raises_error():
    with pytest.raises(GraphError, match="names level 0x7"):
        graph_of(np.array([7, 0, 0, 0, 0, 0, 0, 0]))


def test_graph_entities_beyond_flags_shown_as_at_start():
    mines = [(kinds.TOGGLE_MINE, 8 + i % 160, 8 + i // 160) for i in range(460)]
    level = small_room(extra=[(kind, x, y, 0, 0) for kind, x, y in mines])
    graph, bank = graph_at_start(level)
    state = state_at_start(bank, 0)
    state[1:] = -1
    all_set = graph_of(state)
    on = column(all_set, "on")[nodes_of(all_set, MINE)]
    assert (on.sum(), len(on)) == (448 - 2, 460)
    assert column(graph, "on")[nodes_of(graph, MINE)].sum() == 0


def test_graph_level_without_path_shows_free_cells():
    graph, bank = graph_at_start(random_level(5, exits=0))
    assert not bank.reachable.any()
    assert len(nodes_of(graph, CELL)) > 100
    assert not column(graph, "switch_reached").any()
    assert (graph.neighbours[:, PATH : PATH + 2] == NONE).all()


def test_graph_contains_every_kind_but_gold():
    message = {kind for kind in kinds.CREATING if module._TYPE_OF_KIND[kind] != NONE} | set(kinds.DOORS)
    assert message == set(kinds.CREATING) - {kinds.GOLD}
    assert (module._TYPE_OF_KIND[[kinds.THWUMP, kinds.LASER]] == HAZARD).all()
