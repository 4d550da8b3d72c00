"""Streaming statistics against numpy, and refused input."""

import numpy as np
import pytest

from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics, StatisticsError

KEYS = ("game_state", "hazards", "surroundings")


def batch(rng, size):
    """Random observations of KEYS; the float ones far from zero, where naive sums of squares lose digits."""
    return {
        "game_state": rng.normal(1e4, 3.0, (size, 26)).astype(np.float32),
        "hazards": rng.normal(-5.0, 40.0, (size, 8, 5)).astype(np.float32),
        "surroundings": rng.integers(0, 256, (size, 3, 19, 19), dtype=np.uint8),
    }


@pytest.fixture
def parts(rng):
    return [batch(rng, size) for size in (1, 700, 0, 33, 256)]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def measured(parts):
    statistics = ObservationStatistics(KEYS)
    for part in parts:
        statistics.update(part)
    return statistics


def test_update_streaming_equals_numpy(parts):
    statistics = measured(parts)
    assert statistics.count == 990
    for key in ("game_state", "hazards"):
        everything = np.concatenate([part[key] for part in parts]).astype(np.float64)
        assert statistics.mean[key].shape == layout.SPECS[key].shape
        np.testing.assert_allclose(statistics.mean[key], everything.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(statistics.std[key], everything.std(axis=0), rtol=1e-9)
    assert "surroundings" not in statistics.mean


def test_short_names_equal_keys():
    assert ObservationStatistics(("state", "hazards", "surroundings")).keys == ObservationStatistics(KEYS).keys


def test_normalise_constant_component_uses_scale():
    statistics = ObservationStatistics(("game_state",))
    statistics.update({"game_state": np.full((10, 26), 7.0, np.float32)})
    assert (statistics.std["game_state"] == 0).all()
    np.testing.assert_allclose(statistics.divisor["game_state"], 0.1 * np.array(layout.SPECS["game_state"].scale))


def test_normalise_varying_component_uses_deviation(parts):
    statistics = measured(parts)
    wide = statistics.std["hazards"] > 0.1 * np.array(layout.SPECS["hazards"].scale)
    assert wide.any()
    assert (statistics.divisor["hazards"][wide] == statistics.std["hazards"][wide]).all()


def test_save_and_load_restore_statistics(parts):
    statistics = measured(parts)
    again = ObservationStatistics.from_dict(statistics.to_dict())
    assert (again.keys, again.count, again.fingerprint) == (statistics.keys, 990, statistics.fingerprint)
    for key in statistics.float_keys:
        np.testing.assert_array_equal(again.mean[key], statistics.mean[key])
        np.testing.assert_allclose(again.std[key], statistics.std[key], rtol=1e-14)


@pytest.mark.parametrize("samples", [0, 1])
def test_too_few_samples_raise_error(rng, samples):
    statistics = ObservationStatistics(KEYS)
    statistics.update(batch(rng, samples))
    with pytest.raises(StatisticsError, match=f"at least 2 samples, these have {samples}"):
        _ = statistics.std


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_update_not_finite_raises_error(rng, value):
    data = batch(rng, 4)
    data["hazards"][2, 5, 1] = value
    with pytest.raises(StatisticsError, match=r"hazards\[5\]\.dy is .* in row 2"):
        ObservationStatistics(KEYS).update(data)


def test_update_wrong_batch_raises_error_and_changes_nothing(rng):
    statistics = ObservationStatistics(KEYS)
    good = batch(rng, 4)
    for bad, message in (
        ({"hazards": good["hazards"]}, "does not contain game_state"),
        (good | {"game_state": good["game_state"][:, :25]}, r"shape \(4, 25\), expected \(N, 26\)"),
        (good | {"game_state": good["game_state"][:3]}, "differ in length"),
    ):
        with pytest.raises(StatisticsError, match=message):
            statistics.update(bad)
    assert statistics.count == 0


def test_load_other_layout_raises_error(parts):
    statistics = measured(parts)
    with pytest.raises(StatisticsError, match="rebuild the dataset"):
        statistics.require(layout.fingerprint(("hazards",)), "the network")
    with pytest.raises(StatisticsError, match=r"layout .* has layout 0123.*rebuild"):
        ObservationStatistics.from_dict(statistics.to_dict() | {"fingerprint": "0123"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("std"), "do not contain std"),
        (lambda d: d.update(count=1), "at least 2"),
        (lambda d: d.update(keys=["smell"]), "unknown observation 'smell'"),
        (lambda d: d["mean"].pop("hazards"), "do not contain mean of hazards"),
        (lambda d: d["std"]["game_state"].__setitem__(3, -1.0), "std of game_state.vy is -1.0"),
        (lambda d: d["mean"]["game_state"].__setitem__(0, np.nan), "mean of game_state.x is nan"),
        (lambda d: d["mean"].update(hazards=np.zeros((5, 8))), r"shape \(5, 8\), expected \(8, 5\)"),
    ],
)
def test_load_damaged_file_raises_error(parts, change, message):
    data = measured(parts).to_dict()
    change(data)
    with pytest.raises(StatisticsError, match=message):
        ObservationStatistics.from_dict(data)
