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
    baselines.main(given)
    score = (tmp_path / "random_2" / "score.json").stat()
    baselines.main(given)
    assert (tmp_path / "random_2" / "score.json").stat() == score
    (table,) = json.loads((tmp_path / "table.json").read_text())
    assert [(method["method"], method["seeds"]) for method in table["methods"]] == [("no-op", 2), ("random", 2)]


def test_trained_baseline_states_its_budget_and_track(tmp_path):
    given = ["ppo-state-no-paths", "--seeds", "3", "--levels", "easy/dev", "--num-levels", "2", "--decisions", "300"]
    baselines.main([*given, "--out", str(tmp_path)])
    about = json.loads((tmp_path / "ppo-state-no-paths_3" / "submission.json").read_text())
    assert (about["track"], about["budget"], about["demonstrations"], about["seed"]) == ("state-no-paths", 300, 0, 3)


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_networks_belong_to_the_track_that_their_name_states(name):
    assert name.endswith(track_of(get_architecture(baselines.BASELINES[name].network).observations))
