"""End-to-end tests at tiny size on real levels: the README's commands, run as a user would run them."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout

import numpy as np
import pytest

from nppsim.generate import generate
from nppsim.replays.replay_set import ReplaySet
from nppsim.report import charts
from nppsim.simulate import simulate
from rl.config.command_line import resolve
from rl.events import event_folders
from rl.experiment.data import load_data
from rl.policy import checkpoint

from excerpt import excerpt
from places import ODD, ROOT
from programs import load_script

CATEGORIES = ("simplest", "simple")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A few shipped levels of some categories, with their demonstrations."""
    return excerpt(tmp_path_factory.mktemp("data") / ODD, *CATEGORIES, train=4, dev=2, test=2, demonstrations=4)


@pytest.fixture(scope="module")
def experiment(data, tmp_path_factory):
    """A finished experiment with both architectures."""
    out, printed = tmp_path_factory.mktemp("experiments") / ODD, io.StringIO()
    flags = [
        "--experiment-name", "tiny", "--architectures", "mlp_baseline", "vision_free",
        "--train-dataset", data / "train", "--dev-dataset", data / "dev", "--test-dataset", data / "test",
        "--replay-data-dir", data / "demonstrations", "--mirror-demonstrations", "--max-demonstrations-per-category", "3",
        "--use-curriculum", "--curriculum-threshold", "0.6", "--curriculum-min-episodes", "5", "--bc-epochs", "2",
        "--total-timesteps", "2000", "--num-envs", "16", "--eval-freq", "2000", "--save-freq", "1500",
        "--eval-episodes-per-category", "2", "--num-eval-episodes", "3", "--record-eval-videos",
        "--max-videos-per-category", "1", "--output-dir", out,
    ]  # fmt: skip
    arguments = [*map(str, flags)]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", ["train_and_compare.py", *arguments])  # which config.json contains
        patch.setattr(charts, "_rendered", lambda axes: b"")  # plotted, but not rendered
        status = load_script("train_and_compare").main(arguments)
    assert status == 0, printed.getvalue()
    (folder,) = out.glob("tiny_*")
    return folder, printed.getvalue()


def test_main_writes_table_report_and_films(experiment):
    folder, printed = experiment
    assert "after PPO" in printed
    assert "random play" in printed
    assert "not drawn: 2\n" in printed and "6 of 6" in printed
    assert str(folder / "report.html") in printed
    assert "mlp_baseline" in (folder / "report.html").read_text()
    for name in ("mlp_baseline", "vision_free"):
        assert len(list((folder / name).rglob("*.mp4"))) == len(CATEGORIES)
        assert len(list((folder / name / "route_visualizations").rglob("*.png"))) == len(CATEGORIES)


def test_results_json_has_categories_and_baselines(experiment):
    results = json.loads((experiment[0] / "results.json").read_text())
    for name in ("mlp_baseline", "vision_free"):
        entry = results["architectures"][name]["seeds"]["0"]
        assert set(entry["suites"]["test"]) == {*CATEGORIES, "all"}
        assert set(entry["baselines"]) == {"random", "bc", "distilled"}
        speed = entry["speed"]
        assert sum(speed["share"].values()) == pytest.approx(1.0, abs=0.02)
        assert speed["decisions"] == 2048 and 0 < speed["ppo_time_s"] < entry["wall_time_s"] and speed["cores_used"] > 0


def test_config_json_and_run_json_describe_the_run(experiment):
    config = json.loads((experiment[0] / "config.json").read_text())
    assert config["curriculum"]["threshold"] == 0.6
    assert config["hardware"]["num_envs"] == 16
    assert {"machine", "versions", "data"} <= set(config)
    assert {"cpu", "cores", "system"} <= set(config["host"]) and "--experiment-name" in config["command"]
    assert config["versions"]["commit"] and config["environment"]["OMP_NUM_THREADS"]
    assert "after PPO" in (experiment[0] / "log.txt").read_text()
    for name in ("mlp_baseline", "vision_free"):
        settings = json.loads((experiment[0] / name / "run.json").read_text())["settings"]
        assert settings["curriculum.threshold"] == {"value": 0.6, "source": "command line"}
        assert settings["ppo.gae_lambda"]["source"] == "default"
        assert settings["plan.num_envs"] == {"value": 16, "source": "command line"}
        assert settings["ppo.n_epochs"]["source"] == settings["plan.rollout_length"]["source"] == "hardware plan"
        assert len(event_folders(experiment[0] / name)) == 1


def test_compare_runs_same_run_is_equal(experiment, capsys):
    compare_runs = load_script("compare_runs")
    assert compare_runs.main([str(experiment[0]), str(experiment[0]), "--exact"]) == 0
    printed = capsys.readouterr().out
    assert "digests are equal in all 3 common records" in printed


def test_final_model_loads_in_stable_baselines3(experiment):
    from stable_baselines3 import PPO

    folder = experiment[0] / "vision_free"
    model = PPO.load(folder / "final_model.zip")
    ours, stored = checkpoint.load_policy(folder / "agent.safetensors", precision="float32")
    assert stored["training"] is None
    obs = {key: space.sample()[None] for key, space in model.observation_space.spaces.items()}
    obs = {key: np.nan_to_num(value) for key, value in obs.items()}
    model.policy.precision = "float32"
    assert model.predict(obs, deterministic=True)[0].tolist() == ours.act(obs, deterministic=True).tolist()


@pytest.mark.usefixtures("one_thread")
def test_evaluate_script_checkpoint_with_films(experiment, data, tmp_path, capsys):
    status = load_script("evaluate").main([
        str(experiment[0] / "vision_free" / "checkpoints" / "final.safetensors"), "--levels", str(data / "test"),
        "--record-videos", "--max-videos-per-category", "1", "--output-dir", str(tmp_path / ODD),
    ])  # fmt: skip
    printed = capsys.readouterr()
    assert status == 0, printed
    assert "simplest" in printed.out
    assert len(list(tmp_path.rglob("*.mp4"))) == len(CATEGORIES)
    (file,) = tmp_path.rglob("results.json")
    results = json.loads(file.read_text())
    assert sum(level["episodes"] for level in results["levels"]) == len(results["episodes"]) == len(results["levels"])
    with ReplaySet(file.with_name("replays.h5")) as replays:
        for i, episode in enumerate(results["episodes"]):
            assert episode["replay"] == f"replays.h5#{i}"
            assert simulate(replays[i].level, replays[i].inputs).won == (episode["outcome"] == "won")
            assert (replays.categories[i], replays.entry(i).frames) == (episode["category"], episode["frames"])
    wins = sum(level["wins"] > 0 for level in results["levels"])
    whole = f"won at least once: all {wins} levels"
    assert (
        whole if wins == len(results["levels"]) else f"never won: {len(results['levels']) - wins} of"
    ) in printed.out


def test_load_data_plain_folders(tmp_path):
    for name, first in (("train", 0), ("test", 100)):
        for i, place in enumerate(("first level", "caves/one.map", "caves/deep/two.map")):
            (tmp_path / name / place).parent.mkdir(parents=True, exist_ok=True)
            generate("simple", first + i)[0].save(tmp_path / name / place)
    flags = ["--train-dataset", tmp_path / "train", "--test-dataset", tmp_path / "test", "--output-dir", tmp_path]
    config = resolve(["--experiment-name", "x", "--architectures", "vision_free", "--eval-freq", "0", *map(str, flags)])
    data = load_data(config, log=lambda line: None)
    assert data.train_categories == ["caves/deep", "caves", "uncategorised"]
    assert [level for level, _ in data.test] == [generate("simple", 100 + i)[0] for i in (2, 1, 0)]


@pytest.mark.usefixtures("one_thread")
def test_pretrain_bc_script_writes_weights(data, tmp_path, capsys):
    status = load_script("pretrain_bc").main([
        "--architecture", "vision_free", "--replay-data-dir", str(data / "demonstrations"),
        "--epochs", "2", "--output-dir", str(tmp_path),
    ])  # fmt: skip
    assert status == 0, capsys.readouterr()
    assert list(tmp_path.rglob("bc_best.safetensors"))


@pytest.mark.usefixtures("blank_charts")
def test_main_sigterm_writes_checkpoint_and_resumes(data, tmp_path, capsys):
    flags = [
        "--experiment-name", "stopped", "--architectures", "vision_free", "--train-dataset", data / "train",
        "--test-dataset", data / "test", "--num-envs", "8", "--rollout-length", "32", "--minibatch-size", "64",
        "--eval-freq", "0", "--skip-final-eval", "--output-dir", tmp_path,
    ]  # fmt: skip
    script = str(ROOT / "scripts" / "train_and_compare.py")
    process = subprocess.Popen(
        [sys.executable, "-u", script, *map(str, flags), "--total-timesteps", "100000000"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )  # fmt: skip
    for line in process.stdout:
        if "first update:" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 130, rest
    found = max(tmp_path.rglob("checkpoint_*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    assert f"by SIGTERM: checkpoint: {found}: resume with --resume-from {found.parents[2]}" in rest
    done = checkpoint.load(found)["training"]["num_timesteps"]
    override = ["--resume-override", f"total-timesteps={done + 256}"]
    again = load_script("train_and_compare").main(["--resume-from", str(found.parents[2]), *override])
    printed = capsys.readouterr()
    assert again == 0, printed
    assert f"at {done:,} decisions" in printed.out


def refused(flags, out):
    return ["--experiment-name", "x", "--architectures", "vision_free", "--output-dir", str(out), *flags]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--use-hierarchical-ppo", "--hierarchical-from-stage", "medium"], "give --curriculum stages"),
        (["--num-gpus", "999"], "--num-processes 999"),
        (["--distributed-backend", "gloo"], "--distributed-backend"),
        (["--use-hierarchical-ppo", "--num-gpus", "0", "--num-processes", "2"], "one process"),
        (["--no-such-flag"], "no-such-flag"),
        (["--train-dataset", "no/such/folder"], "--train-dataset"),
        (["--architectures", "fullest_hgt"], "fullest_hgt"),
        (["--train-dataset", "datasets/test"], "are also in"),
    ],
)
def test_main_bad_input_prints_one_line(flags, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_script("train_and_compare").main(refused(flags, tmp_path)) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert message in printed
    assert len(printed.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
