"""Networks of every kind, from imitation to evaluation, and every name that ``--architectures`` takes in bfloat16."""

import copy

import pytest
import torch

from bc.train import BCConfig, pretrain
from nppsim.bank import LevelBank
from nppsim.observe.graph import register_bank
from rl.evaluation.suite import EvaluationSuite
from rl.policy import checkpoint
from rl.policy.architectures import ALIASES, ARCHITECTURES, get_architecture
from rl.policy.policy import build_policy
from rl.policy.weight_map import check_same_policy, transfer

from learners import AT_ONCE, LEVELS, logged, make_ppo, roll_out
from networks import EVERY_NAME, WITH_PARTS, dataset_of, number_formats, observed, remembering, simulator_for
from worlds import mixed_level, random_level

# Layers that compute in float32 whatever the policy's precision: outputs, choices of subtasks, what is remembered.
ALWAYS_FLOAT32 = ("action_net", "value_net", "high_level.policy_net.", "high_level.value_net.", "memory.cell")

# Every kind of layer and of graph network: the other names put the same parts together in another way.
ONE_PER_KIND = sorted({"simplified_hgt", "gat", *WITH_PARTS} - {"vision_free+deep2", "vision_free+subtasks50"})

pytestmark = pytest.mark.usefixtures("one_thread")


def test_all_architectures_and_suffixes_covered():
    assert {*ARCHITECTURES, *ALIASES} <= set(EVERY_NAME)
    chosen = [get_architecture(name) for name in ONE_PER_KIND]
    for part in ("graph", "attention", "player_frame", "global_view", "stacking", "deep", "memory", "subtasks"):
        assert {bool(getattr(network, part)) for network in chosen} == {True, False}, part
    graphs = {network.graph for network in ARCHITECTURES.values()}
    assert {network.graph for network in chosen} == graphs


def wrong_formats(found):
    """Layers that have not computed in bfloat16, or not in float32 where they always do."""
    assert found
    wanted = {name: torch.float32 if name.startswith(ALWAYS_FLOAT32) else torch.bfloat16 for name in found}
    return {name: dtypes for name, dtypes in found.items() if dtypes != {wanted[name]}}


@pytest.mark.parametrize("name", ONE_PER_KIND)
def test_architecture_runs_all_stages(name, tmp_path):
    network = get_architecture(name)
    dataset = dataset_of(name, LEVELS)
    torch.manual_seed(3)
    clone = build_policy(network.imitated.name, dataset.statistics(), precision="bf16")
    with number_formats(clone) as cloning:
        result = pretrain(clone, dataset, BCConfig(epochs=2, batch_size=12), log=lambda line: None)
    assert result.history[-1]["validation_loss"] < result.history[0]["validation_loss"]
    assert wrong_formats(cloning) == {}

    sizes = {"num_envs": 4, "rollout_length": 8, "minibatch_size": 16}
    ppo, scalars = make_ppo(architecture=name, precision="bf16", **sizes, **AT_ONCE)
    transfer(clone.state_dict(), ppo.policy, fresh=network.fresh)
    check_same_policy(clone, ppo.policy, dataset.observe(dataset.rows(validation=True)))
    ppo.set_reference(ppo.policy)
    before = {key: values.clone() for key, values in ppo.policy.state_dict().items()}
    with number_formats(ppo.policy) as learning:
        roll_out(ppo)
        ppo.update()
    other, _ = make_ppo(architecture=name, precision="bf16", seed=7, **sizes, **AT_ONCE)
    other.load_training_state(*copy.deepcopy((ppo.policy.state_dict(), ppo.training_state())))
    for one in (ppo, other):
        roll_out(one)
        one.update()
    for mine, theirs in zip(ppo.policy.state_dict().values(), other.policy.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), "restored training is bit-identical"
    assert logged(ppo, scalars)["train/grad_norm"] > 0
    still = [key for key, values in ppo.policy.state_dict().items() if torch.equal(values, before[key])]
    assert [key for key in still if ".normalize." not in key] == []

    path = checkpoint.save(tmp_path / "agent.safetensors", ppo.policy, frame_skip=4)
    loaded, _ = checkpoint.load_policy(path)
    suite = EvaluationSuite([(LEVELS[0], "made")], seed=0, patience=0, horizon=0)
    with number_formats(loaded) as playing:
        played = [[r.inputs.tobytes() for r in suite.run(one, deterministic=True)] for one in (ppo.policy, loaded)]
    assert played[0] == played[1]
    for formats in (learning, playing):
        assert wrong_formats(formats) == {}
    assert set(cloning) | {key for key in learning if key.startswith(network.fresh)} == set(learning)


@pytest.fixture(scope="module")
def bank():
    bank = LevelBank([*LEVELS, *(random_level(seed) for seed in range(3)), mixed_level(1), mixed_level(2)])
    register_bank(bank)
    return bank


# What bfloat16 may do to any network; docs/architectures.md states it, and what it does.
LOGITS, VALUES = 0.08, 0.12  # largest difference, in standard deviations over decisions
GRADIENT = 0.95  # cosine of the angle between gradients
STEPS = 12  # of each environment


@pytest.mark.parametrize("name", sorted({*EVERY_NAME} - {*ALIASES}))
def test_mixed_precision_agrees_with_float32(name, bank):
    obs, statistics = observed(simulator_for(name, bank, len(bank)), steps=STEPS)
    torch.manual_seed(3)
    policy = build_policy(name, statistics)
    tensors = remembering(policy, policy.to_tensors(obs))
    advantages, found = torch.randn(len(bank) * STEPS), {}
    for policy.precision in ("float32", "bf16"):
        with number_formats(policy) as formats:
            logits, values = policy.logits_and_values(tensors)
        assert (wrong_formats(formats) == {}) == (policy.precision == "bf16")
        policy.zero_grad()
        ((logits.log_softmax(1)[:, 2] + values) * advantages).mean().backward()
        gradient = torch.cat([w.grad.flatten() for w in policy.parameters() if w.grad is not None])
        found[policy.precision] = (logits.detach(), values.detach(), gradient)
    (logits, values, gradient), (other_logits, other_values, other_gradient) = found.values()
    assert not torch.equal(logits, other_logits)
    spread = (logits - logits.mean(dim=1, keepdim=True)).std()
    assert (logits - other_logits).abs().max() < LOGITS * spread
    assert (values - other_values).abs().max() < VALUES * values.std()
    best, second = logits.topk(2, dim=1).values.T
    clear = best - second > 2 * LOGITS * spread  # the difference in precision cannot change the best action
    assert (logits.argmax(1) == other_logits.argmax(1))[clear].all()
    assert torch.cosine_similarity(gradient, other_gradient, dim=0) > GRADIENT
