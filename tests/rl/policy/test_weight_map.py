"""Strict transfer of weights: all tensors are copied, or an error names those that are not."""

import pytest
import torch
from torch import nn

from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.policy.policy import build_policy
from rl.policy.weight_map import WeightTransferError, check_same_policy, transfer

from seen import observations

pytestmark = pytest.mark.usefixtures("one_thread")


def make_policy(seed):
    statistics = ObservationStatistics(layout.VISION_FREE)
    statistics.update(observations(50, seed))
    torch.manual_seed(seed)
    policy = build_policy("vision_free", statistics)
    with torch.no_grad():  # an untrained actor is nearly indifferent: agreement would mean nothing
        policy.action_net.weight *= 100
    return policy


def small(**sizes):
    return nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()})


def test_transfer_copies_policy_and_normaliser():
    source, target = make_policy(1), make_policy(2)
    probe = observations(300, seed=5)
    with pytest.raises(WeightTransferError, match="features of the two policies differ"):
        check_same_policy(source, target, probe)
    report = transfer(source.state_dict(), target)
    assert report.tensors == len(source.state_dict())
    assert report.fresh == ()
    assert f"{report.tensors} tensors transferred" in str(report)
    assert check_same_policy(source, target, probe) == 1.0
    # a copy, not a view: training the target leaves the source alone
    assert target.action_net.weight.data_ptr() != source.action_net.weight.data_ptr()


def without(policy, *parts):
    """The state of a policy without the tensors that begin with one of these."""
    return {name: tensor for name, tensor in policy.state_dict().items() if not name.startswith(parts)}


def test_transfer_leaves_fresh_value_head_unchanged():
    source, target = make_policy(1), make_policy(2)
    before = target.value_net.weight.clone()
    critic = ("value_net.", "mlp_extractor.value_net.")
    report = transfer(without(source, *critic), target, fresh=critic)
    assert torch.equal(target.value_net.weight, before)
    assert set(report.fresh) == {name for name in target.state_dict() if "value_net" in name}
    assert check_same_policy(source, target, observations(100)) == 1.0


def test_transfer_with_fresh_actor_changes_actions():
    source, target = make_policy(1), make_policy(2)
    heads = ("action_net.", "mlp_extractor.policy_net.")
    transfer(without(source, *heads), target, fresh=heads)
    with pytest.raises(WeightTransferError, match="logits of the two policies differ"):
        check_same_policy(source, target, observations(100))


@pytest.mark.parametrize(
    ("source", "target", "arguments", "message"),
    [
        (small(a=(2, 2), b=(2, 2)), small(a=(2, 2)), {}, "not in the target: b.weight, b.bias"),
        (small(a=(2, 2)), small(a=(2, 2), b=(2, 2)), {}, "neither copied nor listed in fresh: b.weight, b.bias"),
        (small(a=(2, 3)), small(a=(3, 2)), {}, r"a.weight: \(3, 2\) torch.float32 does not fit \(2, 3\)"),
        (small(a=(2, 2)).double(), small(a=(2, 2)), {}, "torch.float64 does not fit"),
        (small(a=(2, 2)), small(a=(2, 2)), {"fresh": ["a.bias"]}, "copied, but listed in fresh: a.bias"),
    ],
)
def test_transfer_of_unexpected_tensors_raises_and_changes_nothing(source, target, arguments, message):
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(WeightTransferError, match=message):
        transfer(source.state_dict(), target, **arguments)
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.state_dict().items())


def test_weights_that_are_not_finite_are_refused():
    source = small(a=(2, 2))
    with torch.no_grad():
        source["a"].bias[0] = torch.nan
    with pytest.raises(WeightTransferError, match=r"a\.bias: values are not finite"):
        transfer(source.state_dict(), small(a=(2, 2)))


def test_other_statistics_alone_are_noticed_by_the_probe():
    """Same weights but another normaliser, as if training and acting used different statistics."""
    source, target = make_policy(1), make_policy(1)
    shifted = observations(50, seed=1)
    shifted["game_state"] += 100.0
    statistics = ObservationStatistics(layout.VISION_FREE)
    statistics.update(shifted)
    target.set_statistics(statistics)
    with pytest.raises(WeightTransferError, match="normaliser's statistics"):
        check_same_policy(source, target, observations(100))


def test_policies_of_different_architectures_are_not_compared():
    with pytest.raises(WeightTransferError, match="architectures differ: vision_free and mlp_baseline"):
        check_same_policy(make_policy(1), build_policy("mlp_baseline"), observations(2))
