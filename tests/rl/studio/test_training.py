"""An experiment in training, read from its files."""

import json
import os

import pytest

from nppsim.errors import ConfigError
from rl.evaluation.results import ResultsError
from rl.studio.training import POINTS, read_experiment

import tiny_run


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    tiny_run.train(folder, seed=1, updates=3)
    (folder / "log.txt").write_text("begun\nPPO 10%\n", encoding="utf-8")
    return folder


def test_experiment_document_has_curves_and_progress(experiment):
    document = read_experiment(experiment)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["name"] == experiment.name
    assert document["log"] == ["begun", "PPO 10%"]
    assert not document["finished"]
    (run,) = document["runs"]
    decisions = 3 * tiny_run.SETTINGS["num_envs"] * tiny_run.SETTINGS["rollout_length"]
    assert (run["seed"], run["decisions"], run["total"]) == (1, decisions, decisions)
    entropy = next(chart for chart in run["charts"] if chart["title"].startswith("Entropy"))
    (line,) = entropy["lines"]
    assert len(line["steps"]) == len(line["values"]) <= POINTS
    assert all(value > 0 for value in line["values"])


def test_newest_weights_are_bc_policy_before_first_checkpoint(experiment):
    folder = experiment / "seed_1"

    def newest():
        return (read_experiment(experiment)["runs"][0]["checkpoint"] or {}).get("name")

    assert newest() is None
    for name in ("pretrain/bc_policy", "checkpoints/checkpoint_9", "checkpoints/checkpoint_10", "checkpoints/final"):
        path = folder / f"{name}.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert newest() == path.stem


def test_experiment_not_begun_has_no_runs(tmp_path):
    with pytest.raises(ResultsError, match="no config"):
        read_experiment(tmp_path)
    for text in ("[]", "nothing"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ResultsError, match="config.json"):
            read_experiment(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert read_experiment(tmp_path)["runs"] == []


def test_read_experiment_imports_plugins_only_if_trusted(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("import os\nos.environ['OWN_PLUGIN'] = 'loaded'\n")
    (tmp_path / "config.json").write_text(json.dumps({"plugins": [str(tmp_path / "own.py")]}))
    monkeypatch.setenv("OWN_PLUGIN", "")
    with pytest.raises(ConfigError, match="config.json: names plug-ins, .*own.py; .*--trust-plugins"):
        read_experiment(tmp_path)
    assert os.environ["OWN_PLUGIN"] == ""
    read_experiment(tmp_path, trust_plugins=True)
    assert os.environ["OWN_PLUGIN"] == "loaded"


def test_unfinished_row_and_evaluation_before_training_are_read(experiment):
    table = experiment / "seed_1" / "progress.csv"
    whole = table.read_text()
    try:
        table.write_text("time/total_timesteps,eval/all_success\n,0.25\n10,\n20,0.5\n30,0.7")
        (run,) = read_experiment(experiment)["runs"]
        (line,) = run["charts"][0]["lines"]
        assert (run["decisions"], line["steps"], line["values"]) == (20, [0, 20], [25.0, 50.0])
    finally:
        table.write_text(whole)
