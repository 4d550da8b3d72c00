"""NppEnv and NppVectorEnv: the contracts of Gymnasium and Stable-Baselines3, and that both are the same game."""

import inspect
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import nppsim
from nppsim.env import ENV_ID, NppEnv, NppVectorEnv
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet, LevelSetError
from nppsim.observe import layout
from nppsim.reward import TERMS

ALL_NAMES = tuple(spec.name for spec in layout.SPECS.values())
RIGHT, JUMP = 2, 3


def corridor(mine=False, length=12, name=""):
    """A flat corridor: spawn, switch and exit in a row, to be finished by holding right; with a mine, to die on."""
    tiles = np.ones((23, 42), np.uint8)
    tiles[10:12, 2 : 2 + length] = 0
    ground = 4 * 12 + 4 - 2  # centre of the ninja, 10 px above the floor of tile row 11, in steps of 6 px
    mines = [(kinds.MINE, 4 * 6, ground)] if mine else []
    return Level.build(tiles, (14, ground), exits=[((4 * 8, ground), (4 * 11, ground))], entities=mines, name=name)


@pytest.fixture(scope="module")
def bank():
    return nppsim.LevelBank(
        [corridor(name="long"), corridor(mine=True, name="mined"), corridor(length=24, name="longer")]
    )


def play(env, action, most=2000):
    """Rewards and the last step of an episode of one action."""
    rewards = []
    for _ in range(most):
        step = env.step(action)
        rewards.append(step[1])
        if step[2] or step[3]:
            return rewards, step
    raise AssertionError(f"no end within {most} decisions")


@pytest.mark.parametrize("names", [("state", "reachability"), ALL_NAMES])
def test_gymnasium_accepts_the_environment(bank, names):
    env = gymnasium.make("nppsim/Npp-v0", levels=bank, observations=names)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(Box observation space|render_modes|different render modes).*")
        gymnasium_check(env.unwrapped, skip_render_check=True)
    assert set(env.observation_space) == set(layout.observation_keys(names))


def test_stable_baselines3_accepts_the_environment(bank):
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(image|Image).*")  # surroundings are uint8 [3, 19, 19], and not an image
        check_env(NppEnv(bank, ALL_NAMES))


def test_holding_right_wins_and_the_ledger_is_the_return(bank):
    env = NppEnv(bank)
    _, start = env.reset(seed=1, options={"level": 0})
    assert start == {"level": 0, "level_name": "long"}
    rewards, (observations, _, terminated, truncated, info) = play(env, RIGHT)
    assert terminated and not truncated
    assert info["is_success"] is True and info["outcome"] == "won" and info["level_name"] == "long"
    assert info["decisions"] == len(rewards)
    assert info["episode_return"] == pytest.approx(sum(rewards), abs=1e-4)
    assert tuple(info["reward_terms"]) == TERMS
    assert sum(info["reward_terms"].values()) == pytest.approx(info["episode_return"])
    assert observations["reachability_features"][6] == 1.0  # the last state is shown, not the next start


def test_inputs_reproduce_the_episode(bank):
    env = NppEnv(bank, frame_skip=3)
    env.reset(options={"level": 0})
    _, (observations, *_, info) = play(env, RIGHT)
    run = nppsim.simulate(bank.levels[0], env.inputs)
    assert (run.outcome, run.frames) == ("won", info["frames"])
    np.testing.assert_array_equal(observations["game_state"][:2], run.position[-1].astype(np.float32))


def test_a_mine_terminates_and_waiting_truncates(bank):
    env = NppEnv(bank)
    env.reset(options={"level": 1})
    _, (_, _, terminated, truncated, info) = play(env, RIGHT)
    assert (terminated, truncated, info["is_success"], info["outcome"]) == (True, False, False, "died")
    env.reset(options={"level": 1})
    _, (_, _, terminated, truncated, info) = play(env, 0)
    assert (terminated, truncated, info["is_success"], info["outcome"]) == (False, True, False, "timeout")
    assert bank.time_limit[1] <= info["frames"] < bank.time_limit[1] + 4


def test_frame_skip_is_the_number_of_frames_of_a_decision(bank):
    for frame_skip in (1, 4, 7):
        env = NppEnv(bank, frame_skip=frame_skip)
        env.reset(options={"level": 0})
        for _ in range(3):
            env.step(RIGHT)
        assert len(env.inputs) == 3 * frame_skip


def test_seeds_decide_the_levels_and_draw_all_of_them(bank):
    def levels(seed):
        env = NppEnv(bank)
        return [env.reset(seed=seed if k == 0 else None)[1]["level"] for k in range(40)]

    assert levels(5) == levels(5) != levels(6)
    assert set(levels(5)) == {0, 1, 2}


def test_wrong_use_is_named(bank):
    env = NppEnv(bank)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset(options={"level": 1})
    with pytest.raises(ValueError, match=r"action is 6; needed is an integer 0\.\.5"):
        env.step(6)
    play(env, RIGHT)
    with pytest.raises(gymnasium.error.ResetNeeded, match="ended"):
        env.step(0)
    with pytest.raises(ValueError, match=r"options\['level'\] is 3; needed are indices of levels, 0\.\.2"):
        env.reset(options={"level": 3})
    with pytest.raises(ValueError, match="unknown option 'lvl'; known: level"):
        env.reset(options={"lvl": 0})
    with pytest.raises(ValueError, match="unknown observation 'sate'"):
        NppEnv(bank, ("sate",))
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        NppEnv(bank, render_mode="human")
    with pytest.raises(LevelSetError, match="does not exist"):
        NppEnv("no/such/folder")
    envs = NppVectorEnv(bank, 2)
    envs.reset()
    with pytest.raises(ValueError, match=r"actions must be int\[2\]"):
        envs.step([0, 6])


def test_levels_come_from_a_folder_too(tmp_path, bank):
    LevelSet.write(tmp_path / "set", [(level, LevelEntry("simple")) for level in bank.levels])
    env = gymnasium.make("nppsim/Npp-v0", levels=tmp_path / "set", observations=("state",))
    assert env.unwrapped.bank.levels == bank.levels


def test_render_shows_the_way_so_far(bank):
    pytest.importorskip("PIL")
    env = NppEnv(bank, render_mode="rgb_array")
    env.reset(options={"level": 0})
    first = env.render()
    env.step(RIGHT)
    second = env.render()
    assert first.dtype == np.uint8 and first.shape == second.shape and first.shape[2] == 3
    assert (first != second).any()
    assert NppEnv(bank).render() is None


def test_defaults_are_those_of_the_simulator():
    wanted = inspect.signature(nppsim.BatchSimulator).parameters
    for env in (NppEnv, NppVectorEnv):
        for name, parameter in inspect.signature(env).parameters.items():
            if name in wanted and name not in ("levels", "num_envs"):
                assert parameter.default == wanted[name].default, f"{env.__name__}({name}=...)"


# ---------------------------------------------------------------------------------------------------------------------
# Many environments


def same(first, second):
    """Equal in content and dtype, through dictionaries and arrays of objects."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if not isinstance(first, np.ndarray):
        return type(first) is type(second) and first == second
    if first.dtype == object:
        return first.shape == second.shape and all(same(a, b) for a, b in zip(first, second, strict=True))
    return first.dtype == second.dtype and np.array_equal(first, second)


def test_the_vector_environment_is_gymnasiums_own_of_single_ones(bank):
    """Observations, rewards, ends, final_obs, final_info and levels, over several episodes."""
    settings = {"observations": ("state", "reachability", "surroundings"), "frame_skip": 5, "gamma": 0.9}
    reference = SyncVectorEnv([lambda: NppEnv(bank, **settings)] * 5, autoreset_mode=AutoresetMode.SAME_STEP)
    fast = gymnasium.make_vec("nppsim/Npp-v0", num_envs=5, levels=bank, **settings)
    assert isinstance(fast, NppVectorEnv)
    assert fast.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
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


def test_a_mask_restarts_only_some_environments(bank):
    envs = NppVectorEnv(bank, 3, ("state",))
    envs.reset(seed=0)
    moved, *_ = envs.step([RIGHT] * 3)
    mask = np.array([False, True, False])
    observations, infos = envs.reset(options={"reset_mask": mask, "level": 2})
    np.testing.assert_array_equal(observations["game_state"][[0, 2]], moved["game_state"][[0, 2]])
    np.testing.assert_array_equal(infos["_level"], mask)
    assert infos["level"][1] == 2
    with pytest.raises(ValueError, match=r"needed is bool\[3\] with a True entry"):
        envs.reset(options={"reset_mask": np.zeros(3, bool)})


def test_results_do_not_depend_on_threads_or_company(bank):
    def trace(num_envs, threads):
        envs = NppVectorEnv(bank, num_envs, ALL_NAMES, threads=threads)
        envs.reset(seed=11)
        actions = np.random.default_rng(1).choice([0, RIGHT, RIGHT, JUMP, 5], (150, 40))[:, :num_envs]
        return [(o["global_view"][:4].sum(), o["game_state"][:4].tobytes(), r[:4].tobytes())
                for o, r, *_ in map(envs.step, actions)]  # fmt: skip

    assert trace(40, 1) == trace(40, 3) == trace(4, 1)


def test_copy_decides_who_owns_the_observations(bank):
    for copy in (True, False):
        envs = NppVectorEnv(bank, 2, ("state",), copy=copy)
        before, _ = envs.reset(seed=0)
        kept = before["game_state"].copy()
        envs.step([RIGHT, RIGHT])
        assert np.array_equal(before["game_state"], kept) == copy


def test_learners_that_mask_actions_find_the_masks_through_wrappers(bank):
    """Where sb3-contrib's MaskablePPO looks for them: https://sb3-contrib.readthedocs.io/en/master/modules/ppo_mask.html"""
    env = gymnasium.make(ENV_ID, levels=bank)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    masked, over = 0, False
    while not over:
        mask = env.get_wrapper_attr("action_masks")()
        masked += np.count_nonzero(~mask)
        *_, terminated, truncated, _ = env.step(int(rng.choice(np.flatnonzero(mask))))
        over = terminated or truncated
    assert masked > 0


def test_masks_leave_something_to_do(bank):
    env, envs = NppEnv(bank), NppVectorEnv(bank, 3)
    env.reset(seed=0)
    envs.reset(seed=0)
    assert env.action_masks().shape == (6,) and envs.action_masks().shape == (3, 6)
    assert env.action_masks().dtype == bool and env.action_masks()[0]
    np.testing.assert_array_equal(env.action_masks(), envs.action_masks()[0])
