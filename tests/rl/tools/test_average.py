"""Averages of the weights of agents: scripts/average_agents.py."""

import pytest
import torch

from nppsim.errors import ConfigError
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.policy.policy import build_policy
from rl.tools.average import parse, run

from learners import statistics


def agent(path, seed, architecture="vision_free", frame_skip=4, normaliser=0):
    torch.manual_seed(seed)
    policy = build_policy(architecture, statistics(normaliser))
    return str(checkpoint.save(path, policy, frame_skip=frame_skip))


def test_run_averages_weights(tmp_path, capsys):
    paths = [agent(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2)]
    out = tmp_path / "average.safetensors"
    run(parse([*paths, "--out", str(out), "--architecture", "vision_free+mirror"]))
    one, other, average = (checkpoint.load(path)["policy"] for path in (*paths, out))
    assert checkpoint.load(out)["architecture"] == "vision_free+mirror"
    assert "average of 2 agents" in capsys.readouterr().out
    for name, tensor in average.items():
        wanted = one[name] if "normalize" in name else (one[name] + other[name]) / 2
        assert torch.allclose(tensor.double(), wanted.double(), atol=1e-7), name


def test_run_repeated_agents_count_repeatedly(tmp_path):
    one, other = (agent(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2))
    run(parse([one, one, other, "--out", str(tmp_path / "average.safetensors")]))
    first, second, average = (
        checkpoint.load(path)["policy"]["action_net.weight"].double()
        for path in (one, other, tmp_path / "average.safetensors")
    )
    assert torch.allclose(average, (2 * first + second) / 3, atol=1e-7)


def test_parse_output_is_input_raises(tmp_path):
    path = agent(tmp_path / "1.safetensors", 1)
    with pytest.raises(ConfigError, match=r"--out.*1\.safetensors.*is an input"):
        parse([path, "--out", path])


@pytest.mark.parametrize(
    ("different", "message"),
    [
        ({"architecture": "vision_free+deep2"}, "another network"),
        ({"normaliser": 1}, "another normaliser"),
        ({"frame_skip": 2}, "acts every 2 frames"),
    ],
)
def test_run_other_networks_raises(tmp_path, different, message):
    paths = [agent(tmp_path / "1.safetensors", 1), agent(tmp_path / "2.safetensors", 2, **different)]
    with pytest.raises(ConfigError, match=rf"2\.safetensors.*{message}"):
        run(parse([*paths, "--out", str(tmp_path / "average.safetensors")]))
    assert not (tmp_path / "average.safetensors").exists()


def test_run_architecture_not_fitting_raises(tmp_path):
    path = agent(tmp_path / "1.safetensors", 1)
    with pytest.raises(ConfigError, match=r"--architecture.*vision_free_foresight"):
        run(parse([path, "--out", str(tmp_path / "a.safetensors"), "--architecture", "vision_free_foresight"]))


def test_run_no_checkpoint_raises(tmp_path):
    out = str(tmp_path / "average.safetensors")
    with pytest.raises(CheckpointError, match=r"missing\.safetensors"):
        run(parse([str(tmp_path / "missing.safetensors"), "--out", out]))
    (tmp_path / "broken.safetensors").write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match=r"broken\.safetensors"):
        run(parse([agent(tmp_path / "1.safetensors", 1), str(tmp_path / "broken.safetensors"), "--out", out]))
    with pytest.raises(ConfigError, match=r"--out.*average\.txt"):
        parse([agent(tmp_path / "1.safetensors", 1), "--out", str(tmp_path / "average.txt")])
