"""The curriculum as its rules say, on tiny datasets of categories."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.errors import ConfigError
from rl.config import CurriculumConfig
from rl.curriculum import StageCurriculum, UniformSampler, make_sampler

CATEGORIES = ["simple"] * 4 + ["simplest"] * 3 + ["my own"] * 2 + ["simpler"] * 5
PLAIN = CurriculumConfig(
    use_curriculum=True,
    threshold=0.6,
    min_episodes=10,
    window=20,
    early_advancement=False,
    trend_advancement=False,
    auto_adjustment=False,
)


def level_of(sampler, stage):
    return int(np.flatnonzero(sampler.stage_of == sampler.stages.index(stage))[0])


def play(sampler, stage, wins):
    sampler.record([level_of(sampler, stage)] * len(wins), wins)


def test_stages_follow_the_canonical_order_with_unknown_categories_last():
    assert StageCurriculum(CATEGORIES, PLAIN, 0).stages == ("simplest", "simpler", "simple", "my own")


def test_levels_are_drawn_from_the_stage_and_a_little_from_the_next():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    levels = sampler.draw(20_000)
    assert levels.dtype == np.int32
    share = np.bincount(sampler.stage_of[levels], minlength=4) / len(levels)
    assert share == pytest.approx([0.95, 0.05, 0, 0], abs=0.01)
    within = np.bincount(levels, minlength=len(CATEGORIES))[4:7] / len(levels)
    assert within == pytest.approx([0.95 / 3] * 3, abs=0.02), "levels of one stage are equally likely"


def test_a_stage_ends_at_the_threshold_but_not_before_the_minimum_of_episodes():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    play(sampler, "simplest", [True] * 9)
    assert sampler.stage == "simplest"
    play(sampler, "simplest", [True])
    assert sampler.stage == "simpler"
    assert sampler.events[-1] | {"episode": 10, "event": "advance", "stage": "simplest"} == sampler.events[-1]


def test_a_stage_does_not_end_below_the_threshold():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    play(sampler, "simplest", [False, True] * 200)
    assert sampler.stage == "simplest"


def test_only_the_latest_episodes_count():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    play(sampler, "simplest", [False] * 1000)
    play(sampler, "simplest", [True] * 12)  # 12 of the latest 20 are 60 %
    assert sampler.stage == "simpler"


def test_episodes_of_other_stages_do_not_count_for_this_one():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    play(sampler, "simpler", [True] * 500)
    play(sampler, "my own", [True] * 500)
    assert sampler.stage == "simplest"
    play(sampler, "simplest", [True] * 10)
    assert sampler.stage == "simpler", "what was played of it before does not end the new stage at once"
    assert sampler.metrics()["curriculum/episodes_in_stage"] == 0


@pytest.mark.parametrize(("successes", "earlier"), [(9, 0.40), (11, 0.25), (14, 0.15), (18, 0.05)])
def test_earlier_stages_stay_mixed_in_the_more_the_worse_it_goes(successes, earlier):
    sampler = StageCurriculum(CATEGORIES, replace(PLAIN, threshold=0.99), 0)
    sampler.load_state_dict(sampler.state_dict() | {"stage": "simple"})
    play(sampler, "simple", [False] * (20 - successes) + [True] * successes)
    shares = sampler.shares()
    assert shares[:2].sum() == pytest.approx(earlier)
    assert shares[1] == pytest.approx(earlier * 3 / 4), "half to the last stage, half to all earlier ones"
    assert shares.sum() == pytest.approx(1)


def test_when_all_is_mastered_everything_is_mixed_by_failure():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    for stage in sampler.stages:
        play(sampler, stage, [True] * 10)
    assert sampler.state_dict()["mastered"]
    play(sampler, "simple", [False] * 20)
    shares = sampler.shares()
    assert shares.argmax() == 2
    assert (shares > 0.05).all()
    assert [event["event"] for event in sampler.events] == ["advance"] * 3 + ["mastered"]


def test_a_stuck_stage_has_its_threshold_lowered_down_to_the_floor_and_says_so():
    config = replace(PLAIN, auto_adjustment=True, adjustment_freq=100, min_threshold=0.52)
    sampler = StageCurriculum(CATEGORIES, config, 0)
    play(sampler, "simplest", [False] * 99)
    assert sampler.threshold == 0.6
    play(sampler, "simplest", [False])
    assert sampler.threshold == pytest.approx(0.55)
    play(sampler, "simplest", [False] * 1000)
    assert sampler.threshold == pytest.approx(0.52)
    names = [event["event"] for event in sampler.events]
    assert names == ["threshold_lowered", "threshold_lowered", "stuck_at_floor"]
    play(sampler, "simplest", [True] * 11)
    assert sampler.stage == "simpler", "11 of 20 reach the lowered threshold"
    assert sampler.threshold == 0.6, "the next stage begins with the full threshold"


def test_early_and_trend_advancement_can_be_switched_off():
    early = replace(PLAIN, early_advancement=True)
    trend = replace(PLAIN, trend_advancement=True, min_episodes=20)
    rising = [False] * 6 + [True] * 10  # 62 %, rising, after 80 % of the minimum
    for config, wins, advanced in [
        (early, [True] * 5, True),
        (PLAIN, [True] * 5, False),
        (trend, rising, True),
        (replace(trend, trend_advancement=False), rising, False),
    ]:
        sampler = StageCurriculum(CATEGORIES, config, 0)
        play(sampler, "simplest", wins)
        assert (sampler.stage == "simpler") is advanced


def test_start_stage_must_be_in_the_dataset():
    assert StageCurriculum(CATEGORIES, replace(PLAIN, start_stage="simple"), 0).stage == "simple"
    with pytest.raises(ConfigError, match="--curriculum-start-stage complex.*simplest, simpler"):
        StageCurriculum(CATEGORIES, replace(PLAIN, start_stage="complex"), 0)


def test_without_levels_there_is_no_curriculum():
    with pytest.raises(ConfigError, match="dataset is empty"):
        make_sampler([], PLAIN, 0)


def test_metrics_are_finite_floats_under_the_documented_tags():
    sampler = StageCurriculum(CATEGORIES, PLAIN, 0)
    play(sampler, "simplest", [True, False])
    metrics = sampler.metrics()
    assert all(type(value) is float and np.isfinite(value) for value in metrics.values())
    assert metrics["curriculum/success_rate"] == metrics["curriculum_stages/simplest_success_rate"] == 0.5
    assert metrics["curriculum_stages/simplest_episodes"] == 2
    assert metrics["curriculum/levels_seen"] == 1
    assert {"curriculum/current_stage_idx", "curriculum/advancement_threshold", "curriculum/can_advance"} <= set(
        metrics
    )


def test_uniform_sampling_draws_every_level_equally_and_counts_by_category():
    sampler = make_sampler(CATEGORIES, CurriculumConfig(), 0)
    assert isinstance(sampler, UniformSampler)
    counts = np.bincount(sampler.draw(28_000), minlength=len(CATEGORIES))
    assert counts == pytest.approx(np.full(len(CATEGORIES), 2000), rel=0.1)
    sampler.record([0, 4], [True, False])
    assert sampler.metrics()["curriculum_stages/simple_success_rate"] == 1
    assert sampler.events == []


def test_another_dataset_is_not_continued():
    state = StageCurriculum(CATEGORIES, PLAIN, 0).state_dict()
    with pytest.raises(ConfigError, match="same dataset"):
        StageCurriculum(CATEGORIES + ["simple"], PLAIN, 0).load_state_dict(state)


outcomes = st.lists(st.tuples(st.integers(0, len(CATEGORIES) - 1), st.booleans()), max_size=300)
configs = st.builds(
    CurriculumConfig,
    use_curriculum=st.booleans(),
    threshold=st.floats(0.4, 1),
    min_episodes=st.integers(1, 30),
    window=st.integers(2, 30),
    adjustment_freq=st.integers(1, 50),
    early_advancement=st.booleans(),
    trend_advancement=st.booleans(),
    auto_adjustment=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(config=configs, episodes=outcomes, cut=st.integers(0, 300))
def test_a_restored_curriculum_continues_exactly(config, episodes, cut):
    whole, first = (make_sampler(CATEGORIES, config, 5) for _ in range(2))
    for level, won in episodes[:cut]:
        whole.record([level], [won])
        first.record([level], [won])
    assert (whole.draw(7) == first.draw(7)).all()
    second = make_sampler(CATEGORIES, config, 99)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for level, won in episodes[cut:]:
        whole.record([level], [won])
    second.record([level for level, _ in episodes[cut:]], [won for _, won in episodes[cut:]])
    assert second.state_dict() == whole.state_dict(), "one at a time or all at once makes no difference either"
    assert (second.draw(50) == whole.draw(50)).all()
    assert second.metrics() == whole.metrics()


@settings(max_examples=60, deadline=None)
@given(config=configs, episodes=outcomes)
def test_windows_shares_and_counts_agree_with_a_naive_history(config, episodes):
    sampler = StageCurriculum(CATEGORIES, config, 0)
    history = {stage: [] for stage in sampler.stages}
    for level, won in episodes:
        before = sampler.stage
        sampler.record([level], [won])
        history[CATEGORIES[level]].append(won)
        if sampler.stage != before:
            assert sampler.stages.index(sampler.stage) == sampler.stages.index(before) + 1, "one stage at a time"
            history[sampler.stage] = []
    metrics = sampler.metrics()
    assert sum(metrics[f"curriculum_stages/{stage}_episodes"] for stage in sampler.stages) == len(episodes)
    for stage, wins in history.items():
        if wins:
            latest = wins[-config.window :]
            assert metrics[f"curriculum_stages/{stage}_success_rate"] == pytest.approx(sum(latest) / len(latest))
    shares = sampler.shares()
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    assert shares[sampler.stages.index(sampler.stage)] > 0
    assert config.min_threshold <= sampler.threshold <= max(config.threshold, config.min_threshold)
    assert len(sampler.events) <= len(sampler.stages) * (3 + (1 - config.min_threshold) / config.adjustment_step)


def test_cost_and_memory_do_not_grow_with_the_number_of_levels_or_episodes():
    categories = ["simplest"] * 50_000 + ["simpler"] * 50_000
    sampler = StageCurriculum(categories, PLAIN, 0)
    size = None
    for _ in range(20):
        levels = sampler.draw(512)
        sampler.record(levels, np.zeros(512, bool))
        state = len(json.dumps(sampler.state_dict()["windows"]))
        size = size or state
        assert state <= 2 * size
    assert len(sampler.events) == 0
