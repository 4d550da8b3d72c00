"""Imitation and PPO from a trained agent: --init-from."""

import json

import pytest
import torch

from nppsim.errors import ConfigError, UserError
from rl.config import ExperimentConfig
from rl.config.command_line import resolve
from rl.experiment import setup as training_setup
from rl.experiment.run import run
from rl.experiment.setup import INITIAL_AGENT, check_initial_agent, fresh_tensors, load_initial_agent
from rl.experiment.train import start
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.checkpoint import CheckpointError
from rl.policy.policy import build_policy
from tests.chaos.same_run import differences

from excerpt import excerpt
from interruptions import configuration, run_until
from learners import statistics
from places import ROOT

AGENT = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A tiny experiment that starts from the shipped agent."""
    folder = excerpt(tmp_path_factory.mktemp("data"), "simplest", train=4, dev=2, test=1, demonstrations=0)
    return [
        "--experiment-name", "tiny", "--architectures", "vision_free_foresight",
        "--train-dataset", folder / "train", "--dev-dataset", folder / "dev", "--test-dataset", folder / "test",
        "--total-timesteps", "1024", "--num-envs", "8", "--rollout-length", "32", "--minibatch-size", "128",
        "--eval-freq", "512", "--num-eval-episodes", "1", "--eval-episodes-per-category", "2", "--device", "cpu",
        "--no-mixed-precision", "--critic-warmup-max-updates", "1", "--init-from", AGENT,
    ]  # fmt: skip


def agent_of(folder, architecture):
    """A checkpoint of an untrained network."""
    policy = build_policy(architecture, statistics(architecture=architecture))
    return checkpoint.save(folder / f"{architecture}.safetensors", policy, frame_skip=4)


def test_run_init_from_starts_from_agent_and_resumes_without_its_file(flags, tmp_path, monkeypatch):
    loads = []
    load_policy = checkpoint.load_policy
    monkeypatch.setattr(
        training_setup.checkpoint, "load_policy", lambda path, **more: loads.append(path) or load_policy(path, **more)
    )
    agent = tmp_path / "agent.safetensors"
    agent.write_bytes(AGENT.read_bytes())
    more = ["--init-from", str(agent), "--learning-rate-warmup-updates", "0"]
    lines = []
    whole = run(configuration(flags, tmp_path / "whole", *more), lines.append)
    assert any(str(agent) in line and line.startswith("PPO starts from") for line in lines)
    assert loads == [agent]
    own = whole / "vision_free_foresight"
    assert (own / INITIAL_AGENT).read_bytes() == agent.read_bytes()
    settings = json.loads((own / "run.json").read_text())["settings"]
    assert settings["init_from"] == {"value": str(agent), "source": "command line"}
    trained, start = checkpoint.load(own / "agent.safetensors"), checkpoint.load(agent)
    distance = [float((trained["policy"][name] - tensor).abs().max()) for name, tensor in start["policy"].items()]
    assert 0 < max(distance) < 0.1

    run_until(configuration(flags, tmp_path / "cut", *more), "PPO starts from")
    agent.unlink()
    (cut,) = (tmp_path / "cut").glob("tiny_*")
    run(resolve(["--resume-from", str(cut)]), lines.append)
    assert differences(whole, cut) == []


@pytest.mark.parametrize(
    "name", ["mlp_baseline", "vision_free+gru", "vision_free+state2", "vision_free+deep2", "attention"]
)
def test_check_initial_agent_same_network_fits(name, tmp_path):
    policy = load_initial_agent(agent_of(tmp_path, name), 4)
    config = ExperimentConfig(experiment_name="x", architectures=(name,))
    check_initial_agent(policy, config, get_architecture(name))
    stored = checkpoint.load(tmp_path / f"{name}.safetensors")["policy"]
    assert all(torch.equal(policy.state_dict()[key], tensor) for key, tensor in stored.items())


def test_check_initial_agent_without_subtasks_fits_network_with_subtasks(tmp_path):
    policy, deep = load_initial_agent(agent_of(tmp_path, "vision_free"), 4), get_architecture("vision_free+subtasks50")
    check_initial_agent(policy, ExperimentConfig(experiment_name="x", architectures=(deep.name,)), deep)
    assert fresh_tensors(policy, deep) == ("high_level.",)


def test_run_init_from_unsuitable_agent_raises_without_folder(flags, tmp_path):
    with pytest.raises(
        ConfigError, match=r"--init-from .*vision_free_foresight\+mirror does not fit mlp_baseline.*\.weight"
    ):
        run(configuration(flags, tmp_path, "--architectures", "mlp_baseline"), print)
    with pytest.raises(ConfigError, match="--frame-skip 4"):
        run(configuration(flags, tmp_path, "--frame-skip", "2"), print)
    assert not list(tmp_path.iterdir())
    (tmp_path / "broken.safetensors").write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match=r"broken\.safetensors"):
        run(configuration(flags, tmp_path, "--init-from", str(tmp_path / "broken.safetensors")), print)


def test_start_dry_run_writes_nothing(flags, tmp_path, capsys):
    assert start([*map(str, flags), "--output-dir", str(tmp_path), "--dry-run"], "train_and_compare.py") == 0
    assert "nothing was written" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--init-from"):
        start([*map(str, flags), "--architectures", "gcn", "--dry-run", "--output-dir", str(tmp_path)], "x.py")
    assert not list(tmp_path.iterdir())


def test_run_memory_segment_not_fitting_leaves_no_folder(flags, tmp_path):
    wrong = ["--architectures", "vision_free+gru", "--memory-segment", "24"]
    with pytest.raises(UserError):
        run(configuration(flags[:-2], tmp_path, *wrong), print)
    assert not list(tmp_path.iterdir())


def test_run_init_from_imitation_starts_from_agent(flags, tmp_path):
    """With a tiny learning rate, the BC policy is the agent, with its normaliser."""
    runs = excerpt(tmp_path / "runs", "simplest", train=4, dev=2, test=1, demonstrations=4) / "demonstrations"
    imitation = ["--replay-data-dir", str(runs), "--bc-epochs", "1", "--bc-learning-rate", "1e-9", "--seeds", "3"]
    folder = run(configuration(flags, tmp_path / "out", *imitation), print)
    (copied,) = folder.rglob(INITIAL_AGENT)
    cloned, agent = checkpoint.load(copied.with_name("bc_best.safetensors")), checkpoint.load(AGENT)
    assert all(torch.allclose(cloned["policy"][name], tensor, atol=1e-6) for name, tensor in agent["policy"].items())


@pytest.mark.parametrize("more", [["--test-pretraining"], ["--teacher", str(AGENT)]])
def test_resolve_init_from_with_test_pretraining_or_teacher_raises(flags, more, tmp_path):
    (tmp_path / "a.replay").write_bytes(b"")
    with pytest.raises(ConfigError, match="--init-from"):
        configuration(flags, tmp_path, "--replay-data-dir", str(tmp_path), *more)
