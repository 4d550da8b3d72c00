"""NppVectorEnv: equality with NppEnv, and the contracts of Gymnasium's vector environments."""

import threading

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import nppsim
from nppsim.batch import BatchSimulator
from nppsim.gym.env import NppEnv
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.observe import layout
from nppsim.reward import RewardConfig

from worlds import corridor, straight

ALL_NAMES = tuple(spec.name for spec in layout.SPECS.values())
RIGHT, JUMP = 2, 3


@pytest.fixture(scope="module")
def bank():
    return nppsim.LevelBank(
        [straight(name="long"), straight(mine=True, name="mined"), straight(length=24, name="longer")]
    )


def same(first, second):
    """Equal in content and dtype, through dictionaries and arrays of objects."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if not isinstance(first, np.ndarray):
        return type(first) is type(second) and first == second
    if first.dtype == object:
        return first.shape == second.shape and all(same(a, b) for a, b in zip(first, second, strict=True))
    return first.dtype == second.dtype and np.array_equal(first, second)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_vector_env_equals_gymnasium_vector_of_single_envs(bank, mode):
    """Observations, rewards, ends, final_obs, final_info and levels, over several episodes."""
    settings = {"observations": ("state", "reachability", "surroundings"), "frame_skip": 5, "gamma": 0.9}
    reference = SyncVectorEnv([lambda: NppEnv(bank, **settings)] * 5, autoreset_mode=mode)
    fast = gymnasium.make_vec("nppsim/Npp-v0", num_envs=5, levels=bank, autoreset_mode=mode, **settings)
    assert isinstance(fast, NppVectorEnv)
    assert fast.metadata["autoreset_mode"] is mode
    assert fast.observation_space == reference.observation_space
    assert fast.action_space == reference.action_space
    for start in ({"seed": 3}, {}, {"options": {"level": 1}}, {"seed": [1, 2, None, 4, 5]}):
        assert all(same(a, b) for a, b in zip(reference.reset(**start), fast.reset(**start), strict=True))
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(400):
        actions = np.where(rng.random(5) < 0.8, RIGHT, rng.integers(6, size=5))
        wanted, got = reference.step(actions), fast.step(actions)
        for a, b in zip(wanted, got, strict=True):
            assert same(a, b)
        ended += (got[2] | got[3]).sum()
    assert ended > 20
    assert fast.np_random_seed == reference.np_random_seed


def test_autoreset_disabled_caller_resets(bank):
    """As Gymnasium's own vector environment, with reset masks."""
    reference = SyncVectorEnv([lambda: NppEnv(bank)] * 3, autoreset_mode=AutoresetMode.DISABLED)
    fast = NppVectorEnv(bank, 3, autoreset_mode="DISABLED")
    assert all(same(a, b) for a, b in zip(reference.reset(seed=1), fast.reset(seed=1), strict=True))
    ended = 0
    for _ in range(200):
        wanted, got = reference.step([RIGHT] * 3), fast.step([RIGHT] * 3)
        assert all(same(a, b) for a, b in zip(wanted, got, strict=True))
        over = got[2] | got[3]
        if over.any():
            ended += over.sum()
            with pytest.raises(gymnasium.error.ResetNeeded, match=f"environment {over.argmax()} has ended"):
                fast.step([RIGHT] * 3)
            wanted, got = (envs.reset(options={"reset_mask": over.copy()}) for envs in (reference, fast))
            assert same(wanted[1], got[1])
            assert all(same(wanted[0][key], got[0][key]) for key in got[0])
    assert ended > 5


def test_step_limit_truncates_like_single_envs(bank):
    settings = {"levels": bank, "num_envs": 3, "max_episode_steps": 7}
    reference = gymnasium.make_vec("nppsim/Npp-v0", vectorization_mode="sync", **settings)
    fast = gymnasium.make_vec("nppsim/Npp-v0", **settings)
    reference.reset(seed=0), fast.reset(seed=0)
    truncated = 0
    for _ in range(40):
        wanted, got = reference.step([0, RIGHT, RIGHT]), fast.step([0, RIGHT, RIGHT])
        assert all(same(a, b) for a, b in zip(wanted[:4], got[:4], strict=True))
        truncated += got[3].sum()
    assert truncated > 10
    with pytest.raises(ValueError, match="max_episode_steps"):
        NppVectorEnv(bank, max_episode_steps=0)
    NppVectorEnv(bank, max_episode_steps=10**9)  # above the largest int32


def test_spec_serializes_and_recreates(tmp_path, bank):
    LevelSet.write(tmp_path / "levels", ((level, LevelEntry("0.map")) for level in bank.levels[:1]))
    envs = gymnasium.make_vec(
        "nppsim/Npp-v0",
        2,
        levels=tmp_path / "levels",
        reward=RewardConfig(win=9.0),
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    again = gymnasium.make_vec(EnvSpec.from_json(envs.spec.to_json()))
    assert (again.num_envs, again.metadata) == (2, envs.metadata)
    assert again.unwrapped.simulator.reward_config == RewardConfig(win=9.0)
    assert "nppsim/Npp-v0" in repr(again)


def test_close_ends_threads(bank):
    before = threading.active_count()
    envs = NppVectorEnv(bank, 64, threads=3)
    envs.reset(seed=0)
    envs.step(np.zeros(64, int))
    assert threading.active_count() == before + 2
    envs.close()
    envs.close()
    assert envs.closed
    assert threading.active_count() == before


def test_autoreset_modes_accept_names_and_values(bank):
    assert NppVectorEnv(bank, autoreset_mode="NEXT_STEP").autoreset_mode is AutoresetMode.NEXT_STEP
    assert NppVectorEnv(bank, autoreset_mode=AutoresetMode.NEXT_STEP.value).autoreset_mode is AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match="never"):
        NppVectorEnv(bank, autoreset_mode="never")


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_shadow_agrees_in_every_autoreset_mode(bank, monkeypatch, mode):
    monkeypatch.setenv("NPPSIM_SHADOW", "1")
    envs = NppVectorEnv(bank, 3, autoreset_mode=mode)
    envs.reset(seed=0)
    for _ in range(60):
        *_, terminated, truncated, _ = envs.step([RIGHT] * 3)
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            envs.reset(options={"reset_mask": terminated | truncated})
    assert envs.simulator.shadow.comparisons > 150
    assert envs.simulator.shadow.kinds == {}


def test_vector_env_wrong_use_raises_error(bank):
    envs = NppVectorEnv(bank, 2, render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        envs.step([0, 0])
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        envs.render()
    envs.reset()
    with pytest.raises(ValueError, match=r"actions must be int\[2\]"):
        envs.step([0, 6])
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        NppVectorEnv(bank, render_mode="human")


def test_vector_env_works_with_gymnasium_wrappers(bank):
    """Statistics, flattening, normalising, and functions of observations and rewards, one around the other."""
    envs = gymnasium.make_vec("nppsim/Npp-v0", num_envs=4, levels=bank)
    envs = wrappers.RecordEpisodeStatistics(envs)
    envs = wrappers.FlattenObservation(envs)
    envs = wrappers.NormalizeObservation(envs)
    single = gymnasium.spaces.Box(-10, 10, envs.single_observation_space.shape, np.float32)
    envs = wrappers.TransformObservation(
        envs,
        lambda o: np.clip(o, -10, 10).astype(np.float32),
        gymnasium.spaces.Box(-10, 10, envs.observation_space.shape, np.float32),
        single,
    )
    envs = wrappers.NormalizeReward(wrappers.TransformReward(envs, lambda r: np.clip(r, -1, 1)))
    observations, _ = envs.reset(seed=0)
    finished = 0
    for _ in range(100):
        assert envs.observation_space.contains(observations)
        observations, *_, infos = envs.step(np.full(4, RIGHT))
        finished += np.count_nonzero(infos.get("_episode", False))
    assert finished > 4


def test_reset_mask_restarts_selected_envs(bank):
    envs = NppVectorEnv(bank, 3, ("state",))
    envs.reset(seed=0)
    moved, *_ = envs.step([RIGHT] * 3)
    mask = np.array([False, True, False])
    observations, infos = envs.reset(options={"reset_mask": mask, "level": 2})
    np.testing.assert_array_equal(observations["game_state"][[0, 2]], moved["game_state"][[0, 2]])
    np.testing.assert_array_equal(infos["_level"], mask)
    assert infos["level"][1] == 2
    with pytest.raises(ValueError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.zeros(3, bool)})


def test_results_independent_of_threads_and_other_envs(bank):
    def trace(num_envs, threads):
        envs = NppVectorEnv(bank, num_envs, ALL_NAMES, threads=threads)
        envs.reset(seed=11)
        actions = np.random.default_rng(1).choice([0, RIGHT, RIGHT, JUMP, 5], (150, 40))[:, :num_envs]
        return [(o["global_view"][:4].sum(), o["game_state"][:4].tobytes(), r[:4].tobytes())
                for o, r, *_ in map(envs.step, actions)]  # fmt: skip

    assert trace(40, 1) == trace(40, 3) == trace(4, 1)


def test_copy_flag_controls_ownership_of_observations(bank):
    for copy in (True, False):
        envs = NppVectorEnv(bank, 2, ("state",), copy=copy)
        before, _ = envs.reset(seed=0)
        copied = before["game_state"].copy()
        envs.step([RIGHT, RIGHT])
        assert np.array_equal(before["game_state"], copied) == copy


def test_action_masks_leave_one_action(bank):
    env, envs = NppEnv(bank), NppVectorEnv(bank, 3)
    env.reset(seed=0)
    envs.reset(seed=0)
    assert env.action_masks().shape == (6,) and envs.action_masks().shape == (3, 6)
    assert env.action_masks().dtype == bool and env.action_masks()[0]
    np.testing.assert_array_equal(env.action_masks(), envs.action_masks()[0])


def test_graph_observations_are_gymnasium_graphs():
    levels = [corridor(20, 30, 40), corridor(20, 60, 80)]
    one = NppEnv(levels, observations=("state", "graph"))
    many = NppVectorEnv(levels, 2, observations=("graph", "graph_state"))
    seen, _ = one.reset(options={"level": 1})
    together, _ = many.reset(options={"level": np.array([0, 1])})
    assert set(seen) == {"game_state", "graph"}
    assert one.observation_space.contains(seen)
    assert many.observation_space.contains(together)
    graph = seen["graph"]
    assert graph.nodes.shape[1] == 45
    assert graph.edge_links.max() < len(graph.nodes)
    assert len(graph.edges) == len(graph.edge_links)
    assert (together["graph"][1].nodes == graph.nodes).all()
    assert len(together["graph"][0].nodes) == len(graph.nodes)
    before = graph.nodes.copy()
    for array in graph:
        array[:] = 1  # a copy: later observations stay right
    assert (one.reset(options={"level": 1})[0]["graph"].nodes == before).all()
    assert one.observation_space.contains(one.step(2)[0])
    many.step(np.array([2, 2]))
    with pytest.raises(ValueError, match="unknown observation 'graph'; known: state"):
        BatchSimulator(levels, 1, observations=("graph",))
