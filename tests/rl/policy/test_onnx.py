"""Exported networks: outputs and play equal to their policy; one-line errors."""

import json
import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from nppsim.errors import ConfigError
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelEntry, LevelSet
from rl.evaluation.results import ResultsError
from rl.evaluation.suite import EvaluationSuite
from rl.policy import architectures, checkpoint
from rl.policy import onnx as exported
from rl.policy.architectures import Architecture, get_architecture
from rl.policy.networks import ObservationError
from rl.policy.onnx import ExportError, OnnxPolicy, metadata_of, to_onnx
from rl.policy.policy import build_policy
from rl.tools import evaluate
from rl.tools.export import MAX_DIFFERENCE, largest_difference, methods_of, published

from learners import statistics
from places import ROOT
from programs import load_script
from worlds import straight

onnx = pytest.importorskip("onnx")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Not imported here: that takes seconds, in every process that collects tests.
    pytest.mark.skipif(not (find_spec("onnxruntime") and find_spec("onnxscript")), reason="the extra onnx is missing"),
]
SIMPLEST = STARTER_LEVELS / "simplest"


class Own(torch.nn.Module):
    """A custom network."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(26, 8)

    def forward(self, seen):
        return torch.tanh(self.layer(seen["game_state"]))


SMALL = {
    "pictures": replace(get_architecture("vision_free"), player_frame=8, surroundings=8, fusion=(16,), heads=(8,)),
    "own": Architecture("", "", module=Own, reads=("game_state",), fusion=(8,), heads=(8,)),
}


def trained(name, decided=True):
    """A policy with statistics; decided: its actions differ between states."""
    torch.manual_seed(1)
    policy = build_policy(name, statistics(architecture=name))
    if decided:
        policy.action_net.weight.data *= 100
    return policy


@pytest.fixture(scope="module")
def networks():
    """Name -> (policy, its ONNX file) of small networks: with a picture and stacks, with mirror images, custom."""
    found, patch = {}, pytest.MonkeyPatch()
    with patch.context() as registered:
        for name, architecture in SMALL.items():
            registered.setitem(architectures.ARCHITECTURES, name, replace(architecture, name=name))
        for short, name in (("pictures", "pictures+visual2-state3"), ("mirrored", "pictures+mirror"), ("own", "own")):
            policy = trained(name)
            found[short] = policy, to_onnx(policy, frame_skip=4)
        yield found


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    """Two short ones."""
    made = [(straight(mine), LevelEntry("simple")) for mine in (False, True)]
    return LevelSet.write(tmp_path_factory.mktemp("levels") / "short", made)


@pytest.mark.parametrize("name", ["pictures", "mirrored", "own"])
def test_exported_network_has_the_outputs_of_its_policy(networks, levels, name):
    policy, data = networks[name]
    network = OnnxPolicy(data)
    assert (network.metadata, network.stacking) == (metadata_of(policy, 4), policy.stacking)
    assert 0 < largest_difference(policy, network, levels, 4) < 1e-4


def test_exported_network_wins_and_loses_as_its_policy(networks, levels):
    policy, data = networks["own"]
    suite = EvaluationSuite(
        [(level, levels.category(i)) for i, level in enumerate(levels)],
        episodes_per_category=5,
        seed=0,
        patience=0,
    )
    of_torch, of_onnx = (suite.run(one, deterministic=True) for one in (policy, OnnxPolicy(data)))
    assert [one.inputs.tobytes() for one in of_torch] == [one.inputs.tobytes() for one in of_onnx]


def test_batch_size_and_action_mask(networks):
    policy, data = networks["own"]
    network = OnnxPolicy(data)
    rng = np.random.default_rng(0)
    for rows in (1, 7):
        obs = {"game_state": rng.normal(size=(rows, 26)).astype(np.float32)}
        logits, values, actions = network.compute(obs)
        assert (logits.shape, values.shape, actions.dtype) == ((rows, 6), (rows,), np.int64)
        assert (actions == logits.argmax(axis=1)).all()
        allowed = rng.random((rows, 6)) < 0.5
        allowed[:, 2] = True
        masked = network.compute(obs, allowed)[2]
        assert (masked == np.where(allowed, logits, -np.inf).argmax(axis=1)).all()
        sampled = [
            player.act(obs, deterministic=False, rng=torch.Generator().manual_seed(3)).tolist()
            for player in (policy, network)
        ]
        assert sampled[0] == sampled[1]
    with pytest.raises(ObservationError, match="game_state has dtype float64"):
        network.compute({"game_state": np.zeros((1, 26))})


def test_changed_weights_are_a_difference(networks, levels):
    policy, data = networks["own"]
    model = onnx.load_from_string(data)
    (weights,) = [one for one in model.graph.initializer if list(one.dims) == [6, 8]]
    for change in (0.1, np.nan):
        changed = onnx.numpy_helper.to_array(weights).copy()
        changed[2, 3] += change
        weights.CopyFrom(onnx.numpy_helper.from_array(changed, weights.name))
        assert largest_difference(policy, OnnxPolicy(model.SerializeToString()), levels, 4) > MAX_DIFFERENCE


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vision_free_gcn", "vision_free_gcn reads the graph of a level"),
        ("vision_free+subtasks8", r"vision_free\+subtasks8 has a subtask as state"),
        ("vision_free+gru", r"vision_free\+gru has a recurrent state"),
    ],
)
def test_networks_that_are_not_functions_of_numbers_are_refused(name, message):
    with pytest.raises(ExportError, match=message):
        to_onnx(build_policy(name), frame_skip=4)


def test_policy_without_statistics_cannot_be_exported():
    with pytest.raises(ExportError, match="has no observation statistics yet"):
        to_onnx(build_policy("vision_free"), frame_skip=4)


class ByRow(Own):
    """Loops over the batch."""

    def forward(self, seen):
        return torch.stack([self.layer(row) for row in seen["game_state"]])


class Airy(Own):
    """A network with a function that ONNX does not support."""

    def forward(self, seen):
        return torch.special.airy_ai(self.layer(seen["game_state"]))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (ByRow, r"odd can be expressed in ONNX only for a fixed number of observations"),
        (Airy, r"odd cannot be expressed in ONNX \(.*\): a custom network"),
    ],
)
def test_module_unsupported_by_onnx_raises(module, message, monkeypatch):
    monkeypatch.setitem(architectures.ARCHITECTURES, "odd", replace(SMALL["own"], name="odd", module=module))
    policy = trained("odd")
    with pytest.raises(ExportError, match=message) as error:
        to_onnx(policy, frame_skip=4)
    assert "\n" not in str(error.value)


def altered(data, **changes):
    """The file with other metadata."""
    model = onnx.load_from_string(data)
    (entry,) = model.metadata_props
    entry.value = json.dumps({**json.loads(entry.value), **changes})
    return model.SerializeToString()


def test_invalid_files_give_one_line_errors(networks, tmp_path):
    _, data = networks["own"]
    plain = onnx.load_from_string(data)
    del plain.metadata_props[:]
    for file, message in (
        (b"", "no ONNX file, or damaged"),
        (data[:500], "no ONNX file, or damaged"),
        (data.replace(b"logits", b"log\xffts"), "no ONNX file, or damaged"),
        (plain.SerializeToString(), "not of this project"),
        (altered(data, format_version=9), "export format 9, this version of the project reads 2"),
        (altered(data, layout="0" * 16), "reads observation layout 0000"),
        (altered(data, observations=["no"]), "metadata are damaged"),
        (altered(data, frame_skip="x"), "metadata are damaged"),
        (altered(data, frame_skip=0), "metadata are damaged .frame_skip is 0"),
        (altered(data, frame_skip=-4), "metadata are damaged .frame_skip is -4"),
        (altered(data, stacking="state3"), "its inputs or outputs differ from its metadata"),
    ):
        (tmp_path / "a.onnx").write_bytes(file)
        with pytest.raises(ExportError, match=rf"a\.onnx: .*{message}"):
            OnnxPolicy.load(tmp_path / "a.onnx")
    with pytest.raises(ExportError, match="none.onnx: cannot be read"):
        OnnxPolicy.load(tmp_path / "none.onnx")


def with_actions(data, value):
    """The network with an output "action" that is constant."""
    model = onnx.load_from_string(data)
    (node,) = (node for node in model.graph.node if "action" in node.output)
    node.output[list(node.output).index("action")] = "replaced"
    shaped = onnx.helper.make_node("Mul", ["replaced", "zero"], ["nothing"])
    model.graph.node.extend([shaped, onnx.helper.make_node("Add", ["nothing", "value_of_action"], ["action"])])
    for name, number in (("zero", 0), ("value_of_action", value)):
        model.graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [1], [number]))
    return model.SerializeToString()


@pytest.mark.parametrize("value", [-1, 6, 1 << 40])
def test_network_with_impossible_actions_is_refused_when_loading(networks, value):
    _, data = networks["own"]
    assert OnnxPolicy(with_actions(data, 5)).metadata.frame_skip == 4
    with pytest.raises(ExportError, match=r"actions are not in 0\.\.5"):
        OnnxPolicy(with_actions(data, value))


@pytest.mark.parametrize("place", ["initializer", "constant", "subgraph"])
def test_network_with_external_data_is_refused(networks, tmp_path, monkeypatch, place):
    _, data = networks["own"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(np.full(6, 7, np.float32).tobytes())
    model = onnx.load_from_string(data)
    if place == "initializer":
        tensor = model.graph.initializer[0]
    else:
        tensor = onnx.helper.make_tensor("hidden", onnx.TensorProto.FLOAT, [6], np.zeros(6))
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    if place != "initializer":
        node = onnx.helper.make_node("Constant", [], ["hidden"], value=tensor)
        if place == "subgraph":
            node = onnx.helper.make_node("If", ["x"], ["y"], then_branch=onnx.helper.make_graph([node], "g", [], []))
        model.graph.node.append(node)
    with pytest.raises(ExportError, match="reads tensors from other files"):
        OnnxPolicy(model.SerializeToString())


def test_import_runtime_turns_telemetry_off_before_the_import(monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setattr(exported, "import_optional", lambda *_: os.environ["ORT_DISABLE_TELEMETRY"])
    assert exported.import_runtime() == "1"


def test_script_writes_the_network_and_the_hub_folder(networks, tmp_path, monkeypatch, capsys):
    policy, _ = networks["own"]
    monkeypatch.setitem(architectures.ARCHITECTURES, "own", replace(SMALL["own"], name="own"))
    config = {"train_dataset": ["/home/me/secret/levels"], "upload": {"bucket": "mine"}, "seeds": [3], "bc": None}
    agent = checkpoint.save(tmp_path / "agent.safetensors", policy, frame_skip=4, config=config)
    levels = ["--levels", str(SIMPLEST / "000000.map"), "--output-dir", str(tmp_path / "evaluated"), "--deterministic"]
    assert load_script("evaluate").main([str(agent), *levels]) == 0
    (results,) = (tmp_path / "evaluated").glob("*/results.json")
    capsys.readouterr()
    out, hub = tmp_path / "out.onnx", tmp_path / "hub" / "jumper"
    asked = ["--onnx", str(out), "--hub", str(hub), "--license", "MIT", "--results", str(results)]
    assert load_script("export").main([str(agent), *asked]) == 0
    printed = capsys.readouterr().out
    assert f"wrote {out}" in printed
    assert out.read_bytes() == (hub / "agent.onnx").read_bytes()

    card, metadata = (hub / "README.md").read_text(), json.loads((hub / "config.json").read_text())
    assert card.startswith("---\nlicense: MIT\n") and "# jumper" in card and " agent.safetensors |" in card
    assert "training levels: levels" in card and "seeds of the run: 3" in card
    assert metadata["inputs"]["action_mask"] == {"dtype": "bool", "shape": [6]}
    shown, fields = checkpoint.load_policy(hub / "agent.safetensors")
    assert fields["training"] is None and torch.equal(shown.action_net.weight, policy.action_net.weight)
    for text in (card, json.dumps(metadata), json.dumps(fields["config"])):
        assert "secret" not in text and "bucket" not in text

    assert load_script("evaluate").main([str(out), *levels]) == 0
    of_torch, of_onnx = (
        json.loads(path.read_text())["episodes"]
        for path in sorted((tmp_path / "evaluated").glob("*/results.json"), key=lambda path: path.stat().st_mtime_ns)
    )
    assert of_torch == of_onnx


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "nothing to write; give --onnx OUT.onnx, --hub FOLDER or both"),
        (["--onnx", "a.bin"], "--onnx a.bin: give a name that ends in .onnx"),
        (["--onnx", "a.onnx", "--license", "MIT"], "--license MIT"),
        (["--hub", "."], "--hub ."),
    ],
)
def test_impossible_outputs_are_an_error_before_the_export(flags, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.safetensors").touch()
    assert load_script("export").main(["agent.safetensors", *flags]) == 2
    assert message in capsys.readouterr().err


def test_figures_of_an_evaluation(tmp_path):
    stats = {
        "episodes": 2, "wins": 1, "deaths": 1, "timeouts": 0, "success": 0.5, "ci95": [0.1, 0.9], "median_frames": 7.0,
    }  # fmt: skip
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"suites": {"x": {"all": stats}}, "settings": {}}))
    assert list(methods_of(path)) == ["x"]
    path.write_text("{}")
    with pytest.raises(ResultsError, match=r"give the results\.json of scripts/evaluate\.py"):
        methods_of(path)


def test_absolute_paths_are_not_published():
    config = {
        "a": "/home/me/levels",
        "b": ["C:\\Users\\me\\x.toml", "datasets/train"],
        "upload": {"bucket": "b"},
        "sources": {"a": "file /home/me/x.toml"},
        "c": 1,
    }
    assert published(config) == {"a": "levels", "b": ["x.toml", "datasets/train"], "c": 1}


def test_exported_network_needs_the_cpu(tmp_path):
    with pytest.raises(ConfigError, match="--device"):
        evaluate.policy_of(tmp_path / "a.onnx", "cuda")


def test_missing_gpu_is_an_error(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="--device cuda"):
        evaluate.policy_of(ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors", "cuda")
