"""The policy network on random observations: parameters, normalisation, images, errors, and equal outputs of all its
methods."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nppsim.errors import ConfigError
from nppsim.gym.spaces import observation_space
from nppsim.observe import layout
from nppsim.observe.foresight import AHEAD
from nppsim.observe.foresight_settings import Foresight
from nppsim.observe.statistics import ObservationStatistics, StatisticsError
from rl.config import ExperimentConfig, ForesightConfig
from rl.policy.architectures import ARCHITECTURES, ArchitectureError, get_architecture
from rl.policy.constants import DEATH_PENALTY
from rl.policy.image_patches import distinct_patches
from rl.policy.networks import ByteLinear, NormalizeObservations, ObservationError, patches
from rl.policy.policy import NppPolicy, build_policy, death_penalty, sample_actions
from rl.ppo.update_benchmark import graph_states

from networks import parts_without_effect

EVERY_ARCHITECTURE = sorted(ARCHITECTURES)


@pytest.fixture(autouse=True)
def seeded(one_thread):
    torch.manual_seed(3)


def random_observations(keys, size, seed=0):
    """{key: array [size, *shape]} of the layout's dtypes; floats have the size of their natural scales."""
    rng = np.random.default_rng(seed)
    result = {}
    for spec in (layout.SPECS[key] for key in keys):
        if spec.key == "graph_state":
            result[spec.key] = np.roll(graph_states(size), -7 * seed, axis=0)
        elif spec.dtype == "uint8":
            result[spec.key] = rng.integers(0, 256, (size, *spec.shape), dtype=np.uint8)
        else:
            result[spec.key] = (rng.normal(0.3, 1.0, (size, *spec.shape)) * spec.scale).astype(np.float32)
    return result


def statistics_of(observations):
    statistics = ObservationStatistics(observations)
    statistics.update(observations)
    return statistics


@pytest.fixture(params=EVERY_ARCHITECTURE)
def policy(request):
    observations = random_observations(get_architecture(request.param).observations, 200)
    return build_policy(request.param, statistics_of(observations))


@pytest.fixture
def obs(policy):
    return random_observations(policy.observations, 32, seed=1)


def sharpen(policy):
    """Increase the output weights: an untrained actor is nearly uniform, so that its two best actions nearly tie."""
    with torch.no_grad():
        policy.action_net.weight *= 100.0


# ------------------------------------------------------------------ architectures


def check_optimiser_coverage(policy):
    """The optimiser has exactly the trainable tensors."""
    optimised = {id(parameter) for group in policy.optimizer.param_groups for parameter in group["params"]}
    assert optimised == {id(parameter) for parameter in policy.parameters() if parameter.requires_grad}


def test_mlp_baseline_reads_everything_and_vision_free_no_images():
    assert get_architecture("mlp_baseline").observations == (*layout.VISION_FREE, *layout.IMAGES)
    assert get_architecture("vision_free").observations == layout.VISION_FREE


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp_basline", "unknown architecture 'mlp_basline'; did you mean 'mlp_baseline'"),
        ("xyz", "unknown architecture 'xyz'; available: mlp_baseline, mlp_baseline_foresight, vision_free"),
    ],
)
def test_other_names_are_an_error(name, message):
    with pytest.raises(ArchitectureError, match=message):
        get_architecture(name)


def test_names_of_graph_networks_of_the_predecessor_exist():
    names = "full_hgt simplified_hgt gat gcn vision_free_gat vision_free_gcn vision_free_simplified no_global_view attention"
    plain = {chosen.name: chosen for chosen in map(get_architecture, names.split())}
    assert all(chosen.graph for chosen in plain.values())
    assert "global_view" not in plain["no_global_view"].observations
    assert not set(layout.IMAGES) & set(plain["attention"].observations)
    assert get_architecture("graph_attention") is plain["attention"]


def test_output_sizes_of_the_baseline_are_as_designed():
    encoder = build_policy("mlp_baseline").features_extractor
    sizes = {key: branch.linear.out_features for key, branch in encoder.images.items()}
    assert sizes == {"player_frame": 128, "global_view": 64, "surroundings": 128}
    assert [branch.layers[-2].out_features for branch in encoder.vectors] == [128, 64, 64]
    assert encoder.features_dim == 256


# ------------------------------------------------------------------ completeness


def test_all_trainable_tensors_have_gradients(policy, obs):
    logits, values = policy.logits_and_values(policy.to_tensors(obs))
    (F.cross_entropy(logits, torch.arange(32) % 6) + values.square().mean()).backward()
    silent = [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def test_all_observation_keys_change_output(policy, obs):
    before = policy.logits_and_values(policy.to_tensors(obs))
    for key in policy.observations:
        other = obs | {key: random_observations((key,), 32, seed=9)[key]}
        after = policy.logits_and_values(policy.to_tensors(other))
        assert not torch.equal(before[0], after[0]), key
        assert not torch.equal(before[1], after[1]), key


def test_all_inputs_have_gradients(policy, obs):
    tensors = policy.to_tensors(obs)
    floats = [key for key in tensors if tensors[key].dtype == torch.float32]
    for key in floats:
        tensors[key] = tensors[key].clone().requires_grad_()
    policy.logits_and_values(tensors)[0].square().sum().backward()
    for key in floats:
        assert (tensors[key].grad.abs().sum(dim=0) > 0).all(), key


def test_all_image_regions_change_output(policy, obs):
    assert not any(parts_without_effect(policy, policy.to_tensors(obs)).values())


def test_all_parameters_exist_at_construction_and_are_in_optimiser(policy, obs):
    before = list(policy.state_dict())
    policy.act(obs, deterministic=True)
    assert list(policy.state_dict()) == before
    check_optimiser_coverage(policy)


def test_state_dict_has_each_tensor_once(policy):
    state = policy.state_dict()
    pointers = [tensor.data_ptr() for tensor in state.values() if tensor.numel()]
    assert len(set(pointers)) == len(pointers)
    assert not [name for name in state if name.startswith(("pi_", "vf_"))]


def test_train_and_eval_modes_are_equal(policy, obs):
    tensors = policy.to_tensors(obs)
    policy.train()
    first = policy.logits_and_values(tensors)
    policy.eval()
    second = policy.logits_and_values(tensors)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


# ------------------------------------------------------------------ normaliser


def test_normaliser_centres_scales_and_clamps(policy):
    sample = random_observations(policy.observations, 200)  # the data that the statistics come from
    normalize = policy.features_extractor.normalize
    if not normalize.float_keys:
        assert normalize(policy.to_tensors(sample)).shape == (200, 0)
        return
    vectors = normalize(policy.to_tensors(sample))
    inside = vectors.abs().amax(dim=0) < 10
    assert inside.float().mean() > 0.9
    assert vectors.mean(dim=0)[inside].abs().max() < 1e-3
    assert (vectors.std(dim=0, unbiased=False)[inside] - 1).abs().max() < 1e-3
    wild = {key: np.full_like(value, 1e9) if value.dtype == np.float32 else value for key, value in sample.items()}
    assert normalize(policy.to_tensors(wild)).max() == 10


def test_normaliser_in_state_dict_and_frozen(policy, obs):
    buffers = {name: tensor.clone() for name, tensor in policy.state_dict().items() if ".normalize." in name}
    names = {name.rpartition(".")[2] for name in buffers}
    assert names == {"mean", "std", "divisor", "count", "fingerprint"}
    assert not {name for name, _ in policy.named_parameters()} & set(buffers)
    policy.train()
    logits, values = policy.logits_and_values(policy.to_tensors(obs))
    (logits.square().mean() + values.mean()).backward()
    policy.optimizer.step()
    after = policy.state_dict()
    assert all(torch.equal(after[name], value) for name, value in buffers.items())


def test_statistics_can_be_read_from_the_network(policy):
    wanted = statistics_of(random_observations(policy.observations, 200))
    found = policy.statistics
    assert (found.count, found.fingerprint) == (wanted.count, wanted.fingerprint)
    for key in wanted.float_keys:
        np.testing.assert_array_equal(found.mean[key], wanted.mean[key])
        np.testing.assert_allclose(found.std[key], wanted.std[key], rtol=1e-12)


def test_policy_without_statistics_raises():
    policy = build_policy("vision_free")
    assert policy.statistics is None
    with pytest.raises(StatisticsError, match="no observation statistics yet"):
        policy.act(random_observations(policy.observations, 2), deterministic=True)


def test_statistics_of_another_layout_are_refused():
    with pytest.raises(StatisticsError, match="rebuild the dataset"):
        build_policy("vision_free", statistics_of(random_observations(layout.ALL, 3)))


def test_weights_of_other_layout_raise_despite_equal_shapes(policy):
    state = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    state["features_extractor.normalize.fingerprint"][0] ^= 1
    with pytest.raises(StatisticsError, match="trained on observation layout"):
        build_policy(policy.architecture).load_state_dict(state)


def test_loading_a_state_dict_brings_the_statistics_along(policy, obs):
    other = build_policy(policy.architecture)
    other.load_state_dict(policy.state_dict())
    assert other.statistics.count == (200 if other.statistics.float_keys else 0)
    assert torch.equal(
        other.logits_and_values(other.to_tensors(obs))[0], policy.logits_and_values(policy.to_tensors(obs))[0]
    )


# ------------------------------------------------------------------ images


def test_bytes_are_scaled_exactly_once():
    pixels, linear = torch.randint(0, 256, (5, 9, 16), dtype=torch.uint8), ByteLinear(16, 7)
    expected = F.linear(pixels.float() / 255, linear.weight, linear.bias)
    torch.testing.assert_close(linear(pixels), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize(("rows", "at_once"), [(1, 1), (40, 50), (40, 16 * 7), (40, 2**19)])
def test_bytes_in_parts_are_multiplied_as_a_whole(rows, at_once, half, monkeypatch):
    """Values and gradients, for any number of rows converted together."""
    monkeypatch.setattr("rl.policy.networks.CONVERTED", at_once)
    pixels, wanted = torch.randint(0, 256, (rows, 3, 16), dtype=torch.uint8), torch.randn(rows, 3, 7)
    linear = ByteLinear(16, 7)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        result = linear(pixels)
    assert result.dtype == (torch.bfloat16 if half else torch.float32)
    (result.float() * wanted).sum().backward()
    weight = linear.weight.detach().double().requires_grad_()
    plain = F.linear(pixels.double() / 255, weight, linear.bias.detach().double())
    (plain * wanted).sum().backward()
    close = {"atol": 0.3, "rtol": 0.03} if half else {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(result.double(), plain, **close)
    torch.testing.assert_close(linear.weight.grad.double(), weight.grad, **close)
    torch.testing.assert_close(linear.bias.grad, wanted.sum((0, 1)), **close)


def test_white_images_reach_the_first_layers_as_ones(policy, monkeypatch):
    """A probe through the whole policy: with white images, each first layer sums its weights."""
    seen = {}
    for name, module in policy.named_modules():
        if isinstance(module, ByteLinear):
            module.register_forward_hook(lambda m, _, output, name=name: seen.update({name: (m, output)}))
    white = random_observations(policy.observations, 3)
    white = {key: np.full_like(value, 255) if value.dtype == np.uint8 else value for key, value in white.items()}
    policy.act(white, deterministic=True)
    assert len(seen) == sum(layout.SPECS[key].dtype == "uint8" for key in policy.observations)
    for module, output in seen.values():
        expected = module.weight.sum(dim=1) + module.bias
        torch.testing.assert_close(output, expected.expand_as(output), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [(4, 4), (3, 20), (12, 8)])
def test_patches_equal_slices(size):
    image, (h, w) = torch.randint(0, 256, (3, 12, 40), dtype=torch.uint8), size
    cut = patches(image, size)
    assert cut.shape == (3, 12 // h, 40 // w, h * w)
    for row, column in np.ndindex(cut.shape[1:3]):
        expected = image[:, row * h : (row + 1) * h, column * w : (column + 1) * w].flatten(1)
        assert torch.equal(cut[:, row, column], expected)
    assert torch.equal(patches(image[1:], size), cut[1:])


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("values", [2, 256])  # 2: many patches differ in few pixels
def test_distinct_patches_are_all_patches_once_each(frames, values):
    images = torch.randint(0, values, (5, frames, 8, 24), dtype=torch.uint8)
    images[3:, :, 4:] = images[:2, :, 4:]
    images[:, :, :4, :16] = 1
    table, index = distinct_patches(images, (4, 8))
    cut = patches(images.flatten(0, 1), (4, 8)).unflatten(0, (5, frames)).permute(0, 2, 3, 1, 4).reshape(5 * 6, -1)
    assert torch.equal(table[index], cut)
    assert len(table) == len(cut.unique(dim=0)) < len(cut)


@pytest.mark.parametrize(("key", "grid"), [("player_frame", (7, 7)), ("global_view", (11, 5))])
def test_image_encoder_equals_convolution_and_linear_layer(key, grid):
    """The patches' layer is a convolution whose stride is its size."""
    encoder = build_policy("mlp_baseline").features_extractor.images[key]
    image = torch.from_numpy(random_observations((key,), 4)[key])
    channels, (h, w) = len(encoder.embedding.weight), encoder.patch
    first = encoder.embedding.weight.view(channels, 1, h, w)
    pixels = image.float().reshape(4, 1, *encoder.shape) / 255
    cells = F.conv2d(pixels, first, encoder.embedding.bias, stride=(h, w))
    assert cells.shape == (4, channels, *grid)
    cells = torch.where(cells > 0, cells, 0.1 * cells)
    expected = encoder.linear(cells.permute(0, 2, 3, 1).flatten(1)).relu()
    torch.testing.assert_close(encoder(image), expected, atol=1e-4, rtol=1e-4)
    parameters = list(encoder.parameters())
    gradients = [torch.autograd.grad(out.square().sum(), parameters) for out in (encoder(image), expected)]
    torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-3)


def test_images_may_arrive_channel_first():
    observations = random_observations(get_architecture("mlp_baseline").observations, 4)
    policy = build_policy("mlp_baseline", statistics_of(observations))
    moved = dict(observations)
    for key in ("player_frame", "global_view"):
        moved[key] = np.ascontiguousarray(np.moveaxis(observations[key], -1, 1))
    assert (policy.act(moved, deterministic=True) == policy.act(observations, deterministic=True)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o.pop("surroundings"), "observation lacks surroundings"),
        (lambda o: o.update(surroundings=o["surroundings"] / np.float32(255)), "dtype float32, expected uint8"),
        (lambda o: o.update(game_state=o["game_state"].astype(np.float64)), "dtype float64, expected float32"),
        (lambda o: o.update(hazards=o["hazards"][:, :7]), r"hazards has shape \(7, 5\)"),
    ],
)
def test_observations_that_do_not_fit_are_refused(change, message):
    observations = random_observations(layout.VISION_FREE, 3)
    policy = build_policy("vision_free", statistics_of(observations))
    change(observations)
    with pytest.raises(ObservationError, match=message):
        policy.act(observations, deterministic=True)


def test_environment_without_needed_key_raises_at_construction():
    with pytest.raises(ObservationError, match="does not compute"):
        NppPolicy(
            observation_space(("state", "reachability", "entities", "switches", "hazards")), architecture="vision_free"
        )


# ------------------------------------------------------------------ acting


def test_act_gives_int64_actions_and_follows_its_generator(policy, obs):
    sharpen(policy)
    draws = [policy.act(obs, deterministic=False, rng=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert draws[0].dtype == np.int64
    assert draws[0].shape == (32,)
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()
    extra = obs | {"not_read": np.zeros(1)}
    assert (policy.act(extra, deterministic=True) == policy.act(obs, deterministic=True)).all()


def test_samples_have_the_frequencies_of_the_softmax():
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, 0.5, -3.0]]).expand(100_000, 6)
    actions = sample_actions(logits, torch.Generator().manual_seed(0))
    found = torch.bincount(actions, minlength=6) / len(actions)
    torch.testing.assert_close(found, logits[0].softmax(0), atol=5e-3, rtol=0)


def test_unknown_precision_raises(policy):
    with pytest.raises(ValueError, match="unknown precision 'fp16'"):
        policy.precision = "fp16"


def test_policy_learns_rule_of_local_map():
    """Overfit check: the action depends on one cell of the local map and one component of the state."""
    observations = random_observations(layout.VISION_FREE, 128)
    policy = build_policy("vision_free", statistics_of(observations), precision="bf16")
    policy.optimizer.param_groups[0]["lr"] = 3e-3
    bright = observations["surroundings"][:, 1, 9, 9] > 127
    right = observations["game_state"][:, 2] > 0
    wanted = torch.from_numpy(2 * bright + right).long()
    tensors = policy.to_tensors(observations)
    for _ in range(100):
        loss = F.cross_entropy(policy.logits_and_values(tensors)[0], wanted)
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()
    assert (policy.act(observations, deterministic=True) == wanted.numpy()).mean() > 0.95


def test_columns_of_the_normaliser_cover_all_components_once():
    normalize = NormalizeObservations(layout.VISION_FREE)
    covered = [i for columns in normalize.columns.values() for i in range(columns.start, columns.stop)]
    assert covered == list(range(normalize.size))


def test_actions_that_certainly_kill_are_avoided(seeded):
    """All four branches of actions 1 and 3 end in death; one branch of action 2 does."""
    foresight = torch.zeros(1, *layout.SPECS["foresight"].shape)
    foresight[0, [1, 3], :, AHEAD.death] = 0.5
    foresight[0, 3, 2, AHEAD.death] = 0.1
    foresight[0, 2, :3, AHEAD.death] = 0.5
    penalty = death_penalty(foresight)
    assert penalty[0, [0, 2, 4, 5]].tolist() == [0.0] * 4
    assert penalty[0, 1] > penalty[0, 3] >= DEATH_PENALTY, "action 3 lives longer"
    assert torch.equal(penalty, death_penalty(foresight.flatten(1)))
    obs = random_observations(get_architecture("vision_free_foresight").observations, 64)
    policy = build_policy("vision_free_foresight", statistics_of(obs))
    obs["foresight"][:] = foresight.numpy()
    actions = np.concatenate([policy.act(obs, deterministic=False) for _ in range(50)])
    assert set(actions.tolist()) == {0, 2, 4, 5}


def test_unshielded_policy_samples_deadly_actions(seeded):
    obs = random_observations(get_architecture("vision_free_foresight").observations, 64)
    obs["foresight"][:, [1, 3], :, AHEAD.death] = 0.5
    shielded = build_policy("vision_free_foresight", statistics_of(obs))
    unshielded = build_policy("vision_free_foresight+unshielded")
    unshielded.load_state_dict(shielded.state_dict())
    tensors = shielded.to_tensors(obs)
    logits = [policy.logits_and_values(tensors)[0] for policy in (shielded, unshielded)]
    torch.testing.assert_close(logits[0], logits[1] - death_penalty(tensors["foresight"]))
    actions = np.concatenate([unshielded.act(obs, deterministic=False) for _ in range(20)])
    assert set(actions.tolist()) == set(range(6))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vision_free+horizon20", "does not observe look-ahead"),
        ("vision_free_foresight+mirror+unshielded", "leave out .unshielded"),
        ("vision_free_foresight+unshielded+horizon20", "'horizon20' is not possible there"),
        ("vision_free_foresight+horizon99", "horizon 99: give a whole number from 1 to 59"),
        ("vision_free_foresight+horizon40", "give horizonN, branchesN"),
    ],
)
def test_invalid_look_ahead_suffix_raises(name, message):
    with pytest.raises(ArchitectureError, match=message):
        get_architecture(name)


def test_look_ahead_is_part_of_the_fingerprint_and_the_shield_is_not():
    plain, other, unshielded = (
        get_architecture(f"vision_free_foresight{suffix}") for suffix in ("", "+noise0.1", "+unshielded")
    )
    assert plain.fingerprint == layout.fingerprint(plain.observations) == unshielded.fingerprint != other.fingerprint
    assert other.foresight == Foresight(noise=0.1) and other.shielded and not unshielded.shielded


def test_foresight_config_names_networks_with_look_ahead():
    settings = ForesightConfig(horizon=20, shield="off")
    names = ("vision_free_foresight+deep2+mirror", "vision_free")
    config = ExperimentConfig(experiment_name="x", architectures=names, foresight=settings)
    assert config.networks == ("vision_free_foresight+horizon20+unshielded+deep2+mirror", "vision_free")
    for architectures, message in ((("vision_free",), "no network observes"), ((config.networks[0],), "already has")):
        with pytest.raises(ConfigError, match=message):
            ExperimentConfig(experiment_name="x", architectures=architectures, foresight=settings)
    with pytest.raises(ConfigError, match="branches 7: give 6, 12"):
        ForesightConfig(branches=7)


def test_networks_without_paths_observe_no_path_features():
    assert get_architecture("pixels_only").observations == layout.IMAGES
    paths = {"reachability_features", "foresight"}
    assert not paths & {*get_architecture("state_no_paths").observations}
