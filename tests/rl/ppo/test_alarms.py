"""Alarms: sound training sets off none, and what is broken is named, by identities that are worked out a second time."""

import math
from collections import deque

import numpy as np
import pytest
import torch

from rl.config.curriculum import CurriculumConfig
from rl.curriculum import LevelMismatchError
from rl.policy.policy import build_policy
from rl.ppo import growth
from rl.ppo.alarms import (
    ALL_AUDITED,
    AUDIT_EVERY,
    WINDOW,
    Alarms,
    Figures,
    bands,
    progress_is_made,
    resources_stay,
    rewards_arrive,
)
from rl.ppo.audit import Fault
from tests.mutation.mutation import Patch, all_mutations

from learners import AT_ONCE, make_ppo, roll_out, statistics


def make_clone():
    torch.manual_seed(3)
    policy = build_policy("vision_free", statistics())
    with torch.no_grad():
        policy.action_net.weight.mul_(100)  # as decided as one that has learned; fresh policies are all alike
    return policy


def watch(updates=3, fault=None, clone=None, **settings):
    """Faults that the alarms find in a few updates; fault: the name of a mutation."""
    inject = {one.name: one.inject for one in all_mutations()}[fault] if fault else lambda patch: None
    with Patch() as patch:
        inject(patch)
        ppo, _ = make_ppo(**{"rollout_length": 64} | AT_ONCE | settings)
        if clone is not None:
            ppo.policy.load_state_dict(clone.state_dict())
            ppo.set_reference(clone)
        alarms, faults = Alarms(), []
        for _ in range(updates):
            alarms.before_rollout(ppo)
            roll_out(ppo)
            faults += alarms.after_rollout(ppo)
            if any(one.stop for one in faults):
                break
            ppo.update()
            faults += alarms.after_update(ppo)
            ppo.logger.dump()
    return faults, alarms, ppo


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_epochs": 3, "self_imitation_coef": 0.1},
        {"desired_kl": 0.01},
        {"time_budget_minutes": 5.0, "total_timesteps": 10**9},  # by the clock, which goes on
        {"n_epochs": 2, "gradient_accumulation": 3, "clip_range_end": 0.1, "clip_apart": True},
        {"n_epochs": 2, "clip_range_vf": 0.05, "clip_range_vf_end": 0.02},
        {"n_epochs": 2, "returns_from": "current"},
        {"n_epochs": 3, "returns_from": "current", "vtrace_rho_clip": 1.0},
        {"prioritised_alpha": 0.5},
        {"n_epochs": 2, "prioritised_alpha": 0.5, "prioritised_beta": 0.4, "returns_from": "current"},
    ],
)
def test_sound_training_sets_off_nothing(settings):
    assert watch(**settings)[0] == []


def test_sound_fine_tuning_of_a_clone_sets_off_nothing():
    settings = {"critic_warmup_min_updates": 1, "critic_warmup_max_updates": 1, "learning_rate_warmup_updates": 2}
    assert watch(4, clone=make_clone(), **settings)[0] == []


PLANTED = {
    "advantages with the wrong sign in the rollout": "advantages",
    "advantages cross the ends of episodes": "advantages",
    "the last value of the rollout is 0": "advantages",
    "truncated episodes are not bootstrapped": "time-outs",
    "the value loss has the wrong sign": "losses",
    "entropy with the wrong sign": "losses",
    "the clip range is a tenth of what is configured": "gradients",
    "rollouts discount with another gamma": "settings",
    "the learning rate is 0": "learning rate",
    "actions are sampled at another temperature": "actions",
    "dropout between rollout and update": "rollout",
    "rewards go to the neighbouring environment": "rewards",
    "only won episodes are recorded": "episodes",
    "decisions are counted by step, not by environment": "decisions",
}


def test_a_level_that_changes_in_the_middle_of_an_episode_stops_at_its_end():
    with pytest.raises(LevelMismatchError, match="was to play level"):
        watch(6, "the level changes in the middle of an episode", num_envs=8, frame_skip=12)


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_broken_is_named(fault):
    faults = watch(20 if PLANTED[fault] == "time-outs" else 6, fault, num_envs=8, frame_skip=12)[0]
    assert faults and faults[0].stop
    assert PLANTED[fault] in {one.name for one in faults}


def figures(**changes):
    sound = {
        "episodes": 50, "wins": 10, "positive": 500, "kl": 0.01, "clip_fraction": 0.1, "entropy": 1.0,
        "explained_variance": 0.5, "reference_kl": 0.1, "away": 5.0, "error_ratio": 0.9, "top_share": 0.4,
        "rate": 1000.0, "memory_mib": 500.0,
    }  # fmt: skip
    return Figures(**sound | changes)


def alarms_of(history):
    alarms = Alarms()
    alarms.history.extend(history)
    alarms.looked = len(history)
    return alarms


@pytest.fixture(scope="module")
def ppo():
    return make_ppo()[0]


@pytest.mark.parametrize(
    ("look", "changes", "name"),
    [
        (bands, {"kl": 0.5}, "KL"),
        (bands, {"kl": 0.0}, "KL"),
        (bands, {"clip_fraction": 0.7}, "clipping"),
        (bands, {"entropy": 0.001}, "entropy"),
        (bands, {"explained_variance": -1.0}, "critic"),
        (rewards_arrive, {"positive": 0}, "rewards"),
    ],
)
def test_numbers_out_of_their_band_are_told(ppo, look, changes, name):
    assert [one.name for one in look(alarms_of([figures(**changes)] * WINDOW), ppo)] == [name]
    assert not list(look(alarms_of([figures()] * WINDOW), ppo))


def test_a_metric_that_stays_where_it_was_is_told(ppo, monkeypatch):
    monkeypatch.setattr(ppo, "num_timesteps", 5_000)
    alarms = alarms_of([figures(wins=1)] * WINDOW)
    alarms.looked, alarms.start_success = 10 * WINDOW, 0.02
    assert [one.name for one in progress_is_made(alarms, ppo)] == ["no progress"]
    monkeypatch.setattr(ppo.sampler, "config", CurriculumConfig(strategy="learnability"))
    assert not list(progress_is_made(alarms, ppo)), "it draws harder levels as success rises"
    monkeypatch.undo()
    monkeypatch.setattr(ppo, "num_timesteps", 5_000)
    alarms.start_success = 0.001
    assert not list(progress_is_made(alarms, ppo))


def test_figures_of_every_update_are_there_and_distances_of_those_that_are_looked_at():
    _, alarms, _ = watch(updates=ALL_AUDITED + 2 * AUDIT_EVERY, total_timesteps=10**6)
    for name in ("kl", "clip_fraction", "entropy", "explained_variance"):
        assert not np.isnan([getattr(one, name) for one in alarms.history]).any(), name
    assert len(alarms._recent("away")) < WINDOW


def test_a_clone_that_is_left_is_told_though_not_every_update_is_looked_at(ppo):
    some = [figures(reference_kl=5.0 if number % AUDIT_EVERY == 0 else math.nan) for number in range(WINDOW)]
    assert [one.name for one in bands(alarms_of(some), ppo)] == ["clone"]


def test_each_stage_that_is_stuck_is_told_while_it_is(ppo, monkeypatch):
    alarms, events = alarms_of([figures()] * WINDOW), []
    monkeypatch.setattr(ppo.sampler.strategy, "events", events)
    told = []
    for stage in ("simplest", "simpler", "simpler", "simple"):
        monkeypatch.setattr(type(ppo.sampler), "stage", stage)
        if stage != "simple":
            events.append({"event": "stuck_at_floor", "stage": stage})
        told.append([one.name for one in alarms.new(list(progress_is_made(alarms, ppo)))])
    assert told == [["curriculum, simplest"], ["curriculum, simpler"], [], []]


def test_success_that_no_longer_rises_is_told(ppo, monkeypatch):
    monkeypatch.setattr(ppo, "num_timesteps", 5_000)
    alarms = alarms_of([figures()] * WINDOW)
    for wins, names in (([200, 210, 190, 205, 195], ["flat"]), ([200, 300, 400, 450, 480], []), ([900] * 5, [])):
        alarms.won.extend([10 * won, 10_000] for won in wins)
        assert [one.name for one in progress_is_made(alarms, ppo)] == names


def test_each_warning_is_told_once_and_after_a_resume_too():
    alarms = Alarms()
    warning, stop = Fault("KL", "large", False), Fault("weights", "NaN")
    assert alarms.new([warning, stop]) == [warning, stop]
    assert alarms.new([warning, stop]) == [stop]
    fresh = Alarms()
    fresh.load_state_dict(alarms.state_dict())
    assert fresh.new([warning]) == []


def test_what_is_remembered_comes_back():
    _, alarms, _ = watch(2)
    fresh = Alarms()
    fresh.load_state_dict(alarms.state_dict())
    first, second = alarms.state_dict(), fresh.state_dict()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert str(value) == str(second[name]), name


def test_a_steady_fall_is_told_and_noise_is_not():
    assert growth.falling(np.linspace(100, 70, WINDOW))
    assert not growth.falling(np.linspace(100, 95, WINDOW)), "too little to tell"
    assert not growth.falling(np.r_[np.full(10, 100.0), np.full(10, 60.0)]), "somebody else took the processor"
    rng = np.random.default_rng(0)
    assert not any(growth.falling(rng.normal(100, 15, WINDOW)) for _ in range(2000))
    assert any(
        one.name == "slower"
        for one in resources_stay(alarms_of([figures(rate=1000 - 20 * i) for i in range(WINDOW)]), make_ppo()[0])
    )


def test_a_container_that_only_grows_is_named():
    class Owner:
        pass

    Owner.__module__ = "rl.ppo.owner"
    owner, history = Owner(), deque(maxlen=WINDOW)
    owner.labels, owner.window = {}, deque(maxlen=300)
    for number in range(2 * WINDOW):
        owner.labels |= {(number, i): i for i in range(30)}
        owner.window.extend(range(60))
        history.append(growth.sizes(owner))
    found = dict(growth.growing(history))
    assert found["Owner.labels"] == 2 * WINDOW * 30
    assert "Owner.window" not in found
