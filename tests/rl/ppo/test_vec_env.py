"""The Stable-Baselines3 adapter: its contract, and a plain PPO that trains with it."""

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.gym.spaces import observation_space
from nppsim.levels import kinds
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.ppo.vec_env import BatchVecEnv, make_sb3

from places import ROOT
from worlds import FLOOR, corridor

CATEGORIES = ["simplest", "simpler", "mined"]


LEVELS = [corridor(door=40), corridor(door=60), corridor(entities=[(kinds.MINE, 26, FLOOR)])]


def make(num_envs=4, observations=("game_state", "reachability_features"), seed=0, curriculum=False):
    sim = BatchSimulator(LEVELS, num_envs, observations=observations, threads=1)
    config = CurriculumConfig(use_curriculum=True, min_episodes=20) if curriculum else CurriculumConfig()
    return BatchVecEnv(sim, make_sampler(CATEGORIES, config, seed))


def play(env, steps, action=2):
    """Every (observation, rewards, dones, infos) of ``steps`` decisions."""
    env.reset()
    return [env.step(np.full(env.num_envs, action)) for _ in range(steps)]


def test_observations_rewards_and_dones_have_the_declared_form():
    env = make(observations=("game_state", "surroundings", "player_frame"))
    assert isinstance(env.action_space, spaces.Discrete)
    obs = env.reset()
    for _ in range(30):
        for row in range(env.num_envs):
            assert env.observation_space.contains({key: values[row] for key, values in obs.items()})
        obs, rewards, dones, infos = env.step(np.array([env.action_space.sample() for _ in range(env.num_envs)]))
        assert rewards.shape == dones.shape == (env.num_envs,)
        assert (rewards.dtype, dones.dtype) == (np.float32, bool)
        assert len(infos) == env.num_envs
        assert all(np.isfinite(values).all() for values in obs.values())


def test_results_of_a_step_are_not_overwritten_by_the_next():
    env = make()
    env.reset()
    first = env.step(np.full(4, 2))
    copied = {key: values.copy() for key, values in first[0].items()}
    rewards = first[1].copy()
    for _ in range(3):
        env.step(np.full(4, 2))
    assert all((first[0][key] == copied[key]).all() for key in copied)
    assert (first[1] == rewards).all()


def test_infos_exist_only_for_environments_that_have_just_finished():
    env = make()
    finished = 0
    returns, lengths = np.zeros(4), np.zeros(4, int)
    for _, rewards, dones, infos in play(env, 400):
        returns += rewards
        lengths += 1
        for row in range(4):
            assert bool(infos[row]) == dones[row]
            if dones[row]:
                info = infos[row]
                assert info["episode"]["r"] == pytest.approx(returns[row], abs=1e-4)
                assert info["episode"]["l"] == lengths[row]
                assert info["is_success"] == (info["outcome"] == "won")
                assert info["is_success"] == (CATEGORIES[info["level"]] != "mined")
                assert info["TimeLimit.truncated"] is False
                assert env.observation_space.contains(info["terminal_observation"])
                returns[row], lengths[row] = 0, 0
                finished += 1
    assert finished > 20


def test_episodes_from_start_states_are_not_counted():
    env = make(num_envs=16)
    sampler = make_sampler(CATEGORIES, CurriculumConfig(start_states=True), 0)
    sampler.starts.add({LEVELS[2].fingerprint: np.full(6, 2)})  # six decisions before the mine
    env = BatchVecEnv(env.sim, sampler)
    counted, from_there = 0, 0
    for _, _, dones, infos in play(env, 300):
        for row in np.flatnonzero(dones):
            counted += "episode" in infos[row]
            from_there += "episode" not in infos[row]
            assert ("is_success" in infos[row]) == ("episode" in infos[row])
    assert from_there == sampler.metrics()["start_states/episodes"] > 0
    assert counted == sampler.metrics()["curriculum/episodes"]


def test_time_out_is_truncation_with_final_observation():
    env = make()
    limit = int(np.ceil(env.sim.bank.time_limit.max() / env.sim.frame_skip))
    seen = [info for _, _, _, infos in play(env, limit, action=0) for info in infos if info]
    assert seen
    for info in seen:
        assert info["TimeLimit.truncated"] is True
        assert info["outcome"] == "timeout"
        assert env.observation_space.contains(info["terminal_observation"])


def test_sampler_receives_each_episode_once_with_level():
    env = make(curriculum=False)
    played = np.zeros(3)
    for *_, infos in play(env, 300):
        for info in infos:
            if info:
                played[info["level"]] += 1
    metrics = env.sampler.metrics()
    assert [metrics[f"curriculum_stages/{name}_episodes"] for name in CATEGORIES] == played.tolist()
    assert metrics["curriculum_stages/mined_success_rate"] == 0
    assert metrics["curriculum_stages/simplest_success_rate"] == 1


def test_curriculum_chooses_levels():
    env = make(curriculum=True, num_envs=64)
    env.reset()
    assert env.get_attr("level").count(CATEGORIES.index("simplest")) > 48
    play(env, 400)
    assert env.sampler.stage == "mined", "simplest and simpler were mastered, so the last stage is being played"
    assert env.sampler.shares().argmax() == CATEGORIES.index("mined")
    assert CATEGORIES.index("mined") in env.get_attr("level")


def test_seeding_repeats_the_levels():
    def sequence(seed):
        env = make(seed=99)
        assert env.seed(seed) == [seed, seed + 1, seed + 2, seed + 3]
        return [tuple(env.get_attr("level")) for _ in (env.reset(), *play(env, 100))]

    assert sequence(1) == sequence(1)
    assert [make(seed=1).sampler.draw(20).tolist()] != [make(seed=2).sampler.draw(20).tolist()]


def test_terminal_observation_is_last_of_episode():
    env, one = make(), BatchSimulator(LEVELS, 1, observations=("game_state", "reachability_features"), threads=1)
    env.set_options([{"level": level} for level in (0, 1, 2, 2)])
    env.reset()
    seen = set()
    for step in range(100):
        *_, dones, infos = env.step(np.full(4, 2))
        for row in np.flatnonzero(dones):
            if infos[row]["episode"]["l"] == step + 1:  # a first episode
                one.reset(np.array([infos[row]["level"]], np.int32))
                for _ in range(step + 1):
                    one._step(np.array([2]), np.array([-1], np.int32), every_end=False)  # no restart
                for key, values in infos[row]["terminal_observation"].items():
                    np.testing.assert_array_equal(values, one.obs[key][0])
                seen.add(infos[row]["outcome"])
    assert seen == {"won", "died"}


def test_options_choose_the_levels_of_the_next_reset_only():
    env = make(num_envs=16)
    env.set_options({"level": 2})
    env.reset()
    assert env.get_attr("level") == [2] * 16
    assert env.reset_infos[0] == {"level": 2, "level_name": LEVELS[2].name}
    for _ in range(60):
        env.step(np.full(16, 2))
        assert [info["level"] for info in env.reset_infos] == env.get_attr("level")
    env.reset()
    assert set(env.get_attr("level")) == {0, 1, 2}
    env.set_options([{"level": 1}, *[{}] * 15])
    env.reset()
    assert env.get_attr("level")[0] == 1
    for wrong in ({"level": 3}, {"levels": 1}, [{"level": 1}], {"level": "first"}):
        with pytest.raises(ValueError, match="option"):
            env.set_options(wrong)


def test_reset_cancels_a_step_that_has_not_been_waited_for():
    env = make()
    env.reset()
    env.step_async(np.full(4, 2))
    env.reset()
    with pytest.raises(RuntimeError, match="step_async"):
        env.step_wait()


def test_closing_ends_the_threads_and_a_later_step_starts_them():
    before = threading.active_count()
    env = make_sb3(LEVELS, 64, threads=3)
    env.reset()
    env.step(np.full(64, 2))
    assert threading.active_count() == before + 2
    env.close()
    assert threading.active_count() == before
    env.step(np.full(64, 2))
    env.close()


def test_attributes_and_methods_of_single_environments():
    env = make()
    env.reset()
    assert env.get_attr("render_mode") == [None] * 4
    assert env.get_attr("action_space") == [env.action_space] * 4
    assert env.get_attr("observation_space", 0) == [env.observation_space]
    assert env.get_attr("level", indices=[1, 2]) == env.sim.level[1:3].tolist()
    masks = env.env_method("action_masks", indices=0)
    assert masks[0].shape == (6,)
    assert np.stack(env.env_method("action_masks")).shape == (4, 6) and env.has_attr(
        "action_masks"
    )  # as MaskablePPO asks
    before = env.env_method("snapshot")
    env.step(np.full(4, 2))
    for row in range(4):
        env.env_method("restore", before[row], indices=row)
    assert all((a == b).all() for a, b in zip(before, env.env_method("snapshot"), strict=True))
    assert env.env_is_wrapped(Monitor) == [True] * 4
    assert env.env_is_wrapped(VecNormalize, indices=0) == [False]
    with pytest.raises(AttributeError, match="no attribute 'stage'; they have level"):
        env.get_attr("stage")
    with pytest.raises(AttributeError, match="levels come from the sampler"):
        env.set_attr("level", 1)
    with pytest.raises(AttributeError, match="no method 'reset'"):
        env.env_method("reset")


def test_step_infos_are_separate_dictionaries():
    env = make()
    env.reset()
    *_, infos = env.step(np.zeros(4, int))
    infos[0]["mine"] = 1
    assert infos[1:] == [{}] * 3
    assert env.step(np.zeros(4, int))[-1] == [{}] * 4


def test_curriculum_that_needs_advantages_raises():
    sim = BatchSimulator(LEVELS, 2, observations=("game_state",), threads=1)
    env = BatchVecEnv(sim, make_sampler(CATEGORIES, CurriculumConfig(strategy="plr"), 0))
    env.reset()
    with pytest.raises(ConfigError, match="curriculum .*plr.*: learns from the advantages"):
        env.step(np.zeros(2, int))


def test_vec_env_misuse_raises():
    with pytest.raises(RuntimeError, match="step_async"):
        make().step_wait()
    sampler = make_sampler(["simple"], CurriculumConfig(), 0)
    with pytest.raises(ValueError, match="sampler has 1 levels, the simulator 3"):
        BatchVecEnv(BatchSimulator(LEVELS, 2, threads=1), sampler)
    env = make()
    env.reset()
    with pytest.raises(ValueError, match="actions must be"):
        env.step(np.full(4, 6))


def test_stable_baselines3_can_train_and_evaluate():
    env = make(num_envs=8)
    model = PPO("MultiInputPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=0, device="cpu")
    before = model.policy.action_net.weight.detach().clone()
    model.learn(512)
    assert (model.policy.action_net.weight != before).any()
    assert len(model.ep_info_buffer) > 0
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=8, return_episode_rewards=True)
    assert len(returns) == len(lengths) == 8


def test_vec_env_in_wrappers_of_sb3():
    env = VecNormalize(make(), norm_obs=False)
    env.reset()
    for _ in range(50):
        env.step(np.full(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # without terminal observations it warns
        env = VecFrameStack(make(), 3)
        env.reset()
        for _ in range(100):
            obs, _, dones, infos = env.step(np.full(4, 2))
            for row in np.flatnonzero(dones):
                last = infos[row]["terminal_observation"]
                assert all(last[key].shape == values[0].shape for key, values in obs.items())


def test_vec_monitor_counts_the_same_episodes_without_a_warning(tmp_path):
    """In a process of its own, because pytest replaces the filters of warnings."""
    code = f"""
import numpy as np
from stable_baselines3.common.vec_env import VecMonitor
from rl.ppo.vec_env import make_sb3
env = make_sb3(num_envs=4, threads=1)
monitored = VecMonitor(env, {str(tmp_path / "log")!r})
monitored.reset()
while not any("episode" in info for info in monitored.step(np.full(4, 2))[3]):
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "log.monitor.csv").stat().st_size > 0


def test_off_policy_algorithms_train_on_it():
    env = make()
    model = DQN("MultiInputPolicy", env, buffer_size=1000, learning_starts=10, device="cpu", seed=0)
    model.learn(800)
    assert model.replay_buffer.dones.any()


def test_images_reach_a_plain_cnn_policy():
    env = make(num_envs=2, observations=("player_frame", "game_state"))
    assert env.observation_space == observation_space(("game_state", "player_frame"))
    model = PPO("MultiInputPolicy", env, n_steps=4, batch_size=8, n_epochs=1, device="cpu")
    model.learn(8)


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [("ninja", "level", 99, "plays level 99"), ("ninja", "vx", np.nan, "ninja.vx"), (None, None, 7, "do not exist")],
)
def test_impossible_stored_episodes_are_refused(part, field, value, message):
    """A made-up state would crash compiled code."""
    env, other = make(), make()
    env.reset()
    state = env.state()
    if part is None:
        state["next_level"][1] = value
    else:
        getattr(env.sim.state, part)[field][1] = value
        state["snapshots"] = env.sim.snapshot(slice(None))
    with pytest.raises(ConfigError, match=message):
        other.load(state)
