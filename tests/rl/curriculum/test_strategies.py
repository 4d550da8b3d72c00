"""Probabilities of levels: learnability, prioritised level replay and learning progress."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.curriculum.learning_progress import PRESETS

STALENESS_SHARE = CurriculumConfig().replay_staleness


def made(strategy, categories, **settings):
    return make_sampler(
        categories, CurriculumConfig(strategy=strategy, **settings), 0, difficulty=np.arange(len(categories))
    )


def play(sampler, outcomes):
    """One update; outcomes: level -> wins, in order."""
    levels = [level for level, won in outcomes.items() for _ in won]
    sampler.record(levels, [one for won in outcomes.values() for one in won])
    sampler.learn()


# ---------------------------------------------------------------------------------------------------------------------
# Learnability


def test_levels_won_sometimes_are_drawn_most():
    sampler = made("learnability", ["simplest"] * 3 + ["simple"] * 3 + ["complex"] * 3, uniform_share=0.0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        play(sampler, {level: rng.random(30) < (0.98, 0.5, 0.02)[level // 3] for level in range(9)})
    shares = sampler.shares()
    assert shares[1] > 0.8
    assert shares.argmax() == 1


def test_uniform_share_of_all_levels_is_drawn():
    sampler = made("learnability", ["simplest"] * 9, uniform_share=0.3)
    for _ in range(30):
        play(sampler, {0: [True] * 50})
    assert sampler.probabilities().min() >= 0.3 / 9


def test_level_with_few_episodes_uses_statistics_of_its_cell():
    sampler = made("learnability", ["simplest"] * 30, uniform_share=0.0)
    strategy = sampler.strategy
    play(sampler, {level: [True] * 20 for level in range(1, 10)} | {0: [False]})
    variance = strategy.expected_variance()
    assert variance[0] < 0.15, "after one loss in a cell that is always won, the level is expected to be won"
    assert variance[0] > variance[1:10].max()
    assert variance[20] > 0.2, "no level of this cell was played"


def test_old_outcomes_are_forgotten():
    sampler = made("learnability", ["simplest"] * 3)
    for _ in range(10):
        play(sampler, {0: [False] * 200})
    for _ in range(30):
        play(sampler, {0: [True] * 200})
    assert sampler.strategy.success()[0] > 0.95


# ---------------------------------------------------------------------------------------------------------------------
# Prioritised level replay


def learn(sampler, advantages):
    """One update; advantages: level -> advantages of its decisions."""
    decided = np.array([level for level, row in advantages.items() for _ in row])
    sampler.learn(decided=decided, advantages=np.array([x for row in advantages.values() for x in row], np.float32))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(st.integers(0, 7), st.sampled_from([-2.0, 0.0, 0.5, 1.0]), min_size=1), max_size=8))
def test_incremental_ranks_equal_sorted_ranks(updates):
    sampler = made("plr", ["simplest"] * 8, replay_temperature=0.7)
    score, last = {}, {}
    for now, advantages in enumerate(updates, 1):
        learn(sampler, {level: [value] for level, value in advantages.items()})
        score |= {level: abs(value) for level, value in advantages.items()}
        last |= dict.fromkeys(advantages, now)
        order = sorted(score, key=lambda level: (-score[level], level))
        rank = {level: (place + 1) ** (-1 / 0.7) for place, level in enumerate(order)}
        ages = {level: now - last[level] for level in order}
        if not sum(ages.values()):
            ages = dict.fromkeys(order, 1)
        wanted = np.full(8, 1 / 8)
        for level in order:
            share = (1 - STALENESS_SHARE) * rank[level] / sum(rank.values())
            wanted[level] = len(order) / 8 * (share + STALENESS_SHARE * ages[level] / sum(ages.values()))
        assert sampler.probabilities() == pytest.approx(wanted)


def test_positive_scores_ignore_negative_advantages():
    sampler = made("plr", ["simplest"] * 2, replay_score="positive")
    learn(sampler, {0: [-5, -5], 1: [0.1, 0.1]})
    assert sampler.strategy.score.tolist() == pytest.approx([0, 0.1])


def test_unplayed_levels_first_and_stale_levels_replayed():
    sampler = made("plr", ["simplest"] * 10)
    learn(sampler, {0: [1.0], 1: [0.5]})
    assert sampler.probabilities()[2:] == pytest.approx(np.full(8, 0.1))
    for _ in range(5):
        learn(sampler, {level: [1.0] for level in range(1, 10)})
    wanted = STALENESS_SHARE  # level 0 alone is old; its rank is shared by chance
    assert sampler.probabilities()[0] > wanted


def test_replay_staleness_sets_share_of_draws_by_age():
    sampler = made("plr", ["simplest"] * 4, replay_staleness=1.0)
    learn(sampler, {level: [1.0] for level in range(4)})
    learn(sampler, {0: [9.0], 1: [9.0]})
    assert sampler.probabilities() == pytest.approx([0, 0, 0.5, 0.5])


def test_temperature_of_paper_concentrates_on_one_level():
    sampler = made("plr", ["simplest"] * 4, replay_temperature=0.1)
    learn(sampler, {level: [float(level)] for level in range(4)})
    assert sampler.probabilities()[3] > 0.9


# ---------------------------------------------------------------------------------------------------------------------
# Learning progress


def test_levels_on_which_success_changes_are_drawn_more():
    sampler = made("learning_progress", ["simplest"] * 20, uniform_share=0.0)
    rng = np.random.default_rng(0)
    for update in range(20):
        chance = np.full(20, 0.0)
        chance[:3] = update / 20
        chance[10:] = 1.0
        play(sampler, {level: rng.random(20) < chance[level] for level in range(20)})
    assert sampler.probabilities()[:3].sum() > 0.8


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=60), max_size=12))
def test_pool_keeps_size_and_forgets_removed_levels(updates):
    sampler = made("learning_progress", ["simplest"] * 6 + ["simple"] * 6, active_levels=4)
    strategy = sampler.strategy
    for some in updates:
        sampler.record([level for level, _ in some], [won for _, won in some])
        sampler.learn()
        assert strategy.active.sum() == 4
        outside = ~strategy.active
        for name in strategy.OF_LEVELS:
            assert not getattr(strategy, name)[outside].any(), name
        assert not strategy.weights()[outside].any()
        assert not strategy.scores()[outside].any()


def test_levels_enter_the_pool_in_place_of_those_with_the_lowest_score():
    sampler = made("learning_progress", ["simplest"] * 12, active_levels=4, uniform_share=0.5)
    strategy = sampler.strategy
    inside, outside = np.flatnonzero(strategy.active), np.flatnonzero(~strategy.active)
    play(sampler, {outside[0]: [True]})
    assert not strategy.active[outside[0]], "no level in the pool has been played enough to leave"
    play(sampler, {level: [False] * 10 + [level == inside[0]] * 10 for level in inside})
    play(sampler, {outside[0]: [True], outside[1]: [True]})
    assert strategy.active[inside[0]]
    assert strategy.active[outside[:2]].all()
    assert sampler.metrics()["eviction_counts/simplest"] == 2


@pytest.mark.parametrize("mastered_first", [False, True])
def test_pool_removes_most_played_level_without_score(mastered_first):
    sampler = made("learning_progress", ["simplest"] * 40, active_levels=10)
    strategy = sampler.strategy
    inside, outside = np.flatnonzero(strategy.active), np.flatnonzero(~strategy.active)
    won, lost = (inside[:5], inside[5:]) if mastered_first else (inside[5:], inside[:5])
    play(sampler, {level: [True] * 13 for level in won} | {level: [False] * 11 for level in lost})
    play(sampler, {won[2]: [True], lost[3]: [False] * 9})
    assert np.ptp(strategy.scores()) < 1e-9
    assert strategy.scores()[won].any(), "averages that are 1 in truth differ by rounding"
    play(sampler, {outside[7]: [True], outside[1]: [False]})
    assert set(inside) - set(strategy.pool) == {lost[3], won[2]}
    play(sampler, {level: [False] for level in outside[::-1]})
    stay = np.isin(outside, strategy.pool)
    assert stay[-1], "those that were played first enter"
    assert not stay[0]


def test_unplayed_levels_have_no_score_in_statistics():
    sampler = made("learning_progress", ["simplest"] * 4 + ["simple"] * 4)
    assert not any(tag.startswith(("debug/", "per_label_stats/")) for tag in sampler.metrics())
    play(sampler, {0: [True] * 10, 1: [True] * 10})
    found = sampler.metrics()
    assert found["per_label_stats/mean_reward_ema/simplest"] == pytest.approx(1)
    assert found["debug/raw_lp_total_count"] == 2
    assert "per_label_stats/mean_reward_ema/simple" not in found


def test_learning_progress_scores_are_small_where_success_is_constant():
    learners = dict.fromkeys(range(10), [True] * 25) | dict.fromkeys(range(10, 20), [False] * 25)
    sampler = made("learning_progress", ["simplest"] * 21)
    play(sampler, learners | {20: [False] * 10 + [True] * 15})
    assert sampler.strategy.scores()[20] > 10 * sampler.strategy.scores()[:20].max()


def test_learning_progress_reweighting_has_no_pole():
    strategy = made("learning_progress", ["simplest"], preset="first").strategy
    assert strategy.preset.early == 0.05, "without reweighting there is no pole"
    strategy.played[:], strategy.first[:] = 1000, 0.0
    for success in np.linspace(0.4, 0.6, 201):
        strategy.fast[:] = success * (1 - (1 - 0.001) ** 1000)
        strategy.slow[:] = (success - 0.01) * (1 - (1 - 0.0002) ** 1000)
        assert strategy.scores()[0] < 0.2


def progress(**settings):
    """Strategy with two levels, whose success rises by two points from 5 % and from 90 %."""
    strategy = made("learning_progress", ["simplest"] * 2, **settings).strategy
    strategy.played[:], rate = 1000, strategy.preset.timescale
    for average, success, speed in (
        (strategy.fast, [0.07, 0.92], rate),
        (strategy.slow, [0.05, 0.90], rate * strategy.preset.slow),
    ):
        average[:] = np.array(success) * (1 - (1 - speed) ** 1000)
    return strategy


def test_lp_early_weights_progress_at_low_success():
    assert progress().scores() == pytest.approx([0.02, 0.02], rel=1e-3)
    first, late = progress(lp_early=0.1).scores()
    by_definition = [0.9 * p / (p + 0.1 * (1 - 2 * p)) for p in (0.07, 0.05)]
    assert first == pytest.approx(by_definition[0] - by_definition[1], rel=1e-3)
    assert first > 10 * late > 0


def test_success_scored_directly_if_set():
    assert progress(lp_success_bonus=0.5).scores() == pytest.approx([0.02 + 0.035, 0.02 + 0.46], rel=1e-3)


def test_temperature_gives_softmax_of_scores():
    sampler = made("learning_progress", ["simplest"] * 4, lp_temperature=0.1, uniform_share=0.0)
    play(sampler, {level: [False] * 10 + [True] * 5 * level for level in range(4)})
    score = sampler.strategy.scores()
    assert np.ptp(score) > 0.1
    wanted = np.exp(score / 0.1)
    assert sampler.probabilities() == pytest.approx(wanted / wanted.sum())


def test_amplification_sharpens_draws():
    def highest(amplification):
        sampler = made("learning_progress", ["simplest"] * 4, lp_amplification=amplification, uniform_share=0.0)
        play(sampler, {level: [False] * 10 + [True] * 5 * level for level in range(4)})
        return sampler.probabilities().max()

    assert 0.25 < highest(0.1) < 0.3 < highest(1) < highest(10)


def test_levels_have_a_score_after_min_samples_episodes():
    for least, counts in ((3, True), (4, False)):
        sampler = made("learning_progress", ["simplest"] * 2, lp_min_samples=least)
        play(sampler, {0: [False, True, True], 1: [True] * 3})
        assert (sampler.metrics()["lp/levels_with_score"] == 2) is counts
        assert bool(np.ptp(sampler.probabilities()) > 0) is counts


def test_given_rates_replace_those_of_the_preset():
    own = {"lp_timescale": 0.5, "lp_slow": 0.25}
    sampler = made("learning_progress", ["simplest"], preset="stable", **own)
    play(sampler, {0: [False, True]})
    assert (sampler.strategy.fast[0], sampler.strategy.slow[0]) == pytest.approx((0.5, 0.125))
    assert sampler.strategy.preset.amplification == 5, "from the preset"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("basic_progress", [False, True])
def test_all_presets_draw(preset, basic_progress):
    sampler = made("learning_progress", ["simplest"] * 10, preset=preset, basic_progress=basic_progress)
    rng = np.random.default_rng(0)
    for _ in range(5):
        play(sampler, {level: rng.random(8) < level / 10 for level in range(10)})
    assert sampler.probabilities().sum() == pytest.approx(1)
    assert all(np.isfinite(value) for value in sampler.metrics().values())


def test_detailed_statistics_can_be_left_out():
    def tags(performance_mode):
        sampler = made("learning_progress", ["simplest"] * 3, performance_mode=performance_mode)
        play(sampler, {0: [True]})
        return set(sampler.metrics())

    assert tags(True) < tags(False)
    families = {"pool_composition", "sampling_counts", "eviction_counts", "per_label_stats", "debug", "curriculum_gini"}
    assert families <= {tag.split("/")[0] for tag in tags(False) - tags(True)}
