"""Statistics of levels, the classifier, and rejection sampling by its odds."""

import numpy as np
import pytest

from nppsim.generate import generate, resemblance
from nppsim.generate.make import make_level_set
from nppsim.generate.resemblance import ALWAYS, NAMES, Classifier, is_selected, official_like, statistics


def test_runs_are_lengths_of_free_cells():
    free = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    assert resemblance._runs(free).tolist() == [[2, 2, 0, 1], [0, 0, 0, 0], [4, 4, 4, 4]]


def test_statistics_of_a_level_do_not_depend_on_the_others():
    levels = [generate("campaign_like", seed)[0] for seed in range(5)]
    values = statistics(levels)
    assert values.shape == (5, len(NAMES)) and np.isfinite(values).all()
    assert np.array_equal(np.vstack([statistics([level]) for level in levels]), values)


def test_classifier_separates_shifted_gaussians_and_is_restored_from_its_file(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, len(NAMES)))
    x[:100, 3] += 3.0
    x[:, 5] = 1.0  # constant
    fitted = Classifier.fit(x, np.arange(600) < 100)
    odds = fitted.log_odds(x)
    assert (odds[:100] > 0).mean() > 0.8 and (odds[100:] < 0).mean() > 0.8  # classes of unequal size have equal weight
    fitted.save(tmp_path / "one.json")
    assert np.array_equal(Classifier.load(tmp_path / "one.json").log_odds(x), odds)


def test_share_of_selected_levels_follows_the_odds():
    levels = [generate("campaign_like", seed)[0] for seed in range(400)]
    expected = np.minimum(1, np.exp(official_like().log_odds(statistics(levels)) - ALWAYS))
    selected = np.array([is_selected(level) for level in levels])
    assert selected.sum() == pytest.approx(expected.sum(), abs=4 * np.sqrt((expected * (1 - expected)).sum()))
    assert expected[selected].mean() > 2 * expected.mean()


@pytest.mark.parametrize("workers", [1, 2])
def test_levels_that_are_not_selected_are_neither_verified_nor_stored(tmp_path, workers):
    made = make_level_set(
        tmp_path, ["simple"], 20, seed=5, select=_has_even_fingerprint, verify=_frames_of_even_levels, workers=workers
    )
    assert all(_has_even_fingerprint(level) for level in made) and not (tmp_path / "unfinished").exists()
    continued = make_level_set(
        tmp_path, ["simple"], 25, seed=5, select=_has_even_fingerprint, verify=_frames_of_even_levels, workers=workers
    )
    whole = make_level_set(tmp_path / "whole", ["simple"], 25, seed=5, select=_has_even_fingerprint, workers=workers)
    assert [entry.fingerprint for entry in continued.entries] == [entry.fingerprint for entry in whole.entries]


def _has_even_fingerprint(level):
    return int(level.fingerprint, 16) % 2 == 0


def _frames_of_even_levels(level):
    assert _has_even_fingerprint(level)
    return 100
