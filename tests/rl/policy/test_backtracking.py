"""Backtracking after deaths and fruitless exploration, with made-up policies and untrained networks."""

import numpy as np
import pytest
import torch

from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.observe.statistics import ObservationStatistics
from nppsim.physics.outcomes import DIED
from nppsim.simulate import simulate
from rl.evaluation.suite import EvaluationSuite
from rl.policy.backtracking import BacktrackingPlayer, with_backtracking
from rl.policy.constants import MAX_DEATH_RETRIES, MAX_PHASE_RETRIES
from rl.policy.player import ExploringPlayer, Player, player_of
from rl.policy.policy import build_policy

from programs import load_script
from worlds import RIGHT, corridor, random_level, straight

PATH, LOOK_AHEAD = "reachability_features", "foresight"


class RightUnlessSampled:
    """Runs right if deterministic; otherwise draws any action."""

    observations = (PATH, LOOK_AHEAD)

    def act(self, obs, *, deterministic, rng):
        rows = len(obs[PATH])
        return np.full(rows, RIGHT) if deterministic else torch.randint(6, (rows,), generator=rng).numpy()


class Waiting(RightUnlessSampled):
    def act(self, obs, *, deterministic, rng):
        return np.zeros(len(obs[PATH]), np.int64)


def suite_of(levels, horizon, patience=0, num_envs=64):
    return EvaluationSuite(
        [(level, "") for level in levels],
        seed=3,
        threads=1,
        num_envs=num_envs,
        patience=patience,
        horizon=horizon,
    )


def simulator_of(level, observed=RightUnlessSampled.observations, num_envs=1):
    sim = BatchSimulator(LevelBank([level]), num_envs, observations=observed, threads=1)
    sim.reset()
    return sim


def test_suite_with_backtracking_passes_a_mine():
    assert suite_of([straight(mine=True)], 0).run(RightUnlessSampled(), deterministic=True)[0].outcome == "died"
    record = suite_of([straight(mine=True)], 80).run(RightUnlessSampled(), deterministic=True)[0]
    assert record.outcome == "won"
    assert record.backtracks > 0


def test_suite_with_backtracking_records_final_decisions():
    levels = [random_level(seed, density=0.1) for seed in range(12)]
    suite, without = suite_of(levels, 80, num_envs=5), suite_of(levels, 0, num_envs=5)
    records = suite.run(RightUnlessSampled(), deterministic=True)
    plain = without.run(RightUnlessSampled(), deterministic=True)
    for record in records:
        run = simulate(record.level, record.inputs)
        assert (run.outcome.replace("running", "timeout"), run.frames) == (record.outcome, record.frames)
        assert record.decisions == -(-record.frames // 4)
    died = sum(record.outcome == "died" for record in records)
    assert died < sum(record.outcome == "died" for record in plain)
    again = suite.run(RightUnlessSampled(), deterministic=True)
    assert [record.inputs.tolist() for record in again] == [record.inputs.tolist() for record in records]


@pytest.mark.parametrize("horizon", [1, 5, 30])
def test_backtrack_keeps_final_decisions_and_restores_matching_states(horizon):
    level = straight(mine=True)
    sim, replay = simulator_of(level), simulator_of(level)
    player, rng = with_backtracking(Player(RightUnlessSampled()), sim, horizon), torch.Generator().manual_seed(0)
    played, farthest, returns = [], 0, 0
    while True:
        action = player.act(sim.obs, np.zeros(1, np.int64), deterministic=True, rng=rng)
        played.append(action[0])
        farthest = max(farthest, len(played))
        sim.step(action)
        backtracked = player.backtrack(rng)
        if sim.finished.size and not backtracked:
            break
        if backtracked:
            returns += 1
            del played[-backtracked[0] :]
            assert len(played) >= farthest - horizon
            replay.reset()
            for one in played:
                replay.step(np.array([one]))
            assert (replay.snapshot(0) == sim.snapshot(0)).all()
            for key in sim.keys:
                np.testing.assert_array_equal(sim.obs[key], replay.obs[key])
    assert returns > 0
    assert sim.episode["outcome"][0] != DIED or returns >= MAX_DEATH_RETRIES


def test_backtrack_after_failed_exploration_repeats_up_to_the_limit():
    sim = simulator_of(corridor())
    player, rng = with_backtracking(player_of(Waiting(), 1, 5), sim, 80), torch.Generator().manual_seed(0)
    counts = []
    for _ in range(6 + (MAX_PHASE_RETRIES + 1) * Player.phase):
        sim.step(player.act(sim.obs, np.zeros(1, np.int64), deterministic=True, rng=rng))
        counts += player.backtrack(rng).values()
    assert counts == [Player.phase] * MAX_PHASE_RETRIES


@pytest.mark.parametrize(
    "architecture", ["vision_free_foresight", "vision_free_foresight+gru", "vision_free_foresight+subtasks12"]
)
def test_backtrack_restores_recurrent_states_and_subtasks(architecture):
    policy = build_policy(architecture)
    sim = simulator_of(straight(mine=True), policy.observations, num_envs=2)
    statistics = ObservationStatistics(policy.observations)
    statistics.update(sim.obs)
    policy.set_statistics(statistics)
    player, rng = with_backtracking(player_of(policy, 2, 5), sim, 40), torch.Generator().manual_seed(0)
    assert isinstance(player, BacktrackingPlayer) and isinstance(player.inner, ExploringPlayer)
    envs, remembered, returns = np.arange(2), [[], []], 0
    for _ in range(600):
        for env in envs:
            remembered[env].append([values[env].copy() for values in player.inner.episode_state])
        sim.step(player.act(sim.obs, envs, deterministic=False, rng=rng))
        backtracked = player.backtrack(rng)
        for env, count in backtracked.items():
            before = remembered[env][-count]
            del remembered[env][-count:]
            returns += 1
            for now, past in zip(player.inner.episode_state, before, strict=True):
                np.testing.assert_array_equal(now[env], past)
        ended = np.setdiff1d(sim.finished, list(backtracked))
        player.begin(ended)
        for env in ended:
            remembered[env].clear()
    assert returns


def test_with_backtracking_without_foresight_or_horizon_returns_the_player():
    sim = simulator_of(straight())
    plain = Player(object())
    assert with_backtracking(plain, sim, 80) is plain
    ahead = Player(RightUnlessSampled())
    assert with_backtracking(ahead, sim, 0) is ahead


@pytest.mark.parametrize("horizon", ["-1", "10001", "1e9"])
def test_with_backtracking_impossible_horizon_raises(horizon, tmp_path, capsys):
    flags = ["no_agent.safetensors", "--levels", str(tmp_path), "--backtracking-horizon", horizon]
    assert load_script("evaluate").main(flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --backtracking-horizon") and error.count("\n") == 1
    with pytest.raises(ValueError, match="horizon must be 0 to 10,000"):
        with_backtracking(Player(RightUnlessSampled()), simulator_of(straight()), int(float(horizon)))
