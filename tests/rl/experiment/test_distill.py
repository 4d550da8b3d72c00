"""Distillation stage of an experiment: resume, teachers from the same experiment, refused teachers."""

import shutil

import pytest

import hardware
from nppsim.errors import ConfigError
from rl.config.command_line import resolve
from rl.distillation import DistillationError
from rl.events import read_scalars
from rl.experiment import distill
from rl.experiment.data import load_data
from rl.experiment.run import run
from rl.experiment.setup import make_setups
from rl.policy import checkpoint
from tests.chaos.same_run import differences

from excerpt import excerpt
from interruptions import configuration, run_until
from places import ROOT

AGENT = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A tiny experiment on a few shipped levels, with demonstrations and distillation from the shipped agent."""
    folder = excerpt(tmp_path_factory.mktemp("data"), "medium", train=4, dev=3, test=1, demonstrations=4)
    return [
        "--experiment-name", "tiny", "--architectures", "vision_free", "--replay-data-dir", folder / "demonstrations",
        "--max-demonstrations-per-category", "3", "--train-dataset", folder / "train", "--dev-dataset", folder / "dev",
        "--test-dataset", folder / "test", "--bc-epochs", "1", "--total-timesteps", "512", "--num-envs", "8",
        "--rollout-length", "32", "--minibatch-size", "128", "--eval-freq", "512", "--num-eval-episodes", "1",
        "--eval-episodes-per-category", "3", "--device", "cpu", "--no-mixed-precision", "--critic-warmup-max-updates", "1",
        "--teacher", AGENT, "--teacher-decisions", "1024",
    ]  # fmt: skip


def test_distill_interrupted_resumes_bit_identical(flags, tmp_path, monkeypatch):
    monkeypatch.setattr(distill, "SAVE_SECONDS", 0.0)
    messages = []
    whole = run(configuration(flags, tmp_path / "whole"), messages.append)
    assert sum(line.startswith("distillation ") for line in messages) == 4
    assert any(
        "vision_free_foresight+mirror, finishes 100% of the dev levels, the student" in line for line in messages
    )
    run_until(configuration(flags, tmp_path / "cut"), "distillation  75%")
    (folder,) = (tmp_path / "cut").glob("tiny_*")
    again = resolve(["--resume-from", str(folder)])
    run(again, messages.append)
    assert "distillation resumes after 512 decisions" in messages
    assert differences(whole, folder) == []
    scalars = read_scalars(folder / "vision_free" / "tensorboard")
    assert list(scalars["bc/teacher/divergence"].steps) == [1, 2, 3, 4]
    pretrain = folder / "vision_free" / "pretrain"
    assert {path.name for path in pretrain.glob("*.safetensors")} == {
        "bc_best.safetensors",
        "bc_policy.safetensors",
        "distilled.safetensors",
    }
    before, after = (checkpoint.load(pretrain / f"{name}.safetensors")["policy"] for name in ("bc_policy", "distilled"))
    assert not (before["action_net.weight"] == after["action_net.weight"]).all()
    summary = (folder / "summary.txt").read_text()
    assert all(policy in summary for policy in ("after PPO", "after distillation", "after imitation"))


def test_teacher_of_same_seed_of_other_architecture(flags, tmp_path):
    several = [*flags[:3], "vision_free_foresight", *flags[3:]]
    config = configuration(several, tmp_path, "--teacher", "vision_free_foresight", "--seeds", "1", "2")
    jobs = list(make_setups(config, load_data(config, print), hardware.detect(), tmp_path, print))
    for job in jobs[:2]:
        job.folder.mkdir(parents=True)
        shutil.copy(AGENT, job.folder / "agent.safetensors")
    assert [job.seed for job in jobs] == [1, 2, 1, 2]
    assert [distill.teacher_of(job) for job in jobs[:2]] == [None, None]
    assert [distill.teacher_of(job) for job in jobs[2:]] == [job.folder / "agent.safetensors" for job in jobs[:2]]


def test_distill_teacher_not_better_raises(flags, tmp_path):
    policy = distill.load_teacher(AGENT, 4)
    config = configuration(flags, tmp_path)
    data = load_data(config, print)
    (job,) = make_setups(config, data, hardware.detect(), tmp_path, print)
    with pytest.raises(DistillationError, match="of the dev levels"):
        distill.check_worth(job, policy, policy, AGENT)


def test_run_unsuitable_teacher_raises_before_training(flags, tmp_path):
    for name, message in {
        "mlp_baseline": "is neither a checkpoint",
        "vision_free": "make it the first of several",
        "nowhere.safetensors": "is no file; give an agent",
    }.items():
        with pytest.raises(ConfigError, match=message):
            configuration(flags, tmp_path, "--teacher", name)
    with pytest.raises(ConfigError, match="needs a BC policy to distil into"):
        configuration(flags, tmp_path, "--no-pretraining", "--bc-epochs", "50")
    with pytest.raises(DistillationError, match="decides every 4 frames, the student every 2"):
        distill.load_teacher(AGENT, 2)
