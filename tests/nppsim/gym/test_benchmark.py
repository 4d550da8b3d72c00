"""Tracks, splits and environments of the benchmark."""

import itertools

import gymnasium
import pytest

from nppsim.errors import ConfigError
from nppsim.gym.benchmark import (
    DEFAULT_OBSERVATIONS,
    NAMES,
    TRACKS,
    first_levels,
    first_of_each,
    generate_hard,
    is_hard,
    level_set,
    track_of,
)
from nppsim.levels.level_set import check_disjoint
from nppsim.observe import layout


def test_tracks_include_the_previous_ones():
    allowed = [{*keys} for keys in TRACKS.values()]
    assert all(less < more for less, more in itertools.pairwise(allowed))
    assert not {"reachability_features", "foresight"} & {*TRACKS["state-no-paths"]}
    for track, keys in DEFAULT_OBSERVATIONS.items():
        assert track_of(keys) == track and {*keys} <= {*TRACKS[track]}
    assert track_of(layout.ALL) == "look-ahead" and track_of(()) == "pixels"


def test_first_of_each_takes_categories_in_turn():
    categories = ["a", "a", "b", "a", "c", "b"]
    assert [first_of_each(categories, count, "n") for count in (1, 3, 4, 6)] == [
        [0],
        [0, 2, 4],
        [0, 1, 2, 4],
        [0, 1, 2, 3, 4, 5],
    ]
    for count in (0, 7):
        with pytest.raises(ConfigError, match=f"n {count}: give 1 to 6"):
            first_of_each(categories, count, "n")


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("hard")])
def test_hard_levels_equal_their_fingerprints(name):
    levels = level_set(name)
    assert all(entry.par_frames for entry in levels.entries)
    assert levels[0].fingerprint == levels.entries[0].fingerprint
    assert levels[len(levels) - 1].fingerprint == levels.entries[-1].fingerprint
    assert all(is_hard(levels[i]) for i in range(10))


def test_generate_hard_other_seed_file_raises(tmp_path):
    (tmp_path / "seed.json").write_text('{"seed": 1}')
    with pytest.raises(ConfigError, match="seed file .*seed.json: is not the file with SHA-256"):
        generate_hard(tmp_path / "seed.json", tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


def test_easy_and_hard_dev_are_disjoint():
    check_disjoint([level_set("easy/dev")], [first_levels(level_set("hard/dev"), 10, "n")])


def test_level_set_unknown_name_raises():
    with pytest.raises(ConfigError, match="did you mean 'hard/dev'"):
        level_set("hard/def")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"track": "pixel"}, "track pixel: is not a track.*did you mean 'pixels'"),
        ({"split": "deb"}, "split deb: Npp-Easy-v1 has train, dev, test"),
        ({"split": "dev", "num_train_levels": 5}, 'limits the split "train" only'),
        ({"num_train_levels": 0}, "give 1 to 3000"),
    ],
)
def test_make_invalid_argument_raises(settings, message):
    with pytest.raises(ConfigError, match=message):
        gymnasium.make("nppsim/Npp-Easy-v1", **settings)


def test_make_split_without_levels_raises():
    with pytest.raises(ConfigError, match="split train: Npp-Hard-v1 has dev, test"):
        gymnasium.make("nppsim/Npp-Hard-v1")


def test_environments_of_the_ids():
    env = gymnasium.make("nppsim/Npp-Easy-v1", split="train", track="state-no-paths", num_train_levels=10)
    observations, info = env.reset(seed=0)
    assert {*observations} == {*DEFAULT_OBSERVATIONS["state-no-paths"]}
    assert info["generator"] and info["generator_parameters"].startswith("{")
    assert len(env.unwrapped.bank) == 10
    with pytest.raises(ConfigError, match="num_train_levels 3: limits the split"):
        gymnasium.make("nppsim/Npp-Easy-v1", split="dev", num_train_levels=3)
    envs = gymnasium.make_vec("nppsim/Npp-Easy-v1", num_envs=2, split="dev", track="look-ahead")
    _, infos = envs.reset(seed=0)
    assert infos["category"].shape == (2,) and all(infos["generator"])
    assert "foresight" in envs.single_observation_space.spaces
    envs.close()
