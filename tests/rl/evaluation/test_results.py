"""Counting episodes: aggregation, intervals over levels, the table, results.json."""

import json
from pathlib import Path

import numpy as np
import pytest

from nppsim.io.files import write_json
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


def results(stats):
    entry = {"suites": {"test": stats}, "baselines": {}, "speed": {}, "wall_time_s": 1.0}
    return {"architectures": {"mlp": {"seeds": {"0": entry}}}, "config": {}, "machine": {}, "versions": {}}


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


def test_wins_are_counted_by_level_and_seed_in_the_order_of_the_level_set():
    one = [episode(level_index=7), episode("easy", level_index=2), episode("easy", "died", level_index=2)]
    other = [episode("easy", "timeout", level_index=2), episode("easy", "died", level_index=2), episode(level_index=7)]
    wins = LevelWins.count(one, other)
    assert (wins.levels, wins.categories) == (("level 2", "level 7"), ("easy", "simple"))
    assert (wins.episodes.tolist(), wins.wins.tolist()) == ([2, 1], [[1, 1], [0, 1]])
    assert wins.success.tolist() == [[0.5, 1.0], [0.0, 1.0]]
    assert wins.of("easy").wins.tolist() == [[1], [0]]
    with pytest.raises(ResultsError, match="same levels"):
        LevelWins.count(one, other[1:])


def test_the_interval_is_over_levels_not_over_episodes():
    """Ten levels, each always won or always lost: a hundred episodes tell as much as ten."""
    once = [episode(level_index=i, outcome="won" if i < 6 else "died") for i in range(10)]
    (low, high), (low_100, high_100) = (aggregate(records)["all"]["ci95"] for records in (once, 10 * once))
    assert (low, high) == (low_100, high_100)
    assert low <= 0.3 and high >= 0.8
    wilson_low, wilson_high = wilson(60, 100)
    assert wilson_high - wilson_low < 0.6 * (high - low)


def test_an_interval_ends_at_all_levels_won():
    wins = np.ones((3, 50), np.int64)
    wins[0, :5] = 0  # one seed differs
    names = tuple(map(str, range(50)))
    low, high = LevelWins(names, ("simple",) * 50, np.ones(50, np.int64), wins).interval()
    assert 0.8 < low < 0.97
    assert high == 1.0


def test_levels_that_are_all_alike_have_wilsons_interval():
    all_won = [episode(level_index=i) for i in range(10)] * 3
    assert aggregate(all_won)["all"]["ci95"] == pytest.approx(wilson(10, 10)), "of levels"
    one_level = [episode()] * 30 + [episode(outcome="died")] * 10
    assert aggregate(one_level)["all"]["ci95"] == pytest.approx(wilson(30, 40)), "of episodes: there is one level"


def test_several_seeds_are_counted_together():
    seeds = [[episode(level_index=i, outcome="won" if i < won else "died") for i in range(50)] for won in (20, 30, 40)]
    together = aggregate(*seeds)["all"]
    assert (together["episodes"], together["wins"]) == (150, 90)
    widths = [high - low for low, high in (together["ci95"], aggregate(seeds[1])["all"]["ci95"])]
    assert widths[0] > 0.8 * widths[1], "three seeds on the same levels are not three times as many levels"


def test_a_category_cannot_have_the_name_of_the_total():
    with pytest.raises(ResultsError, match="category"):
        aggregate([episode(category="all")])


def test_the_table_lines_up_and_says_what_was_not_run():
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


def test_json_is_written_whole_and_read_back(tmp_path):
    path = tmp_path / "run" / "results.json"
    write_json(path, results(aggregate([episode(), episode(outcome="died")])))
    assert json.loads(path.read_text())["architectures"]["mlp"]["seeds"]["0"]["suites"]["test"]["all"]["wins"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_numpy_paths_and_infinite_numbers_become_json(tmp_path):
    data = {
        "a": np.float32(0.5),
        "b": np.arange(2),
        "c": Path("x"),
        "d": float("nan"),
        "e": np.bool_(True),
        3: (1, None),
    }
    write_json(tmp_path / "x.json", data)
    plain = {"a": 0.5, "b": [0, 1], "c": "x", "d": None, "e": True, "3": [1, None]}
    assert json.loads((tmp_path / "x.json").read_text()) == plain


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError, match="cannot be stored as JSON"):
        write_json(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_evaluations_repeated_after_a_resume_replace_the_earlier_ones(tmp_path):
    history = DevHistory(tmp_path)
    for decisions in (0, 1000, 1500, 2000, 1500):
        history.add(decisions, LevelWins.count([episode("won")]))
    assert read_history(tmp_path).decisions.tolist() == [0, 1000, 1500]
