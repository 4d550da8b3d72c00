"""Rewards against a reference implementation, telescoping of shaping, and the audit of presets."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim import reward
from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.physics.outcomes import DIED, TIMEOUT, WON
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.reward import PATH_SHAPING, STRAIGHT_LINE_SHAPING, RewardConfig, audit
from nppsim.shadow.reference_level import ReferenceLevel
from nppsim.shadow.rewards import EpisodeRewards, sum_in_order

from worlds import SPARSE_REWARDS, Walk, corridor, random_level, room

GAMMA = 0.97
ALL_TERMS = RewardConfig(4.0, -1.0, 0.5, -0.01, 2.0, PATH_SHAPING, closest=0.01, proximity=0.3, exploration=0.05)
ONLY_SHAPING = RewardConfig(0.0, 0.0, 0.0, 0.0, 2.0)
LOCKED = corridor(40, 120, 140, locked_doors=[((46, 46), (80, 44), 0)])
WORLDS = {
    "win": corridor(20, 30, 44),
    "win far away": corridor(20, 60, 100),
    "behind": corridor(40, 30, 60),
    "death": corridor(20, 60, 80, entities=[(1, 34, 46)]),
    "door": LOCKED,
    "no exit": room(),
    "random": random_level(4, 0.2, 30),
}


reference_level = functools.cache(ReferenceLevel)  # its path search takes most of the time


def reference_of(level, config, sim):
    reference = reference_level(level)
    return EpisodeRewards(
        config, sim.gamma, reference, reference.state_of(sim.state.ninja[0], sim.state.entities[0], sim.state.movers[0])
    )


def biased_actions(rng, steps):
    """Mostly to the right, each action held for some decisions."""
    return np.repeat(rng.choice(6, steps, p=[0.05, 0.15, 0.5, 0.05, 0.05, 0.2]), rng.integers(1, 6, steps))[:steps]


@given(
    seed=st.integers(0, 2**32 - 1),
    world=st.sampled_from(sorted(WORLDS)),
    potential=st.sampled_from([PATH_SHAPING, STRAIGHT_LINE_SHAPING]),
    frame_skip=st.sampled_from([1, 4]),
)
@settings(max_examples=25, deadline=None)
def test_rewards_random_play_match_reference(seed, world, potential, frame_skip):
    config = RewardConfig(**{**vars(ALL_TERMS), "potential": potential})
    bank = LevelBank([WORLDS[world]])
    bank.time_limit[:] = 160
    sim = BatchSimulator(bank, 1, frame_skip=frame_skip, reward=config, gamma=GAMMA, observations=("state",))
    sim.reset()
    walk, reference = Walk(WORLDS[world]), reference_of(WORLDS[world], config, sim)
    for action in biased_actions(np.random.default_rng(seed), 160):
        sim.step(np.array([action]))
        frames = []
        while len(frames) < frame_skip and not (frames and frames[-1].ninja["state"] in (DEAD, CELEBRATING)):
            frames.append(reference.reference.state_of(*walk.frame(ACTION_INPUT[action]), walk.movers[0]))
        assert sim.rewards[0] == np.float32(sum_in_order(reference.decide(frames)))
        if sim.finished.size:
            assert sim.episode["terms"][0].tolist() == reference.terms
            assert sim.episode["ret"][0] == sum_in_order(reference.terms)
            return
        assert sim.state.terms[0].tolist() == reference.terms


def shaped_run(level, actions, time_limit=10_000, config=ONLY_SHAPING):
    """(discounted sum of a run's shaping, decisions, first and last potential, outcome), the potentials by the reference."""
    bank = LevelBank([level])
    bank.time_limit[:] = time_limit
    sim = BatchSimulator(bank, 1, reward=config, gamma=GAMMA, observations=("state",))
    sim.reset()
    reference, walk = reference_of(level, config, sim), Walk(level)
    first, total = reference.potential, 0.0
    for t, action in enumerate(actions):
        sim.step(np.array([action]))
        total += GAMMA**t * float(sim.rewards[0])
        reference.decide(
            [reference.reference.state_of(*walk.frame(ACTION_INPUT[action]), walk.movers[0]) for _ in range(4)]
        )
        if sim.finished.size:
            outcome = int(sim.episode["outcome"][0])
            return total, t + 1, first, 0.0 if outcome != TIMEOUT else reference.potential, outcome
    return total, len(actions), first, reference.potential, None


RIGHT = [2] * 120
SHAPED = [
    ("win", RIGHT, WON),
    ("win far away", RIGHT, WON),
    ("behind", [1] * 25 + RIGHT, WON),
    ("death", RIGHT, DIED),
    ("win far away", RIGHT[:35], None),
    ("door", RIGHT[:25], None),
    ("door", RIGHT, WON),
    ("random", [5, 2, 2, 4, 1, 1] * 8, None),
]


@pytest.mark.parametrize(("world", "actions", "outcome"), SHAPED)
@pytest.mark.parametrize("potential", [PATH_SHAPING, STRAIGHT_LINE_SHAPING])
def test_shaping_discounted_sum_telescopes(world, actions, outcome, potential):
    """Including the touch of the switch and opening doors; the potential of a terminal state is 0."""
    config = RewardConfig(**{**vars(ONLY_SHAPING), "potential": potential})
    total, decisions, first, last, got = shaped_run(WORLDS[world], actions, config=config)
    assert got == outcome
    assert total == pytest.approx(GAMMA**decisions * last - first, abs=1e-4)


def test_shaping_telescopes_up_to_time_out():
    total, decisions, first, last, outcome = shaped_run(WORLDS["win far away"], RIGHT, time_limit=100)
    assert (outcome, decisions) == (TIMEOUT, 25)
    assert last > 0.2
    assert total == pytest.approx(GAMMA**decisions * last - first, abs=1e-4)


def test_potential_grows_from_start_to_exit():
    level = WORLDS["win far away"]
    _, _, first, _, _ = shaped_run(level, [])
    assert first == pytest.approx(0.0, abs=1e-4)
    _, decisions, _, _, outcome = shaped_run(level, RIGHT)
    assert outcome == WON
    assert 1.7 < shaped_run(level, RIGHT[: decisions - 1])[3] < 2.0


def test_closest_running_to_goal_rewarded_each_decision():
    config = RewardConfig(win=0.0)
    sim = BatchSimulator([WORLDS["win far away"]], 1, reward=config)
    sim.reset()
    sim.step(np.array([2])), sim.step(np.array([2]))  # from rest, the first decisions are slow
    while True:
        sim.step(np.array([2]))
        if sim.finished.size:
            break
        assert sim.rewards[0] > 0


def test_switch_once_and_proximity_once_per_objective():
    config = RewardConfig(0.0, 0.0, 0.5, 0.0, 0.0, proximity=0.25)
    sim = BatchSimulator([WORLDS["win far away"]], 1, reward=config)
    sim.reset()
    gains = []
    while not sim.finished.size:
        sim.step(np.array([2]))
        gains.append(float(sim.rewards[0]))
    assert sorted(g for g in gains if g) == [0.25, 0.25, 0.5]
    assert sim.episode["terms"][0].tolist() == [0, 0, 0.5, 0, 0, 0, 0.5, 0]


def test_exploration_each_cell_and_block_once():
    sim = BatchSimulator([room((44, 46))], 1, reward=RewardConfig(0.0, 0.0, 0.0, 0.0, 0.0, exploration=1.0))
    sim.reset()
    gains = []
    for action in [2] * 12 + [1] * 40:
        sim.step(np.array([action]))
        gains.append(float(sim.rewards[0]))
    assert sum(gains[:12]) > 0
    assert sum(gains[20:30]) == 0.0  # back over known ground
    assert sum(gains[30:]) > 0  # and on to the left of the start


def test_reward_config_invalid_values_raise_error():
    with pytest.raises(ValueError, match="unknown reward preset 'octobre'; known: default"):
        reward.reward_config("octobre")
    with pytest.raises(ValueError, match="finite"):
        RewardConfig(win=float("nan"))
    with pytest.raises(ValueError, match="potential must be"):
        RewardConfig(potential=2)


# ---------------------------------------------------------------------------------------------------------------- audit
PATHS = {"simplest": [120.0, 200.0, 300.0], "simple": [400.0, 700.0, 900.0]}


def problems(config, gamma=0.995, frame_skip=4, paths=PATHS):
    return [p for row in audit(config, gamma, frame_skip, paths) for p in row.problems]


def test_audit_default_rewards_pass():
    assert problems(reward.PRESETS["default"]) == []


def test_audit_large_time_penalty_warns():
    """The time penalty cancels shaping , and death is better than going on."""
    for row in audit(SPARSE_REWARDS, 0.99, 4, PATHS):
        assert any("running at the goal at top speed can cost" in p for p in row.problems)
        assert any("an immediate death returns" in p and "more than staying alive" in p for p in row.problems)
        assert any("the time of a plain win costs" in p for p in row.problems)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (RewardConfig(win=-1.0), "waiting for the time-out"),
        (RewardConfig(win=-2.0), "an immediate death"),
        (RewardConfig(death=0.5), "more than staying alive"),
        (RewardConfig(shaping=0.01), "running at the goal"),
        (RewardConfig(time=-0.01), "the time of a plain win"),
    ],
)
def test_audit_names_each_fault(config, words):
    assert any(words in p for p in problems(config))


def test_audit_numbers_agree_with_play():
    """An immediate death, standing still to the end, and a run at top speed, discounted by hand."""
    gamma, config = 0.99, RewardConfig(shaping=0.0)
    level = WORLDS["no exit"]
    sim = BatchSimulator([level], 1, reward=config, gamma=gamma, observations=("state",))
    (row,) = audit(config, gamma, 4, {"any": [float(sim.bank.path_length[0])]})
    sim.reset()
    total, t = 0.0, 0
    while not sim.finished.size:
        sim.step(np.array([0]))
        total += gamma**t * float(sim.rewards[0])
        t += 1
    assert sim.episode["outcome"][0] == TIMEOUT
    assert total == pytest.approx(row.timeout_return, abs=1e-4)
