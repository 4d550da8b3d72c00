"""Comparison of sets of levels: no separation of equal sets, and the statistics that differ."""

import numpy as np

from benchmarks import compare_levels
from nppsim.generate import generate
from nppsim.generate.resemblance import Classifier, statistics
from nppsim.levels.level_set import LevelEntry, LevelSet


def test_accuracy_is_low_within_a_category_and_high_between_two(tmp_path, capsys):
    for name, category, first in (("a", "simplest", 0), ("b", "simplest", 40), ("mines", "mine_heavy", 0)):
        levels = [generate(category, seed)[0] for seed in range(first, first + 40)]
        LevelSet.write(tmp_path / name, [(level, LevelEntry(name)) for level in levels])
    sets = [str(tmp_path / name) for name in ("a", "b", "mines")]
    assert compare_levels.main([sets[0], "--with", *sets[1:]]) == 0
    same, other = capsys.readouterr().out.splitlines()[-2:]
    assert float(same.split("|")[3].split()[0]) < 75 < 95 < float(other.split("|")[3].split()[0])
    assert "hazards more (1.00)" in other


def test_separation_counts_ties_half():
    one, other = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [3.0, 2.0]])
    assert compare_levels.separation(one, other).tolist() == [0.75, 0.75]


def test_min_path_and_write(tmp_path, capsys):
    for name, first in (("a", 0), ("b", 40)):
        levels = [generate("mine_heavy", seed)[0] for seed in range(first, first + 40)]
        LevelSet.write(tmp_path / name, [(level, LevelEntry(name)) for level in levels])
    written = tmp_path / "classifier.json"
    given = [str(tmp_path / "a"), "--with", str(tmp_path / "b"), "--min-path", "400", "--write", str(written)]
    assert compare_levels.main(given) == 0
    assert 0 < int(capsys.readouterr().out.splitlines()[-1].split("|")[2]) < 80
    assert np.isfinite(Classifier.load(written).log_odds(statistics(levels))).all()


def test_few_or_missing_levels_are_an_error(tmp_path, capsys):
    assert compare_levels.main([str(tmp_path / "absent"), "--with", str(tmp_path)]) == 2
    assert str(tmp_path / "absent") in capsys.readouterr().err
    LevelSet.write(tmp_path / "one", [(generate("simplest", 1)[0], LevelEntry("one"))])
    assert compare_levels.main([str(tmp_path / "one"), "--with", str(tmp_path / "one")]) == 2
    assert "1 levels, at least 10 needed" in capsys.readouterr().err
