"""Distillation from a teacher on tiny levels."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bc.thread_pool import ThreadPool
from nppsim.actions import MIRRORED_ACTION
from nppsim.batch import BatchSimulator
from nppsim.observe import layout
from rl.config.curriculum import CurriculumConfig
from rl.config.distillation import DistillationConfig
from rl.curriculum import make_sampler
from rl.distillation import DistillationError, Distiller
from rl.policy.architectures import get_architecture
from rl.policy.mirror import mirror_image
from rl.policy.policy import build_policy
from rl.ppo.losses import kl_divergence
from rl.ppo.vec_env import BatchVecEnv

from learners import CATEGORIES, LEVELS, statistics

SETTINGS = DistillationConfig(name="some.safetensors", decisions=6 * 64, minibatch_size=32)


def make_policy(seed, name="vision_free"):
    torch.manual_seed(seed)
    policy = build_policy(name, statistics(architecture=name), precision="float32")
    policy.action_net.weight.data.normal_(std=0.3, generator=torch.Generator().manual_seed(seed))
    return policy


def make_distiller(student, teacher, settings=SETTINGS, threads=1):
    architecture = get_architecture(student.architecture)
    keys = layout.observation_keys({*student.observations, *teacher.observations})
    sim = BatchSimulator(LEVELS, 4, observations=keys, stacking=architecture.stacking, threads=1)
    env = BatchVecEnv(sim, make_sampler(CATEGORIES, CurriculumConfig(), 0))
    return Distiller(student, teacher, env, settings, rollout_length=16, pool=ThreadPool(threads), seed=0)


def weights(policy):
    return copy.deepcopy(policy.state_dict())


def test_teacher_equal_to_student_gives_zero_divergence():
    """If the teacher's observations were of another state, the outputs would differ."""
    student = make_policy(1)
    metrics = make_distiller(student, copy.deepcopy(student)).update()
    assert metrics["agreement"] == 1.0
    assert metrics["divergence"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", ["vision_free", "vision_free+state3"])
def test_student_approaches_teacher_with_more_observations(name):
    student, teacher = make_policy(1, name), make_policy(2, "vision_free_foresight")
    before = weights(student)
    distiller = make_distiller(
        student, teacher, DistillationConfig(name="x.safetensors", decisions=30 * 64, minibatch_size=32)
    )
    given = []
    while distiller.progress < 1:
        given.append(distiller.update())
    assert given[-1]["divergence"] < given[0]["divergence"] / 3
    assert given[-1]["agreement"] > given[0]["agreement"]
    assert distiller.updates == 30
    same = [key for key, tensor in student.state_dict().items() if torch.equal(tensor, before[key])]
    assert not [key for key in same if "normalize" not in key]


def test_update_stores_discounted_returns():
    """With a value function of 0, gamma 0.995 and lambda 0.95, also for episodes that end."""
    student, teacher = make_policy(1), make_policy(2)
    student.value_net.requires_grad_(False)
    for parameter in student.value_net.parameters():
        parameter.zero_()
    distiller = make_distiller(student, teacher)
    distiller.env.sim.state.ninja["frame"][:2] = distiller.env.sim.bank.time_limit[distiller.env.sim.level[:2]] - 20
    distiller.update()
    buffer = distiller._buffer
    assert buffer.episode_ends.any() and not buffer.values.any()
    expected, after = np.zeros(buffer.shape), np.zeros(buffer.shape[1])
    for t in reversed(range(buffer.shape[0])):
        after = buffer.rewards[t].numpy() + 0.995 * 0.95 * after * ~buffer.episode_ends[t].numpy()
        expected[t] = after
    np.testing.assert_allclose(buffer.returns.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_values_learn_returns():
    student, teacher = make_policy(1), make_policy(2)
    settings = DistillationConfig(name="x.safetensors", decisions=60 * 64, minibatch_size=32, learning_rate=1e-3)
    distiller = make_distiller(student, teacher, settings)
    explained = []
    while distiller.progress < 1:
        distiller.update()
        explained.append(distiller._buffer.explained_variance())
    assert np.mean(explained[-10:]) > np.mean(explained[:10])


def test_divergence_is_of_rollout_policies():
    student, teacher = make_policy(1), make_policy(2, "vision_free_foresight")
    frozen = copy.deepcopy(student)
    distiller = make_distiller(
        student, teacher, DistillationConfig(name="x.safetensors", decisions=64, epochs=1, minibatch_size=64)
    )
    divergence = distiller.update()["divergence"]
    buffer = distiller._buffer
    with torch.no_grad():
        mine = F.log_softmax(frozen.logits_and_values(buffer.observations(torch.arange(64)))[0], dim=1)
    assert divergence == pytest.approx(float(kl_divergence(buffer.flat("log_probs"), mine).mean()), rel=1e-4)


def test_student_learns_mirror_images():
    student, teacher = make_policy(1), make_policy(2)
    distiller = make_distiller(
        student, teacher, DistillationConfig(name="x.safetensors", decisions=30 * 64, epochs=2, minibatch_size=32)
    )

    @torch.no_grad()
    def divergence(observations, targets):
        return float(kl_divergence(targets, F.log_softmax(student.logits_and_values(observations)[0], dim=1)).mean())

    while distiller.progress < 1:
        distiller.update()
    observations, targets = distiller._buffer.observations(torch.arange(64)), distiller._buffer.flat("log_probs")
    images = {key: mirror_image(key, values) for key, values in observations.items()}
    assert divergence(images, targets[:, MIRRORED_ACTION.tolist()]) < 2 * divergence(observations, targets)


@pytest.mark.parametrize("threads", [1, 2])
def test_distillation_resumes_bit_for_bit(threads):
    def given(interrupted):
        student, teacher = make_policy(1), make_policy(2, "vision_free_foresight")
        distiller = make_distiller(student, teacher, threads=threads)
        while distiller.progress < 1:
            metrics = distiller.update()
            if interrupted and distiller.updates == 3:
                before, state = weights(student), copy.deepcopy(distiller.state())
                student = make_policy(3)
                distiller = make_distiller(student, teacher, threads=threads)
                student.load_state_dict(before)
                distiller.load(state)
        return weights(student), metrics["divergence"], distiller.decisions

    (one, *metrics), (other, *others) = given(False), given(True)
    assert metrics == others
    assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())


def test_values_that_are_not_finite_end_distillation():
    student, teacher = make_policy(1), make_policy(2)
    teacher.action_net.bias.data[:] = np.nan
    with pytest.raises(DistillationError, match="update 1: the divergence"):
        make_distiller(student, teacher).update()


def test_graph_student_trains_without_mirror_images():
    student, teacher = make_policy(1, "gat"), make_policy(2)
    before = weights(student)
    make_distiller(student, teacher).update()
    assert any(not torch.equal(tensor, before[key]) for key, tensor in student.state_dict().items())


def test_metrics_of_an_update():
    """There is no success without a finished episode."""
    metrics = make_distiller(make_policy(1), make_policy(2)).update()
    assert set(metrics) - {"success"} == {"divergence", "agreement", "decisions_per_s"}
