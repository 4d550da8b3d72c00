"""Networks that read stacks of frames: names, normalising, images, checkpoints."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nppsim.errors import ConfigError
from nppsim.gym.spaces import flatten_vectors
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.config import ExperimentConfig, StackingConfig
from rl.policy import checkpoint
from rl.policy.architectures import ArchitectureError, get_architecture
from rl.policy.networks import LEAK, ImageCNN, NormalizeObservations, ObservationError
from rl.policy.policy import build_policy
from rl.policy.weight_map import check_same_policy, transfer

from networks import made_up_policy, parts_without_effect

NAMES = [
    "vision_free+state4",
    "mlp_baseline+visual3-state2-repeat",
    "full_hgt_frame_stacked",
    "vision_free+state2+deep2",
]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=NAMES)
def made_up(request):
    """(policy, observations of 16 decisions)"""
    policy, obs = made_up_policy(request.param, 16)
    return policy, {key: values.numpy() for key, values in obs.items()}


def test_get_architecture_names_of_stacks():
    both, images, state = (
        get_architecture(name)
        for name in ("full_hgt_frame_stacked", "visual_frame_stacked_only", "vision_free_frame_stacked")
    )
    assert (both.name, both.stacking.visual, both.stacking.state) == ("full_hgt+visual4-state4", 4, 4)
    assert (images.name, images.stacking.visual, images.stacking.state) == ("full_hgt+visual4", 4, 1)
    assert (state.name, state.graph, state.stacking.state) == ("vision_free+state4", None, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vision_free+visual4", "stacks visual frames"),
        ("vision_free+state13", "suffix: give visualN, stateM"),
        ("vision_free+deep2+state4", "'state4' is not possible there"),
        ("vision_free+state4+state2", "'state2' is not possible there"),
    ],
)
def test_other_names_are_refused(name, message):
    with pytest.raises(ArchitectureError, match=message):
        get_architecture(name)


def test_stacks_are_part_of_the_fingerprint():
    names = (
        "vision_free",
        "vision_free+state4",
        "vision_free+state4-repeat",
        "vision_free+state3",
        "vision_free+deep2",
    )
    prints = [get_architecture(name).fingerprint for name in names]
    assert prints[0] == prints[-1] == layout.fingerprint(layout.VISION_FREE)
    assert len(set(prints)) == 4


def test_stacking_flags_apply_to_all_networks():
    stacking = StackingConfig(state=True, state_size=3, padding="repeat")
    names = ("vision_free", "mlp_baseline+deep2")
    config = ExperimentConfig(experiment_name="x", architectures=names, stacking=stacking)
    assert config.networks == ("vision_free+state3-repeat", "mlp_baseline+state3-repeat+deep2")
    with pytest.raises(ConfigError, match="whole number from 1 to 12"):
        StackingConfig(state=True, state_size=0)
    assert replace(config, stacking=StackingConfig(state=True, state_size=1)).networks == names


def test_stacked_frames_normalised_like_single_frames():
    stacked = get_architecture("vision_free+state3").stacking
    statistics = ObservationStatistics(layout.VISION_FREE)
    rng = np.random.default_rng(0)
    statistics.update({key: rng.normal(size=(50, *layout.SPECS[key].shape)) for key in statistics.float_keys})
    plain, many = NormalizeObservations(layout.VISION_FREE), NormalizeObservations(layout.VISION_FREE, stacked)
    for layer in (plain, many):
        layer.set_statistics(statistics)
    obs = {key: torch.randn(5, *stacked.shape(key)) for key in statistics.float_keys}
    found = many(obs)
    for frame in range(3):
        alone = plain(obs | {"game_state": obs["game_state"][:, frame]})
        begin = many.output_slices["game_state"].start + 26 * frame
        torch.testing.assert_close(
            found[:, begin : begin + 26], alone[:, plain.output_slices["game_state"]], rtol=0, atol=0
        )
    for key in set(statistics.float_keys) - {"game_state"}:
        torch.testing.assert_close(
            found[:, many.output_slices[key]], alone[:, plain.output_slices[key]], rtol=0, atol=0
        )
    assert many.state_dict().keys() == plain.state_dict().keys()


def test_images_of_a_stack_are_channels():
    """Against a convolution over channels, the frames."""
    torch.manual_seed(0)
    cnn = ImageCNN((24, 36), (8, 12), 5, frames=3)
    images = torch.randint(0, 256, (4, 3, 24, 36, 1), dtype=torch.uint8)
    kernel = cnn.embedding.weight.unflatten(1, (3, 8, 12))
    cells = F.leaky_relu(F.conv2d(images[..., 0].float() / 255, kernel, cnn.embedding.bias, stride=(8, 12)), LEAK)
    wanted = F.relu(cnn.linear(cells.permute(0, 2, 3, 1).flatten(1)))
    torch.testing.assert_close(cnn(images), wanted, rtol=1e-4, atol=1e-5)


def test_all_stacked_frames_change_output(made_up):
    policy, obs = made_up
    sample = policy.to_tensors(obs)
    before = policy.logits_and_values(sample)[0]
    for key, frames in policy.stacking.stacked(policy.observations).items():
        for frame in range(frames):
            other = sample[key].clone()
            other[:, frame] = other[:, frame].flip(0)
            assert not torch.equal(policy.logits_and_values(sample | {key: other})[0], before), (key, frame)
    if policy.stacking.visual > 1 and policy.features_extractor.graph is None:
        assert not any(parts_without_effect(policy, sample).values())


def test_checkpoints_restore_stacks(made_up, tmp_path):
    policy, obs = made_up
    path = checkpoint.save(tmp_path / "agent.safetensors", policy, frame_skip=4)
    loaded, facts = checkpoint.load_policy(path)
    assert loaded.stacking == policy.stacking and facts["layout"] == get_architecture(policy.architecture).fingerprint
    assert (loaded.act(obs, deterministic=True) == policy.act(obs, deterministic=True)).all()
    fresh = build_policy(policy.architecture)
    transfer(policy.state_dict(), fresh)
    assert check_same_policy(policy, fresh, obs) == 1.0


def test_gymnasium_shapes_accepted_and_single_frames_raise(made_up):
    policy, obs = made_up
    flat = flatten_vectors(obs)
    acted, _ = policy.predict(flat, deterministic=True)
    assert (acted == policy.act(obs, deterministic=True)).all()
    one, _ = policy.predict({key: values[0] for key, values in flat.items()}, deterministic=True)
    assert one == acted[0]
    with pytest.raises(
        ObservationError, match=r"game_state has shape \(26,\).* frames: give the environment the network's"
    ):
        policy.act(obs | {"game_state": obs["game_state"][:, -1]}, deterministic=True)
