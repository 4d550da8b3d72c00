"""Planner objectives: orders of goals against all permutations, and levels with known answers."""

import itertools

import numpy as np
import pytest

import nppsim
from nppsim.__main__ import main
from nppsim.batch import BatchSimulator
from nppsim.generate import generate
from nppsim.levels.kinds import GOLD
from nppsim.levels.level import Level
from nppsim.planner import PlannedRun, PlanStart, better_runs, plan
from nppsim.planner.order import Lengths, changed
from nppsim.replays.replay import Replay, on_grid
from nppsim.replays.score import score

from worlds import FLOOR, LEFT, corridor

BUDGET = 600_000
# The ninja starts at 80 and meets the switch at 100, the exit at 120.  A piece at 74 costs less than 2 s, one at 10 more.
NEAR, FAR, ON_THE_WAY, BEHIND_SWITCH, BEHIND_EXIT = 74, 10, 90, 110, 140


def with_gold(*places, **more):
    """A corridor with gold at these x bytes."""
    return corridor(80, 100, 120, entities=[(GOLD, x, FLOOR) for x in places], **more)


def random_lengths(seed, goals=6, switch=None):
    rng = np.random.default_rng(seed)
    at = rng.random((goals + 2, 2)) * 500
    gaps = np.hypot(*(at[:, None] - at[None]).T).T + 30 * rng.random((goals + 2, goals + 2))  # not symmetric
    between = np.column_stack([gaps[:-1, 1:-1], gaps[:-1, -1], gaps[:-1, -1]])
    if switch is not None:
        between[:, -1] = between[:, switch] + between[switch + 1, -2]
    return Lengths(between, switch, switch_taken=False)


def naive_total(lengths, order):
    total, here = 0.0, 0
    for goal in order:
        total, here = total + lengths.between[here, goal], goal + 1
    return total + lengths.between[here, -2 if lengths.switch in order else -1]


@pytest.mark.parametrize("switch", [None, 2])
def test_orders_are_near_optimal(switch):
    ratios = []
    for seed in range(20):
        lengths = random_lengths(seed, switch=switch)
        order = lengths.shortest(list(range(6)))
        assert sorted(lengths.with_switch(order)) == list(range(6))
        best = min(naive_total(lengths, lengths.without_last_switch(list(o))) for o in itertools.permutations(range(6)))
        assert lengths.total(order) == pytest.approx(naive_total(lengths, order))
        ratios.append(lengths.total(order) / best)
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) < 1.03


def test_insertion_and_removal_costs_match_totals():
    lengths = random_lengths(0)
    order, rest = [3, 0, 5], [1, 2, 4]
    added, places = lengths.cheapest(order, rest)
    for goal, length, place in zip(rest, added, places, strict=True):
        totals = [naive_total(lengths, [*order[:i], goal, *order[i:]]) for i in range(4)]
        assert length == pytest.approx(min(totals) - naive_total(lengths, order))
        assert place == np.argmin(totals)
    for i, saved in enumerate(lengths.savings(order)):
        assert saved == pytest.approx(naive_total(lengths, order) - naive_total(lengths, order[:i] + order[i + 1 :]))


def test_changed_order_has_same_goals():
    rng = np.random.default_rng(0)
    others = [changed([4, 2, 7], rng) for _ in range(30)]
    assert {tuple(sorted(other)) for other in others} == {(2, 4, 7)}
    assert len({tuple(other) for other in others}) > 3


@pytest.mark.parametrize(
    ("places", "of_time", "of_score", "of_all"),
    [
        ((NEAR,), 0, 1, 1),
        ((FAR,), 0, 0, 1),
        ((NEAR, FAR), 0, 1, 2),
        ((ON_THE_WAY, BEHIND_SWITCH), 2, 2, 2),
        ((NEAR, BEHIND_SWITCH, BEHIND_EXIT), 1, 3, 3),  # the ninja can jump over the open exit
        ((), 0, 0, 0),
    ],
)
def test_plan_objective_collects_expected_gold(places, of_time, of_score, of_all):
    level = with_gold(*places)
    found = {objective: plan(level, objective=objective, budget=BUDGET) for objective in ("time", "score", "all-gold")}
    for run in found.values():
        played = nppsim.simulate(level, run.inputs)
        assert played.won
        assert (played.frames, played.gold[-1]) == (run.frames, run.gold)
        assert on_grid(run.inputs, 4)
    assert {objective: run.gold for objective, run in found.items()} == {
        "time": of_time,
        "score": of_score,
        "all-gold": of_all,
    }
    points = {objective: score(run.frames, run.gold) for objective, run in found.items()}
    assert points["score"] > max(points.values()) - 0.1  # the searches are random
    assert plan(level, budget=BUDGET).frames == found["time"].frames


def test_plan_gold_behind_locked_door_collected():
    level = with_gold(55, locked_doors=[((60, FLOOR), (70, FLOOR), 0)])
    run = plan(level, objective="all-gold", budget=BUDGET)
    assert run.gold == 1
    assert nppsim.simulate(level, run.inputs).won


def test_plan_enclosed_gold_skipped():
    grid = np.ones((23, 42), np.uint8)
    grid[9:11, :20] = grid[9:11, 30:33] = 0
    level = Level.build(
        grid, (20, FLOOR), exits=[((40, FLOOR), (60, FLOOR))], entities=[(GOLD, 14, FLOOR), (GOLD, 130, FLOOR)]
    )
    assert plan(level, objective="all-gold", budget=BUDGET).gold == 1


def test_better_runs_improve_and_are_deterministic():
    level = with_gold(NEAR, FAR)
    first = plan(level)
    runs = list(better_runs(level, first, "score", budget=200_000, seed=3))
    scores = [score(run.frames, run.gold) for run in runs]
    assert scores == sorted(scores)
    assert scores[0] == score(first.frames, first.gold) < scores[-1]
    assert 200_000 <= runs[-1].simulated - first.simulated < 220_000
    again = list(better_runs(level, first, "score", budget=200_000, seed=3))
    assert [run.inputs.tobytes() for run in again] == [run.inputs.tobytes() for run in runs]


def test_plan_from_state_along_episode():
    level = with_gold(NEAR, BEHIND_SWITCH)
    simulator = BatchSimulator([level], 1)
    simulator.reset()
    for _ in range(13):
        simulator.step(np.array([LEFT]))  # over the near piece
    begun = PlanStart.of(simulator, 0)
    assert begun.ninja["gold"] == 1
    run = plan(level, start=begun, objective="all-gold", budget=BUDGET)
    assert run.gold == 2
    for decision in run.actions:
        simulator.step(np.array([decision]))
    assert simulator.terminated[0]
    assert simulator.episode["gold"][0] == 2


def test_plan_min_hold_holds_actions():
    actions = plan(with_gold(NEAR), objective="score", min_hold=3, budget=BUDGET).actions
    changes = np.flatnonzero(np.diff(actions)) + 1
    assert (np.diff([0, *changes]) >= 3).all()


def test_plan_invalid_arguments_raise_error():
    level = generate("simplest", 1)[0]
    with pytest.raises(ValueError, match="'gold'.*time, score, all-gold"):
        plan(level, objective="gold")
    waiting = PlannedRun(np.zeros(5, np.int64), np.zeros(20, np.uint8), 20, 0)
    with pytest.raises(ValueError, match="does not finish"):
        next(better_runs(level, waiting, "score"))


def test_plan_command_objective(tmp_path, capsys):
    with_gold(NEAR).save(tmp_path / "level")
    arguments = ["plan", str(tmp_path / "level"), str(tmp_path / "run.replay"), "--budget", str(BUDGET)]
    assert main([*arguments, "--objective", "score"]) == 0
    assert "objective score: 1 of 1 gold, " in capsys.readouterr().out
    replay = Replay.load(tmp_path / "run.replay")
    assert nppsim.simulate(replay.level, replay.inputs).gold[-1] == 1
    assert main([*arguments, "--objective", "gold"]) == 2
    assert "--objective: invalid choice: 'gold'" in capsys.readouterr().err
