"""Deep heads: residual blocks equal their formula, in training and in evaluation mode; names and settings of the blocks."""

import numpy as np
import pytest
import torch

from nppsim.errors import ConfigError
from rl.config import ExperimentConfig, HeadsConfig
from rl.policy.architectures import ArchitectureError, get_architecture
from rl.policy.networks import DeepHeads, ResidualBlocks

pytestmark = pytest.mark.usefixtures("one_thread")
SHAPES = [ResidualBlocks(1), ResidualBlocks(3), ResidualBlocks(2, residual=False), ResidualBlocks(2, True, False)]


def silu(x):
    return x / (1 + np.exp(-x))


def plain_head(state, prefix, features, shape):
    """The latent of one head in float64, by the formula."""

    def weights(name):
        return (state[f"{prefix}.{name}.{part}"].double().numpy() for part in ("weight", "bias"))

    def linear(name, x):
        weight, bias = weights(name)
        return x @ weight.T + bias

    def norm(name, x):
        if not shape.layer_norm:
            return x
        weight, bias = weights(name)
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias

    x = linear("0", features)
    for block in range(1, shape.count + 1):
        made = linear(f"{block}.second", silu(linear(f"{block}.first", norm(f"{block}.norm", x))))
        x = x + made if shape.residual else made
    return silu(norm(str(shape.count + 1), x))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_deep_heads_equal_their_formula(shape):
    torch.manual_seed(0)
    heads = DeepHeads(12, 8, shape)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    features = torch.randn(5, 12)
    evaluated = heads.eval()(features)
    for found, same, prefix in zip(heads.train()(features), evaluated, ("policy_net", "value_net"), strict=True):
        wanted = plain_head(heads.state_dict(), prefix, features.double().numpy(), shape)
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
        assert torch.equal(found, same)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_names_of_deep_heads_are_parsed_and_formatted(shape):
    assert ResidualBlocks.named(shape.name) == shape
    assert get_architecture(f"vision_free+{shape.name}").deep == shape
    asked = HeadsConfig(deep=True, blocks=shape.count, residual=shape.residual, layer_norm=shape.layer_norm)
    assert asked.named("vision_free") == f"vision_free+{shape.name}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vision_free+deep0", "suffix: give deepN with N from 1 to 16"),
        ("vision_free+deep17", "give deepN"),
        ("vision_free+", "'' is not possible there"),
        ("vision_free+wide", "'wide' is not possible there"),
        ("vision_free+deep2+deep2", "'deep2' is not possible there"),
        ("vision_fre+deep2", "unknown architecture 'vision_fre'; did you mean 'vision_free'"),
    ],
)
def test_other_names_are_refused(name, message):
    with pytest.raises(ArchitectureError, match=message):
        get_architecture(name)


def test_deep_heads_flag_applies_to_all_networks():
    config = ExperimentConfig(experiment_name="x", architectures=("vision_free", "mlp_baseline"))
    assert config.networks == config.architectures
    deep = ExperimentConfig(
        experiment_name="x", architectures=("vision_free", "mlp_baseline"), heads=HeadsConfig(deep=True, blocks=3)
    )
    assert deep.networks == ("vision_free+deep3", "mlp_baseline+deep3")
    with pytest.raises(ConfigError, match="vision_free\\+deep2: already has deep heads"):
        ExperimentConfig(experiment_name="x", architectures=("vision_free+deep2",), heads=HeadsConfig(deep=True))
