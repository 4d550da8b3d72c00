"""Exploration in episodes without progress, with made-up policies."""

import numpy as np
import pytest
import torch

from nppsim.observe import layout
from rl.evaluation.suite import EvaluationSuite
from rl.policy.constants import BURST, MAX_REPEAT
from rl.policy.player import ExploringPlayer, Player, player_of

from worlds import RIGHT, corridor

PATH, LOOK_AHEAD = "reachability_features", "foresight"
TO_EXIT = layout.SPECS[PATH].components.index("path_to_exit")
DEATH = layout.SPECS[LOOK_AHEAD].components.index("death")
PATIENCE = 5


class Waiting:
    """Does nothing if deterministic; otherwise draws any of the other actions."""

    observations = (PATH, LOOK_AHEAD)

    def act(self, obs, *, deterministic, rng):
        rows = len(obs[PATH])
        return np.zeros(rows, np.int64) if deterministic else torch.randint(1, 6, (rows,), generator=rng).numpy()


class RightIfSampled:
    observations = (PATH,)

    def act(self, obs, *, deterministic, rng):
        return np.full(len(obs[PATH]), 0 if deterministic else RIGHT)


def observed(lengths, deadly=()):
    """Observations of environments with these path lengths; look-ahead calls the actions ``deadly`` deadly."""
    path = np.zeros((len(lengths), *layout.SPECS[PATH].shape), np.float32)
    ahead = np.zeros((len(lengths), *layout.SPECS[LOOK_AHEAD].shape), np.float32)
    path[:, TO_EXIT] = lengths
    ahead[:, list(deadly), :, DEATH] = 0.5
    return {PATH: path, LOOK_AHEAD: ahead}


def decide(player, lengths, rng, deadly=()):
    return player.act(observed(lengths, deadly), np.arange(len(lengths)), deterministic=True, rng=rng)


def test_exploring_player_explores_in_bursts_until_progress():
    player, rng = player_of(Waiting(), 2, PATIENCE), torch.Generator().manual_seed(0)
    assert isinstance(player, ExploringPlayer)
    actions = [decide(player, [100.0, 100.0 - t], rng) for t in range(1 + PATIENCE + 3 * BURST)]
    stuck, moving = np.stack(actions).T
    assert not moving.any()
    assert not stuck[:PATIENCE].any() and not stuck[PATIENCE + BURST : PATIENCE + 2 * BURST].any()
    assert stuck[PATIENCE : PATIENCE + BURST].all() and stuck[PATIENCE + 2 * BURST : PATIENCE + 3 * BURST].all()
    assert not decide(player, [99.0, 0.0], rng).any()  # a new shortest path
    assert not decide(player, [100.0, 0.0], rng).any()


def test_sampled_actions_are_repeated():
    player, rng = player_of(Waiting(), 40, PATIENCE), torch.Generator().manual_seed(0)
    actions = np.stack([decide(player, [1.0] * 40, rng) for _ in range(PATIENCE + BURST)])[PATIENCE:]
    changes = (np.diff(actions, axis=0) != 0).sum()
    # The mean repetition is MAX_REPEAT / 2 decisions, and a fifth of the new actions equals the last one.
    assert changes == pytest.approx(40 * BURST / (MAX_REPEAT / 2) * 0.8, rel=0.3)


def test_deadly_action_not_repeated():
    player, rng = player_of(Waiting(), 1, PATIENCE), torch.Generator().manual_seed(0)
    seen = [decide(player, [1.0], rng)[0] for _ in range(PATIENCE + 1)]
    for _ in range(BURST - 1):
        seen.append(decide(player, [1.0], rng, deadly=[seen[-1]])[0])
    # A new action in every decision, a fifth of which equals the last one.
    assert (np.diff(seen[PATIENCE:]) != 0).sum() > 0.6 * BURST


def test_episodes_begin_with_new_patience():
    player, rng = player_of(Waiting(), 1, PATIENCE), torch.Generator().manual_seed(0)
    for _ in range(PATIENCE):
        decide(player, [1.0], rng)
    player.begin(np.array([0]))
    assert not np.stack([decide(player, [50.0], rng) for _ in range(PATIENCE)]).any()
    assert decide(player, [50.0], rng).all()


@pytest.mark.parametrize(("policy", "patience"), [(Waiting(), 0), (object(), PATIENCE)])
def test_player_of_without_patience_or_path_lengths_returns_a_plain_player(policy, patience):
    assert type(player_of(policy, 1, patience)) is Player


@pytest.mark.usefixtures("whole_evaluations")
def test_exploration_finishes_a_level_in_which_the_policy_waits():
    outcomes = {}
    for patience in (0, PATIENCE):
        suite = EvaluationSuite(
            [(corridor(door=40), "")],
            episodes_per_category=1,
            seed=1,
            threads=1,
            patience=patience,
        )
        record = suite.run(RightIfSampled(), deterministic=True)[0]
        outcomes[patience] = record.outcome
        assert record.frames == 5400 or record.won  # the game's 90 s
    assert outcomes == {0: "timeout", PATIENCE: "won"}
