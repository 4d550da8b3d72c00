"""Lessons in an experiment: they go on where they were, architectures teach others, and what cannot teach is refused."""

import shutil

import pytest

import hardware
from nppsim.errors import ConfigError
from rl.command_line import resolve
from rl.distillation import TeacherError
from rl.doctor.same_run import differences
from rl.events import read_scalars
from rl.experiment import teaching
from rl.experiment.data import load_data
from rl.experiment.job import make_jobs, teacher_of
from rl.experiment.run import run
from rl.policy import checkpoint

from excerpt import excerpt
from places import ROOT

AGENT = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"


class Killed(BaseException):
    """Stands for the end of the process; nothing in the program catches it."""


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A tiny experiment on a few shipped levels, with demonstrations and lessons of the shipped agent."""
    folder = excerpt(tmp_path_factory.mktemp("data"), "medium", train=4, dev=3, test=1, demonstrations=4)
    return [
        "--experiment-name", "tiny", "--architectures", "vision_free", "--replay-data-dir", folder / "demonstrations",
        "--max-demonstrations-per-category", "3", "--train-dataset", folder / "train", "--dev-dataset", folder / "dev",
        "--test-dataset", folder / "test", "--bc-epochs", "1", "--total-timesteps", "512", "--num-envs", "8",
        "--rollout-length", "32", "--minibatch-size", "128", "--eval-freq", "512", "--num-eval-episodes", "1",
        "--eval-episodes-per-category", "6", "--device", "cpu", "--no-mixed-precision", "--critic-warmup-max-updates", "1",
        "--teacher", AGENT, "--teacher-decisions", "1024",
    ]  # fmt: skip


def configuration(flags, out, *more):
    return resolve([*map(str, flags), "--output-dir", str(out), *more])


def run_until(config, moment):
    """Run until a line begins like this; the lines so far."""
    lines = []

    def log(line):
        lines.append(line)
        if line.startswith(moment):
            raise Killed

    with pytest.raises(Killed):
        run(config, log)
    return lines


def test_lessons_go_on_bit_for_bit_and_ppo_begins_with_what_was_learned(flags, tmp_path, monkeypatch):
    monkeypatch.setattr(teaching, "SAVE_SECONDS", 0.0)
    told = []
    whole = run(configuration(flags, tmp_path / "whole"), told.append)
    assert sum(line.startswith("lessons ") for line in told) == 4
    assert any("vision_free_foresight, finishes 100% of the dev levels, its pupil" in line for line in told)
    run_until(configuration(flags, tmp_path / "cut"), "lessons  75%")
    (folder,) = (tmp_path / "cut").glob("tiny_*")
    again = resolve(["--resume-from", str(folder)])
    run(again, told.append)
    assert "lessons go on after 512 decisions" in told
    assert differences(whole, folder) == []
    scalars = read_scalars(folder / "vision_free" / "tensorboard")
    assert list(scalars["bc/teacher/divergence"].steps) == [1, 2, 3, 4]
    pretrain = folder / "vision_free" / "pretrain"
    assert {path.name for path in pretrain.glob("*.safetensors")} == {
        "bc_best.safetensors",
        "clone.safetensors",
        "taught.safetensors",
    }
    taught, cloned = (checkpoint.load(pretrain / f"{name}.safetensors")["policy"] for name in ("taught", "clone"))
    assert not (taught["action_net.weight"] == cloned["action_net.weight"]).all()


def test_one_architecture_teaches_the_next_from_the_same_seed(flags, tmp_path):
    several = [*flags[:3], "vision_free_foresight", *flags[3:]]
    config = configuration(several, tmp_path, "--teacher", "vision_free_foresight", "--seeds", "1", "2")
    jobs = list(make_jobs(config, load_data(config, print), hardware.detect(), tmp_path, None, print))
    for job in jobs[:2]:
        job.folder.mkdir(parents=True)
        shutil.copy(AGENT, job.folder / "agent.safetensors")
    assert [job.seed for job in jobs] == [1, 2, 1, 2]
    assert [teacher_of(job) for job in jobs[:2]] == [None, None]
    assert [teacher_of(job) for job in jobs[2:]] == [job.folder / "agent.safetensors" for job in jobs[:2]]


def test_a_teacher_that_is_no_better_is_refused(flags, tmp_path):
    policy = teaching.load_teacher(AGENT, 4)
    config = configuration(flags, tmp_path)
    data = load_data(config, print)
    (job,) = make_jobs(config, data, hardware.detect(), tmp_path, None, print)
    with pytest.raises(TeacherError, match="of the dev levels and its pupil .*: there is nothing to learn"):
        teaching.check_worth(job, policy, policy, AGENT)


def test_what_cannot_teach_is_refused_before_anything_is_trained(flags, tmp_path):
    for name, told in {
        "mlp_baseline": "is neither a checkpoint",
        "vision_free": "name it first of several",
        "nowhere.safetensors": "is no file; give an agent",
    }.items():
        with pytest.raises(ConfigError, match=told):
            configuration(flags, tmp_path, "--teacher", name)
    with pytest.raises(ConfigError, match="teaches a policy that has been cloned"):
        configuration(flags, tmp_path, "--no-pretraining", "--bc-epochs", "50")
    with pytest.raises(TeacherError, match="decides every 4 frames, the pupil every 2"):
        teaching.load_teacher(AGENT, 2)
