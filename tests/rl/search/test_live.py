"""Live play: thinking is paid for by executed decisions, and equal seeds give equal episodes."""

import itertools
import time

import numpy as np
import pytest
import torch

from nppsim.actions import ACTION_INPUT
from nppsim.batch import BatchSimulator
from nppsim.generate import generate
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.observe.statistics import ObservationStatistics
from nppsim.simulate import simulate
from rl.policy.policy import build_policy
from rl.search import live
from rl.search.guided_search import GuidePolicy
from rl.search.live import MEASURED, LivePlayer, MeasuredBudget, Thought, load_kernels, timeline

from worlds import FLOOR, RIGHT, corridor

pytestmark = pytest.mark.usefixtures("one_thread")

MINED = generate("simplest_with_mines", 3)[0]
SECONDS = 4 / 60  # of a decision


def agent_that(favourite):
    """An agent of random weights that takes one action nearly always."""
    torch.manual_seed(3)
    policy = build_policy("vision_free").eval()
    statistics = ObservationStatistics(policy.observations)
    sim = BatchSimulator([MINED], 4, observations=policy.observations, threads=1)
    sim.reset()
    for _ in range(5):
        sim.step(np.arange(4))
        statistics.update({key: sim.obs[key] for key in statistics.float_keys})
    policy.set_statistics(statistics)
    policy.action_net.bias.data[favourite] = 5.0
    return GuidePolicy(policy, 4)


def played(level, agent, **settings):
    """Live play whose actions have been verified by playback."""
    play = LivePlayer(level, agent, **settings).play()
    assert simulate(level, np.repeat(ACTION_INPUT[play.actions], 4)).won == play.won
    return play


def test_run_of_the_agent_begins_at_once():
    play = played(corridor(), agent_that(RIGHT))
    assert play.won
    assert play.found == 0
    assert set(play.actions[2:].tolist()) == {RIGHT}
    assert 0 < play.thought <= 2 * SECONDS


def test_thinking_takes_as_long_as_waiting():
    play = played(MINED, agent_that(0))
    assert play.won
    assert play.found > 0
    assert not play.actions[: play.found].any()
    assert play.found * SECONDS < play.thought <= (play.found + 2) * SECONDS
    (*_, last) = play.thoughts
    assert last.end <= (last.planned + 1) * SECONDS


def test_counted_clock_repeats_episodes():
    first, again, other = (played(MINED, agent_that(0), seed=seed) for seed in (1, 1, 2))
    assert first.actions.tobytes() == again.actions.tobytes()
    assert (first.found, first.thought) == (again.found, again.thought)
    assert first.thought != other.thought


def test_measured_clock_grants_wall_time():
    agent = agent_that(0)
    load_kernels(agent)
    begin = time.monotonic()
    play = played(MINED, agent, clock=MEASURED)
    assert play.won
    assert 0 < play.thought <= time.monotonic() - begin
    assert not play.actions[: play.found].any()


def test_part_of_measured_budget_grows_and_ends_in_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    budget = MeasuredBudget(10.0)
    part = budget.part(1_000_000)
    assert part.left == live.FIRST_FRAMES
    now[0] = 1.0
    part.spend(20_000)
    assert part.left == live.FIRST_FRAMES + 20_000
    now[0] = 8.0
    assert part.left == 2_500  # frames in 1 s, at 20,000 in 8 s
    now[0] = 10.0
    assert part.left == budget.left == 0
    assert budget.simulated == 20_000


def test_late_search_leaves_due_decisions_without_action(monkeypatch):
    """A search that takes 1 s for the first root, which is due after 0.5 s."""
    seconds = itertools.chain([0.0], itertools.repeat(1.0))
    monkeypatch.setattr(live.MeasuredClock, "now", property(lambda clock: next(seconds)))
    play = played(corridor(), agent_that(RIGHT), clock=MEASURED)
    assert play.won
    assert play.actions[:14].tolist() == [0] * 14
    assert set(play.actions[16:].tolist()) == {RIGHT}


def test_timeline_shows_thinking_and_planned_decisions():
    thoughts = [Thought(0.0, 2.0, 3), Thought(2.0, 2.5, 5)]
    decisions = timeline(list(range(7)), thoughts, 1.0)
    assert [one.action for one in decisions] == list(range(7))
    assert [one.thinks for one in decisions] == [True, True, True, False, False, False, False]
    assert [one.ahead for one in decisions] == [3, 2, 3, 4, 3, 2, 1]


def test_decisions_are_yielded_while_the_search_continues(monkeypatch):
    """Searches from the first two roots take all of their time and find nothing."""
    found, searches = live.find, []

    def find(search, seed, budget):
        searches.append(seed)
        if len(searches) > 2:
            return found(search, seed, budget)
        budget.spend(budget.left)
        return None, ""

    monkeypatch.setattr(live, "find", find)
    player = LivePlayer(corridor(), agent_that(RIGHT))
    shown = [(one, len(searches)) for one in player.decisions()]
    assert [count for _, count in shown[: sum(live.WAITS[:2])]] == [1] * (live.WAITS[0] - 1) + [2] * live.WAITS[1] + [3]
    searches.clear()
    play = played(corridor(), agent_that(RIGHT))
    assert [one for one, _ in shown] == timeline(play.actions.tolist(), play.thoughts, SECONDS)


def test_decisions_of_the_measured_clock_are_yielded_while_the_search_continues(monkeypatch):
    """The search from the first root takes all of its time and finds nothing."""
    found, ended = live.find, []

    def find(search, seed, budget):
        while not ended and budget.left:
            time.sleep(0.01)
            budget.spend(1)
        ended.append(time.monotonic())
        return (None, "") if len(ended) == 1 else found(search, seed, budget)

    agent = agent_that(RIGHT)
    load_kernels(agent)
    monkeypatch.setattr(live, "find", find)
    player = LivePlayer(corridor(), agent, clock=MEASURED)
    shown = [(one, time.monotonic(), len(ended)) for one in player.decisions_in_time()]
    first = [(one, at) for one, at, searches in shown if searches == 0]
    assert len(first) >= live.WAITS[0] // 2
    assert all(one.thinks and one.ahead == live.WAITS[0] - n for n, (one, _) in enumerate(first))
    assert first[-1][1] - first[0][1] >= (len(first) - 2) * SECONDS
    actions = [one.action for one, *_ in shown]
    assert simulate(corridor(), np.repeat(ACTION_INPUT[actions], 4)).won


def test_closing_the_decisions_of_the_measured_clock_ends_the_search(monkeypatch):
    def find(search, seed, budget):
        while True:
            time.sleep(0.01)
            budget.spend(1)

    agent = agent_that(RIGHT)
    load_kernels(agent)
    monkeypatch.setattr(live, "find", find)
    decisions = LivePlayer(corridor(), agent, clock=MEASURED).decisions_in_time()
    assert next(decisions).thinks
    decisions.close()


def test_run_does_not_begin_while_it_is_tested(monkeypatch):
    """With a test of the run that takes a quarter of a second, the run begins some decisions later."""
    spend = live.CountedBudget.spend
    agent, early = agent_that(RIGHT), played(corridor(), agent_that(RIGHT))

    def slow(player, run, test=LivePlayer._begin_early):
        monkeypatch.setattr(live.CountedBudget, "spend", lambda budget, frames: spend(budget, 200 * frames))
        return test(player, run)

    monkeypatch.setattr(LivePlayer, "_begin_early", slow)
    late = played(corridor(), agent)
    assert early.won and late.won
    (*_, last) = late.thoughts
    assert len(late.actions) > len(early.actions)
    assert last.planned >= last.end / SECONDS - 1


def test_waiting_ends_before_it_is_deadly():
    level = corridor(spawn=60, switch=90, door=120, entities=[(kinds.ZAP_DRONE, 20, FLOOR, 0, 0)])
    idle = simulate(level, np.zeros(600, np.uint8))
    assert idle.outcome == "died"
    play = played(level, agent_that(RIGHT))
    assert play.won
    assert play.thoughts[0].planned * 4 < idle.frames


def test_level_without_a_run_is_played_to_its_end(monkeypatch):
    monkeypatch.setattr(live, "WAITS", (8, 20))
    monkeypatch.setattr(live, "LAST_ROOT", 30)
    walls = np.ones((23, 42), np.uint8)
    walls[9:11, 3:10] = 0
    walls[9:11, 20:30] = 0
    level = Level.build(walls, (20, FLOOR), exits=[((30, FLOOR), (100, FLOOR))])
    play = played(level, agent_that(RIGHT))
    assert not play.won
    assert play.found is None
    assert len(play.actions) * 4 >= 5400


def test_decisions_in_time_of_the_counted_clock_raise():
    with pytest.raises(ValueError, match="measured clock, not counted"):
        next(LivePlayer(corridor(), agent_that(RIGHT)).decisions_in_time())
