"""Checkpoints: what goes in comes out, bit for bit, and every kind of broken file gets its sentence."""

import base64
import json
import os
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from nppsim.batch import BatchSimulator
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.config import CurriculumConfig
from rl.curriculum import make_sampler
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError, load_policy
from rl.policy.policy import NppPolicy, build_policy
from rl.train.vec_env import BatchVecEnv

from seen import observations
from worlds import corridor

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def policy():
    statistics = ObservationStatistics(layout.VISION_FREE)
    statistics.update(observations(50))
    torch.manual_seed(0)
    return build_policy("vision_free", statistics, precision="bf16")


@pytest.fixture
def saved(policy, tmp_path):
    return checkpoint.save(tmp_path / "model.pt", policy, frame_skip=4, config={"lr": 1e-3})


def tampered(path, **changes):
    data = torch.load(path, weights_only=True) | changes
    torch.save(data, path)
    return path


def test_a_policy_comes_back_bit_for_bit(policy, saved):
    torch.manual_seed(7)
    expected_draw = torch.rand(3)
    torch.manual_seed(7)
    loaded, meta = load_policy(saved)
    assert torch.equal(torch.rand(3), expected_draw), "loading must not disturb the caller's random generator"
    assert all(
        torch.equal(a, b) for a, b in zip(policy.state_dict().values(), loaded.state_dict().values(), strict=True)
    )
    assert loaded.precision == "bf16"
    obs = observations(30, seed=3)
    assert (loaded.act(obs, deterministic=True) == policy.act(obs, deterministic=True)).all()
    assert meta["frame_skip"] == 4
    assert meta["config"] == {"lr": 1e-3}
    assert meta["training"] is None
    assert meta["statistics"].count == 50
    assert meta["observations"] == list(layout.VISION_FREE)
    assert set(meta["versions"]) == {"python", "torch", "numpy", "stable_baselines3"}
    assert load_policy(saved, precision="float32")[0].precision == "float32"


def test_training_state_comes_back_with_types_and_values(policy, tmp_path):
    rng = np.random.default_rng(4)
    episodes = np.zeros(3, np.dtype([("level", "i4"), ("ret", "f8")]))
    episodes["ret"] = rng.normal(size=3)
    training = {
        "optimizer": policy.optimizer.state_dict(),
        "curriculum": {"stage": 2, "window": np.arange(6, dtype=np.int16).reshape(2, 3), "episodes": episodes},
        "rng": rng.bit_generator.state,  # holds integers of 128 bits
        "torch_rng": torch.get_rng_state(),
        "done": np.bool_(True),
        "names": ("a", None, 2.5, b"bytes"),
        "empty": np.zeros((0, 4), np.float32),
    }
    path = checkpoint.save(tmp_path / "model.pt", policy, frame_skip=1, training=training)
    found = checkpoint.load(path)["training"]
    assert found["curriculum"]["window"].dtype == np.int16
    np.testing.assert_array_equal(found["curriculum"]["window"], training["curriculum"]["window"])
    np.testing.assert_array_equal(found["curriculum"]["episodes"], episodes)
    assert found["empty"].shape == (0, 4)
    assert found["names"] == ("a", None, 2.5, b"bytes")
    assert found["done"] is True
    again = np.random.default_rng()
    again.bit_generator.state = found["rng"]
    assert again.random() == rng.random()
    assert torch.equal(found["torch_rng"], training["torch_rng"])
    build_policy("vision_free").optimizer.load_state_dict(found["optimizer"])


def test_training_continues_bit_for_bit(policy, tmp_path):
    """Optimiser moments included: a step after loading is the step that would have come."""
    tensors = policy.to_tensors(observations(64))

    def step(p):
        logits, values = p.logits_and_values(tensors)
        p.optimizer.zero_grad()
        (logits.square().mean() + values.square().mean()).backward()
        p.optimizer.step()

    step(policy)
    path = checkpoint.save(
        tmp_path / "m.pt", policy, frame_skip=4, training={"optimizer": policy.optimizer.state_dict()}
    )
    other, meta = load_policy(path)
    other.optimizer.load_state_dict(meta["training"]["optimizer"])
    step(policy)
    step(other)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), other.parameters(), strict=True))


def test_a_failed_write_leaves_the_old_file_and_no_litter(policy, saved, monkeypatch):
    before = saved.read_bytes()

    def disk_full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(saved, policy, frame_skip=8)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == ["model.pt"]


def test_what_cannot_be_stored_is_named(policy, tmp_path):
    for training, message in (
        ({"a": [1, {"b": Path("x")}]}, r"training\.a\[1\]\.b is a .*Path: convert it"),
        ({"a": np.array([object()])}, r"training\.a is an array of Python objects"),
    ):
        with pytest.raises(CheckpointError, match=message):
            checkpoint.save(tmp_path / "model.pt", policy, frame_skip=4, training=training)
    assert not list(tmp_path.iterdir())


def test_a_policy_that_could_not_act_is_not_saved(tmp_path):
    policy = build_policy("vision_free")
    with pytest.raises(CheckpointError, match="no observation statistics"):
        checkpoint.save(tmp_path / "model.pt", policy, frame_skip=4)
    statistics = ObservationStatistics(layout.VISION_FREE)
    statistics.update(observations(5))
    policy.set_statistics(statistics)
    with torch.no_grad():
        policy.action_net.bias[2] = torch.inf
    with pytest.raises(CheckpointError, match=r"not finite: action_net\.bias"):
        checkpoint.save(tmp_path / "model.pt", policy, frame_skip=4)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere\.pt: no such checkpoint"):
        load_policy(tmp_path / "nowhere.pt")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.9999])
def test_a_truncated_file_is_refused(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=r"model\.pt: not a checkpoint, or cut off"):
        load_policy(saved)


def test_one_flipped_bit_in_a_weight_is_noticed(saved):
    with zipfile.ZipFile(saved) as archive:
        largest = max(archive.infolist(), key=lambda info: info.file_size)
    content = bytearray(saved.read_bytes())
    content[largest.header_offset + largest.file_size // 2] ^= 1
    saved.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.pt: damaged"):
        load_policy(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something"}, "not a checkpoint of this project"),
        ({"format_version": 99}, "checkpoint format 99, this version of the project reads 1"),
        ({"architecture": "mlp_baselin"}, "did you mean 'mlp_baseline'"),
        ({"architecture": "full_hgt"}, "not built yet"),
        ({"layout": "0123456789abcdef"}, "trained on observation layout 0123456789abcdef .*train again"),
        ({"architecture": "mlp_baseline"}, "trained on observation layout"),
        ({"statistics": {}}, "observation statistics lack keys"),
        ({"policy": {}}, "weights do not fit vision_free as this version .*Missing key.*train again"),
    ],
)
def test_contents_that_do_not_fit_are_refused(saved, changes, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        load_policy(tampered(saved, **changes))
    assert str(caught.value).startswith(str(saved))


def test_statistics_that_disagree_with_the_weights_are_refused(saved):
    weights = torch.load(saved, weights_only=True)["policy"]
    weights["features_extractor.normalize.mean"][3] += 1.0
    with pytest.raises(CheckpointError, match="disagrees with the statistics"):
        load_policy(tampered(saved, policy=weights))


@pytest.mark.parametrize("place", ["rl.ppo", "rl.policy", "rl.rollout", "rl.architectures"])
def test_no_class_is_unpickled_from_a_checkpoint_wherever_it_once_lived(saved, place, monkeypatch):
    """Checkpoints are plain data: a class in one, at a former place of ours or anywhere else, is refused by name."""
    module = types.ModuleType(place)
    module.Former = type("Former", (), {"__module__": place})
    with monkeypatch.context() as former:
        former.setitem(sys.modules, place, module)
        tampered(saved, training={"buffer": module.Former()})
    with pytest.raises(CheckpointError, match=r"model\.pt: cannot be read \(.*use another checkpoint"):
        load_policy(saved)


def test_archives_from_before_the_policy_had_a_folder_still_load(policy, tmp_path, monkeypatch):
    """They name the class rl.policy.NppPolicy, which is rl.policy.policy.NppPolicy now."""
    env = BatchVecEnv(
        BatchSimulator([corridor()], 2, observations=layout.VISION_FREE, threads=1),
        make_sampler(["simple"], CurriculumConfig(), 0),
    )
    kwargs = {"architecture": "vision_free", "statistics": policy.statistics}
    model = PPO(NppPolicy, env, n_steps=4, batch_size=8, device="cpu", policy_kwargs=kwargs)
    with monkeypatch.context() as former:
        former.setattr(NppPolicy, "__module__", "rl.policy")
        model.save(tmp_path / "final_model.zip")
    stored = json.loads(zipfile.ZipFile(tmp_path / "final_model.zip").read("data"))["policy_class"][":serialized:"]
    assert b"rl.policy" in base64.b64decode(stored) and b"rl.policy.policy" not in base64.b64decode(stored)
    loaded = PPO.load(tmp_path / "final_model.zip", device="cpu").policy
    assert type(loaded) is NppPolicy
    obs = observations(20, seed=2)
    assert (loaded.act(obs, deterministic=True) == model.policy.act(obs, deterministic=True)).all()


def test_files_of_others_are_told_apart(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint of this project"):
        load_policy(tmp_path / "list.pt")
    with zipfile.ZipFile(tmp_path / "ppo.zip", "w") as archive:
        archive.writestr("policy.pth", b"")
    with pytest.raises(CheckpointError, match="Stable-Baselines3 archive"):
        load_policy(tmp_path / "ppo.zip")
    torch.save({"format": "npp-checkpoint", "code": Path("x")}, tmp_path / "code.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_policy(tmp_path / "code.pt")
