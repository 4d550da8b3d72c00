"""NppEnv: contracts of Gymnasium and Stable-Baselines3."""

import copy
import inspect
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env as gymnasium_check

import nppsim
from nppsim.gym import ENV_ID
from nppsim.gym.env import NppEnv
from nppsim.gym.spaces import observation_space
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.levels.level_set import LevelEntry, LevelSet, LevelSetError
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from nppsim.reward import TERMS

from worlds import KINDS, mixed_level, straight

ALL_NAMES = tuple(spec.name for spec in layout.SPECS.values())
RIGHT, JUMP = 2, 3


@pytest.fixture(scope="module")
def bank():
    return nppsim.LevelBank(
        [straight(name="long"), straight(mine=True, name="mined"), straight(length=24, name="longer")]
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


@pytest.mark.parametrize("names", [layout.VISION_FREE, ALL_NAMES])
def test_check_env_gymnasium_without_warning(bank, names):
    env = gymnasium.make("nppsim/Npp-v0", levels=bank, observations=names, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different render modes.*")  # there is no spec to make the others from
        gymnasium_check(env.unwrapped)
    assert set(env.observation_space) == set(layout.observation_keys(names))


@pytest.mark.parametrize("names", [layout.VISION_FREE, ALL_NAMES])
def test_check_env_stable_baselines3_without_warning(bank, names):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")  # needs torch, unlike all else here
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(NppEnv(bank, names))


def test_observation_space_vectors_within_finite_bounds():
    for key, box in observation_space(layout.ALL).items():
        assert len(box.shape) == (3 if key in layout.IMAGES else 1), key
        assert box.is_bounded(), key
        assert np.prod(box.shape) == np.prod(layout.SPECS[key].shape)


def test_step_observations_lie_within_bounds():
    """Random play in a random level with drones, thwumps, balls, pads, doors and lasers; with and without deadly
    entities."""
    env = NppEnv([mixed_level(seed, kinds=KINDS[seed]) for seed in range(6)], layout.ALL)
    rng = np.random.default_rng(0)
    for level in range(6):
        observation, _ = env.reset(options={"level": level})
        for _ in range(150):
            for key, values in observation.items():
                box = env.observation_space[key]
                assert box.contains(values), (key, np.flatnonzero((values < box.low) | (values > box.high)))
            observation, *_, terminated, truncated, _ = env.step(int(rng.integers(6)))
            if terminated or truncated:
                observation, _ = env.reset(options={"level": level})


def test_env_without_levels_plays_shipped_levels():
    env = gymnasium.make("nppsim/Npp-v0")
    assert len(env.unwrapped.bank) == 30 and env.unwrapped.bank.reachable.all()
    _, info = env.reset(seed=0)
    assert info["level_name"].endswith(".map") and info["category"]
    assert len(NppVectorEnv(num_envs=2).bank) == 30
    assert NppEnv(env.unwrapped.bank).reset(seed=0)[1] == info  # a bank keeps categories and generators
    assert NppVectorEnv(env.unwrapped.bank, num_envs=2).reset(seed=0)[1]["category"][0] == info["category"]


def test_step_until_win_sums_terms_to_return(bank):
    env = NppEnv(bank)
    _, start = env.reset(seed=1, options={"level": 0})
    assert start == {"level": 0, "level_name": "long", "category": "", "generator": "", "generator_parameters": ""}
    rewards, (observations, _, terminated, truncated, info) = play(env, RIGHT)
    assert terminated and not truncated
    assert info["is_success"] is True and info["outcome"] == "won" and info["level_name"] == "long"
    assert info["decisions"] == len(rewards)
    assert info["episode_return"] == pytest.approx(sum(rewards), abs=1e-4)
    assert tuple(info["reward_terms"]) == TERMS
    assert sum(info["reward_terms"].values()) == pytest.approx(info["episode_return"])
    assert observations["reachability_features"][6] == 1.0  # the last state is shown, not the next start


def test_inputs_reproduce_episode(bank):
    env = NppEnv(bank, frame_skip=3)
    env.reset(options={"level": 0})
    _, (observations, *_, info) = play(env, RIGHT)
    run = nppsim.simulate(bank.levels[0], env.inputs)
    assert (run.outcome, run.frames) == ("won", info["frames"])
    np.testing.assert_array_equal(observations["game_state"][:2], run.position[-1].astype(np.float32))


def test_action_space_contains_bools_and_arrays(bank):
    env = NppEnv(bank)
    env.reset(options={"level": 0})
    for action in (1, True, np.int64(1), np.array(1)):
        assert env.action_space.contains(action)
        env.step(action)
    assert env.inputs.tolist() == [nppsim.ACTION_INPUT[1]] * 16


def test_step_mine_terminates_and_waiting_truncates(bank):
    env = NppEnv(bank)
    env.reset(options={"level": 1})
    _, (_, _, terminated, truncated, info) = play(env, RIGHT)
    assert (terminated, truncated, info["is_success"], info["outcome"]) == (True, False, False, "died")
    env.reset(options={"level": 1})
    _, (_, _, terminated, truncated, info) = play(env, 0)
    assert (terminated, truncated, info["is_success"], info["outcome"]) == (False, True, False, "timeout")
    assert bank.time_limit[1] <= info["frames"] < bank.time_limit[1] + 4


def test_frame_skip_sets_frames_per_decision(bank):
    for frame_skip in (1, 4, 7):
        env = NppEnv(bank, frame_skip=frame_skip)
        env.reset(options={"level": 0})
        for _ in range(3):
            env.step(RIGHT)
        assert len(env.inputs) == 3 * frame_skip


def test_reset_seeds_choose_levels(bank):
    def levels(seed):
        env = NppEnv(bank)
        return [env.reset(seed=seed if k == 0 else None)[1]["level"] for k in range(40)]

    assert levels(5) == levels(5) != levels(6)
    assert set(levels(5)) == {0, 1, 2}


def test_env_wrong_use_raises_error(bank):
    env = NppEnv(bank)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset(options={"level": 1})
    with pytest.raises(ValueError, match="action is 6"):
        env.step(6)
    play(env, RIGHT)
    with pytest.raises(gymnasium.error.ResetNeeded, match="ended"):
        env.step(0)
    with pytest.raises(ValueError, match=r"options\['level'\] is 3; expected level indices 0\.\.2"):
        env.reset(options={"level": 3})
    with pytest.raises(ValueError, match="unknown option 'lvl'; known: level"):
        env.reset(options={"lvl": 0})
    with pytest.raises(ValueError, match="unknown observation 'sate'"):
        NppEnv(bank, ("sate",))
    with pytest.raises(ValueError, match="render_mode is 'ansi'"):
        NppEnv(bank, render_mode="ansi")
    with pytest.raises(LevelSetError, match="does not exist"):
        NppEnv("no/such/folder")


def test_env_levels_from_folder(tmp_path, bank):
    LevelSet.write(tmp_path / "set", [(level, LevelEntry("simple")) for level in bank.levels])
    env = gymnasium.make("nppsim/Npp-v0", levels=tmp_path / "set", observations=("state",))
    assert env.unwrapped.bank.levels == bank.levels


def test_env_levels_from_list_of_paths(tmp_path, bank):
    files = [tmp_path / "a.map", tmp_path / "b.level"]
    for file, level in zip(files, bank.levels, strict=False):
        level.save(file)
    for make in (NppEnv, NppVectorEnv):
        env = make(levels=[str(files[0]), files[1]])
        assert env.unwrapped.simulator.bank.levels == bank.levels[:2]
    assert nppsim.BatchSimulator(files, 2).bank.levels == bank.levels[:2]
    assert NppEnv(levels=files).reset(seed=0)[1]["category"] == "single"


def test_env_defaults_equal_simulator_defaults():
    wanted = inspect.signature(nppsim.BatchSimulator).parameters
    for env in (NppEnv, NppVectorEnv):
        for name, parameter in inspect.signature(env).parameters.items():
            if name in wanted and name not in ("levels", "num_envs"):
                assert parameter.default == wanted[name].default, f"{env.__name__}({name}=...)"


def test_action_masks_available_through_wrappers(bank):
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


def test_spec_with_path_serializes_to_json(tmp_path, bank):
    LevelSet.write(tmp_path / "levels", ((level, LevelEntry("0.map")) for level in bank.levels[:1]))
    env = gymnasium.make(ENV_ID, levels=tmp_path / "levels")
    spec = gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert spec.kwargs["levels"] == str(tmp_path / "levels")
    assert gymnasium.make(spec).unwrapped.bank.levels == env.unwrapped.bank.levels


def outcome(env, actions):
    """Everything that an environment returns for these actions, as bytes."""
    steps = [env.step(int(action)) for action in actions]
    seen = b"".join(step[0][key].tobytes() for step in steps for key in sorted(step[0]))
    return seen, [step[1:] for step in steps], env.inputs.tobytes()


@pytest.mark.parametrize("stacking", [Stacking(), Stacking(state=3)])
def test_restore_returns_to_the_snapshot(bank, stacking):
    env = NppEnv(bank, stacking=stacking)
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before snapshot"):
        env.snapshot()
    env.reset(options={"level": 0})
    actions = np.random.default_rng(0).integers(0, 6, 40)
    observation = [env.step(int(action)) for action in actions[:20]][-1][0]
    before = env.snapshot()
    first = outcome(env, actions[20:])
    play(env, RIGHT)
    env.reset(options={"level": 2})
    restored = env.restore(before)
    assert all((restored[key] == observation[key]).all() for key in observation)
    assert outcome(env, actions[20:]) == first
    play(env, RIGHT)
    after = env.snapshot()
    env.restore(before)
    env.restore(after)
    with pytest.raises(ResetNeeded):
        env.step(RIGHT)
    with pytest.raises(ValueError, match="no compact snapshot of a simulator with these levels"):
        NppEnv([mixed_level(3)], stacking=stacking).restore(before)
    for wrong in (b"abc", None):
        with pytest.raises(TypeError, match=r"result of snapshot\(\)"):
            env.restore(wrong)
    with pytest.raises(ValueError, match="render_size"):
        NppEnv([mixed_level(3)], render_size=300)


COPIES = {"clone": NppEnv.clone, "deepcopy": copy.deepcopy, "pickle": lambda env: pickle.loads(pickle.dumps(env))}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_continue_independently(copied, tmp_path, bank):
    LevelSet.write(tmp_path / "set", [(level, LevelEntry("made")) for level in bank.levels])
    env = NppEnv(tmp_path / "set", ("state", "foresight"), frame_skip=3, gamma=0.9)
    early = copied(env)
    assert early.reset(seed=4)[1] == env.reset(seed=4)[1]
    actions = np.random.default_rng(1).integers(0, 6, 30)
    for action in actions[:10]:
        env.step(int(action))
    other = copied(env)
    before = other.snapshot()
    assert outcome(other, actions[10:]) == outcome(env, actions[10:])
    assert play(other, RIGHT)[1][-1] == play(env, RIGHT)[1][-1]
    assert [other.reset()[1] for _ in range(5)] == [env.reset()[1] for _ in range(5)], "both draw the same levels"
    env.restore(before)
    assert other.inputs.size == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, COPIES["pickle"]])
def test_wrapped_environment_copied_continues(copied, bank):
    env = gymnasium.make(ENV_ID, levels=bank, max_episode_steps=30)
    env.reset(seed=0)
    for _ in range(10):
        env.step(RIGHT)
    other = copied(env)
    for _ in range(20):
        (_, reward, *ends, info), (_, other_reward, *other_ends, other_info) = env.step(JUMP), other.step(JUMP)
        assert (reward, ends, info) == (other_reward, other_ends, other_info)
    assert ends == [False, True]


def test_vector_env_copied_raises_type_error(bank):
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"neither pickled nor deep-copied"):
            copied(NppVectorEnv(bank, 2))
