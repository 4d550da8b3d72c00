"""Planner: winning runs by search, and re-timing of recordings."""

import heapq
import sys

import numpy as np
import pytest

import nppsim
from nppsim.__main__ import main
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.batch import BatchSimulator
from nppsim.generate import generate
from nppsim.generate.course import STATIONS, course
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.physics.outcomes import WON
from nppsim.physics.state import DEAD
from nppsim.planner import PlanStart, better_runs, kernels, par_frames, plan, retime
from nppsim.planner.kernels import Queue
from nppsim.planner.plan import BEST_FIRST, first_run
from nppsim.planner.search import BestFirst, first_state
from nppsim.replays.replay import Replay, on_grid

import worlds

planning = sys.modules["nppsim.planner.plan"]  # ``nppsim.planner.plan`` is the function
searching = sys.modules["nppsim.planner.search"]


def shortened(level, run, **settings):
    """The last of the better runs."""
    *_, best = better_runs(level, run, "time", **settings)
    return best


@pytest.mark.parametrize(("category", "seed"), [("simplest", 1), ("simpler", 2), ("simple", 3)])
def test_plan_wins_on_last_frame_deterministically(category, seed):
    level = generate(category, seed)[0]
    found = plan(level, seed=7)
    run = nppsim.simulate(level, found.inputs)
    assert run.outcome == "won"
    assert run.frames == len(found.inputs) == found.frames
    assert on_grid(found.inputs, 4)
    again = plan(level, seed=7)
    assert again.inputs.tobytes() == found.inputs.tobytes()


def test_first_run_wins_and_ends_without_progress():
    level = generate("simple", 3)[0]
    found = first_run(level, budget=2_000_000, patience=500_000)
    assert nppsim.simulate(level, found.inputs).outcome == "won"
    assert first_run(level, budget=found.simulated // 2, patience=500_000) is None
    tiles = np.ones((23, 42), np.uint8)
    tiles[5:20, 5:35] = 0
    # Switch and exit are 12 tiles above the floor, far from walls.
    too_high = Level.build(tiles, (60, 78), exits=[((72, 28), (60, 28))])
    limited, unlimited = simulated_frames(too_high, patience=100_000), simulated_frames(too_high, patience=10**9)
    assert 100_000 <= limited < unlimited


def simulated_frames(level, patience):
    """Frames that ``first_run`` simulates in vain, up to a million."""
    searches = []

    class Recorded(BestFirst):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            searches.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "BestFirst", Recorded)
        assert first_run(level, 1_000_000, patience) is None
    return searches[0].simulated


def test_plan_acts_every_frame_skip_frames():
    level = generate("simplest", 1)[0]
    for frame_skip in (1, 3):
        assert on_grid(plan(level, frame_skip).inputs, frame_skip)


def test_plan_without_path_or_budget_returns_none():
    walled_in = np.ones((23, 42), np.uint8)
    walled_in[5:8, 5:8] = walled_in[5:8, 20:23] = 0
    level = Level.build(walled_in, (28, 30), exits=[((88, 30), (84, 30))])
    assert plan(level) is None
    assert par_frames(level) is None
    assert plan(generate("simple", 3)[0], budget=10) is None


def test_plan_from_any_state_along_episode():
    level = generate("simple", 3)[0]
    padded = LevelBank([worlds.random_level(1), level])  # other levels need more room per row
    simulator = BatchSimulator(padded, 1)
    simulator.reset(np.array([1]))
    for played, action in enumerate(plan(level).actions[:20]):
        simulator.next_level[:] = 1
        simulator.step(np.array([action if played % 5 else worlds.LEFT]))  # strays from the plan now and then
        if played % 6:
            continue
        begun = PlanStart.of(simulator, 0)
        continued = plan(level, start=begun)
        assert continued.frames == len(continued.inputs) < plan(level).frames + 60
        assert shortened(level, continued, start=begun, budget=100_000).frames <= continued.frames
        other = BatchSimulator(padded, 1)
        other.reset(np.array([1]))
        other.restore(0, simulator.snapshot(0))
        for i, decision in enumerate(continued.actions):
            assert not other.terminated[0], i
            other.step(np.array([decision]))
        assert other.terminated[0]
        assert other.episode["outcome"][0] == WON


def test_plan_from_invalid_state_raises_error():
    level = generate("simplest", 1)[0]
    simulator = BatchSimulator([level], 1)
    simulator.reset()
    other = worlds.random_level(1)
    with pytest.raises(ValueError, match="another level"):
        plan(other, start=PlanStart.of(simulator, 0))
    simulator.state.ninja[0]["state"] = DEAD
    with pytest.raises(ValueError, match="end of an episode"):
        plan(level, start=PlanStart.of(simulator, 0))


def test_plan_without_time_left_returns_none():
    level = generate("simplest", 1)[0]
    simulator = BatchSimulator([level], 1)
    simulator.reset()
    simulator.state.ninja[0]["frame"] = GAME_TIME
    assert plan(level, start=PlanStart.of(simulator, 0)) is None


@pytest.mark.parametrize("min_hold", [2, 4])
def test_plan_min_hold_holds_actions(min_hold, monkeypatch):
    for beam in (384, 1):  # a beam of one state fails: the best-first search holds actions, too
        monkeypatch.setattr(planning, "BEAM", beam)
        actions = plan(generate("simple", 5)[0], min_hold=min_hold).actions
        changes = np.flatnonzero(np.diff(actions)) + 1
        assert (np.diff([0, *changes]) >= min_hold).all()


def test_plan_passes_descending_thwump():
    grid = np.ones((23, 42), np.uint8)
    grid[10, 3:40] = grid[5:10, 20] = 0  # a corridor one tile high, and a shaft above it
    level = Level.build(grid, (20, 46), exits=[((120, 46), (130, 46))], entities=[(kinds.THWUMP, 86, 38, 2, 0)])
    assert plan(level).frames < 400


def test_plan_seeds_and_noise_give_other_winning_runs():
    level = generate("simple", 3)[0]
    assert len({plan(level, seed=seed, noise=40.0).inputs.tobytes() for seed in range(4)}) == 4


def best_first(level, **settings):
    bank = LevelBank([level])
    rows, _ = first_state(bank, None)
    params = BEST_FIRST._replace(**settings)
    return BestFirst(bank, 4, rows[0], np.random.default_rng(0), params, GAME_TIME)


def test_best_first_continues_with_more_frames():
    level = generate("simple", 5)[0]
    whole, parts = best_first(level), best_first(level)
    run, found = whole.advance(10**7), None
    while found is None:
        before = parts.simulated
        found = parts.advance(500)
        assert 0 < parts.simulated - before < 500 + 24
    assert found.inputs.tobytes() == run.inputs.tobytes()
    assert parts.simulated == whole.simulated
    assert nppsim.simulate(level, run.inputs).frames == len(run.inputs)


def test_best_first_few_open_states_still_wins(monkeypatch):
    monkeypatch.setattr(searching, "OPEN_STATES", 100)
    search = best_first(generate("simple", 3)[0])
    assert search.advance(10**6) is not None


def test_best_first_full_tree_ends(monkeypatch):
    monkeypatch.setattr(searching, "MOST_NODES", 1000)
    monkeypatch.setattr(searching, "MOST_EXPANSIONS", 10)
    search = best_first(generate("simple", 5)[0])
    assert search.advance(10**9) is None
    assert search.is_exhausted
    assert 1000 <= search._tree.count[0] <= 1060


def test_best_first_exhausted_states_ends():
    grid = np.ones((23, 42), np.uint8)
    grid[5, 5:8] = 0
    level = Level.build(grid, (28, 26), exits=[((30, 26), (32, 24))], entities=[(kinds.MINE, 30, 26)])
    search = best_first(level)
    assert search.advance(10**9) is None
    assert search.is_exhausted


@pytest.mark.parametrize("seed", range(5))
def test_queue_is_heap_that_drops_worse_half(seed):
    rng = np.random.default_rng(seed)
    count = 16
    queue = Queue(np.full(count, np.inf), np.arange(count), *np.zeros((3, count), np.int64), np.zeros(1, np.int64))
    reference, scores = [], {}
    for node in range(1000):
        if reference and rng.random() < 0.45:
            score, expected = heapq.heappop(reference)
            slot = kernels._pop.py_func(queue)
            assert (scores[slot], queue.nodes[slot]) == (score, expected)
        else:
            score = rng.random()
            if len(reference) == count:
                reference = sorted(reference)[: count // 2]
            heapq.heappush(reference, (score, node))
            scores[kernels._push.py_func(queue, score, node, 1, 2)] = score
        assert queue.count[0] == len(reference)
        assert sorted(queue.slots) == list(range(count))


def test_hash_table_stores_each_key_once():
    rng = np.random.default_rng(0)
    keys, small, table = rng.integers(-5, 50, 300), np.zeros(128, np.int64), np.zeros(256, np.int64)
    known = set()
    for key in keys:
        assert kernels._is_new.py_func(small, key) == ((key or 1) not in known)
        known.add(key or 1)
    assert kernels.rehash(small, table) == len(known)
    assert set(table.tolist()) == known | {0}


def test_settings_out_of_range_raise_error():
    level = generate("simplest", 1)[0]
    for wrong in ({"min_hold": 0}, {"noise": -1.0}, {"noise": np.inf}, {"frame_skip": 0}):
        with pytest.raises(ValueError, match="at least|from 1"):
            plan(level, **wrong)


def test_better_runs_never_lengthen():
    level = generate("simple", 5)[0]
    slow = plan(level, seed=1, noise=60.0)
    fast = shortened(level, slow, budget=1_500_000)
    assert fast.frames == len(fast.inputs) < slow.frames
    assert nppsim.simulate(level, fast.inputs).frames == fast.frames
    assert fast.inputs.tobytes() == shortened(level, slow, budget=1_500_000).inputs.tobytes()
    assert shortened(level, slow, budget=0).inputs.tobytes() == slow.inputs.tobytes()
    assert shortened(level, fast, budget=50_000, seed=3).frames <= fast.frames


def cell(states, bank):
    with np.errstate(over="ignore"):
        return kernels.cell(states.ninja[0], states.entities[0], states.movers[0], bank.world, 4)


def test_cells_distinguish_doors_and_movers():
    doors = [((20 + 4 * i, worlds.FLOOR), (20 + 4 * i, 30), 0) for i in range(30)]
    drones = [(kinds.ZAP_DRONE, 88, 44, 0, 0), (kinds.ZAP_DRONE, 160, 44, 0, 0)]
    bank = LevelBank([worlds.room(locked_doors=doors, entities=drones)])
    _, states = first_state(bank, None)
    locked = np.flatnonzero(bank.compiled[0].entity_type == kinds.LOCKED_DOOR)
    assert len(locked) == 30
    first = cell(states, bank)
    seen = {first}
    for door in locked:
        states.entities[0, door]["closed"] = 0
        seen.add(cell(states, bank))
        states.entities[0, door]["closed"] = 1
    assert len(seen) == 31
    states.movers[0, 1]["x"] += 4 * kernels.MOVER_CELL  # too far away to matter
    assert cell(states, bank) == first
    states.movers[0, 0]["x"] += kernels.MOVER_CELL
    assert cell(states, bank) != first


def test_retime_off_grid_recording_still_wins():
    level = generate("simpler", 2)[0]
    recorded = Replay(level, plan(level, 3).inputs)
    assert not on_grid(recorded.inputs, 4)
    moved = retime(recorded, 4)
    assert on_grid(moved.inputs, 4)
    assert nppsim.simulate(level, moved.inputs).outcome == "won"
    assert 0 <= moved.deviation_px < 30


def test_retime_losing_recording_returns_none():
    assert retime(Replay(generate("simple", 3)[0], np.zeros(20, np.uint8)), 4) is None


def test_plan_command_writes_replay_or_reports_reason(tmp_path, capsys):
    generate("simplest", 1)[0].save(tmp_path / "level.map")
    assert main(["plan", str(tmp_path / "level.map"), str(tmp_path / "run.replay")]) == 0
    assert Replay.load(tmp_path / "run.replay").success
    assert main(["plan", str(tmp_path / "level.map"), str(tmp_path / "none.replay"), "--budget", "10"]) == 2
    assert "raise --budget" in capsys.readouterr().err
    varied = ["--min-hold", "2", "--noise", "20", "--polish", "50000"]
    assert main(["plan", str(tmp_path / "level.map"), str(tmp_path / "long.replay"), *varied]) == 0
    assert Replay.load(tmp_path / "long.replay").success
    assert main(["plan", str(tmp_path / "level.map"), str(tmp_path / "none.replay"), "--min-hold", "0"]) == 2
    assert "--min-hold 0: give a whole number from 1 to 1,000" in capsys.readouterr().err
    assert not (tmp_path / "none.replay").exists()


@pytest.mark.parametrize("kind", STATIONS)
def test_plan_finishes_every_course_station(kind):
    courses = [course(seed, kinds=(kind,), stations=(1, 1), height=(14, 14)) for seed in range(3)]
    assert sum(plan(level) is not None for level in courses) >= 2
