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
    ResumeError,
    RunRecord,
    read_run,
    results_view,
    save_run,
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
        played={"random": episodes(1), "bc": episodes(2) if pretrained else [], "distilled": [], "ppo": episodes(ppo)},
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


def test_write_experiment_without_runs_writes_config_only(record, tmp_path):
    write_experiment(record, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["experiment_name"] == "trial"
    assert (written["machine"], written["versions"], written["data"]) == (
        "a machine",
        {"numpy": "2"},
        record.fingerprints,
    )


def test_write_experiment_files_have_the_same_results(record, tmp_path):
    run = replace(run_record(tmp_path), train_success=0.75)
    record = record.with_run(run)
    write_experiment(record, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    config = json.loads((tmp_path / "config.json").read_text())
    seed = results["architectures"]["vision_free"]["seeds"]["0"]
    assert seed["suites"]["test"] == run.results["ppo"]
    assert seed["baselines"] == {"random": run.results["random"], "bc": None, "distilled": None}
    assert (seed["speed"], seed["wall_time_s"], seed["train_success"]) == (run.speed, 12.5, 0.75)
    evaluated = {"ppo": seed["suites"]["test"], **seed["baselines"]}
    assert json.loads((run.folder / "eval_results.json").read_text()) == evaluated
    assert results["config"] == {key: config[key] for key in results["config"]}
    for key in ("machine", "versions"):
        assert results[key] == config[key]
    assert seed["comparisons"] == [one.to_dict() for one in run.comparisons]
    levels = (run.folder / "test_levels.csv").read_text().splitlines()
    assert levels[:2] == ["level,category,episodes,random,ppo", "level 0,simple,1,1,1"]
    assert (seed["folder"], seed["films"][0]["video"]) == ("vision_free", "videos/simple/a.mp4")
    assert "vision_free" in (tmp_path / "report.html").read_text()
    assert str(tmp_path) not in (tmp_path / "results.json").read_text(), "the folder may be moved"


def test_results_view_several_seeds_grouped_by_label(record, tmp_path):
    for seed in (3, 4):
        record = record.with_run(run_record(tmp_path, seed=seed, title=f"vision_free, seed {seed}"))
    seeds = results_view(record, tmp_path)["architectures"]["vision_free"]["seeds"]
    assert {seed: entry["title"] for seed, entry in seeds.items()} == {
        "3": "vision_free, seed 3",
        "4": "vision_free, seed 4",
    }


def test_results_view_without_evaluation_is_empty(record, tmp_path):
    run = run_record(tmp_path)
    record = record.with_run(replace(run, played={method: [] for method in run.played}))
    entry = results_view(record, tmp_path)["architectures"]["vision_free"]["seeds"]["0"]
    assert entry["suites"] == {"test": {}} and entry["comparisons"] == []
    assert entry["baselines"] == {"random": None, "bc": None, "distilled": None}
    write_experiment(record, tmp_path)
    assert not list(tmp_path.rglob("test_levels.csv"))


def test_summary_has_a_table_for_each_run(record, tmp_path):
    text = summary(record.with_run(run_record(tmp_path, pretrained=True)))
    assert "vision_free, test levels" in text
    assert "random play" in text and "after imitation" in text and "after PPO" in text
    assert "films: 1 in vision_free/videos" in text and str(tmp_path) not in text
    assert "\ndelivered: the BC policy, with 40 %\n" in text


def test_run_record_comparisons_with_baselines(tmp_path):
    run = run_record(tmp_path, pretrained=True, ppo=4)
    assert [(c.first, c.second, c.categories["all"].difference) for c in run.comparisons] == [
        ("vision_free after PPO", "after imitation", 0.5),
        ("vision_free after PPO", "random play", 0.75),
    ]


def test_experiment_comparisons_between_architectures_and_conditions(record, tmp_path):
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
    assert ("vision_free, with_pretrain after PPO", "after imitation", 2) in over_seeds and len(over_seeds) == 6
    write_experiment(record, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["comparisons"]) == 10 and results["comparisons"][0]["sentence"]
    together = results["architectures"]["vision_free, no_pretrain"]["all_seeds"]
    assert together["suites"]["test"]["all"]["episodes"] == 8 and together["baselines"]["bc"] is None
    text = summary(record)
    assert "comparisons on the same test levels" in text
    page = html.unescape((tmp_path / "report.html").read_text())
    for comparison in record.comparisons:
        assert comparison.sentence in text and comparison.sentence in page
    assert "Delivered: the BC policy, with 40 %." in page
    assert "vision_free, no_pretrain, all seeds" in text and "vision_free, no_pretrain, all seeds" in page


def test_experiment_comparisons_only_common_seeds(record, tmp_path):
    for seed in (1, 2):
        record = record.with_run(run_record(tmp_path, seed=seed))
    record = record.with_run(run_record(tmp_path, "mlp_baseline", seed=2, architecture="mlp_baseline"))
    (between,) = (c for c in record.comparisons if c.second == "mlp_baseline")
    assert between.seeds == 1


def jobs(**changes):
    config = ExperimentConfig(experiment_name="x", evaluation=EvaluationConfig(), **changes)
    data = Data([], [], [], bank=None)
    return list(make_setups(config, data, hardware.detect(), Path("out"), print))


def test_make_setups_single_training_uses_architecture_folder():
    (job,) = jobs(architectures=("vision_free",))
    assert (job.label, job.title, job.folder) == ("vision_free", "vision_free", Path("out/vision_free"))
    assert (job.pretrained, job.seed) == (False, 0)


def test_make_setups_several_conditions_and_seeds_have_own_folders():
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


def test_read_run_other_level_raises(tmp_path):
    level, other = corridor(20), corridor(24)
    played = {method: [replace(episode(), level=level)] for method in ("random", "ppo")} | {"bc": []}
    run = replace(run_record(tmp_path), played=played)
    save_run(run)
    stored = read_run(run.folder, [level, other])
    assert stored.played["ppo"][0].level is level and stored.films == run.films
    with pytest.raises(ResumeError, match="level 0 has changed"):
        read_run(run.folder, [other, level])
