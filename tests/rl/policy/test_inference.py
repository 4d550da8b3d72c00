"""The kernel computes what torch computes: equal greedy actions, logits up to rounding, and equal samples."""

import pickle

import numpy as np
import pytest
import torch

from nppsim.batch import BatchSimulator
from nppsim.generate import CATEGORIES, generate
from rl.policy import inference
from rl.policy.checkpoint import load_policy
from rl.policy.inference import CompiledPolicy, compiled
from rl.policy.policy import build_policy, death_penalty

from learners import statistics
from places import ROOT

SHIPPED = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
LEVELS = [generate(category, 700)[0] for category in CATEGORIES]
pytestmark = pytest.mark.usefixtures("one_thread")


def random_policy(architecture):
    torch.manual_seed(1)
    policy = build_policy(architecture, statistics(architecture=architecture)).eval()
    policy.action_net.weight.data *= 100.0  # logits that differ
    return policy


def observations(policy, envs, decisions):
    """Yield the observations of sampled play."""
    sim, rng = (
        BatchSimulator(LEVELS, envs, observations=policy.observations, threads=1),
        torch.Generator().manual_seed(0),
    )
    obs = sim.reset()
    for _ in range(decisions):
        yield obs
        obs = sim.step(policy.act(obs, deterministic=False, rng=rng))


@pytest.mark.parametrize(
    "policy",
    [
        load_policy(SHIPPED)[0],
        random_policy("vision_free"),
        random_policy("vision_free_foresight"),
        random_policy("vision_free+mirror"),
        random_policy("vision_free_foresight+unshielded"),
        random_policy("state_no_paths"),
    ],
    ids=["shipped", "plain", "foresight", "mirror", "unshielded", "no paths"],
)
def test_compute_equals_torch(policy):
    fast, decisions = compiled(policy), 0
    for obs in observations(policy, inference.MAX_ROWS, 100):
        (logits, values), (expected, expected_values) = fast.compute(obs), policy.compute(obs)
        np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-5)
        np.testing.assert_allclose(values, expected_values, atol=1e-4, rtol=1e-5)
        greedy, sampled = (
            [one.act(obs, deterministic=greedy, rng=torch.Generator().manual_seed(5)) for one in (fast, policy)]
            for greedy in (True, False)
        )
        assert (greedy[0] == greedy[1]).all()
        assert (sampled[0] == sampled[1]).all()
        decisions += len(logits)
    assert decisions >= 3000


def test_compute_does_not_depend_on_other_rows():
    policy = compiled(load_policy(SHIPPED)[0])
    (obs,) = observations(policy, 8, 1)
    together = policy.compute(obs)
    for i in range(8):
        alone = policy.compute({key: values[i : i + 1] for key, values in obs.items()})
        assert alone[0].tobytes() == together[0][i : i + 1].tobytes()
        assert alone[1].tobytes() == together[1][i : i + 1].tobytes()


def test_many_rows_are_computed_by_torch():
    policy = load_policy(SHIPPED)[0]
    (obs,) = observations(policy, inference.MAX_ROWS + 1, 1)
    assert compiled(policy).compute(obs)[0].tobytes() == policy.compute(obs)[0].tobytes()


def test_pickled_policy_computes_the_same():
    policy = compiled(load_policy(SHIPPED)[0])
    (obs,) = observations(policy, 2, 1)
    again = pickle.loads(pickle.dumps(policy))
    assert isinstance(again, CompiledPolicy)
    assert again.compute(obs)[0].tobytes() == policy.compute(obs)[0].tobytes()


def test_death_penalty_equals_that_of_torch():
    foresight = np.random.default_rng(0).choice([0.0, 0.3, 1.0], (50, 6, 4, 11)).astype(np.float32)
    expected = death_penalty(torch.from_numpy(foresight)).numpy()
    assert inference.death_penalty(foresight).tobytes() == expected.tobytes()
    assert inference.death_penalty(foresight.reshape(50, -1)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["mlp_baseline", "vision_free_gcn", "vision_free+gru", "vision_free+deep2"])
def test_compiled_returns_other_networks_unchanged(name):
    policy = build_policy(name)
    assert compiled(policy) is policy
