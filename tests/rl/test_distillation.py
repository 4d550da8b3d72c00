"""Lessons from a teacher, in a tiny world."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hardware.team import Team
from nppsim.batch import BatchSimulator
from nppsim.observe import layout
from rl import distillation as lessons
from rl.curriculum import make_sampler
from rl.curriculum_config import CurriculumConfig
from rl.distillation import Lessons, TeacherError, as_tags
from rl.experiment.teaching import check_learned
from rl.policy.architectures import get_architecture
from rl.policy.policy import build_policy
from rl.ppo.losses import divergence
from rl.ppo.vec_env import BatchVecEnv
from rl.selftest.faults import Plants, all_faults
from rl.teacher_config import TeacherConfig

from learners import CATEGORIES, LEVELS, statistics

SETTINGS = TeacherConfig(name="some.safetensors", decisions=6 * 64, minibatch_size=32)


def make_policy(seed, name="vision_free"):
    torch.manual_seed(seed)
    policy = build_policy(name, statistics(architecture=name), precision="float32")
    policy.action_net.weight.data.normal_(std=0.3, generator=torch.Generator().manual_seed(seed))
    return policy


def make_lessons(pupil, teacher, settings=SETTINGS, threads=1):
    architecture = get_architecture(pupil.architecture)
    keys = layout.observation_keys({*pupil.observations, *teacher.observations})
    sim = BatchSimulator(LEVELS, 4, observations=keys, stacking=architecture.stacking, threads=1)
    env = BatchVecEnv(sim, make_sampler(CATEGORIES, CurriculumConfig(), 0))
    return Lessons(pupil, teacher, env, settings, rollout_length=16, team=Team(threads), seed=0)


def weights(policy):
    return copy.deepcopy(policy.state_dict())


def test_a_pupil_that_is_its_teacher_has_nothing_to_learn():
    """Were it asked about another state than the pupil is in, the two would differ."""
    pupil = make_policy(1)
    figures = make_lessons(pupil, copy.deepcopy(pupil)).give()
    assert figures.agreement == 1.0
    assert figures.divergence == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", ["vision_free", "vision_free+state3"])
def test_a_pupil_comes_to_act_as_a_teacher_that_sees_more(name):
    pupil, teacher = make_policy(1, name), make_policy(2, "vision_free_foresight")
    before, values = weights(pupil), weights(pupil.value_net)
    course = make_lessons(pupil, teacher, TeacherConfig(name="x.safetensors", decisions=30 * 64, minibatch_size=32))
    given = []
    while course.progress < 1:
        given.append(course.give())
    assert given[-1].divergence < given[0].divergence / 3
    assert given[-1].agreement > given[0].agreement
    assert course.lessons == 30
    same = [key for key, tensor in pupil.state_dict().items() if torch.equal(tensor, before[key])]
    assert not [key for key in same if "value" not in key and "normalize" not in key]
    assert all(torch.equal(tensor, values[key]) for key, tensor in pupil.value_net.state_dict().items())


def test_the_divergence_is_that_of_what_was_seen_then():
    pupil, teacher = make_policy(1), make_policy(2, "vision_free_foresight")
    frozen = copy.deepcopy(pupil)
    course = make_lessons(
        pupil, teacher, TeacherConfig(name="x.safetensors", decisions=64, epochs=1, minibatch_size=64)
    )
    told = course.give().divergence
    buffer = course._buffer
    with torch.no_grad():
        mine = F.log_softmax(frozen.logits_and_values(buffer.observations(torch.arange(64)))[0], dim=1)
    assert told == pytest.approx(float(divergence(buffer.flat("log_probs"), mine).mean()), rel=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_lessons_go_on_bit_for_bit(threads):
    def given(interrupted):
        pupil, teacher = make_policy(1), make_policy(2, "vision_free_foresight")
        course = make_lessons(pupil, teacher, threads=threads)
        while course.progress < 1:
            figures = course.give()
            if interrupted and course.lessons == 3:
                kept, state = weights(pupil), copy.deepcopy(course.state())
                pupil = make_policy(3)
                course = make_lessons(pupil, teacher, threads=threads)
                pupil.load_state_dict(kept)
                course.load(state)
        return weights(pupil), figures.divergence, course.decisions

    (one, *figures), (other, *others) = given(False), given(True)
    assert figures == others
    assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())


def test_what_is_not_finite_ends_the_lessons():
    pupil, teacher = make_policy(1), make_policy(2)
    teacher.action_net.bias.data[:] = np.nan
    with pytest.raises(TeacherError, match="lesson 1: the divergence from the teacher is nan"):
        make_lessons(pupil, teacher).give()


def test_no_success_is_told_of_a_lesson_without_an_end():
    figures = make_lessons(make_policy(1), make_policy(2)).give()
    tags = as_tags(figures)
    assert {"divergence", "agreement", "decisions_per_s"} <= set(tags)
    assert ("success" in tags) == (figures.episodes > 0)


@pytest.mark.parametrize("name", ["vision_free", "vision_free+state3"])
def test_a_teacher_that_is_asked_about_other_states_is_noticed(name, monkeypatch):
    make_lessons(make_policy(1, name), make_policy(2, "vision_free_foresight")).give()
    before, original = [], lessons.newest

    def late(*arguments):
        before.append(original(*arguments))
        before[-1] = {key: values.copy() for key, values in before[-1].items()}
        return before[-2] if 1 < len(before) <= 16 else before[-1]

    monkeypatch.setattr(lessons, "newest", late)
    with pytest.raises(
        TeacherError, match="lesson 1: decision 8, worked out anew: no observation differs, and the teacher"
    ):
        make_lessons(make_policy(1, name), make_policy(2, "vision_free_foresight")).give()


def test_lessons_that_do_nothing_or_lead_away_are_noticed():
    pupil, moved = make_policy(1), make_policy(2)
    with pytest.raises(TeacherError, match="every weight as it was"):
        check_learned(pupil, pupil.state_dict(), 1.0, 0.5)
    check_learned(pupil, moved.state_dict(), 1.0, 0.5)
    with pytest.raises(TeacherError, match=r"1.000 nats in the first, 2.000 in the last"):
        check_learned(pupil, moved.state_dict(), 1.0, 2.0)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("the teacher plays in its pupil's stead", "the pupil is .* nats from what its teacher said"),
        ("lessons lead away from the teacher", "the gradient of .* differs"),
        ("lessons have a learning rate of 0", "its first step has not moved"),
        ("lessons learn from every second minibatch", "were learned from in 2 passes over 64"),
    ],
)
def test_lessons_that_are_not_what_they_are_defined_as_are_noticed(fault, told):
    plant = {one.name: one.plant for one in all_faults()}[fault]
    with Plants() as plants:
        plant(plants)
        with pytest.raises(TeacherError, match=told):
            make_lessons(make_policy(1), make_policy(2, "vision_free_foresight")).give()
