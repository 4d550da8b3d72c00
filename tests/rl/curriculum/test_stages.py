"""The rules of the strategy "stages"."""

from dataclasses import replace

import numpy as np
import pytest

from nppsim.errors import ConfigError
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import Levels, Outcomes, make_sampler
from rl.curriculum.stages import FLOOR, RECENT, Stages

CATEGORIES = ["simple"] * 4 + ["simplest"] * 3 + ["my own"] * 2 + ["simpler"] * 5
PLAIN = CurriculumConfig(
    use_curriculum=True,
    threshold=0.6,
    early_advancement=False,
    trend_advancement=False,
    auto_adjustment=False,
)


def made(config=PLAIN, seed=0):
    return make_sampler(CATEGORIES, config, seed)


def level_of(sampler, stage):
    return int(np.flatnonzero(sampler.stage_of == sampler.stages.index(stage))[0])


def play(sampler, stage, wins, running=0, began=None):
    """Play as many episodes of one stage as an update has."""
    levels = [level_of(sampler, stage)] * len(wins)
    sampler.record(levels, wins, began=None if began is None else np.full(len(wins), began))
    busy = np.full(running, level_of(sampler, stage))
    sampler.learn(busy, np.full(running, sampler.updates))


def wins(count, share):
    """Outcomes with about this share of wins, evenly distributed."""
    return (np.arange(1, count + 1) * share).astype(int) > (np.arange(count) * share).astype(int)


def test_most_draws_are_of_the_stage_and_some_of_every_category():
    sampler = made()
    shares = sampler.shares()
    assert shares == pytest.approx([0.88 * 0.95 + FLOOR, 0.88 * 0.05 + FLOOR, FLOOR, FLOOR])
    within = sampler.probabilities()[4:7]
    assert within == pytest.approx([within.sum() / 3] * 3), "levels of one stage are equally likely"


def test_stage_ends_when_lower_bound_exceeds_threshold():
    sampler = made()
    play(sampler, "simplest", wins(300, 0.62))
    assert sampler.stage == "simplest", "62 % of 300 may as well be 58 %"
    play(sampler, "simplest", wins(300, 0.70))
    assert sampler.stage == "simpler"
    event = sampler.events[-1]
    assert sampler.metrics()["curriculum/can_advance"] == 1
    assert (event["event"], event["stage"], event["reason"]) == ("advance", "simplest", "threshold")
    assert 0.6 <= event["surely_above"] < event["success"] < 0.7
    assert event["episode"] == event["episodes_in_stage"] == 600


def test_stage_lasts_minimum_number_of_episodes():
    sampler = made()
    play(sampler, "simplest", wins(299, 1.0))
    assert sampler.stage == "simplest"
    play(sampler, "simplest", [True])
    assert sampler.stage == "simpler"


def test_minimum_above_window_is_reachable():
    sampler = made(replace(PLAIN, min_episodes=1500))
    play(sampler, "simplest", wins(1499, 1.0))
    assert sampler.stage == "simplest"
    play(sampler, "simplest", [True])
    assert sampler.stage == "simpler"


def test_episodes_that_go_on_count_as_not_won():
    sampler = made()
    play(sampler, "simplest", wins(300, 0.7), running=100)
    assert sampler.stage == "simplest", "the first episodes to end are the short ones"
    assert sampler.metrics()["curriculum/success_rate"] == pytest.approx(210 / 400)
    play(sampler, "simplest", [], running=0)
    assert sampler.stage == "simpler"


def test_only_episodes_that_began_in_a_stage_count_for_it():
    sampler = made()
    play(sampler, "simpler", [True] * 500)
    assert sampler.stage == "simplest"
    play(sampler, "simplest", [True] * 300)
    assert sampler.stage == "simpler"
    play(sampler, "simpler", [True] * 500, began=1)
    assert sampler.stage == "simpler", "those began before the stage did"
    assert sampler.metrics()["curriculum/episodes_in_stage"] == 0
    play(sampler, "simpler", [True] * 300, began=2)
    assert sampler.stage == "simple"


def test_luck_does_not_end_a_stage():
    """With a success rate of .05 below the threshold, fewer than 5 % of 200 runs complete the stage within 20,000
    episodes."""
    config = replace(PLAIN, threshold=0.7, early_advancement=True, trend_advancement=True)
    rng, passed = np.random.default_rng(0), 0
    levels = Levels.of(["simplest", "simpler"])
    for _ in range(200):
        strategy = Stages(levels, config, rng)
        for now in range(80):
            won = rng.random(250) < 0.65
            strategy.update(Outcomes(np.zeros(250, int), won, won.astype(float), np.full(250, now)))
        passed += strategy.stage != "simplest"
    assert passed < 10


def test_high_success_ends_stage_early():
    rng = np.random.default_rng(0)
    for seed in range(20):
        sampler = make_sampler(["simplest", "simpler"], replace(PLAIN, threshold=0.7), seed)
        for _ in range(20):
            sampler.record(np.zeros(100, int), rng.random(100) < 0.8)
            sampler.learn()
        assert sampler.stage == "simpler"


@pytest.mark.parametrize(
    ("options", "outcomes", "advanced"),
    [
        ({"early_advancement": True}, wins(160, 0.95), True),
        ({"early_advancement": True}, wins(160, 0.85), False),
        ({"early_advancement": True}, wins(140, 0.95), False),
        ({"trend_advancement": True}, [*wins(200, 0.2), *wins(200, 0.8)], True),
        ({"trend_advancement": True}, [*wins(200, 0.62), *wins(200, 0.62)], False),
        ({}, [*wins(200, 0.2), *wins(200, 0.8)], False),
    ],
)
def test_early_and_rising_stages_end_sooner_if_that_is_sure(options, outcomes, advanced):
    sampler = made(replace(PLAIN, **options))
    play(sampler, "simplest", outcomes)
    assert (sampler.stage == "simpler") is advanced


@pytest.mark.parametrize(("success", "share"), [(0.3, 0.40), (0.55, 0.25), (0.7, 0.15), (0.9, 0.05)])
def test_earlier_stages_are_mixed_in_by_success(success, share):
    sampler = made(replace(PLAIN, threshold=0.99, start_stage="simple"))
    play(sampler, "simple", wins(200, success))
    shares = (sampler.shares() - FLOOR) / 0.88
    assert shares == pytest.approx([share / 4, share * 3 / 4, 0.95 - share, 0.05])


def test_mixing_share_setting_is_used():
    sampler = made(replace(PLAIN, start_stage="simpler", mixing_share=0.2))
    assert sampler.metrics()["curriculum/earlier_share"] == pytest.approx(0.88 * 0.2 + FLOOR), "what is drawn"


def test_minimum_number_of_episodes_is_projected():
    sampler = made()
    assert sampler.metrics()["curriculum/updates_to_minimum"] == 300, "nothing is known yet: one episode per update"
    for _ in range(2):
        play(sampler, "simplest", [False] * 60, running=7)
    assert sampler.metrics()["curriculum/updates_to_minimum"] == 3, "(300 - 127) / 60, rounded up"
    play(sampler, "simplest", [False] * 200)
    assert sampler.metrics()["curriculum/updates_to_minimum"] == 0


def test_after_the_last_stage_all_are_drawn_the_difficult_ones_more():
    sampler = made()
    for stage in sampler.stages:
        play(sampler, stage, [True] * 300)
    assert sampler.state_dict()["of_strategy"]["mastered"]
    assert sampler.metrics()["curriculum/can_advance"] == 1
    play(sampler, "simple", [False] * 200)
    shares = sampler.shares()
    assert shares.argmax() == 2
    assert (shares >= FLOOR).all()
    assert [event["event"] for event in sampler.events] == ["advance"] * 3 + ["mastered"]
    play(sampler, "my own", [False] * 300)
    found = sampler.metrics()  # which go on
    assert (found["curriculum/success_rate"], found["curriculum/episodes_in_stage"]) == (0.5, 600)


def test_stuck_stage_lowers_threshold_then_warns():
    config = replace(PLAIN, auto_adjustment=True, adjustment_freq=400, min_threshold=0.52)
    sampler = made(config)
    thresholds = []
    for _ in range(5):
        play(sampler, "simplest", [False] * 400)
        thresholds.append(sampler.metrics()["curriculum/advancement_threshold"])
    assert thresholds == pytest.approx([0.55, 0.52, 0.52, 0.52, 0.52])
    assert [e["event"] for e in sampler.events] == ["threshold_lowered"] * 2 + ["stuck_at_floor"]
    assert all(event["reason"] for event in sampler.events)
    for _ in range(3):
        play(sampler, "simplest", wins(400, 0.58))
    assert sampler.stage == "simpler"
    assert sampler.metrics()["curriculum/advancement_threshold"] == 0.6, "the next one begins with the full threshold"


def test_regression_returns_to_earlier_stage_if_enabled():
    for limit, stage in ((None, "simpler"), (0.3, "simplest")):
        sampler = made(replace(PLAIN, start_stage="simpler", regression_threshold=limit))
        play(sampler, "simpler", wins(300, 0.1))
        assert sampler.stage == stage
    assert sampler.events[-1]["event"] == "regress"


def test_regression_with_minimum_above_window():
    sampler = made(replace(PLAIN, start_stage="simpler", regression_threshold=0.3, min_episodes=RECENT + 500))
    play(sampler, "simpler", wins(RECENT, 0.1))
    assert sampler.stage == "simpler"
    play(sampler, "simpler", wins(500, 0.1))
    assert sampler.stage == "simplest"


def test_stages_can_have_own_thresholds():
    sampler = made(replace(PLAIN, stage_thresholds=("simpler=0.3",)))
    play(sampler, "simplest", [True] * 300)
    assert sampler.metrics()["curriculum/advancement_threshold"] == 0.3
    with pytest.raises(ConfigError, match="STAGE=X"):
        replace(PLAIN, stage_thresholds=("simpler:0.3",))


def test_first_stage_setting_is_used():
    assert made(replace(PLAIN, start_stage="simple")).stage == "simple"
    with pytest.raises(ConfigError, match="--curriculum-start-stage"):
        made(replace(PLAIN, start_stage="complex"))


def test_curriculum_config_unknown_strategy_raises():
    with pytest.raises(ConfigError, match="known strategies are uniform, stages"):
        CurriculumConfig(strategy="fastest")
