"""BatchSimulator: independence of threads, batching, snapshots and observations; restarts; episode records."""

import copy
import hashlib
import os
import pickle
import queue
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from numba import config

import nppsim
from nppsim import bank, batch, decision
from nppsim._numba.phases import PHASES
from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from nppsim.physics.outcomes import DIED, NAMES, TIMEOUT, WON
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE
from nppsim.planner import better_runs, plan
from nppsim.simulate import _run as simulate_kernel
from nppsim.simulate import play_on

from places import ROOT
from worlds import SPARSE_REWARDS, corridor, mixed_level, random_level, room

WINNABLE = corridor(20, 24, 32)
DEADLY = corridor(20, 40, 60, entities=[(1, 26, 46)])
LOCKED = corridor(40, 120, 140, locked_doors=[((44, 46), (80, 44), 0)], trap_doors=[((30, 46), (20, 44), 0)])
LEVELS = [WINNABLE, DEADLY, LOCKED, random_level(1, 0.2, 40), random_level(2, 0.3, 40), room(entities=[(21, 92, 46)])]
LEVELS += [mixed_level(3), mixed_level(4, kinds=(10, 11, 17, 20, 24, 28))]


def short_bank(levels=LEVELS, time_limit=60):
    """A bank whose episodes end soon."""
    out = LevelBank(levels)
    out.time_limit[:] = time_limit
    return out


def sticky_actions(rng, steps, n):
    """int64[steps, n]: random actions, each repeated for four decisions, mostly to the right."""
    actions = rng.choice(6, p=[0.05, 0.1, 0.4, 0.1, 0.05, 0.3], size=(-(-steps // 4), n))
    return np.repeat(actions, 4, axis=0)[:steps]


def step_record(sim):
    """Everything that a step gives, as bytes of environment i."""
    out = []
    for i in range(sim.num_envs):
        parts = [sim.obs[key][i] for key in sim.keys]
        parts += [sim.rewards[i], sim.terminated[i], sim.truncated[i], sim.level[i]]
        if sim.truncated[i]:
            parts += [sim.final_obs[key][i] for key in sim.keys]
        if i in sim.finished:
            parts += [sim.episode[name][i] for name in sim.episode.dtype.names]
        out.append(b"".join(np.ascontiguousarray(p).tobytes() for p in parts))
    return out


def play(sim, actions):
    """Step records [steps][environments]."""
    records = []
    for row in actions:
        sim.step(row)
        records.append(step_record(sim))
    return records


def columns(records, first, last):
    return [row[first:last] for row in records]


@pytest.mark.parametrize("observations", [layout.VISION_FREE, ("player_frame", "global_view")])
def test_step_results_are_equal_for_any_number_of_threads(observations):
    n = 2 * batch.MIN_ENVS_TO_SPREAD + 3
    actions = sticky_actions(np.random.default_rng(0), 40, n)
    records = []
    for threads in (1, 2, 5):
        sim = BatchSimulator(short_bank(), n, observations=observations, threads=threads)
        sim.reset()
        records.append(play(sim, actions))
    assert records[0] == records[1] == records[2]


def test_step_results_do_not_depend_on_other_environments():
    n = 7
    actions = sticky_actions(np.random.default_rng(1), 60, n)
    together = BatchSimulator(short_bank(), n, threads=1)
    together.reset()
    records = play(together, actions)
    for i in range(n):
        alone = BatchSimulator(together.bank, 1, threads=1)
        alone.next_level[:] = together.next_level[i]
        alone.reset()
        assert play(alone, actions[:, i : i + 1]) == columns(records, i, i + 1)


def test_snapshots_and_requested_observations_do_not_change_results():
    n = 6
    actions = sticky_actions(np.random.default_rng(2), 60, n)
    records = []
    for observations, snapshots, profile in (
        (layout.ALL, 0, False),
        (layout.ALL, n, False),
        (("state",), 0, False),
        (layout.ALL, 0, True),
    ):
        sim = BatchSimulator(short_bank(), n, observations=observations, threads=1, profile=profile)
        sim.reset()
        records.append([])
        for row in actions:
            sim.step(row)
            for i in range(snapshots):
                sim.snapshot(i)
            records[-1].append(sim.rewards.tobytes() + sim.obs["game_state"].tobytes())
    assert all(record == records[0] for record in records)


def test_step_timing_with_profiling_has_all_phases(monkeypatch):
    sim = BatchSimulator(short_bank(), 40, observations=layout.ALL, threads=1, profile=True)
    sim.reset()
    assert sim.step_timing["reset"] > 0 and sim.step_timing["ninja"] == 0
    sim.step(np.zeros(40, int))
    timing = sim.step_timing
    assert tuple(timing) == PHASES
    assert timing["ninja"] > 0 and timing["movers_move"] > 0 and timing["global_view"] > 0
    assert timing["reset"] == 0
    alone = BatchSimulator(sim.bank, 1, observations=layout.ALL, threads=1, profile=True)
    alone.reset()
    begin = time.perf_counter_ns()
    alone.step(np.zeros(1, int))
    passed = time.perf_counter_ns() - begin
    assert 0 < sum(alone.step_timing.values()) <= passed
    assert BatchSimulator(sim.bank, 1, threads=1, profile=False).step_timing == {}
    for value, on in (("1", True), ("0", False)):
        monkeypatch.setenv("NPPSIM_PROFILING", value)
        assert BatchSimulator(sim.bank, 1, threads=1).profile is on


def test_restore_in_same_or_other_environment_continues_bit_for_bit():
    actions = sticky_actions(np.random.default_rng(3), 80, 6)
    sim = BatchSimulator(short_bank(), 6, threads=1, reward=SPARSE_REWARDS)
    sim.reset()
    play(sim, actions[:20])
    before = [sim.snapshot(i) for i in range(6)]
    first = play(sim, actions[20:])
    for i in range(6):
        sim.restore(i, before[i])
    assert play(sim, actions[20:]) == first
    # The other way round in another simulator; what comes next is the caller's.
    other = BatchSimulator(sim.bank, 6, threads=1, reward=SPARSE_REWARDS)
    other.reset()
    other.next_level[:] = sim.next_level[::-1]
    for i in range(6):
        other.restore(i, before[5 - i])
    assert [r[::-1] for r in play(other, actions[20:, ::-1])] == first


@pytest.mark.parametrize("stacking", [Stacking(), Stacking(state=3)], ids=["plain", "stacked"])
def test_restore_compact_continues_bit_for_bit(stacking):
    actions = sticky_actions(np.random.default_rng(3), 80, 6)
    sim = BatchSimulator(short_bank(), 6, threads=1, reward=SPARSE_REWARDS, stacking=stacking)
    sim.reset()
    play(sim, actions[:20])
    before = [sim.compact_snapshot(i) for i in range(6)]
    assert max(one.size for one in before) < sim.snapshot(0).size
    first = play(sim, actions[20:])
    sim.next_level[:] = sim.next_level[::-1]
    for i in range(6):  # each into an environment that plays another level by now
        sim.restore_compact(i, before[5 - i])
    assert [r[::-1] for r in play(sim, actions[20:, ::-1])] == first


def test_observe_after_restore_returns_the_observations_of_the_snapshot():
    sim = BatchSimulator(short_bank(), 6, observations=layout.ALL, threads=1)
    sim.reset()
    play(sim, sticky_actions(np.random.default_rng(4), 10, 6))
    before, wanted = [sim.snapshot(i) for i in range(6)], {k: v.copy() for k, v in sim.obs.items()}
    play(sim, sticky_actions(np.random.default_rng(5), 10, 6))
    for i in range(6):
        sim.restore(i, before[i])
    for key, value in sim.observe().items():
        np.testing.assert_array_equal(value, wanted[key])


def test_observe_some_environments_leaves_others_unchanged():
    sim = BatchSimulator(short_bank(), 6, observations=layout.VISION_FREE, threads=1, shadow=True)
    sim.reset()
    play(sim, sticky_actions(np.random.default_rng(4), 10, 6))
    before, wanted = sim.snapshot([1, 4]), {k: v[[1, 4]] for k, v in sim.obs.items()}
    play(sim, sticky_actions(np.random.default_rng(5), 10, 6))
    others, compared = {k: v[[0, 2, 3, 5]] for k, v in sim.obs.items()}, sim.shadow.comparisons
    sim.restore(np.array([1, 4]), before)
    for key, value in sim.observe(np.array([1, 4])).items():
        np.testing.assert_array_equal(value[[1, 4]], wanted[key])
        np.testing.assert_array_equal(value[[0, 2, 3, 5]], others[key])
    assert sim.shadow.comparisons == compared + 2
    play(sim, sticky_actions(np.random.default_rng(6), 10, 6))
    assert not sim.shadow.mismatches


def test_step_asleep_environments_stay_unchanged():
    asleep = np.array([False, True, False, True, False, False])
    awake, actions = np.flatnonzero(~asleep), sticky_actions(np.random.default_rng(5), 30, 6)
    settings = {"observations": layout.VISION_FREE, "threads": 1, "stacking": Stacking(state=3)}
    sim, reference = (BatchSimulator(short_bank(), 6, shadow=shadow, **settings) for shadow in (True, False))
    for one in (sim, reference):
        one.reset()
        play(one, sticky_actions(np.random.default_rng(4), 10, 6))
    before, seen = sim.snapshot(np.flatnonzero(asleep)), {k: v[asleep].copy() for k, v in sim.obs.items()}
    for row in actions:
        sim.step(row, asleep)
        reference.step(row)
        assert not (
            sim.rewards.any(where=asleep) or sim.terminated.any(where=asleep) or sim.truncated.any(where=asleep)
        )
        assert sim.finished.tolist() == [env for env in reference.finished if not asleep[env]]
        np.testing.assert_array_equal(sim.snapshot(awake), reference.snapshot(awake))
        for key, value in sim.obs.items():
            np.testing.assert_array_equal(value[awake], reference.obs[key][awake])
    np.testing.assert_array_equal(sim.snapshot(np.flatnonzero(asleep)), before)
    for key, value in sim.obs.items():
        np.testing.assert_array_equal(value[asleep], seen[key])
    assert sim.shadow.comparisons and not sim.shadow.mismatches


def test_sibling_restores_snapshots_of_the_other_simulator():
    sim = BatchSimulator(short_bank(), 3, observations=("state",), reward=SPARSE_REWARDS, threads=1)
    sim.reset()
    play(sim, sticky_actions(np.random.default_rng(4), 10, 3))
    alone = sim.sibling()
    alone.restore(0, sim.snapshot(1))
    actions = sticky_actions(np.random.default_rng(5), 8, 3)
    for row in actions:
        sim.step(row)
        alone.step(row[1:2])
        assert alone.rewards[0] == sim.rewards[1]
        if sim.finished.size:
            break
    assert alone.obs.keys() == {"game_state"}


@pytest.mark.parametrize("level", LEVELS, ids=range(len(LEVELS)))
def test_simulate_and_batch_agree_frame_by_frame(level):
    actions = sticky_actions(np.random.default_rng(6), 200, 1)[:, 0]
    run = nppsim.simulate(level, ACTION_INPUT[actions])
    sim = BatchSimulator([level], 1, frame_skip=1, observations=("state",))
    sim.reset()
    for f in range(run.frames):
        sim.step(actions[f : f + 1])
        if sim.finished.size:
            assert f == run.frames - 1
            assert run.outcome == NAMES[sim.episode["outcome"][0]]
            assert sim.episode["frames"][0] == run.frames
            assert sim.episode["gold"][0] == run.gold[-1]
            break
        ninja = sim.state.ninja[0]
        assert (ninja["x"], ninja["y"]) == tuple(run.position[f])
        assert (ninja["vx"], ninja["vy"]) == tuple(run.velocity[f])
        assert ninja["state"] == run.ninja_state[f]
        count = run.entity_state.shape[1]
        np.testing.assert_array_equal(sim.state.entities["active"][0, :count], run.entity_state[f] & 1)
        np.testing.assert_array_equal(sim.state.entities["closed"][0, :count], run.entity_state[f] >> 4)


@pytest.mark.parametrize("frame_skip", [1, 2, 4, 7])
def test_step_simulates_frame_skip_frames_of_one_input(frame_skip):
    sim = BatchSimulator([room()], 1, frame_skip=frame_skip, observations=("state",))
    sim.reset()
    actions = sticky_actions(np.random.default_rng(7), 20, 1)
    for k, action in enumerate(actions):
        sim.step(action)
        assert sim.state.ninja["frame"][0] == frame_skip * (k + 1)
    run = nppsim.simulate(room(), np.repeat(ACTION_INPUT[actions[:, 0]], frame_skip))
    assert (sim.state.ninja["x"][0], sim.state.ninja["y"][0]) == tuple(run.position[-1])


def run_to_end(sim, action):
    """Step until the first episode ends."""
    while True:
        sim.step(np.full(sim.num_envs, action))
        if sim.finished.size:
            return


def test_step_at_time_limit_truncates_and_writes_final_obs():
    sim = BatchSimulator(short_bank([room(), room((40, 46))], 10), 1, observations=layout.ALL)
    endless = BatchSimulator([room()], 1, observations=layout.ALL)
    for s in (sim, endless):
        s.reset()
    sim.next_level[0] = 1
    for _ in range(3):
        assert not sim.truncated[0]
        sim.step(np.array([2]))
        endless.step(np.array([2]))
    assert (sim.terminated[0], sim.truncated[0], sim.finished.tolist()) == (False, True, [0])
    assert (sim.episode["outcome"][0], sim.episode["frames"][0], sim.episode["decisions"][0]) == (TIMEOUT, 12, 3)
    fresh = BatchSimulator([room((40, 46))], 1, observations=layout.ALL)
    fresh.reset()
    for key in layout.ALL:
        np.testing.assert_array_equal(sim.final_obs[key], endless.obs[key])
        np.testing.assert_array_equal(sim.obs[key], fresh.obs[key])
    sim.step(np.array([0]))
    assert sim.finished.size == 0 and not sim.truncated[0]


@pytest.mark.parametrize(("level", "outcome"), [(WINNABLE, WON), (DEADLY, DIED)])
def test_step_death_or_win_in_last_frame_is_a_termination(level, outcome):
    sim = BatchSimulator([level], 1)
    sim.reset()
    run_to_end(sim, 2)
    frames = int(sim.episode["frames"][0])
    for limit in (4 * (int(sim.episode["decisions"][0]) - 1) + 1, frames):  # both within the last decision
        sim = BatchSimulator(short_bank([level], limit), 1)
        sim.reset()
        sim.final_obs["game_state"][:] = -1
        run_to_end(sim, 2)
        assert (sim.terminated[0], sim.truncated[0]) == (True, False)
        assert sim.episode["outcome"][0] == outcome
        assert (sim.final_obs["game_state"] == -1).all()  # only written where cut off
        assert sim.obs["game_state"][0, 0] == level.spawn[0]


def test_step_restarts_environments_on_next_level():
    sim = BatchSimulator(short_bank(), 4)
    sim.reset(np.array([0, 1, 2, 3]))
    assert sim.level.tolist() == [0, 1, 2, 3]
    sim.next_level[:] = [5, 4, 3, 2]
    played = set()
    for _ in range(15):
        before = sim.level.copy()
        sim.step(np.full(4, 2))
        for i in range(4):
            if i in sim.finished:
                played.add(i)
                assert sim.episode["level"][i] == before[i]
                assert sim.level[i] == sim.next_level[i]
                np.testing.assert_array_equal(sim.obs["game_state"][i, :2], LEVELS[sim.next_level[i]].spawn)
            else:
                assert sim.level[i] == before[i]
    assert played == {0, 1, 2, 3}


@pytest.mark.parametrize("reward", ["default", SPARSE_REWARDS, replace(SPARSE_REWARDS, proximity=0.05)])
def test_episode_records_equal_the_sums_of_the_steps(reward):
    n, rng = 6, np.random.default_rng(8)
    sim = BatchSimulator(short_bank(time_limit=90), n, reward=reward)
    sim.reset()
    total, decisions, outcomes = np.zeros(n), np.zeros(n, int), []
    for row in sticky_actions(rng, 150, n):
        sim.step(row)
        total += sim.rewards
        decisions += 1
        np.testing.assert_array_equal(sim.finished, np.flatnonzero(sim.terminated | sim.truncated))
        for i in sim.finished:
            record = sim.episode[i]
            assert record["ret"] == pytest.approx(total[i], abs=1e-5)
            assert record["terms"].sum() == pytest.approx(record["ret"], abs=1e-12)
            assert record["decisions"] == decisions[i]
            assert 4 * (decisions[i] - 1) < record["frames"] <= 4 * decisions[i]
            outcomes.append(int(record["outcome"]))
            assert sim.terminated[i] == (record["outcome"] in (WON, DIED))
            total[i], decisions[i] = 0.0, 0
            sim.next_level[i] = rng.integers(len(LEVELS))
    assert set(outcomes) == {TIMEOUT, WON, DIED}


def test_path_fields_of_two_levels_are_not_mixed():
    """Two levels whose doors are in the same state."""
    two = corridor(40, 120, 140, locked_doors=[((46, 46), (80, 44), 0), ((50, 46), (90, 44), 0)])
    one = corridor(40, 60, 70, locked_doors=[((44, 46), (80, 44), 0)])
    sim = BatchSimulator(short_bank([two, one], 10_000), 1)

    def open_all(levels):
        sim.reset(levels)
        while sim.state.entities["closed"][0].any():
            sim.step(np.array([2]))
        return sim.obs["reachability_features"][0].copy()

    first = open_all(np.array([1]))
    open_all(np.array([0]))
    again = open_all(np.array([1]))
    np.testing.assert_array_equal(again, first)


def test_path_fields_of_44_doors_depend_on_every_door():
    """Two states of the doors that have equal 42-bit hashes."""
    doors = [((24 + 2 * k, 46), (25 + 2 * k, 44), 0) for k in range(44)]
    level = corridor(20, 120, 140, locked_doors=doors)
    states = [np.array([*f"{bits:044b}"], np.uint8) for bits in (9086538054992, 1658169512958)]

    def lengths(sim, closed):
        first = sim.bank.world.level["switches_first"][0] - sim.bank.world.level["entity_first"][0]
        sim.state.entities["closed"][0, first : first + 44] = closed
        sim.observe()
        return sim._fields.own_distance[0].copy()

    def simulator():
        sim = BatchSimulator([level], 1)
        sim.reset()
        return sim

    one_after_the_other = simulator()
    separate = [lengths(simulator(), closed) for closed in states]
    assert (separate[0] != separate[1]).any()
    for closed, expected in zip(states, separate, strict=True):
        np.testing.assert_array_equal(lengths(one_after_the_other, closed), expected)


def test_opening_a_door_changes_the_way():
    sim = BatchSimulator([corridor(40, 120, 140, locked_doors=[((46, 46), (80, 44), 0)])], 1)
    sim.reset()
    assert sim.obs["reachability_features"][0, 2] > 0
    lengths = [sim.obs["reachability_features"][0, 1]]
    while sim.state.entities["closed"][0].any():
        sim.step(np.array([2]))
        lengths.append(sim.obs["reachability_features"][0, 1])
    assert (np.diff(lengths) < 8).all()  # on the way to the door's switch it only gets shorter
    assert lengths[-1] == pytest.approx(600 - (sim.state.ninja["x"][0] - 240), abs=40)


def read_only(values):
    """A copy that cannot be written, as arrays of JAX and of ``np.frombuffer``."""
    return np.frombuffer(values.tobytes(), values.dtype)


def array_kinds(values):
    """The same whole numbers as arrays of other dtypes, byte orders, strides, flags and alignments."""
    found = [values, read_only(values), read_only(values.astype(np.int32)), np.repeat(values, 2)[::2]]
    found += [values.astype(dtype) for dtype in ("i4", "u1", ">i8", "u8")]
    odd = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype)
    odd[:] = values
    return [*found, odd, values.astype(">i4")[::-1][::-1]]


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_kernels_are_compiled_for_one_signature():
    for n, observations, reward, levels in (
        (1, layout.ALL, "default", LEVELS),
        (3, ("state",), SPARSE_REWARDS, [room()]),
        (40, layout.VISION_FREE, "default", [nppsim.Level.build(np.zeros((23, 42), np.uint8), (20, 20))]),
    ):
        sim = BatchSimulator(levels, n, observations=observations, reward=reward)
        for levels_of_envs, actions in zip(array_kinds(np.zeros(n, int)), array_kinds(np.zeros(n, int)), strict=True):
            sim.reset(levels_of_envs)
            sim.step(actions, every_end=1)
            sim.next_level = levels_of_envs
            sim.step(actions, asleep=levels_of_envs.astype(bool))
            sim.restore(0, sim.snapshot(0))
            sim.observe(np.zeros(1, int))
        sim.action_masks()
    for inputs in array_kinds(np.full(3, 2)):
        nppsim.simulate(room(), inputs)
    for run in (plan(WINNABLE), replace(plan(WINNABLE), inputs=read_only(plan(WINNABLE).inputs))):
        next(better_runs(WINNABLE, run, "time"))
    kernels = (decision.advance, decision.masks, decision.prepare_static, bank._compute_paths, simulate_kernel, play_on)
    assert {kernel.__name__: len(kernel.signatures) for kernel in kernels} == {k.__name__: 1 for k in kernels}


# Of every state along the scripted run below.  Changes only with the physics, never with the machine.
GOLDEN = "999d8e46687e1808bdd98b874b6c2c764b5ab77cbfdba024fefb7ff7a0392ece"


def test_scripted_run_has_the_golden_digest():
    n = len(LEVELS)
    sim = BatchSimulator(short_bank(time_limit=400), n, observations=("state",), threads=1)
    sim.reset()
    digest = hashlib.sha256()
    for row in sticky_actions(np.random.default_rng(10), 300, n):
        sim.step(row)
        for name in NINJA_DTYPE.names:
            digest.update(np.ascontiguousarray(sim.state.ninja[name][:n]).tobytes())
        for i, level in enumerate(sim.level):
            used = len(sim.bank.compiled[level].entity_type)
            for name in ENTITY_DTYPE.names:
                digest.update(np.ascontiguousarray(sim.state.entities[name][i, :used]).tobytes())
            moving = len(sim.bank.compiled[level].world.mover)
            for name in MOVER_DTYPE.names:
                digest.update(np.ascontiguousarray(sim.state.movers[name][i, :moving]).tobytes())
    assert digest.hexdigest() == GOLDEN


def test_single_environment_has_arrays_of_one_row():
    sim = BatchSimulator(short_bank(), 1, threads=1, stacking=Stacking(state=3))
    sim.reset()
    sim.step(np.array([2]))
    assert sim.snapshot(slice(None)).shape == (1, sim.snapshot(0).size)
    np.testing.assert_array_equal(sim.snapshot(-1), sim.snapshot(0))
    seen = sim.obs["game_state"].copy()
    stored = sim.snapshot(slice(None))
    sim.step(np.array([2]))
    sim.restore(slice(None), stored)
    np.testing.assert_array_equal(sim.observe()["game_state"], seen)


def test_sibling_has_other_observations():
    bank = short_bank()
    keys = ("global_view", "graph_state")
    blind, seeing = (BatchSimulator(bank, 2, observations=seen, threads=1) for seen in (("state",), keys))
    younger = blind.sibling(2, keys)
    for sim in (seeing, younger):
        sim.reset(np.array([4, 7]))
    for key in keys:
        np.testing.assert_array_equal(younger.obs[key], seeing.obs[key])


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_copy_and_pickle_raise_type_error(copied):
    with pytest.raises(TypeError, match=r"use sibling\(\).*snapshot\(\) and restore\(\)"):
        copied(BatchSimulator(short_bank(), 2, threads=1))


def test_foresight_with_frame_skip_above_horizon_raises_config_error():
    with pytest.raises(ConfigError, match="frame_skip 41: foresight"):
        BatchSimulator(short_bank(), 1, frame_skip=41, observations=("foresight",))


def test_invalid_arguments_raise_value_error():
    sim = BatchSimulator([room(), WINNABLE], 2)
    for early in (lambda: sim.step(np.zeros(2, int)), sim.observe, lambda: sim.compact_snapshot(0), sim.action_masks):
        with pytest.raises(RuntimeError, match="call reset"):
            early()
    with pytest.raises(ValueError, match="first reset must start every environment"):
        sim.reset(np.array([0, -1]))
    with pytest.raises(ValueError, match=r"levels must be int\[2\] below 2"):
        sim.reset(np.array([0, 2]))
    sim.next_level[1] = 2
    with pytest.raises(ValueError, match=r"levels must be int\[2\] below 2"):
        sim.reset()
    sim.next_level[:] = [0, 1]
    sim.reset()
    for levels in ([0.0, 0.9], [2**32, 0]):
        with pytest.raises(ValueError, match=r"levels must be int\[2\] below 2; got array"):
            sim.reset(np.array(levels))
    for asleep in ([0, 1], [True]):
        with pytest.raises(ValueError, match=r"'asleep' must be bool\[2\]; got array"):
            sim.step(np.zeros(2, int), np.array(asleep))
    for actions in ([0, 6], [-1, 0], [0], [0.0, 2.9], [0.0, np.nan]):
        with pytest.raises(ValueError, match=r"actions must be int\[2\] in 0\.\.5"):
            sim.step(np.array(actions))
    for level in (-1, 2):
        sim.next_level[1] = level
        with pytest.raises(ValueError, match="level"):
            sim.step(np.zeros(2, int))
    with pytest.raises(ValueError, match="snapshot has 3 bytes"):
        sim.restore(0, np.zeros(3, np.uint8))
    compact = sim.compact_snapshot(0)
    unknown_level = compact.copy()
    unknown_level[: NINJA_DTYPE.itemsize].view(NINJA_DTYPE)["level"] = 2
    for wrong in (compact[:3], compact[:-1], np.append(compact, compact[:1]), unknown_level):
        with pytest.raises(ValueError, match="no compact snapshot"):
            sim.restore_compact(0, wrong)
    for frame_skip in (0, 2.5):
        with pytest.raises(ValueError, match="frame_skip"):
            BatchSimulator([room()], 1, frame_skip=frame_skip)
    for wrong in ({"stacking": 3}, {"foresight": 40}):
        with pytest.raises(TypeError, match=r"Stacking .* Foresight"):
            BatchSimulator([room()], 1, **wrong)
    with pytest.raises(ValueError, match="gamma"):
        BatchSimulator([room()], 1, gamma=1.5)
    with pytest.raises(ValueError, match="at least 1"):
        BatchSimulator([room()], 1, frame_skip=0)
    with pytest.raises(ValueError, match="at least one level"):
        LevelBank([])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_step_in_forked_child_starts_new_threads():
    sim = BatchSimulator(short_bank(), 64, observations=("state",), threads=2)
    sim.reset()
    actions = np.zeros(64, np.int64)
    sim.step(actions)
    sim.step(actions)  # with threads: they start once the kernel is compiled
    child = os.fork()
    if child == 0:
        sim.step(actions)
        os._exit(0)
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_compile_ahead_starts_one_process_unless_the_kernel_is_being_compiled(tmp_path, monkeypatch):
    started = queue.Queue()
    monkeypatch.setattr(batch, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(batch, "usable_cores", lambda: 2)
    monkeypatch.setattr(batch.subprocess, "run", lambda command, **options: started.put(options["env"]["PYTHONPATH"]))
    batch.compile_ahead.cache_clear()
    threads = threading.active_count()
    batch.compile_ahead()
    assert started.get(timeout=60).startswith(f"{ROOT}{os.pathsep}")
    while threading.active_count() > threads:
        time.sleep(0.01)
    batch.compile_ahead()
    (tmp_path / "nppsim").mkdir()
    (tmp_path / "nppsim" / "decision.advance-1.py311.lock").touch()
    batch.compile_ahead.cache_clear()
    batch.compile_ahead()
    assert threading.active_count() <= threads and started.empty()  # threads of earlier tests may end
