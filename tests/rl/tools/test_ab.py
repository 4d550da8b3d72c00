"""A/B comparison of training: alternating runs, their comparison, refused settings."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nppsim.errors import ConfigError
from nppsim.io.files import write_json
from nppsim.report import charts
from rl.evaluation.comparison import LEVELS_FILE, write_levels
from rl.evaluation.results import ALL, HISTORY_FILE, DevHistory, LevelWins, ResultsError
from rl.experiment.record import SUMMARY
from rl.tools import ab
from rl.tools.compare import DELIVERED

from packages import hide
from places import ROOT
from programs import load_script
from results import altered, episodes

ab_compare = load_script("ab_compare")
COMMON = ("--architectures", "vision_free", "--single-level", "datasets/test/simplest/000000.map")
PLAN = ab.ABSettings(("--frame-skip", "4"), ("--frame-skip", "2"), COMMON, (1, 2, 3))
UPDATES = {"a": 1000.0, "b": 1200.0}  # decisions per second of rollouts, which take all of the time


def write_run(folder, arm, seed, at):
    """Write a made-up finished run: B is 1.2 times as fast and ends 10 points higher; seeds differ.  B wins 8 more of
    100 levels, test and dev."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    run = ab.runs_folder(folder) / f"{arm}_seed{seed}_2026010{at}_000000"
    writer = EventFileWriter(str(run / "vision_free" / "tensorboard"))
    for step in (100, 200, 300):
        height = (step - 100) / 200 * (0.8 if arm == "a" else 0.9) + 0.01 * seed
        speed = {"sim/decisions_per_s": UPDATES[arm] * seed, "sim/update_s": 0.0}
        for tag, value in {"rollout/success_rate": height, "rollout/ep_rew_mean": 10 * height, **speed}.items():
            writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))
    writer.close()
    played = episodes((50 if arm == "a" else 58) + seed, levels=100)
    write_levels(run / "vision_free" / LEVELS_FILE, {"ppo": LevelWins.count(played)})
    history = DevHistory(run / "vision_free")
    history.add(0, LevelWins.count(episodes(10, levels=100)))
    history.add(300, LevelWins.count(played))
    write_json(run / "config.json", {"seeds": [seed], "frame_skip": 4 if arm == "a" else 2, "host": {"cpu": "one"}})
    (run / SUMMARY).write_text("done")


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Replace ``ab._run_process`` by a function that writes runs; return the list of their names, and a limit after
    which it is interrupted."""
    state = SimpleNamespace(names=[], left=99, status=0, folder=tmp_path / "ab")

    def run(command, log_file):
        log_file.write_text("some output\nerror: no space left\n")
        if not state.left:
            raise KeyboardInterrupt
        state.left -= 1
        name = command[command.index("--experiment-name") + 1]
        state.names.append(name)
        if not state.status:
            write_run(state.folder, name[0], int(name[-1]), len(state.names))
        return state.status

    monkeypatch.setattr(ab, "_run_process", run)
    return state


def quiet(line):
    pass


def test_run_all_alternates_arms_and_compares(runs):
    ab.run_all(PLAN, runs.folder, Path("unused"), quiet)
    assert runs.names == ["a_seed1", "b_seed1", "b_seed2", "a_seed2", "a_seed3", "b_seed3"]
    settings = replace(PLAN, share=0.3, speed_up=2.0)
    comparison = ab.compare_arms(settings, runs.folder)
    found = comparison.found
    assert found.speed[0].phase == "all"
    assert found.speed[0].ratio.value == pytest.approx(1 / 1.2, rel=1e-5)
    (name,) = found.curves
    assert found.curves[name][2].value == pytest.approx(0.5)
    assert comparison.test is None, "test levels are only played with --test"
    final = ab.compare_arms(replace(PLAN, test=True), runs.folder)
    for levels in (found.learning[DELIVERED], final.test):
        total = levels.categories[ALL]
        assert (total.second, total.first, total.difference) == pytest.approx((0.52, 0.60, 0.08))
        assert 0.02 < total.ci95[0] < 0.08 < total.ci95[1] < 0.14, "over levels, which the seeds share"
    assert "test levels" in final.text()
    files = comparison.write(runs.folder)
    assert [file.name for file in files] == ["comparison.json", "comparison.txt"]
    stored = json.loads(files[0].read_text())
    assert stored["expected"] == pytest.approx(1 / 0.85)
    assert stored["plan"] == {
        "a": ["--frame-skip", "4"],
        "b": ["--frame-skip", "2"],
        "common": [*COMMON],
        "seeds": [1, 2, 3],
        "test": False,
        "share": 0.3,
        "speed_up": 2.0,
    }
    assert {"machine", "versions", "build", "comparison", "test"} <= set(stored)
    assert "expected speed-up 1.176, as 30% of the time is 2 times as fast; measured 1.200" in files[1].read_text()


def test_run_process_output_is_stored(tmp_path):
    log_file = tmp_path / "run.log"
    assert (
        ab._run_process([sys.executable, "-c", "import sys; print('decisions'); sys.exit('no space left')"], log_file)
        == 1
    )
    assert sorted(log_file.read_text().splitlines()) == ["decisions", "no space left"]


def test_run_all_interrupted_repeats_nothing(runs):
    runs.left = 3
    with pytest.raises(KeyboardInterrupt):
        ab.run_all(PLAN, runs.folder, Path("unused"), quiet)
    runs.left = 99
    (ab.runs_folder(runs.folder) / "a_seed2_20260104_000000").mkdir()  # what an interrupted run leaves
    ab.run_all(PLAN, runs.folder, Path("unused"), quiet)
    assert runs.names == ["a_seed1", "b_seed1", "b_seed2", "a_seed2", "a_seed3", "b_seed3"]


def test_run_all_other_settings_in_same_folder_raises(runs):
    ab.run_all(PLAN, runs.folder, Path("unused"), quiet)
    with pytest.raises(ConfigError, match=r"was begun with other settings: plan: b is .*'3'.* here"):
        ab.run_all(replace(PLAN, b=("--frame-skip", "3")), runs.folder, Path("unused"), quiet)
    altered(runs.folder / ab.PLAN, runs.folder / ab.PLAN, machine__cpu="another")
    with pytest.raises(ConfigError, match="machine: cpu"):
        ab.run_all(PLAN, runs.folder, Path("unused"), quiet)


def test_run_all_failed_run_raises_with_last_line(runs):
    runs.status = 2
    with pytest.raises(ResultsError, match=r"a_seed1: ended with status 2: error: no space left; see .*\.log"):
        ab.run_all(PLAN, runs.folder, Path("unused"), quiet)
    with pytest.raises(ResultsError, match="no finished run a_seed1"):
        ab.compare_arms(PLAN, runs.folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": ("--frame-skip", "4")}, "same flags"),
        ({"b": ("--seeds", "7")}, "--seeds: is set for each run"),
        ({"b": ("--frame-skip", "0")}, "--frame-skip 0: give a whole number"),
        ({"common": (*COMMON, "mlp_baseline")}, "unexpected argument .mlp_baseline"),
        ({"common": ("--architectures", "vision_free", "mlp_baseline", *COMMON[2:])}, "one run each"),
        ({"seeds": (1, 1)}, "each only once"),
        ({"b": ("--eval-episodes-per-category", "7")}, "different dev episodes"),
        ({"b": ("--exploration-patience", "0")}, "different dev episodes"),
        ({"b": ("--num-eval-episodes", "7"), "test": True}, "different test episodes"),
        ({"common": (*COMMON, "--skip-final-eval"), "test": True}, "--skip-final-eval: contradicts --test"),
        ({"common": (*COMMON, "--out", "elsewhere")}, "--out: is set for each run"),
    ],
)
def test_check_invalid_settings_raises(changes, message, runs):
    with pytest.raises(ConfigError, match=message):
        ab.run_all(replace(PLAN, **changes), runs.folder, Path("unused"), quiet)
    assert not runs.names and not runs.folder.exists()


def test_compare_arms_other_levels_raises(runs):
    ab.run_all(PLAN, runs.folder, Path("unused"), quiet)
    (run,) = ab.runs_folder(runs.folder).glob("b_seed2_*")
    write_levels(run / "vision_free" / LEVELS_FILE, {"ppo": LevelWins.count(episodes(50, levels=99))})
    with pytest.raises(ResultsError, match="other levels than in"):
        ab.compare_arms(replace(PLAN, test=True), runs.folder)
    path = run / "vision_free" / HISTORY_FILE
    path.write_text(path.read_text().replace("level 7", "elsewhere"))
    found = ab.compare_arms(PLAN, runs.folder).found
    assert not found.decided and any("different dev levels" in note for note in found.notes)


def test_parse_share_without_speed_up_raises(capsys):
    assert ab_compare.main(["--b", "--no-mixed-precision", "--share", "0.3"]) == 2
    assert "belong together" in capsys.readouterr().err
    assert ab_compare.main(["--b", "--no-mixed-precision", "--share", "3", "--speedup", "2"]) == 2
    assert "--share 3.0: give a number from 0 to 1" in capsys.readouterr().err


def test_main_missing_packages_fail_before_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ab, "run_all", None)
    (tmp_path / "file").write_text("")
    flags = ["--b=--no-mixed-precision", "--out", str(tmp_path / "file" / "ab")]
    assert ab_compare.main(flags) == 2
    assert f"cannot be written ({tmp_path / 'file'} is a file)" in capsys.readouterr().err
    hide(monkeypatch, "torch")
    assert ab_compare.main(flags[:1]) == 2
    assert "error: torch is needed for this" in capsys.readouterr().err


def test_parse_unbalanced_quotes_raises(capsys):
    assert ab_compare.main(["--a", "--experiment-name 'x"]) == 2
    assert "No closing quotation" in capsys.readouterr().err


def test_main_two_real_runs(tmp_path, capsys, monkeypatch):
    """Flags that only change speed, one seed; runs in this process, to save time."""
    monkeypatch.chdir(ROOT)

    def run(command, log_file):
        assert command[:3] == [sys.executable, "-u", str(ROOT / "scripts" / "train_and_compare.py")]
        with open(log_file, "w") as out, redirect_stdout(out):
            return load_script("train_and_compare").main(command[3:])

    monkeypatch.setattr(ab, "_run_process", run)
    monkeypatch.setattr(charts, "_rendered", lambda axes: b"")  # plotted, but not rendered
    flags = ["--total-timesteps", "512", "--num-envs", "8", "--rollout-length", "32", "--minibatch-size", "64"]
    flags += ["--eval-freq", "0", "--skip-final-eval"]
    arguments = ["--b=--no-mixed-precision", "--seeds", "5", "--out", str(tmp_path / "ab"), "--", *COMMON, *flags]
    assert ab_compare.main(arguments) == 0, capsys.readouterr()
    printed = capsys.readouterr().out
    assert "no interval: one observation" in printed
    assert len(list((tmp_path / "ab" / "runs").glob(f"?_seed5_*/{SUMMARY}"))) == 2
    assert (tmp_path / "ab" / "comparison.json").exists()
