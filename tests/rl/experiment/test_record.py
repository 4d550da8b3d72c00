"""The record of an experiment, and the files that are views of it."""

import html
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

import hardware
from rl.config import EvaluationConfig, ExperimentConfig
from rl.evaluation.video import Film
from rl.experiment.data import Data
from rl.experiment.record import (
    ExperimentRecord,
    RunRecord,
    _decode_episode,
    _encode_episode,
    config_view,
    report_view,
    results_view,
    summary,
    write_experiment,
)
from rl.experiment.setup import make_setups

from results import episode, episodes
from worlds import corridor


def run_record(folder, label="vision_free", seed=0, title=None, *, architecture="vision_free", pretrained=False, ppo=3):
    return RunRecord(
        architecture=architecture,
        pretrained=pretrained,
        label=label,
        title=title or label,
        seed=seed,
        folder=folder / label,
        played={"random": episodes(1), "bc": episodes(2) if pretrained else [], "ppo": episodes(ppo)},
        bc_result=None,
        transfer=None,
        speed={"decisions_per_s": 1000.0, "share": {"update": 1.0}},
        plan=hardware.plan(("game_state",), hardware.PlanRequest(device="cpu")),
        films=[Film("simple", "a", "won", 60, "videos/simple/a.mp4", "route_visualizations/simple/a.png")],
        events=[{"at": 5, "stopped": "no improvement"}, {"at": 6, "delivered": "the BC policy, with 40 %"}],
        wall_time_s=12.5,
    )


@pytest.fixture
def record():
    config = ExperimentConfig(experiment_name="trial", architectures=("vision_free",))
    facts = {"fingerprints": {"train": "ab", "test": "cd"}, "versions": {"numpy": "2"}, "audit": []}
    return ExperimentRecord(config, datetime(2030, 1, 2, 3, 4), machine="a machine", **facts)


def test_before_the_first_run_ends_only_the_configuration_is_written(record, tmp_path):
    write_experiment(record, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["experiment_name"] == "trial"
    assert (written["machine"], written["versions"], written["data"]) == (
        "a machine",
        {"numpy": "2"},
        record.fingerprints,
    )


def test_all_files_have_the_same_results(record, tmp_path):
    run = run_record(tmp_path)
    record = record.with_run(run)
    write_experiment(record, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
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
    assert seed["comparisons"] == entry["comparisons"] == [one.to_dict() for one in run.comparisons]
    levels = (run.folder / "test_levels.csv").read_text().splitlines()
    assert levels[:2] == ["level,category,episodes,random,ppo", "level 0,simple,1,1,1"]
    assert entry["paths"]["films"][0]["video"] == "videos/simple/a.mp4"
    assert "vision_free" in (tmp_path / "report.html").read_text()


def test_a_view_changes_nothing_in_the_record(record, tmp_path):
    record = record.with_run(run_record(tmp_path))
    for view in (config_view, results_view, report_view):
        first = json.dumps(view(record), default=str)
        view(record).clear()
        assert json.dumps(view(record), default=str) == first


def test_seeds_are_grouped_in_results_and_separate_in_the_report(record, tmp_path):
    for seed in (3, 4):
        record = record.with_run(run_record(tmp_path, seed=seed, title=f"vision_free, seed {seed}"))
    assert set(results_view(record)["architectures"]["vision_free"]["seeds"]) == {"3", "4"}
    assert list(report_view(record)["architectures"]) == ["vision_free, seed 3", "vision_free, seed 4"]


def test_what_was_not_evaluated_is_none_everywhere(record, tmp_path):
    run = run_record(tmp_path)
    record = record.with_run(replace(run, played={method: [] for method in run.played}))
    entry = results_view(record)["architectures"]["vision_free"]["seeds"]["0"]
    assert entry["suites"] == {"test": {}}
    assert entry["baselines"] == {"random": None, "bc": None}
    assert report_view(record)["architectures"]["vision_free"]["comparisons"] == []
    write_experiment(record, tmp_path)
    assert not list(tmp_path.rglob("test_levels.csv"))


def test_the_summary_has_a_table_for_each_run(record, tmp_path):
    text = summary(record.with_run(run_record(tmp_path)), tmp_path)
    assert "vision_free, test levels" in text
    assert "random play" in text and "before PPO" in text and "after PPO" in text
    assert "films: 1 below" in text
    assert "\ndelivered: the BC policy, with 40 %\n" in text
    assert text.endswith(f"report: {tmp_path / 'report.html'}")


def test_the_model_is_compared_with_the_bc_policy_and_with_random_play(tmp_path):
    run = run_record(tmp_path, pretrained=True, ppo=4)
    assert [(c.first, c.second, c.categories["all"].difference) for c in run.comparisons] == [
        ("vision_free after PPO", "before PPO", 0.5),
        ("vision_free after PPO", "random play", 0.75),
    ]


def test_architectures_and_conditions_are_compared_over_their_seeds(record, tmp_path):
    """Architectures under the same condition, conditions of the same architecture; never both."""
    for architecture, ppo in (("mlp_baseline", 2), ("vision_free", 4)):
        for pretrained in (False, True):
            for seed in (1, 2):
                label = f"{architecture}, {'with' if pretrained else 'no'}_pretrain"
                facts = {"architecture": architecture, "pretrained": pretrained, "ppo": ppo - pretrained}
                run = run_record(tmp_path, label, seed, f"{label}, seed {seed}", **facts)
                record = record.with_run(replace(run, folder=tmp_path / f"{label}{seed}"))
    between = {(c.first, c.second): c.categories["all"].difference for c in record.comparisons if "PPO" not in c.first}
    assert between == {
        ("mlp_baseline, no_pretrain", "mlp_baseline, with_pretrain"): 0.25,
        ("mlp_baseline, no_pretrain", "vision_free, no_pretrain"): -0.5,
        ("mlp_baseline, with_pretrain", "vision_free, with_pretrain"): -0.5,
        ("vision_free, no_pretrain", "vision_free, with_pretrain"): 0.25,
    }
    over_seeds = [(c.first, c.second, c.seeds) for c in record.comparisons if "PPO" in c.first]
    assert ("vision_free, with_pretrain after PPO", "before PPO", 2) in over_seeds and len(over_seeds) == 6
    write_experiment(record, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["comparisons"]) == 10 and results["comparisons"][0]["sentence"]
    together = results["architectures"]["vision_free, no_pretrain"]["all_seeds"]
    assert together["suites"]["test"]["all"]["episodes"] == 8 and together["baselines"]["bc"] is None
    text = summary(record, tmp_path)
    assert "comparisons on the same test levels" in text
    page = html.unescape((tmp_path / "report.html").read_text())
    for comparison in record.comparisons:
        assert comparison.sentence in text and comparison.sentence in page
    assert "Delivered: the BC policy, with 40 %." in page
    assert "vision_free, no_pretrain, all seeds" in text and "vision_free, no_pretrain, all seeds" in page


def test_unfinished_seeds_are_left_out_of_a_comparison(record, tmp_path):
    for seed in (1, 2):
        record = record.with_run(run_record(tmp_path, seed=seed))
    record = record.with_run(run_record(tmp_path, "mlp_baseline", seed=2, architecture="mlp_baseline"))
    (between,) = (c for c in record.comparisons if c.second == "mlp_baseline")
    assert between.seeds == 1


def jobs(**changes):
    config = ExperimentConfig(experiment_name="x", evaluation=EvaluationConfig(), **changes)
    data = Data([], [], [], bank=None)
    return list(make_setups(config, data, hardware.detect(), Path("out"), None, print))


def test_a_single_job_has_the_architectures_folder():
    (job,) = jobs(architectures=("vision_free",))
    assert (job.label, job.title, job.folder) == ("vision_free", "vision_free", Path("out/vision_free"))
    assert (job.pretrained, job.seed) == (False, 0)


def test_several_conditions_and_seeds_each_have_a_folder_and_a_title():
    made = jobs(
        architectures=("mlp_baseline", "vision_free"),
        seeds=(1, 2),
        test_pretraining=True,
        replay_data_dir=(Path("demos"),),
    )
    assert len(made) == len({job.folder for job in made}) == len({job.title for job in made}) == 8
    last = made[-1]
    assert last.folder == Path("out/vision_free/with_pretrain/seed_2")
    assert last.title == "vision_free, with_pretrain, seed 2"
    assert last.label == "vision_free, with_pretrain"
    assert last.pretrained and not made[0].pretrained


def test_a_stored_episode_finds_its_level():
    level, other = corridor(20), corridor(24)
    one = replace(episode(), level=level)
    assert _decode_episode(_encode_episode(one), [level, other]).level is level
    with pytest.raises(ValueError, match="level 0 has changed"):
        _decode_episode(_encode_episode(one), [other, level])
