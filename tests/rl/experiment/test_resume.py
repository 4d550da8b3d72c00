"""A resumed run ends like one that was never interrupted, bit for bit."""

import json
import os
import shutil
import signal

import pytest
import torch

import hardware
from nppsim.errors import ConfigError, UserError
from nppsim.io.files import FolderError, locked, write_json
from nppsim.levels.level_set import LevelSet
from rl.checks.check import read_results
from rl.config.command_line import resolve
from rl.experiment import stages
from rl.experiment.data import load_data
from rl.experiment.record import ResumeError
from rl.experiment.run import run
from rl.experiment.setup import make_setups
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.search.guided_search import GuidePolicy
from rl.training.digests import first_divergence, read_trail
from tests.chaos.same_run import differences

from excerpt import excerpt
from interruptions import Killed, configuration, run_until
from places import ROOT

CATEGORY = "simplest"
pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module", autouse=True)
def short_evaluations():
    """Evaluations have the game's time limit, because some of them are made in another process."""


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A tiny experiment on a few shipped levels, with demonstrations."""
    folder = excerpt(tmp_path_factory.mktemp("data"), CATEGORY, train=6, dev=3, test=2, demonstrations=4)
    return [
        "--experiment-name", "tiny", "--architectures", "vision_free", "--replay-data-dir", folder / "demonstrations",
        "--train-dataset", folder / "train", "--dev-dataset", folder / "dev", "--test-dataset", folder / "test",
        "--bc-epochs", "2", "--total-timesteps", "2048", "--num-envs", "16", "--rollout-length", "32",
        "--minibatch-size", "128", "--eval-freq", "1000", "--eval-episodes-per-category", "6",
        "--num-eval-episodes", "2", "--device", "cpu", "--no-mixed-precision", "--critic-warmup-max-updates", "2",
        "--use-curriculum", "--start-states",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def finished(flags, tmp_path_factory):
    """The folder of an experiment without interruption."""
    return run(configuration(flags, tmp_path_factory.mktemp("finished")), lambda line: None)


def contents(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_resume_after_kill_ends_bit_identical(finished, flags, tmp_path):
    """Killed in imitation, in the BC policy's evaluation, in PPO, with a truncated checkpoint, and before the end."""
    run_until(configuration(flags, tmp_path), "imitation, epoch 1")
    (folder,) = tmp_path.glob("tiny_*")
    again = ["--resume-from", str(folder)]
    run_until(resolve(again), "imitation, epoch 2")
    assert "imitation resumes after epoch 1" in run_until(resolve(again), "evaluation at 0")
    assert any("imitation is done" in line for line in run_until(resolve(again), "evaluation at 1,024"))
    newest = folder / "vision_free" / "checkpoints" / "checkpoint_1024.safetensors"
    with open(newest, "r+b") as file:
        file.truncate(newest.stat().st_size - 100)
    with pytest.raises(CheckpointError, match="--previous-checkpoint"):
        run(resolve(again), lambda line: None)
    lines = run_until(resolve([*again, "--previous-checkpoint"]), "evaluations took")
    assert any(line.endswith("checkpoint_512.safetensors at 512 decisions") for line in lines)
    run(resolve(again), lines.append)
    assert differences(finished, folder) == []
    assert checked(finished) == checked(folder), "the doctor's results are those of a run without interruption"


def test_run_stages_one_by_one_equals_whole_run(finished, flags, tmp_path):
    """Each call begins like a new process: stages with a stored result load it, and the next stage runs."""
    config = configuration(flags, tmp_path)
    data = load_data(config, quiet)
    for stage in stages.STAGES:
        (job,) = make_setups(config, data, hardware.detect(), tmp_path, quiet)
        training = stages.run_stages(job, last=stage.__name__)
        assert (tmp_path / "vision_free" / "finished.json").exists() == (stage is stages.report)
    whole, parts = (read_trail(folder / "vision_free") for folder in (finished, tmp_path))
    assert len(whole) == len(parts) == 5 and first_divergence(whole, parts) is None
    agents = [
        checkpoint.load(folder / "vision_free" / "agent.safetensors")["policy"] for folder in (finished, tmp_path)
    ]
    assert all(torch.equal(tensor, agents[1][name]) for name, tensor in agents[0].items())
    results = json.loads((finished / "vision_free" / "eval_results.json").read_text())
    assert json.loads(json.dumps(training.record.results)) == results


def quiet(line):
    """Ignore a message."""


def test_resume_missing_checkpoints_raises_or_restarts(flags, tmp_path):
    """Missing checkpoints are an error if one was written; otherwise a message says that PPO starts again."""
    run_until(configuration(flags, tmp_path, "--save-freq", "512"), "evaluation at 2,048")
    (folder,) = tmp_path.glob("tiny_*")
    shutil.rmtree(folder / "vision_free" / "checkpoints")
    with pytest.raises(CheckpointError, match="2,048 decisions"):
        run(resolve(["--resume-from", str(folder)]), lambda line: None)
    again = ["--resume-from", str(folder), "--resume-override", "save-freq=5000"]
    lines = run_until(resolve(again), "evaluation at 1,024")
    assert any("left no checkpoint" in line for line in lines)
    shutil.rmtree(folder / "vision_free" / "checkpoints")
    again[-1] = "save-freq=512"  # which the run was not saved by
    assert any("left no checkpoint" in line for line in run_until(resolve(again), "evaluation at 1,024"))


def test_resume_other_frame_skip_raises(flags, tmp_path):
    """In imitation, in the BC policy's evaluation and in PPO."""
    settings = configuration(flags, tmp_path)
    for moment in ("imitation, epoch 2", "weights:", "evaluation at 1,024"):
        run_until(settings, moment)
        (folder,) = tmp_path.glob("tiny_*")
        settings = resolve(["--resume-from", str(folder)])
        config = folder / "config.json"
        before = config.read_text()
        write_json(config, json.loads(before) | {"frame_skip": 2})  # which no flag does
        with pytest.raises(
            CheckpointError, match="(unfinished|bc_policy).safetensors: .*4 frames per decision, this run has 2"
        ):
            run(resolve(["--resume-from", str(folder)]), lambda line: None)
        config.write_text(before)


def checked(folder):
    """(event, check, status) of the doctor's results in a run."""
    return [(one.event, one.check, one.status) for one in read_results(folder / "vision_free" / "doctor.json")]


@pytest.mark.usefixtures("interruptible")
def test_resume_run_with_images_is_bit_identical(flags, tmp_path):
    begun = flags.index("--replay-data-dir")
    small = [*flags[:begun], *flags[begun + 2 :], "--no-pretraining", "--architectures", "mlp_baseline"]
    for name, value in {
        "--bc-epochs": None,
        "--critic-warmup-max-updates": None,
        "--total-timesteps": "384",
        "--num-envs": "8",
        "--rollout-length": "16",
        "--minibatch-size": "64",
        "--eval-freq": "0",
    }.items():
        place = small.index(name)
        small[place : place + 2] = [name, value] if value else []
    small += ["--skip-final-eval", "--save-freq", "128"]
    whole = run(configuration(small, tmp_path / "whole"), lambda line: None)

    def interrupt(line):
        if "first update:" in line:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(configuration(small, tmp_path / "parts"), interrupt)
    (folder,) = (tmp_path / "parts").glob("tiny_*")
    lines = []
    run(resolve(["--resume-from", str(folder)]), lines.append)
    assert any("resuming from" in line for line in lines)
    assert differences(whole, folder) == []


def interrupted(flags, name, out, *more):
    """A run from a BC policy, once uninterrupted and once killed during PPO: (folder, lines).

    Both have the same plan, audits, evaluations and films.
    """
    mine = [name if flag == "vision_free" else flag for flag in flags]
    more = [*more, "--total-timesteps", "1024", "--eval-freq", "512", "--save-freq", "512", "--record-eval-videos"]
    lines = run_until(configuration(mine, out, *more), "evaluation at 0")
    (folder,) = out.glob("tiny_*")
    whole = out / "whole"
    shutil.copytree(folder, whole)
    run_until(resolve(["--resume-from", str(whole)]), "evaluation at 1,024")
    run_until(resolve(["--resume-from", str(folder)]), "evaluation at 512")
    run(resolve(["--resume-from", str(folder)]), lines.append)
    one, other = (read_trail(next(place.glob(f"{name}*"))) for place in (whole, folder))
    assert [row["update"] for row in one] == [row["update"] for row in other] == [0, 1, 2]
    assert first_divergence(one, other) is None
    return folder, lines


def test_resume_recurrent_run_is_bit_identical_and_films(flags, tmp_path):
    """Such a run has no archive of Stable-Baselines3, and search refuses its agent."""
    folder, lines = interrupted(flags, "vision_free+gru", tmp_path)
    assert list(folder.rglob("*.mp4")) and not list(folder.rglob("final_model.zip"))
    assert any("no final_model.zip, as PPO of Stable-Baselines3 has no recurrent policies" in line for line in lines)
    with pytest.raises(CheckpointError, match="give an agent without .gru"):
        GuidePolicy.load(folder / "vision_free+gru" / "agent.safetensors")


def test_resume_hierarchical_graph_run_is_bit_identical_and_films(flags, tmp_path):
    """Subtasks go on, and graphs that were remembered before the interruption are encoded again."""
    subtasks = ["--use-hierarchical-ppo", "--high-level-update-freq", "5"]
    folder, lines = interrupted(flags, "vision_free_gcn", tmp_path, *subtasks)
    assert any("fresh: high_level.condition" in line for line in lines)
    films = list(folder.rglob("*.mp4"))
    assert len(films) == 2 and all(film.stat().st_size > 1000 for film in films)


def test_run_resume_from_finished_experiment_changes_nothing(finished, tmp_path):
    """Also after the folder was moved."""
    moved = shutil.copytree(finished, tmp_path / "moved")
    before, lines = contents(moved), []
    assert run(resolve(["--resume-from", str(moved)]), lines.append) == moved
    assert lines[0] == f"{moved}: is finished; nothing was changed" and "after PPO" in lines[1]
    assert lines[-1] == f"report: {moved / 'report.html'}"
    assert not any(str(finished) in line for line in lines)
    assert contents(moved) == before


def test_run_resume_from_incomplete_finished_experiment_raises(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "incomplete")
    for name in ("results.json", "vision_free/agent.safetensors", "vision_free/digests.jsonl"):
        (folder / name).unlink()
    with pytest.raises(ResumeError, match=r"results.json, vision_free/agent.safetensors are missing; restore"):
        run(resolve(["--resume-from", str(folder)]), print)
    (folder / "summary.txt").unlink()
    run(resolve(["--resume-from", str(folder)]), print)
    assert differences(finished, folder) == ["vision_free/digests.jsonl: only in " + str(finished)]


@pytest.mark.parametrize("name", ["results.json", "vision_free/finished.json", "vision_free/agent.safetensors"])
def test_run_resume_from_damaged_finished_experiment_raises(finished, tmp_path, name):
    folder = shutil.copytree(finished, tmp_path / "damaged")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=name):
        run(resolve(["--resume-from", str(folder)]), print)


def test_run_resume_without_digests_warns(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "no_digests")
    for name in ("summary.txt", "vision_free/finished.json", "vision_free/digests.jsonl"):
        (folder / name).unlink()
    (folder / "vision_free" / "checkpoints" / "final.safetensors").unlink()
    lines = []
    run(resolve(["--resume-from", str(folder)]), lines.append)
    assert any("warning: " in line and "digests.jsonl is missing" in line for line in lines)


def test_run_evaluations_and_films_do_not_change_training(finished, flags, tmp_path):
    """Evaluations, their number, checkpoints and films do not influence training."""
    more = ["--no-retention-guard", "--eval-freq", "0", "--keep-checkpoints", "1", "--record-eval-videos"]
    other = run(configuration(flags, tmp_path, *more), lambda line: None)
    trails = [read_trail(folder / "vision_free") for folder in (finished, other)]
    assert len(trails[0]) == len(trails[1]) == 5 and first_divergence(*trails) is None
    assert len(list((other / "vision_free" / "checkpoints").glob("checkpoint_*"))) == 1


def test_run_remote_evaluation_has_same_results(finished, tmp_path):
    """Evaluations from the first one on, and training, are equal."""
    folder = shutil.copytree(finished, tmp_path / finished.name)
    mine, theirs = folder / "vision_free", finished / "vision_free"
    for path in (mine / "checkpoints").iterdir():
        if path.name != "checkpoint_1024.safetensors":
            path.unlink()
    (mine / "finished.json").unlink()
    lines = []
    run(resolve(["--resume-from", str(folder), "--resume-override", "remote-evaluation=on"]), lines.append)
    assert any(line.endswith("checkpoint_1024.safetensors at 1,024 decisions") for line in lines)
    last = checkpoint.load(mine / "checkpoints" / "checkpoint_2048.safetensors")["training"]["monitor"]
    assert last["in_flight"]["decisions"] == 1024
    trails = [read_trail(place) for place in (theirs, mine)]
    assert len(trails[1]) == 5 and first_divergence(*trails) is None
    for name in ("dev_levels.jsonl", "eval_results.json"):
        assert (mine / name).read_text() == (theirs / name).read_text()
    delivered = [checkpoint.load(place / "agent.safetensors")["policy"] for place in (theirs, mine)]
    assert all(torch.equal(tensor, delivered[1][name]) for name, tensor in delivered[0].items())
    assert not list(folder.rglob("in_evaluation*"))


def test_resume_override_total_timesteps_extends_finished_run(flags, tmp_path, monkeypatch):
    """As if the run had started with them, where nothing else depends on their number; also for a run killed in its final
    evaluation."""
    same = ["--no-schedules", "--eval-freq", "0", "--save-freq", "512", "--no-retention-guard"]
    run_until(configuration(flags, tmp_path, *same, "--total-timesteps", "512"), "weights:")
    (folder,) = tmp_path.glob("tiny_*")
    whole, begun = (shutil.copytree(folder, tmp_path / name) for name in ("whole", "begun"))
    more = "total-timesteps=1024"
    run(resolve(["--resume-from", str(whole), "--resume-override", more]), lambda line: None)
    run(resolve(["--resume-from", str(folder)]), lambda line: None)
    for override, message in (
        ("total-timesteps=511", "vision_free: is finished and stays unchanged"),
        (more, "vision_free: PPO was finished and continues; the test levels are played at its end"),
        (more, "vision_free: is finished and stays unchanged"),
    ):
        lines = []
        run(resolve(["--resume-from", str(folder), "--resume-override", override]), lines.append)
        assert message in lines
    with monkeypatch.context() as patch:
        patch.setattr(stages, "STAGES", (*stages.STAGES[:3], killed))
        with pytest.raises(Killed):
            run(resolve(["--resume-from", str(begun)]), lambda line: None)
    run(resolve(["--resume-from", str(begun), "--resume-override", more]), lambda line: None)
    trails = [read_trail(place / "vision_free") for place in (whole, folder, begun)]
    assert all(len(trail) == 3 and first_divergence(trails[0], trail) is None for trail in trails)
    agents = [
        checkpoint.load(place / "vision_free" / "agent.safetensors")["policy"] for place in (whole, folder, begun)
    ]
    assert all(torch.equal(tensor, other[name]) for other in agents[1:] for name, tensor in agents[0].items())


def killed(*arguments):
    """Substitute that ends the program."""
    raise Killed


def test_new_seeds_are_trained_and_finished_ones_stay_unchanged(finished, tmp_path):
    before = contents(finished / "vision_free")
    override = ["--resume-override", "seeds=0,3", "bc-epochs=1", "total-timesteps=512", "eval-freq=0"]
    lines = []
    with locked(finished), pytest.raises(FolderError, match="process .* is writing to it"):
        run(resolve(["--resume-from", str(finished), *override]), lines.append)
    run(resolve(["--resume-from", str(finished), *override]), lines.append)
    assert "vision_free, seed 0: is finished and stays unchanged" in lines
    now = contents(finished / "vision_free")
    unchanged = [path for path in before if path.name not in ("eval_results.json", "test_levels.csv")]
    assert all(now[path] == before[path] for path in unchanged)
    results = json.loads((finished / "results.json").read_text())
    assert set(results["architectures"]["vision_free"]["seeds"]) == {"0", "3"}
    config = json.loads((finished / "config.json").read_text())
    assert config["resumed"][-1]["overrides"]["total-timesteps"] == [2048, 512]
    levels = LevelSet.open(ROOT / "datasets" / "test")
    LevelSet.write(tmp_path / "other", [(levels[i], levels.entries[i]) for i in levels.indices(CATEGORY)[5:7]])
    with pytest.raises(ConfigError, match="the test levels differ from those"):
        run(resolve(["--resume-from", str(finished), "--resume-override", f"test-dataset={tmp_path / 'other'}"]))
