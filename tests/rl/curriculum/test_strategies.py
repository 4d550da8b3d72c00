"""Learnability, prioritised replay and learning progress: what they draw, and what the original formulas did wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.errors import ConfigError
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.curriculum.learning_progress import PRESETS

STALENESS_SHARE = CurriculumConfig().replay_staleness


def made(strategy, categories, **settings):
    return make_sampler(
        categories, CurriculumConfig(strategy=strategy, **settings), 0, difficulty=np.arange(len(categories))
    )


def play(sampler, outcomes):
    """An update; outcomes: level -> wins, in order."""
    levels = [level for level, won in outcomes.items() for _ in won]
    sampler.record(levels, [one for won in outcomes.values() for one in won])
    sampler.learn()


# ---------------------------------------------------------------------------------------------------------------------
# Learnability


def test_what_is_sometimes_won_is_drawn_most():
    sampler = made("learnability", ["simplest"] * 3 + ["simple"] * 3 + ["complex"] * 3, uniform_share=0.0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        play(sampler, {level: rng.random(30) < (0.98, 0.5, 0.02)[level // 3] for level in range(9)})
    shares = sampler.shares()
    assert shares[1] > 0.8
    assert shares.argmax() == 1


def test_an_even_share_is_left_for_all_levels():
    sampler = made("learnability", ["simplest"] * 9, uniform_share=0.3)
    for _ in range(30):
        play(sampler, {0: [True] * 50})
    assert sampler.probabilities().min() >= 0.3 / 9


def test_a_level_with_few_episodes_is_judged_by_its_cell():
    sampler = made("learnability", ["simplest"] * 30, uniform_share=0.0)
    strategy = sampler.strategy
    play(sampler, {level: [True] * 20 for level in range(1, 10)} | {0: [False]})
    variance = strategy.expected_variance()
    assert variance[0] < 0.15, "one loss in a cell that is always won is no news"
    assert variance[0] > variance[1:10].max()
    assert variance[20] > 0.2, "another third was never played"


def test_what_is_long_past_is_forgotten():
    sampler = made("learnability", ["simplest"] * 3)
    for _ in range(10):
        play(sampler, {0: [False] * 200})
    for _ in range(30):
        play(sampler, {0: [True] * 200})
    assert sampler.strategy.success()[0] > 0.95


# ---------------------------------------------------------------------------------------------------------------------
# Prioritised level replay


def learn(sampler, advantages):
    """An update; advantages: level -> of its decisions."""
    decided = np.array([level for level, row in advantages.items() for _ in row])
    sampler.learn(decided=decided, advantages=np.array([x for row in advantages.values() for x in row], np.float32))


def test_levels_are_ranked_by_how_far_the_critic_was_off():
    sampler = made("plr", ["simplest"] * 4)
    learn(sampler, {0: [0.1, -0.1], 1: [-2, 2], 2: [0.5], 3: [1.0]})
    wanted = np.array([1 / 4, 1, 1 / 3, 1 / 2]) / (1 + 1 / 2 + 1 / 3 + 1 / 4)
    assert sampler.probabilities() == pytest.approx((1 - STALENESS_SHARE) * wanted + STALENESS_SHARE / 4)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(st.integers(0, 7), st.sampled_from([-2.0, 0.0, 0.5, 1.0]), min_size=1), max_size=8))
def test_ranks_that_are_kept_up_to_date_are_those_of_a_sort(updates):
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


def test_positive_scores_leave_disappointments_out():
    sampler = made("plr", ["simplest"] * 2, replay_score="positive")
    learn(sampler, {0: [-5, -5], 1: [0.1, 0.1]})
    assert sampler.strategy.score.tolist() == pytest.approx([0, 0.1])


def test_levels_that_were_never_played_come_first_and_old_ones_come_back():
    sampler = made("plr", ["simplest"] * 10)
    learn(sampler, {0: [1.0], 1: [0.5]})
    assert sampler.probabilities()[2:] == pytest.approx(np.full(8, 0.1))
    for _ in range(5):
        learn(sampler, {level: [1.0] for level in range(1, 10)})
    wanted = STALENESS_SHARE  # level 0 alone is old; its rank is shared by chance
    assert sampler.probabilities()[0] > wanted


def test_how_much_goes_by_age_can_be_set():
    sampler = made("plr", ["simplest"] * 4, replay_staleness=1.0)
    learn(sampler, {level: [1.0] for level in range(4)})
    learn(sampler, {0: [9.0], 1: [9.0]})
    assert sampler.probabilities() == pytest.approx([0, 0, 0.5, 0.5])


def test_the_temperature_of_the_paper_leaves_one_level():
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


def averages(won, rate):
    """By the definition: the mean with weights that fall by 1 - rate per episode."""
    weights = (1 - rate) ** np.arange(len(won))[::-1]
    return float(weights @ won / weights.sum())


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=25), max_size=6))
def test_averages_are_those_of_the_definition_however_episodes_are_spread_over_updates(updates):
    sampler = made("learning_progress", ["simplest"] * 3)
    for some in updates:
        sampler.record([level for level, _ in some], [won for _, won in some])
        sampler.learn()
    strategy = sampler.strategy
    for level in range(3):
        won = np.array([w for some in updates for one, w in some if one == level], float)
        assert strategy.played[level] == len(won)
        if len(won):
            assert strategy.success_of(np.array([level]))[0] == pytest.approx(averages(won, 0.1))
            assert strategy.first[level] == pytest.approx(won[:10].mean())


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=25), max_size=6))
def test_the_original_averages_begin_at_their_first_value(updates):
    sampler = made("learning_progress", ["simplest"] * 3, formulas="original")
    expected = {}
    for some in updates:
        sampler.record([level for level, _ in some], [won for _, won in some])
        sampler.learn()
        for level, won in some:
            value = 1.0 if won else -1.0
            fast, slow = expected.get(level, (value, value))
            expected[level] = (0.9 * fast + 0.1 * value, 0.98 * slow + 0.02 * value)
    for level, (fast, slow) in expected.items():
        assert sampler.strategy.fast[level] == pytest.approx(fast)
        assert sampler.strategy.slow[level] == pytest.approx(slow)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=60), max_size=12))
def test_the_pool_keeps_its_size_and_nothing_is_left_of_levels_outside(updates):
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


def test_levels_enter_the_pool_in_place_of_those_that_teach_least():
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
def test_of_levels_that_teach_nothing_the_most_played_one_leaves_wherever_it_stands(mastered_first):
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


def test_levels_that_were_not_played_have_no_score_in_the_statistics():
    sampler = made("learning_progress", ["simplest"] * 4 + ["simple"] * 4)
    assert not any(tag.startswith(("debug/", "per_label_stats/")) for tag in sampler.metrics())
    play(sampler, {0: [True] * 10, 1: [True] * 10})
    found = sampler.metrics()
    assert found["per_label_stats/mean_reward_ema/simplest"] == pytest.approx(1)
    assert found["debug/raw_lp_total_count"] == 2
    assert "per_label_stats/mean_reward_ema/simple" not in found


def test_the_original_formulas_drop_levels_without_progress():
    for formulas, dropped in (("original", True), ("mended", False)):
        sampler = made("learning_progress", ["simplest"] * 4, formulas=formulas, basic_progress=True, uniform_share=0.0)
        play(sampler, {0: [True] * 10, 1: [True] * 10, 2: [True, False] * 5, 3: [True, False] * 10})
        assert bool((sampler.probabilities()[:2] == 0).all()) is dropped
        assert (sampler.probabilities()[2:] > 0).all()


def test_the_original_score_has_a_floor_that_all_levels_sit_on():
    learners = dict.fromkeys(range(10), [True] * 25) | dict.fromkeys(range(10, 20), [False] * 25)
    original = made("learning_progress", ["simplest"] * 21, formulas="original", preset="arena_legacy")
    play(original, learners | {20: [False] * 10 + [True] * 15})
    score = original.strategy.scores()
    assert score[:20] == pytest.approx(np.full(20, 0.1))
    assert score[20] == pytest.approx(0.1), "what was learned right now is not above the floor"
    mended = made("learning_progress", ["simplest"] * 21)
    play(mended, learners | {20: [False] * 10 + [True] * 15})
    assert mended.strategy.scores()[20] > 10 * mended.strategy.scores()[:20].max()


def test_the_original_reweighting_has_a_pole_where_success_is_about_one_half():
    def highest(formulas):
        sampler = made("learning_progress", ["simplest"], formulas=formulas, preset="first")
        strategy = sampler.strategy
        assert strategy.preset.early == 0.05, "without reweighting there is no pole, whatever the formulas"
        found = []
        for success in np.linspace(0.4, 0.6, 201):
            value = 2 * success - 1 if formulas == "original" else success
            strategy.played[:], strategy.first[:] = 1000, 0.0
            bias = 1.0 if formulas == "original" else 1 - (1 - 0.001) ** 1000
            strategy.fast[:] = value * bias
            slow = 1.0 if formulas == "original" else 1 - (1 - 0.0002) ** 1000
            strategy.slow[:] = (value - (0.02 if formulas == "original" else 0.01)) * slow
            found.append(float(strategy.scores()[0]))
        return max(found)

    assert highest("original") > 1
    assert highest("mended") < 0.2


def test_the_original_scores_magnify_the_smallest_differences():
    for formulas, magnified in (("original", True), ("mended", False)):
        strategy = made("learning_progress", ["simplest"] * 3, formulas=formulas).strategy
        weights = strategy._amplified(np.array([0.1, 0.1001, 0.1002]))
        assert bool(weights.max() > 2 * weights.min()) is magnified


def test_original_levels_without_a_score_crowd_out_the_others():
    for formulas, crowded in (("original", True), ("mended", False)):
        sampler = made("learning_progress", ["simplest"] * 100, formulas=formulas, uniform_share=0.0)
        play(sampler, {level: [True] * 10 + [False] * 5 for level in range(90)})
        assert bool(sampler.probabilities()[90:].sum() > 0.3) is crowded


def progress(**settings):
    """The strategy with two levels, of which one rises from 5 % by two points, the other one as much from 90 %."""
    strategy = made("learning_progress", ["simplest"] * 2, **settings).strategy
    strategy.played[:], rate = 1000, strategy.preset.timescale
    for average, success, speed in (
        (strategy.fast, [0.07, 0.92], rate),
        (strategy.slow, [0.05, 0.90], rate * strategy.preset.slow),
    ):
        average[:] = np.array(success) * (1 - (1 - speed) ** 1000)
    return strategy


def test_early_progress_counts_more_where_that_is_asked_for():
    assert progress().scores() == pytest.approx([0.02, 0.02], rel=1e-3)
    first, late = progress(lp_early=0.1).scores()
    by_definition = [0.9 * p / (p + 0.1 * (1 - 2 * p)) for p in (0.07, 0.05)]
    assert first == pytest.approx(by_definition[0] - by_definition[1], rel=1e-3)
    assert first > 10 * late > 0


def test_success_itself_is_scored_where_that_is_asked_for():
    assert progress(lp_success_bonus=0.5).scores() == pytest.approx([0.02 + 0.035, 0.02 + 0.46], rel=1e-3)


def test_a_temperature_makes_a_softmax_of_scores():
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


def test_scores_count_from_so_many_episodes_on():
    for least, counts in ((3, True), (4, False)):
        sampler = made("learning_progress", ["simplest"] * 2, lp_min_samples=least)
        play(sampler, {0: [False, True, True], 1: [True] * 3})
        assert (sampler.metrics()["lp/levels_with_score"] == 2) is counts
        assert bool(np.ptp(sampler.probabilities()) > 0) is counts


def test_the_rates_of_the_averages_and_the_floor_can_be_set():
    own = {"lp_timescale": 0.5, "lp_slow": 0.25, "lp_exploration_bonus": 0.3}
    sampler = made("learning_progress", ["simplest"], formulas="original", preset="stable", **own)
    play(sampler, {0: [False, True]})
    assert (sampler.strategy.fast[0], sampler.strategy.slow[0]) == pytest.approx((0.0, -0.75))
    assert sampler.strategy.scores()[0] == pytest.approx(0.75)
    play(sampler, {0: [True] * 100})
    assert sampler.strategy.scores()[0] == 0.3
    assert sampler.strategy.preset.amplification == 5, "what is not given is the preset's"


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"lp_exploration_bonus": 0.1}, "--curriculum-formulas original"),
        ({"lp_early": 0.1, "basic_progress": True}, "--curriculum-basic-progress"),
        ({"lp_slow": 0.1, "basic_progress": True}, "--curriculum-basic-progress"),
        ({"lp_amplification": 5.0, "lp_temperature": 0.1}, "--curriculum-lp-temperature"),
    ],
)
def test_a_number_that_the_chosen_formulas_do_not_use_is_refused(given, advice):
    with pytest.raises(ConfigError, match=f"^{next(iter(given))} .*has no effect with(out)? {advice}"):
        CurriculumConfig(strategy="learning_progress", **given)
    CurriculumConfig(strategy="learning_progress", preset="stable", basic_progress=True)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("formulas", ["mended", "original"])
@pytest.mark.parametrize("basic_progress", [False, True])
def test_every_preset_draws(preset, formulas, basic_progress):
    sampler = made(
        "learning_progress",
        ["simplest"] * 10,
        preset=preset,
        formulas=formulas,
        basic_progress=basic_progress,
    )
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
