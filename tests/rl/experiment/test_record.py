"""The record of an experiment, and the files that are views of it."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

import hardware
from rl.config import EvaluationConfig, ExperimentConfig
from rl.experiment.data import Data
from rl.experiment.job import make_jobs, success
from rl.experiment.record import ExperimentRecord, RunRecord, config_view, report_view, results_view, summary, write
from rl.judge.results import aggregate, load_results
from rl.judge.video import Film


def stats(wins, episodes=4):
    counted = aggregate([])["all"] | {"episodes": episodes, "wins": wins, "deaths": episodes - wins}
    return {"simple": counted, "all": counted}


def run_record(folder, label="vision_free", seed=0, title=None):
    return RunRecord(
        label=label,
        title=title or label,
        seed=seed,
        folder=folder / label,
        results={"random": stats(1), "bc": None, "ppo": stats(3)},
        cloning=None,
        transfer=None,
        speed={"decisions_per_s": 1000.0, "share": {"update": 1.0}},
        plan=hardware.plan(("game_state",), hardware.Wishes(device="cpu")),
        films=[Film("simple", "a", "won", 60, "videos/simple/a.mp4", "route_visualizations/simple/a.png")],
        events=[{"at": 5, "stopped": "no improvement"}],
        wall_time_s=12.5,
    )


@pytest.fixture
def record():
    config = ExperimentConfig(experiment_name="trial", architectures=("vision_free",))
    facts = {"fingerprints": {"train": "ab", "test": "cd"}, "versions": {"numpy": "2"}, "audit": []}
    return ExperimentRecord(config, datetime(2030, 1, 2, 3, 4), machine="a machine", **facts)


def test_before_the_first_run_ends_only_the_configuration_is_written(record, tmp_path):
    write(record, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["experiment_name"] == "trial"
    assert (written["machine"], written["versions"], written["data"]) == (
        "a machine",
        {"numpy": "2"},
        record.fingerprints,
    )


def test_every_file_tells_the_same(record, tmp_path):
    run = run_record(tmp_path)
    record = record.with_run(run)
    write(record, tmp_path)
    results = load_results(tmp_path / "results.json")
    experiment = json.loads((tmp_path / "experiment.json").read_text())
    config = json.loads((tmp_path / "config.json").read_text())
    seed, entry = results["architectures"]["vision_free"]["seeds"]["0"], experiment["architectures"]["vision_free"]
    assert seed["suites"]["test"] == entry["results"]["ppo"] == run.results["ppo"]
    assert seed["baselines"] == {"random": run.results["random"], "bc": None}
    assert seed["speed"] == entry["speed"] == run.speed
    assert seed["wall_time_s"] == entry["wall_time_s"] == 12.5
    assert json.loads((run.folder / "eval_results.json").read_text()) == entry["results"]
    assert results["config"] == experiment["config"] == {key: config[key] for key in results["config"]}
    for key in ("machine", "versions"):
        assert results[key] == experiment[key] == config[key]
    assert entry["paths"]["films"][0]["video"] == "videos/simple/a.mp4"
    assert "vision_free" in (tmp_path / "report.html").read_text()


def test_a_view_changes_nothing_in_the_record(record, tmp_path):
    record = record.with_run(run_record(tmp_path))
    for view in (config_view, results_view, report_view):
        first = json.dumps(view(record), default=str)
        view(record).clear()
        assert json.dumps(view(record), default=str) == first


def test_seeds_of_a_label_stand_together_and_titles_apart(record, tmp_path):
    for seed in (3, 4):
        record = record.with_run(run_record(tmp_path, seed=seed, title=f"vision_free, seed {seed}"))
    assert set(results_view(record)["architectures"]["vision_free"]["seeds"]) == {"3", "4"}
    assert list(report_view(record)["architectures"]) == ["vision_free, seed 3", "vision_free, seed 4"]


def test_what_was_not_evaluated_is_none_everywhere(record, tmp_path):
    run = run_record(tmp_path)
    record = record.with_run(replace(run, results=dict.fromkeys(run.results)))
    entry = results_view(record)["architectures"]["vision_free"]["seeds"]["0"]
    assert entry["suites"] == {"test": {}}
    assert entry["baselines"] == {"random": None, "bc": None}
    assert success([]) is None


def test_the_summary_has_a_table_for_each_run(record, tmp_path):
    text = summary(record.with_run(run_record(tmp_path)), tmp_path)
    assert "vision_free, held-out levels" in text
    assert "random play" in text and "BC alone" in text and "after PPO" in text
    assert "films: 1 below" in text
    assert text.endswith(f"report: {tmp_path / 'report.html'}")


def jobs(**changes):
    config = ExperimentConfig(experiment_name="x", evaluation=EvaluationConfig(), **changes)
    data = Data([], [], [], bank=None)
    return list(make_jobs(config, data, hardware.detect(), Path("out"), None, print))


def test_one_job_needs_no_folders_of_its_own():
    (job,) = jobs(architectures=("vision_free",))
    assert (job.label, job.title, job.folder) == ("vision_free", "vision_free", Path("out/vision_free"))
    assert (job.pretrained, job.seed) == (False, 0)


def test_several_conditions_and_seeds_each_have_a_folder_and_a_title():
    made = jobs(
        architectures=("mlp_baseline", "vision_free"),
        seeds=(1, 2),
        test_pretraining=True,
        replay_data_dir=Path("demos"),
    )
    assert len(made) == len({job.folder for job in made}) == len({job.title for job in made}) == 8
    last = made[-1]
    assert last.folder == Path("out/vision_free/with_pretrain/seed_2")
    assert last.title == "vision_free, with_pretrain, seed 2"
    assert last.label == "vision_free, with_pretrain"
    assert last.pretrained and not made[0].pretrained
