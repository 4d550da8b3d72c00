"""Results of episodes: aggregation, intervals over levels, tables, results.json."""

import numpy as np
import pytest

from nppsim.measure.intervals import wilson
from rl.evaluation.results import (
    DevHistory,
    LevelWins,
    ResultsError,
    aggregate,
    format_cell,
    format_table,
    read_history,
)

from results import episode


def test_aggregation_counts_per_category_and_over_all():
    stats = aggregate(
        [
            episode(frames=10),
            episode(frames=30),
            episode(outcome="died", frames=500),
            episode("simpler", "timeout", level_index=1),
        ]
    )
    assert list(stats) == ["simple", "simpler", "all"]
    simple = stats["simple"]
    assert (simple["episodes"], simple["wins"], simple["deaths"], simple["timeouts"]) == (3, 2, 1, 0)
    assert simple["success"] == pytest.approx(2 / 3) and simple["median_frames"] == 20
    assert simple["ci95"] == pytest.approx(wilson(2, 3)), "three episodes on one level"
    assert stats["simpler"]["median_frames"] is None and stats["simpler"]["timeouts"] == 1
    assert stats["all"]["episodes"] == 4 and stats["all"]["success"] == 0.5


def test_level_wins_count_by_level_and_seed():
    one = [episode(level_index=7), episode("easy", level_index=2), episode("easy", "died", level_index=2)]
    other = [episode("easy", "timeout", level_index=2), episode("easy", "died", level_index=2), episode(level_index=7)]
    wins = LevelWins.count(one, other)
    assert (wins.levels, wins.categories) == (("level 2", "level 7"), ("easy", "simple"))
    assert (wins.episodes.tolist(), wins.wins.tolist()) == ([2, 1], [[1, 1], [0, 1]])
    assert wins.success.tolist() == [[0.5, 1.0], [0.0, 1.0]]
    assert wins.of("easy").wins.tolist() == [[1], [0]]
    with pytest.raises(ResultsError, match="same levels"):
        LevelWins.count(one, other[1:])


def test_aggregate_interval_is_over_levels():
    """Ten levels, each always won or always lost: the interval of a hundred episodes equals that of ten."""
    once = [episode(level_index=i, outcome="won" if i < 6 else "died") for i in range(10)]
    (low, high), (low_100, high_100) = (aggregate(records)["all"]["ci95"] for records in (once, 10 * once))
    assert (low, high) == (low_100, high_100)
    assert low <= 0.3 and high >= 0.8
    wilson_low, wilson_high = wilson(60, 100)
    assert wilson_high - wilson_low < 0.6 * (high - low)


def test_level_wins_interval_is_at_most_one():
    wins = np.ones((3, 50), np.int64)
    wins[0, :5] = 0  # one seed differs
    names = tuple(map(str, range(50)))
    low, high = LevelWins(names, ("simple",) * 50, np.ones(50, np.int64), wins).interval()
    assert 0.8 < low < 0.97
    assert high == 1.0


def test_aggregate_equal_levels_has_wilson_interval():
    all_won = [episode(level_index=i) for i in range(10)] * 3
    assert aggregate(all_won)["all"]["ci95"] == pytest.approx(wilson(10, 10)), "of levels"
    one_level = [episode()] * 30 + [episode(outcome="died")] * 10
    assert aggregate(one_level)["all"]["ci95"] == pytest.approx(wilson(30, 40)), "of episodes: there is one level"


def test_aggregate_several_seeds_counts_together():
    seeds = [[episode(level_index=i, outcome="won" if i < won else "died") for i in range(50)] for won in (20, 30, 40)]
    together = aggregate(*seeds)["all"]
    assert (together["episodes"], together["wins"]) == (150, 90)
    widths = [high - low for low, high in (together["ci95"], aggregate(seeds[1])["all"]["ci95"])]
    assert widths[0] > 0.8 * widths[1], "three seeds on the same levels are not three times as many levels"


def test_aggregate_category_all_raises():
    with pytest.raises(ResultsError, match="category"):
        aggregate([episode(category="all")])


def test_format_table_aligns_columns():
    random, ppo = (
        aggregate([episode(outcome="died")] * 10),
        aggregate([episode()] * 9 + [episode("simpler", level_index=1)] * 3),
    )
    text = format_table({"random": random, "BC": None, "PPO": ppo})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[:-1]]
    assert rows[0] == ["category", "episodes", "random", "BC", "PPO"]
    assert rows[2] == ["simple", "9/10", "0.0 % [0.0, 27.8]", "-", "100.0 % [70.1, 100.0]"]
    assert [row[0] for row in rows[2:]] == ["simple", "simpler", "all"]
    assert len({len(line) for line in text.splitlines()[:-1]}) == 1
    assert format_cell(None) == "-"


def test_dev_history_add_repeated_evaluation_replaces(tmp_path):
    history = DevHistory(tmp_path)
    for decisions in (0, 1000, 1500, 2000, 1500):
        history.add(decisions, LevelWins.count([episode("won")]))
    assert read_history(tmp_path).decisions.tolist() == [0, 1000, 1500]
