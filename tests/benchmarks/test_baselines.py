"""Baselines of the benchmark: training, submission and table at tiny size."""

import json

import pytest

from benchmarks import baselines
from nppsim.gym.benchmark import track_of
from rl.policy.architectures import get_architecture


def test_rules_are_played_scored_and_kept(tmp_path):
    given = [
        "no-op",
        "random",
        "--seeds",
        "1",
        "2",
        "--levels",
        "easy/dev",
        "--num-levels",
        "2",
        "--out",
        str(tmp_path),
    ]
    assert baselines.main(given) == 0
    score = (tmp_path / "random_2" / "score.json").stat()
    assert baselines.main(given) == 0
    assert (tmp_path / "random_2" / "score.json").stat() == score
    (table,) = json.loads((tmp_path / "table.json").read_text())
    assert [(method["method"], method["seeds"]) for method in table["methods"]] == [("no-op", 2), ("random", 2)]


def test_trained_baseline_states_its_budget_and_track(tmp_path):
    given = ["ppo-state-no-paths", "--seeds", "3", "--levels", "easy/dev", "--num-levels", "2", "--decisions", "300"]
    assert baselines.main([*given, "--out", str(tmp_path)]) == 0
    about = json.loads((tmp_path / "ppo-state-no-paths_3" / "submission.json").read_text())
    assert (about["track"], about["budget"], about["demonstrations"], about["seed"]) == ("state-no-paths", 300, 0, 3)


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_networks_belong_to_the_track_that_their_name_states(name):
    assert name.endswith(track_of(get_architecture(baselines.BASELINES[name].network).observations))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["ppo-stat"], "NAME ppo-stat: is not a baseline"),
        (["random", "--num-levels", "0"], "--num-levels 0"),
        (["random", "--seeds", "-1"], "--seeds"),
        (["random", "--decisions", "0"], "--decisions 0"),
        (["random", "--levels", "hard/dev"], "--levels"),
        (["random", "--out", "file"], "--out"),
    ],
)
def test_invalid_argument_is_one_error_and_writes_nothing(tmp_path, monkeypatch, capsys, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert baselines.main(given) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("error:") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
