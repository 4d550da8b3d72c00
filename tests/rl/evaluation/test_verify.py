"""Judged episodes are played again: what is recorded otherwise than it was, or decided by somebody else, is refused."""

from dataclasses import replace

import pytest
import torch

from rl.evaluation.results import ResultsError, aggregate
from rl.evaluation.suite import EvaluationSuite, RandomPolicy
from rl.evaluation.verify import check_beginning, check_counts, check_random, verify
from rl.policy.policy import build_policy

from learners import CATEGORIES, LEVELS, OBSERVATIONS, statistics

HOW = {"frame_skip": 4, "observations": OBSERVATIONS}


def policy(seed):
    torch.manual_seed(seed)
    made = build_policy("vision_free", statistics())
    with torch.no_grad():
        made.action_net.weight.mul_(200)  # a fresh policy is nearly uniform: every one would be as good
    return made


@pytest.fixture(scope="module")
def suite():
    pairs = list(zip(LEVELS, CATEGORIES, strict=True))
    return EvaluationSuite(pairs, episodes_per_category=2, seed=0, threads=1, **HOW)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_was_judged_is_believed(suite, deterministic):
    judged = policy(0)
    episodes = suite.run(judged, deterministic=deterministic)
    verify(episodes, judged, planned=len(suite), deterministic=deterministic, **HOW)


def test_random_play_that_is_drawn_from_the_same_random_numbers_is_refused(suite):
    episodes = suite.run(RandomPolicy(), deterministic=False)
    check_random(episodes, 4)
    longest = max(episodes, key=lambda episode: len(episode.inputs))
    with pytest.raises(ResultsError, match="begins with the same 24 actions"):
        check_random([*episodes, replace(longest)], 4)


@pytest.mark.parametrize("deterministic", [False, True])
def test_another_policys_decisions_are_refused(suite, deterministic):
    episodes = suite.run(policy(0), deterministic=deterministic)
    with pytest.raises(ResultsError, match="polic"):
        verify(episodes, policy(1), planned=len(suite), deterministic=deterministic, **HOW)


def test_an_outcome_that_was_not_is_refused(suite):
    episodes = suite.run(policy(0), deterministic=False)
    other = "won" if episodes[0].outcome != "won" else "died"
    with pytest.raises(ResultsError, match="played again"):
        verify([replace(episodes[0], outcome=other)], None, planned=1, deterministic=False, **HOW)
    with pytest.raises(ResultsError, match="left out"):
        verify(episodes[1:], None, planned=len(suite), deterministic=False, **HOW)


def test_figures_are_counted_again(suite):
    episodes = suite.run(policy(0), deterministic=False)
    found = aggregate(episodes)
    check_counts(episodes, found)
    name = next(iter(found))
    with pytest.raises(ResultsError, match=f"{name}: success is told as 2, counted one by one it is"):
        check_counts(episodes, found | {name: found[name] | {"success": 2.0}})
    with pytest.raises(ResultsError, match="is told as .*, counted one by one"):
        check_counts(episodes[1:], found)


def test_episodes_that_end_sooner_than_the_policys_are_other_ones(suite):
    episodes, actions = (
        suite.run(policy(0), deterministic=False),
        suite.beginning(policy(0), deterministic=False, decisions=16),
    )
    check_beginning(episodes, actions, 4)
    short = [replace(one, inputs=one.inputs[:4], frames=4, decisions=1) for one in episodes]
    with pytest.raises(ResultsError, match="decisions that were judged are not this policy's"):
        check_beginning(short, actions, 4)


@pytest.mark.parametrize("deterministic", [False, True])
def test_subtasks_are_chosen_by_the_high_level_and_end_by_the_rules(deterministic):
    judged = build_policy("vision_free+subtasks10", statistics())
    with torch.no_grad():
        judged.commander.policy_net[-1].weight.mul_(2000)  # a fresh one chooses by chance
    pairs = list(zip(LEVELS, CATEGORIES, strict=True))
    suite = EvaluationSuite(pairs, episodes_per_category=2, seed=0, threads=1, num_envs=2, **HOW)
    episodes = suite.run(judged, deterministic=deterministic)
    how = {"planned": len(suite), "deterministic": deterministic, **HOW}
    verify(episodes, judged, **how)
    older = [replace(one, commands=one.commands + [0, 1]) for one in episodes]
    with pytest.raises(ResultsError, match="has subtask"):
        verify(older, judged, **how)
    judged.commander.policy_net[-1].weight.data.neg_()
    with pytest.raises(ResultsError, match="subtasks of judged episodes|decisions"):
        verify(episodes, judged, **how)


def test_what_was_remembered_is_believed_and_nothing_else():
    judged = build_policy("vision_free+gru", statistics())
    pairs = list(zip(LEVELS, CATEGORIES, strict=True))
    suite = EvaluationSuite(pairs, episodes_per_category=2, seed=0, threads=1, num_envs=2, **HOW)
    episodes = suite.run(judged, deterministic=False)
    verify(episodes, judged, planned=len(suite), deterministic=False, **HOW)
    forgot = [replace(one, memory=one.memory * 0) for one in episodes]
    with pytest.raises(ResultsError, match="remembered"):
        verify(forgot, judged, planned=len(suite), deterministic=False, **HOW)
