"""Algorithms of Stable-Baselines3 with its own networks, with ScaledFeatures, and with SB3Policy."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

import rl.ppo.vec_env
from nppsim.batch import BatchSimulator
from nppsim.errors import UserError
from nppsim.gym.env import STARTER_LEVELS, NppEnv
from nppsim.gym.spaces import flatten_vectors, observation_space
from nppsim.levels.level_set import LevelSet
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from nppsim.observe.statistics import ObservationStatistics
from rl.config import CurriculumConfig
from rl.curriculum import make_sampler
from rl.policy.policy import build_policy
from rl.policy.sb3 import CLAMP, SB3Policy, ScaledFeatures
from rl.ppo.vec_env import BatchVecEnv, make_sb3

from worlds import straight

TINY = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "device": "cpu"}


def test_plain_ppo_plays_the_default_environment():
    model = PPO("MultiInputPolicy", gymnasium.make("nppsim/Npp-v0"), **TINY)
    model.learn(16)
    observation, _ = model.env.envs[0].reset(seed=0)
    action, _ = model.predict(observation)
    assert action in range(6)


def test_batched_environment_example_runs(monkeypatch):
    """The examples of its docstring run on the shipped levels, in small."""
    example = "".join(re.findall(r"^    .*\n", rl.ppo.vec_env.__doc__, re.MULTILINE))
    small = example.replace("100_000", "16").replace("datasets/train", str(STARTER_LEVELS))
    small = small.replace("num_envs=64", "num_envs=2").replace(", 64)", ", 2)")
    assert small.count("16") == 1 and "datasets" not in small
    levels = LevelSet.open(STARTER_LEVELS)
    names = {"levels": levels, "categories": list(map(levels.category, range(len(levels)))), "make_sb3": make_sb3,
             "make_sampler": make_sampler, "CurriculumConfig": CurriculumConfig,
             "BatchVecEnv": BatchVecEnv, "BatchSimulator": BatchSimulator, "ScaledFeatures": ScaledFeatures,
             "PPO": lambda *a, **k: PPO(*a, **k | TINY)}  # fmt: skip
    exec("if True:\n" + small, names)
    assert names["env"].num_envs == 2


def test_extractor_scales_all_observations():
    env = NppEnv([straight()], layout.ALL)
    model = PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures}, **TINY)
    model.learn(8)
    extractor = ScaledFeatures(observation_space(layout.VISION_FREE), features_dim=32)
    observation, _ = NppEnv([straight()]).reset(seed=0)
    tensors = {key: torch.from_numpy(values)[None].float() for key, values in observation.items()}
    seen = []
    extractor.fusion[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert extractor(tensors).shape == (1, 32)
    assert 0.2 < seen[0].abs().max() <= CLAMP
    scaled = dict(zip(extractor.keys, seen[0][0].split([tensors[key].numel() for key in extractor.keys]), strict=True))
    x = layout.SPECS["game_state"].components.index("x")
    assert scaled["game_state"][x] == pytest.approx(observation["game_state"][x] / 528)
    assert scaled["surroundings"].max() == 1
    with pytest.raises(UserError, match="'picture' is not an observation of nppsim"):
        ScaledFeatures(spaces.Dict({"picture": spaces.Box(0, 1, (3,))}))


def test_extractor_accepts_stacks():
    env = make_sb3([straight()], num_envs=2, observations=layout.ALL[:7], stacking=Stacking(state=2), threads=1)
    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures}, **TINY).learn(16)


def test_vec_normalize_takes_the_default_observations():
    sampler = make_sampler(["simple"], CurriculumConfig(), 0)
    env = VecNormalize(BatchVecEnv(BatchSimulator([straight()], 2, threads=1), sampler))
    env.reset()
    for _ in range(20):
        observations, *_ = env.step(np.full(2, 2))
    assert all(np.isfinite(values).all() for values in observations.values())


# ------------------------------------------------------------------ SB3Policy


def made_up(count, seed=0):
    """Observations {key: array [count, *shape]} of random play."""
    env = BatchSimulator([straight()], count, observations=layout.VISION_FREE, threads=1)
    env.reset(np.zeros(count, np.int32))
    rng = np.random.default_rng(seed)
    for _ in range(10):
        env.step(rng.integers(0, 6, count))
    return {key: values.copy() for key, values in env.obs.items()}


@pytest.fixture
def statistics():
    found = ObservationStatistics(layout.VISION_FREE)
    found.update(made_up(40))
    return found


def sb3_model(statistics, precision="bf16"):
    env = make_sb3([straight()], num_envs=2, observations=layout.VISION_FREE, threads=1)
    kwargs = {"architecture": "vision_free", "statistics": statistics, "precision": precision}
    return PPO(SB3Policy, env, policy_kwargs=kwargs, **TINY)


def test_ppo_of_sb3_with_sb3_policy_trains_saves_loads_and_predicts(statistics, tmp_path):
    model = sb3_model(statistics)
    before = {name: values.clone() for name, values in model.policy.state_dict().items()}
    model.learn(32)
    assert any(not torch.equal(values, before[name]) for name, values in model.policy.state_dict().items())
    model.save(tmp_path / "model.zip")
    loaded = PPO.load(tmp_path / "model.zip", device="cpu")
    network = loaded.policy.network
    assert (network.architecture, network.precision, network.statistics.count) == ("vision_free", "bf16", 40)
    for obs in (made_up(20, seed=2), flatten_vectors(made_up(20, seed=2))):
        assert (loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]).all()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_methods_of_sb3_policy_agree_with_logits_and_values(statistics, precision):
    policy, obs = sb3_model(statistics, precision).policy, made_up(12, seed=1)
    tensors = policy.network.to_tensors(obs)
    logits, values = policy.network.logits_and_values(tensors)
    actions, log_probs = torch.arange(12) % 6, logits.log_softmax(1)
    value, log_prob, entropy = policy.evaluate_actions(tensors, actions)
    torch.testing.assert_close(value, values[:, None])
    torch.testing.assert_close(log_prob, log_probs.gather(1, actions[:, None])[:, 0])
    torch.testing.assert_close(entropy, -(log_probs.exp() * log_probs).sum(1))
    chosen, value, log_prob = policy(tensors, deterministic=True)
    assert torch.equal(chosen, logits.argmax(1))
    torch.testing.assert_close(log_prob, log_probs.max(1).values)
    torch.testing.assert_close(policy.predict_values(tensors), values[:, None])


def test_predict_of_a_batch_and_of_single_observations_agrees_with_act(statistics):
    policy, obs = build_policy("vision_free", statistics), made_up(12, seed=1)
    with torch.no_grad():
        policy.action_net.weight *= 100  # a new actor is nearly indifferent
    expected = policy.act(obs, deterministic=True)
    assert (policy.predict(obs, deterministic=True)[0] == expected).all()
    for row in range(3):
        single, state = policy.predict({key: values[row] for key, values in obs.items()}, deterministic=True)
        assert (single.shape, int(single), state) == ((), expected[row], None)


def test_sb3_policy_refuses_gsde_and_recurrent_networks():
    env = make_sb3([straight()], num_envs=2, observations=layout.VISION_FREE, threads=1)
    for kwargs, message in (
        ({"architecture": "vision_free", "use_sde": True}, "use_sde"),
        ({"architecture": "vision_free+gru"}, "recurrent"),
    ):
        with pytest.raises(ValueError, match=message):
            SB3Policy(env.observation_space, env.action_space, lambda remaining: 1e-3, **kwargs)
