"""Checkpoints: saved values are restored bit for bit, and each kind of damaged file has its own message."""

import base64
import io
import json
import os
import pickle
import re
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from stable_baselines3 import PPO

from nppsim.batch import BatchSimulator
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError, from_bytes, load_policy, to_bytes
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.sb3 import SB3Policy
from rl.ppo.vec_env import BatchVecEnv

from places import ROOT
from programs import load_script
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
    return checkpoint.save(tmp_path / "model.safetensors", policy, frame_skip=4, config={"lr": 1e-3})


def tampered(path, **changes):
    """The file with other fields, and the SHA-256 that belongs to them."""
    path.write_bytes(checkpoint._to_bytes(checkpoint._read(path) | changes, path))
    return path


def test_policy_restored_bit_for_bit(policy, saved):
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
    assert loaded.statistics.count == 50
    assert meta["observations"] == list(layout.VISION_FREE)
    assert set(meta["versions"]) == {"python", "torch", "numpy", "stable_baselines3"}
    assert load_policy(saved, precision="float32")[0].precision == "float32"


def test_training_state_is_restored_with_types_and_values(policy, tmp_path):
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
    path = checkpoint.save(tmp_path / "model.safetensors", policy, frame_skip=1, training=training)
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
    """Including the moments of the optimiser: the step after loading equals the step without loading."""
    tensors = policy.to_tensors(observations(64))

    def step(p):
        logits, values = p.logits_and_values(tensors)
        p.optimizer.zero_grad()
        (logits.square().mean() + values.square().mean()).backward()
        p.optimizer.step()

    step(policy)
    path = checkpoint.save(
        tmp_path / "m.safetensors", policy, frame_skip=4, training={"optimizer": policy.optimizer.state_dict()}
    )
    other, meta = load_policy(path)
    other.optimizer.load_state_dict(meta["training"]["optimizer"])
    step(policy)
    step(other)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), other.parameters(), strict=True))


def test_failed_write_leaves_old_file_only(policy, saved, monkeypatch):
    before = saved.read_bytes()

    def disk_full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(saved, policy, frame_skip=8)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == ["model.safetensors"]


def test_save_unsupported_type_raises_with_its_place(policy, tmp_path):
    for training, message in (
        ({"a": [1, {"b": Path("x")}]}, r"training\.a\[1\]\.b is a .*Path: convert it"),
        ({"a": np.array([object()])}, r"training\.a is a ndarray: convert it"),
    ):
        with pytest.raises(CheckpointError, match=message):
            checkpoint.save(tmp_path / "model.safetensors", policy, frame_skip=4, training=training)
    assert not list(tmp_path.iterdir())


def test_save_without_statistics_or_with_infinite_weights_raises(tmp_path):
    policy = build_policy("vision_free")
    with pytest.raises(CheckpointError, match="no observation statistics"):
        checkpoint.save(tmp_path / "model.safetensors", policy, frame_skip=4)
    statistics = ObservationStatistics(layout.VISION_FREE)
    statistics.update(observations(5))
    policy.set_statistics(statistics)
    with torch.no_grad():
        policy.action_net.bias[2] = torch.inf
    with pytest.raises(CheckpointError, match=r"not finite: action_net\.bias"):
        checkpoint.save(tmp_path / "model.safetensors", policy, frame_skip=4)


def test_load_policy_missing_file_raises(tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere\.safetensors: no such checkpoint"):
        load_policy(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.01, 0.5, 0.9999])
def test_load_policy_truncated_file_raises(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: (not a checkpoint, or cut off|damaged \()"):
        load_policy(saved)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.02, 0.5, 0.999999])
def test_load_policy_flipped_bit_raises(saved, share):
    content = bytearray(saved.read_bytes())
    content[int(len(content) * share)] ^= 1
    saved.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: (damaged \(|not a checkpoint).*copy it again"):
        load_policy(saved)


def test_load_policy_damaged_file_names_the_newest_other_file(policy, saved):
    content = saved.read_bytes()
    others = [saved.with_name(name) for name in ("a.safetensors", "z.safetensors", "b.safetensors")]
    for age, other in enumerate(others):
        other.write_bytes(content)
        os.utime(other, (1000 - age, 1000 - age))
    saved.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged .* or use .*a\.safetensors$"):
        load_policy(saved)


def test_load_policy_header_longer_than_file_raises_before_reading(saved):
    content = saved.read_bytes()
    for claimed in (len(content), 22 << 30, 1 << 63):
        saved.write_bytes(claimed.to_bytes(8, "little") + content[8:])
        with pytest.raises(CheckpointError, match="not a checkpoint, or cut off"):
            load_policy(saved)
    with open(saved, "wb") as file:
        file.write(content)
        file.truncate(1 << 40)  # a hole, which takes no room on the disk
    with pytest.raises(CheckpointError, match="not a checkpoint, or cut off"):
        load_policy(saved)


def test_load_policy_peak_memory_is_near_the_file_size(saved):
    load_policy(saved)  # which imports more
    tracemalloc.start()
    load_policy(saved)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_load_policy_header_length_like_a_zip_signature_loads(saved):
    """One checkpoint in 8,192 has such a length; spaces behind a header are part of the format."""
    data = saved.read_bytes()
    length, wanted = int.from_bytes(data[:8], "little"), int.from_bytes(b"PK\1", "little")
    assert length < wanted
    padded = wanted.to_bytes(8, "little") + data[8 : 8 + length].ljust(wanted) + data[8 + length :]
    assert padded.startswith(b"PK")
    saved.write_bytes(padded)
    load_policy(saved)


def test_save_equal_policies_gives_equal_bytes(policy, saved):
    content = saved.read_bytes()
    checkpoint.save(saved, policy, frame_skip=4, config={"lr": 1e-3})
    assert saved.read_bytes() == content


def test_saved_weights_are_readable_with_safetensors(policy, saved):
    """It is an ordinary safetensors file."""
    with safetensors.safe_open(saved, framework="pt") as file:
        name = "policy.action_net.weight"
        assert torch.equal(file.get_tensor(name), policy.action_net.weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frame_skip": 0}, "frame_skip is 0"),
        ({"frame_skip": 1e9}, "frame_skip should be a whole number"),
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"policy": {"a": torch.zeros(1)}}, "weights do not fit vision_free"),
        ({"architecture": "mlp_baselin"}, "did you mean 'mlp_baseline'"),
        ({"architecture": "full_hgt"}, "trained on observation layout"),
        ({"layout": "0123456789abcdef"}, "trained on observation layout 0123456789abcdef .*train again"),
        ({"architecture": "mlp_baseline"}, "trained on observation layout"),
        ({"policy": {}}, "weights do not fit vision_free as this version .*Missing key.*train again"),
    ],
)
def test_load_policy_invalid_field_raises(saved, changes, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        load_policy(tampered(saved, **changes))
    assert str(caught.value).startswith(str(saved))


def test_load_policy_non_finite_weights_raises(policy, saved):
    weights = checkpoint._read(saved)["policy"]
    weights["action_net.bias"][1] = torch.nan
    with pytest.raises(CheckpointError, match=r"the weights are not finite: action_net\.bias: copy it again"):
        load_policy(tampered(saved, policy=weights))


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float64, torch.float16])
def test_load_policy_weights_of_other_dtype_raises(saved, dtype):
    weights = checkpoint._read(saved)["policy"]
    weights["action_net.weight"] = torch.ones(weights["action_net.weight"].shape, dtype=dtype)
    with pytest.raises(CheckpointError, match=rf"action_net\.weight is {dtype}, expected torch\.float32"):
        load_policy(tampered(saved, policy=weights))


def test_load_non_finite_optimizer_state_raises(saved):
    moments = {"state": {0: {"exp_avg": torch.tensor([1.0, torch.inf])}}}
    with pytest.raises(CheckpointError, match=r"not finite: training\.optimizer\.state\.0\.exp_avg"):
        checkpoint.load(tampered(saved, training={"optimizer": moments}))


def test_load_policy_later_format_raises(saved, monkeypatch):
    with monkeypatch.context() as future:
        future.setattr(checkpoint, "FORMAT_VERSION", 99)
        tampered_by_future = checkpoint._to_bytes({"policy": {}, "training": None}, saved)
    saved.write_bytes(tampered_by_future)
    with pytest.raises(CheckpointError, match="checkpoint format 99, this version of the project reads 3"):
        load_policy(saved)


@pytest.fixture(params=["current", "earlier"])
def archive(policy, tmp_path, request):
    """An archive of Stable-Baselines3, and its policy; those of earlier versions name NppPolicy as their class."""
    env = BatchVecEnv(
        BatchSimulator([corridor()], 2, observations=layout.VISION_FREE, threads=1),
        make_sampler(["simple"], CurriculumConfig(), 0),
    )
    kwargs = {"architecture": "vision_free", "statistics": policy.statistics}
    model = PPO(SB3Policy, env, n_steps=4, batch_size=8, device="cpu", policy_kwargs=kwargs)
    path = tmp_path / "final_model.zip"
    model.save(path)
    if request.param == "earlier":
        with zipfile.ZipFile(path) as file:
            members = {name: file.read(name) for name in file.namelist()}
        data = json.loads(members["data"])
        data["policy_class"][":serialized:"] = base64.b64encode(pickle.dumps(NppPolicy)).decode()
        with zipfile.ZipFile(path, "w") as file:
            for name, content in (members | {"data": json.dumps(data).encode()}).items():
                file.writestr(name, content)
    return path, model.policy.network


def test_convert_trusted_archive_writes_a_checkpoint(archive, tmp_path, capsys):
    path, policy = archive
    script, out = load_script("convert_archive"), tmp_path / "agent.safetensors"
    assert script.main([str(path), "--out", str(out)]) == 2
    assert re.search("pickles, which can run any code.*add --trust-pickle", capsys.readouterr().err)
    assert not out.exists()
    with pytest.warns(UserWarning, match=r"opening .*final_model\.zip runs the code pickled in it"):
        assert script.main([str(path), "--out", str(out), "--trust-pickle", "--frame-skip", "5"]) == 0
    loaded, meta = load_policy(out)
    assert meta["frame_skip"] == 5
    obs = observations(20, seed=2)
    assert (loaded.act(obs, deterministic=True) == policy.act(obs, deterministic=True)).all()


@pytest.mark.parametrize("content", [b"", b"PK", {"data": b"{}"}, {"data": b"x"}, {"policy.pth": b"x"}])
def test_convert_other_file_is_an_error_of_one_line(content, tmp_path, capsys):
    path = tmp_path / "bad.zip"
    if isinstance(content, dict):
        with zipfile.ZipFile(path, "w") as file:
            for name, data in content.items():
                file.writestr(name, data)
    else:
        path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        command = [str(path), "--out", str(tmp_path / "a.safetensors"), "--trust-pickle"]
        assert load_script("convert_archive").main(command) == 2
    assert re.match(r"error: .*bad\.zip: .*\n$", capsys.readouterr().err)


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("it_ran"),)


def test_load_policy_foreign_file_raises_without_running_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    safetensors.torch.save_file({"a": torch.zeros(2)}, tmp_path / "list.safetensors")
    with pytest.raises(CheckpointError, match="a safetensors file"):
        load_policy(tmp_path / "list.safetensors")
    with zipfile.ZipFile(tmp_path / "ppo.zip", "w") as archive:
        archive.writestr("policy.pth", pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="--trust-pickle"):
        load_policy(tmp_path / "ppo.zip")
    torch.save({"format": "npp-checkpoint", "format_version": 1, "code": Bomb()}, tmp_path / "agent.pt")
    with pytest.raises(
        CheckpointError, match=r"agent\.pt: a file of torch\.save.* train again, or use it with the version"
    ):
        load_policy(tmp_path / "agent.pt")
    (tmp_path / "pickle.pt").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match=r"pickle\.pt: not a checkpoint"):
        load_policy(tmp_path / "pickle.pt")
    assert not (tmp_path / "it_ran").exists()


def test_load_pickled_code_in_training_state_raises_without_running_it(policy, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    torch.save({"optimizer": Bomb()}, file)
    monkeypatch.setattr(checkpoint, "to_bytes", lambda value, name: bytearray(file.getvalue()))
    tampered(saved, training={})
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged \("):
        checkpoint.load(saved)
    assert not (tmp_path / "it_ran").exists()


def test_load_policy_format_2_reads_weights_without_training_state(policy, saved):
    fields, tensors = checkpoint.parse(saved.read_bytes())
    content = fields["content"] | {
        "policy": {name.removeprefix("policy."): {"$tensor": name} for name in tensors},
        "training": {"updates": 3},
    }
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(checkpoint, "FORMAT_VERSION", 2)
        saved.write_bytes(checkpoint.pack(content, tensors))
    loaded, stored = load_policy(saved)
    assert stored["training"] is None and stored["config"] == {"lr": 1e-3}
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in policy.state_dict().items())


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**127), 2**127), st.floats(), st.text(), st.binary(min_size=1),
        arrays(st.sampled_from(["?", "i1", "u8", ">i4", "f2", "<f8", "c16", "U3", "S2", [("a", "i4"), ("b", "f8", 2)]]),
               array_shapes(min_dims=0, min_side=0, max_side=3)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.tuples(st.integers())), inner, max_size=3),
    ),
)  # fmt: skip


def same(one, other):
    """True for equal types and values; NaN equals NaN."""
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and (one == other or one != one)


@settings(deadline=None, max_examples=60)
@given(value=values)
def test_from_bytes_restores_types_and_values(value):
    assert same(from_bytes(to_bytes(value, "value")), value)


def test_load_policy_old_suffix_names_the_new_file(saved):
    with pytest.raises(CheckpointError, match=r"model\.pt: no such checkpoint: give .*model\.safetensors"):
        load_policy(saved.with_suffix(".pt"))


def test_only_archive_conversion_and_workers_unpickle():
    unpickles = r"\bpickle\.loads?\b|(?<!safetensors\.)torch\.load\((?!.*weights_only=True)|allow_pickle|\bPPO\.load\("
    opens = re.compile(rf"{unpickles}|yaml\.|(?<![.\w])(?<!def )(eval|exec)\(")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("nppsim", "bc", "rl", "hardware", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if opens.search(path.read_text())
    }
    between_own_processes = {"nppsim/parallel/workers.py", "rl/policy/player.py"}
    assert found == {"rl/policy/sb3.py"} | between_own_processes
