"""Paired comparisons: pairing, significance, text, and refused input."""

import numpy as np
import pytest

from rl.evaluation.comparison import compare, comparison_table, format_difference, read_levels, write_levels
from rl.evaluation.results import ALL, LevelWins, ResultsError

from results import episode, episodes


def wins(table, categories=None, episodes_each=1):
    """Of seeds on levels, as numbers."""
    table = np.atleast_2d(table)
    names = tuple(f"level {i}" for i in range(table.shape[1]))
    return LevelWins(names, categories or ("simple",) * len(names), np.full(len(names), episodes_each), table)


def test_compare_small_difference_on_same_levels_is_clear():
    """Half of the levels are hard for both agents.  Each success rate alone has an uncertainty of 10 points; their
    difference of 6 points has not."""
    a, b = np.arange(400) < 224, np.arange(400) < 200
    found = compare("new", "old", wins(a), wins(b))
    total = found.categories[ALL]
    assert (total.first, total.second, total.difference) == pytest.approx((0.56, 0.5, 0.06))
    assert total.clear and 0.03 < total.ci95[0] < total.ci95[1] < 0.09
    low, high = wins(a).interval()
    assert low < 0.52 < 0.6 < high
    assert found.sentence.startswith("new finishes 6.0 points more than old (95 % interval +3.")
    assert "over 400 levels)" in found.sentence
    assert compare("old", "new", wins(b), wins(a)).sentence.startswith("old finishes 6.0 points LESS than new (95 %")


def test_compare_chance_is_no_difference():
    rng = np.random.default_rng(0)
    easiness = rng.beta(2, 0.5, 300)
    a, b = rng.binomial(1, easiness, (3, 300)), rng.binomial(1, easiness, (3, 300))
    found = compare("a", "b", wins(a), wins(b))
    assert found.sentence.startswith("No difference found between a and b (")
    assert "over 300 levels and 3 seeds)" in found.sentence


def test_compare_one_of_three_seeds_differs_is_not_clear():
    """An interval over levels only would be clear."""
    b = np.arange(300) < 200
    a = np.array([np.arange(300) < won for won in (200, 201, 290)])
    assert not compare("a", "b", wins(a), wins(np.array([b] * 3))).categories[ALL].clear
    assert compare("a", "b", wins(a.mean(axis=0)), wins(b)).categories[ALL].clear


def test_compare_categories_weigh_levels_by_episodes():
    kinds = ("easy",) * 20 + ("hard",) * 20
    a, b = np.repeat([1, 1], 20), np.repeat([1, 0], 20)
    found = compare("a", "b", wins(a, kinds), wins(b, kinds))
    assert list(found.categories) == ["easy", "hard", ALL]
    assert [row.difference for row in found.categories.values()] == [0.0, 1.0, 0.5]
    assert found.categories["easy"].ci95 is None and found.categories[ALL].clear
    assert format_difference(found.categories["hard"]) == "+100.0 (no interval)"
    uneven = LevelWins(("x", "y"), ("c", "c"), np.array([3, 1]), np.array([[3, 0]]))
    nothing = LevelWins(("x", "y"), ("c", "c"), np.array([3, 1]), np.array([[0, 0]]))
    assert compare("a", "b", uneven, nothing).categories[ALL].difference == pytest.approx(0.75)


def test_compare_equal_levels_has_no_interval():
    same = compare("a", "b", wins([1, 0, 1]), wins([1, 0, 1]))
    assert same.sentence == "No difference found between a and b (0.0 points on every level)."
    apart = compare("a", "b", wins([1, 1]), wins([0, 0]))
    assert "+100.0 points on every level" in apart.sentence
    assert not apart.categories[ALL].clear


def test_compare_different_levels_raises():
    for other in (wins([1, 0]), wins([[1, 0, 1]] * 2), wins([1, 0, 1], episodes_each=2)):
        with pytest.raises(ResultsError, match="a and b were"):
            compare("a", "b", wins([1, 0, 1]), other)


def test_comparison_table_row_and_sentence_per_comparison():
    found = compare("a", "b", wins([1, 1, 0, 1] * 10), wins([1, 0, 0, 1] * 10))
    text = comparison_table([found, found])
    assert "| a     | b      |     75.0 |      50.0 | " in text
    assert text.count(found.sentence) == 2
    assert found.to_dict()["categories"]["all"]["difference"] == 0.25


def test_read_levels_returns_written_wins(tmp_path):
    random, ppo = LevelWins.count(episodes(1)), LevelWins.count(episodes(3))
    paths = [tmp_path / f"{seed}.csv" for seed in (1, 2)]
    for path in paths:
        write_levels(path, {"random": random, "ppo": ppo})
    assert paths[0].read_text().splitlines()[:2] == ["level,category,episodes,random,ppo", "level 0,simple,1,1,1"]
    found = read_levels(paths, "ppo")
    assert (found.levels, found.categories, found.episodes.tolist()) == (ppo.levels, ppo.categories, [1, 1, 1, 1])
    assert found.wins.tolist() == [[1, 1, 1, 0]] * 2


def test_read_levels_invalid_file_raises(tmp_path):
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    with pytest.raises(ResultsError, match=r"a\.csv: cannot be read \(No such file"):
        read_levels([path], "ppo")
    write_levels(path, {"random": LevelWins.count(episodes(1))})
    with pytest.raises(ResultsError, match=r"a\.csv: not a table of wins per level of 'ppo'"):
        read_levels([path], "ppo")
    write_levels(other, {"random": LevelWins.count([episode(level_index=9)])})
    with pytest.raises(ResultsError, match=r"b\.csv: other levels than in .*a\.csv"):
        read_levels([path, other], "random")
