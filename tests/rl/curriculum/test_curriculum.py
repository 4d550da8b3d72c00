"""The curriculum's manager with every strategy: drawing, counting, saving and refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.curriculum import sizes_of_curriculum
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES, CurriculumManager, LevelMismatchError, Levels, Outcomes, Strategy, make_sampler
from rl.curriculum import manager as manager_module
from rl.curriculum.statistics import Windows, gini

from learners import as_text, stored
from worlds import corridor

CATEGORIES = ["simple"] * 4 + ["simplest"] * 3 + ["my own"] * 2 + ["simpler"] * 5
NAMES = ("simplest", "simpler", "simple", "my own")
LEVELS = [corridor(door=40), corridor(door=60), corridor(door=80)]


def config_of(name, **more):
    return CurriculumConfig(strategy=name, **more)


def sampler_of(name, categories=CATEGORIES, seed=0, **more):
    return make_sampler(categories, config_of(name, **more), seed, difficulty=np.arange(len(categories)))


def play(sampler, seed, updates=3, episodes=60):
    """Draw levels, win some of them, and update the strategy."""
    rng = np.random.default_rng(seed)
    for _ in range(updates):
        levels = sampler.draw(episodes)
        sampler.record(levels, rng.random(episodes) < 0.3 + 0.1 * sampler.stage_of[levels], rng.random(episodes))
        sampler.learn(decided=levels, advantages=rng.normal(size=episodes).astype(np.float32))


def same(a, b):
    return as_text(a) == as_text(b)


def test_curriculum_config_chosen_is_the_strategy():
    assert list(STRATEGIES) == CURRICULA
    assert CurriculumConfig().chosen == "uniform"
    assert CurriculumConfig(use_curriculum=True).chosen == "learnability"
    assert CurriculumConfig(use_curriculum=True, tracked_levels=2, uniform_share=0.1).chosen == "learnability"
    assert CurriculumConfig(use_curriculum=True, threshold=0.6).chosen == "stages"
    assert CurriculumConfig(use_curriculum=True, active_levels=50).chosen == "learning_progress"
    assert config_of("plr").use_curriculum


def test_make_sampler_unknown_categories_come_last():
    sampler = sampler_of("uniform")
    assert sampler.stages == NAMES
    assert [NAMES[stage] for stage in sampler.stage_of] == CATEGORIES


def test_levels_cell_is_third_of_category_and_generator():
    assert Levels.of(["a"] * 6 + ["b"], np.array([5, 4, 3, 2, 1, 0, 9])).third.tolist() == [2, 2, 1, 1, 0, 0, 0]
    assert Levels.of(["a"] * 3).third.tolist() == [0, 0, 0]
    levels = Levels.of(["a"] * 6 + ["b"] * 3, np.arange(9), generators=["x", "y", "x", "y", "x", "y", "x", "x", "x"])
    assert levels.group.tolist() == [0, 1, 0, 1, 0, 1, 2, 2, 2]
    assert levels.third.tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    assert len(set(levels.cell.tolist())) == levels.cells == 9


@pytest.mark.parametrize("name", CURRICULA)
@pytest.mark.parametrize("count", [10, 1000, 100_000])
def test_draw_frequencies_match_probabilities(name, count):
    sampler = sampler_of(name, ["simple", "simplest"] * (count // 2))
    play(sampler, 0)
    drawn = sampler.draw(50_000)
    assert drawn.dtype == np.int32
    assert sampler.probabilities().sum() == pytest.approx(1)
    wanted = sampler.probabilities() * len(drawn)
    there = wanted > 5
    found = np.bincount(drawn, minlength=count)
    chi = ((found - wanted)[there] ** 2 / wanted[there]).sum()
    assert chi < there.sum() + 5 * np.sqrt(2 * there.sum()) + 10
    assert not found[wanted == 0].any()
    assert sampler.shares() == pytest.approx(np.bincount(sampler.stage_of, sampler.probabilities()))


@pytest.mark.parametrize("name", CURRICULA)
@pytest.mark.parametrize("moment", ["between updates", "with episodes waiting"])
def test_load_state_dict_continues_identically(name, moment):
    sampler = sampler_of(name, seed=1)
    play(sampler, 0)
    if moment == "with episodes waiting":
        sampler.record([0, 3, 3], [True, False, True])
    state = stored(sampler.state_dict())
    other = sampler_of(name, seed=2)
    other.load_state_dict(state)
    assert same(other.state_dict(), sampler.state_dict())
    play(sampler, 5)
    play(other, 5)
    assert same(other.state_dict(), sampler.state_dict())
    assert sampler.draw(50).tolist() == other.draw(50).tolist()
    assert same(sampler.metrics(), other.metrics())


@pytest.mark.parametrize("name", CURRICULA)
def test_draw_same_seed_same_levels(name):
    first, second, third = (sampler_of(name, seed=seed) for seed in (3, 3, 4))
    for sampler in (first, second, third):
        play(sampler, 0)
    assert first.draw(30).tolist() == second.draw(30).tolist() != third.draw(30).tolist()


def test_load_state_dict_other_levels_or_strategy_raises():
    state = sampler_of("uniform").state_dict()
    with pytest.raises(ConfigError, match="resume with the same dataset"):
        sampler_of("uniform", [*CATEGORIES, "simple"]).load_state_dict(state)
    with pytest.raises(ConfigError, match="--curriculum"):
        sampler_of("plr").load_state_dict(state)


def test_make_sampler_without_levels_raises():
    with pytest.raises(ConfigError, match="at least one level"):
        make_sampler([], CurriculumConfig(), 0)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(CURRICULA), st.lists(st.lists(st.tuples(st.integers(0, 13), st.booleans()), max_size=30)))
def test_learn_any_outcomes_probabilities_are_a_distribution(name, updates):
    sampler = sampler_of(name, **({"active_levels": 5} if name == "learning_progress" else {}))
    for episodes in updates:
        sampler.record([level for level, _ in episodes], [won for _, won in episodes])
        sampler.learn(decided=np.array([level for level, _ in episodes], int), advantages=np.ones(len(episodes)))
        chances = sampler.probabilities()
        assert np.isfinite(chances).all()
        assert (chances >= 0).all()
        assert chances.sum() == pytest.approx(1)
        assert all(np.isfinite(value) for value in sampler.metrics().values())
    assert sampler.episodes.sum() == sum(map(len, updates))


@pytest.mark.parametrize("name", CURRICULA)
def test_learn_many_episodes_memory_is_bounded(name):
    sampler = sampler_of(name)
    play(sampler, 0, updates=12, episodes=300)
    before = sizes_of_curriculum(sampler)
    play(sampler, 1, updates=12, episodes=300)
    after = sizes_of_curriculum(sampler)
    grown = {name for name in after if after[name] != before[name]}
    events = f"{type(sampler.strategy).__name__}.events"
    windows = {"CurriculumManager._successes", "CurriculumManager._returns"}  # until they are full
    assert grown <= {events, *windows}, grown
    assert len(sampler.events) <= 20


def test_metrics_by_category_count_episodes_once():
    sampler = sampler_of("uniform")
    sampler.record([0, 4, 4], [True, False, True], np.array([2.0, 1.0, 3.0]))
    found = sampler.metrics()
    assert found["curriculum/episodes"] == 3
    assert found["curriculum/levels_seen"] == 2
    assert found["curriculum_stages/simplest_success_rate"] == 0.5
    assert (found["env_task_reward/simple"], found["env_task_reward/simplest"]) == (2, 2)
    assert found["overview/reward"] == 2
    assert "env_task_reward/simpler" not in found
    sampler.learn()
    assert sampler.metrics()["curriculum/episodes"] == 3
    assert sampler.metrics()["curriculum/episodes_since_update"] == 0
    assert sampler.summary()["categories"]["simplest"] == {
        "episodes": 2, "success": 0.5, "return": 2.0, "share": pytest.approx(3 / 14),
    }  # fmt: skip


def test_metrics_tracked_levels_have_tags():
    sampler = make_sampler(CATEGORIES, CurriculumConfig(tracked_levels=2), 0)
    sampler.record([0, 0, 2], [True, False, True])
    found = {tag for tag in sampler.metrics() if tag.startswith("curriculum_levels/")}
    assert found == {f"curriculum_levels/0_{name}" for name in ("episodes", "success", "probability")}
    assert sampler.metrics()["curriculum_levels/0_success"] == 0.5


def test_metrics_many_levels_computed_less_often(monkeypatch):
    monkeypatch.setattr(manager_module, "LEVELS_PER_UPDATE", 5)
    sampler = sampler_of("uniform")
    seen = []
    for level in range(6):
        sampler.record([level], [True])
        seen.append(sampler.metrics()["curriculum/levels_seen"])
        sampler.learn()
    assert seen == [1, 1, 1, 4, 4, 4], "14 levels: at every third update"
    other = sampler_of("uniform")
    other.load_state_dict(stored(sampler.state_dict()))
    for one in (sampler, other):
        one.learn()
    assert sampler.metrics() == other.metrics()
    assert other.metrics()["curriculum/levels_seen"] == 4


def test_metrics_share_on_mastered_needs_ten_episodes():
    sampler = sampler_of("uniform")
    outcomes = {0: [True] * 10, 1: [True] * 9, 2: [True] * 19 + [False], 3: [True] * 18 + [False] * 2, 4: [False] * 11}
    sampler.record(
        np.repeat(list(outcomes), list(map(len, outcomes.values()))), np.concatenate(list(outcomes.values()))
    )
    sampler.learn()
    assert sampler.metrics()["curriculum/share_on_mastered"] == pytest.approx((10 + 20) / (10 + 9 + 20 + 20 + 11))


OF_ALL = """
    curriculum_stages/{}_success_rate curriculum_stages/{}_share curriculum_stages/{}_episodes env_task_reward/{}
    env_curriculum_stats/per_label_samples/{} overview/reward overview/success curriculum/lag_updates
    curriculum/episodes_since_update curriculum/statistics_age curriculum/kib curriculum/gini_of_episodes
"""
OF_LEARNING_PROGRESS = """
    pool_composition/{} sampling_counts/{} eviction_counts/{} env_curriculum_stats/per_label_evictions/{}
    per_label_stats/mean_lp_score/{} per_label_stats/mean_reward_ema/{} lp/mean_success lp/mean_score lp/completions
    lp/mean_draw_probability lp/levels_with_score debug/raw_lp_mean debug/raw_lp_std debug/raw_lp_min debug/raw_lp_max
    debug/raw_lp_nonzero_count debug/raw_lp_total_count curriculum_gini/pool_occupancy curriculum_gini/task_age
    curriculum_gini/raw_lp_scores curriculum_gini/raw_lp_by_label curriculum_gini/zscored_lp_scores
    curriculum_gini/sampling_probs curriculum_gini/sampling_probs_by_label curriculum_gini/sampling_by_label
    curriculum_gini/evictions_by_label curriculum_gini/pool_composition_by_label
    curriculum_gini/selectivity_loss_zscore curriculum_gini/selectivity_loss_sampling
    curriculum_gini/selectivity_loss_lp_to_label curriculum_gini/selectivity_loss_label_to_episodes
"""


@pytest.mark.parametrize("name", CURRICULA)
def test_summary_contains_all_documented_statistics(name):
    sampler = sampler_of(name)
    play(sampler, 0, episodes=300)
    found = sampler.summary()
    wanted = (OF_ALL + OF_LEARNING_PROGRESS if name == "learning_progress" else OF_ALL).split()
    tags = {tag.format(category) for tag in wanted for category in NAMES}
    assert tags <= found["statistics"].keys()
    assert found["statistics"] == sampler.metrics()
    assert set(found["categories"]) == set(NAMES)


def test_record_different_shapes_raises():
    with pytest.raises(ValueError, match="differ in shape"):
        sampler_of("uniform").record([1, 2], [True])


# ---------------------------------------------------------------------------------------------------------------------
# With a simulator


def started(name="uniform", num_envs=4, resumed=False, threads=1):
    sim = BatchSimulator(LEVELS, num_envs, observations=("game_state",), threads=threads)
    sampler = make_sampler(["simplest", "simpler", "simple"], config_of(name), 0)
    if not resumed:
        sampler.start(sim)
    return sampler, sim


def step(sampler, sim, steps=40):
    """Run to the right for some decisions; return the number of ended episodes."""
    ended = 0
    for _ in range(steps):
        sim.step(np.full(sim.num_envs, 2))
        if sim.finished.size:
            ended += len(sampler.next_episodes(sim))
    return ended


def test_update_draws_next_levels_again():
    sampler, sim = started("stages", num_envs=32)
    ended = step(sampler, sim, 60)
    assert ended > 4
    assert sampler.metrics()["curriculum/episodes"] == ended
    before = sampler.probabilities().copy()
    sampler.strategy.place = 2
    sampler.update(sim)
    assert not np.array_equal(before, sampler.probabilities())
    assert (sim.next_level == 2).sum() >= 12, "levels drawn in advance follow the new shares"
    step(sampler, sim, 60)
    assert sampler.metrics()["curriculum/lag_updates"] == 0


@pytest.mark.parametrize("name", CURRICULA)
def test_next_episodes_any_number_of_threads_same_draws(name):
    found = []
    for threads in (1, 3):
        sampler, sim = started(name, num_envs=9, threads=threads)
        for _ in range(3):
            assert step(sampler, sim, 60)
            sampler.update(sim)
        found.append((as_text(sampler.state_dict()), sim.next_level.tolist()))
    assert found[0] == found[1]


def test_next_episodes_overwritten_next_level_raises():
    sampler, sim = started()

    def overwriting():
        for _ in range(200):
            wanted = sim.next_level.copy()
            sim.next_level[:] = (wanted + 1) % 3
            sim.step(np.full(4, 2))
            sim.next_level[:] = wanted
            if sim.finished.size:
                sampler.next_episodes(sim)

    with pytest.raises(LevelMismatchError, match="next_level was overwritten"):
        overwriting()


def test_next_episodes_level_not_drawn_raises():
    sampler, sim = started()
    sim.reset((sim.level + 1) % 3)
    with pytest.raises(LevelMismatchError, match=r"levels .* were drawn, .* were played"):
        step(sampler, sim, 200)


def test_sync_episodes_after_external_reset_continues():
    sampler, sim = started()
    sim.reset(np.full(4, 2))
    sampler.sync_episodes(sim)
    assert step(sampler, sim, 200) > 4


def test_load_state_dict_with_running_episodes_continues_identically():
    sampler, sim = started("learnability")
    step(sampler, sim, 30)
    sampler.update(sim)
    state, rows, waiting = sampler.state_dict(), sim.snapshot(slice(None)), sim.next_level.copy()
    other, again = started("learnability", resumed=True)
    again.restore(slice(None), rows)
    again.next_level[:] = waiting
    other.load_state_dict(stored(state))
    for pair in ((sampler, sim), (other, again)):
        step(*pair, 60)
    assert same(sampler.state_dict(), other.state_dict())
    assert sim.level.tolist() == again.level.tolist()


# ---------------------------------------------------------------------------------------------------------------------
# A strategy of one's own, as in docs/curriculum.md


class Failures(Strategy):
    """Strategy that draws levels in proportion to their number of losses."""

    saved = ("lost",)

    def __init__(self, levels, config, rng):
        super().__init__(levels, config, rng)
        self.lost = np.ones(len(levels))

    def update(self, outcomes: Outcomes):
        np.add.at(self.lost, outcomes.levels[~outcomes.won], 1)
        self.weigh(self.lost)


def test_custom_strategy_with_update_and_saved_attributes():
    def made():
        levels, rng = Levels.of(CATEGORIES), np.random.default_rng(0)
        return CurriculumManager(levels, Failures(levels, CurriculumConfig(), rng), CurriculumConfig(), rng)

    sampler = made()
    sampler.record([2] * 40, [False] * 40)
    sampler.learn()
    assert sampler.probabilities()[2] == pytest.approx(41 / 54)
    again = made()
    again.load_state_dict(sampler.state_dict())
    assert again.draw(20).tolist() == sampler.draw(20).tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Statistics


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12), max_size=8))
def test_windows_extend_stores_latest_values(rounds):
    windows, wanted = Windows(3, 5), [[], [], []]
    for some in rounds:
        windows.extend(np.array([s for s, _ in some], int), np.array([v for _, v in some], float))
        for series, value in some:
            wanted[series] = [*wanted[series], value][-5:]
    assert [windows.values(i).tolist() for i in range(3)] == wanted
    assert windows.means() == pytest.approx([np.mean(w) if w else np.nan for w in wanted], nan_ok=True)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_gini_equals_half_the_relative_mean_difference(counts):
    values = np.array(counts)
    by_definition = np.abs(values[:, None] - values).mean() / (2 * values.mean()) if values.any() else 0.0
    assert gini(values) == pytest.approx(by_definition, abs=1e-12)
    assert gini(values.astype(float)) == pytest.approx(by_definition, abs=1e-12)
