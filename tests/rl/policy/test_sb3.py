"""Plain Stable-Baselines3 on plain observations: by its own networks, and by the features extractor that ships."""

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
from nppsim.gym.spaces import observation_space
from nppsim.levels.level_set import LevelSet
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from rl.config import CurriculumConfig
from rl.curriculum import make_sampler
from rl.policy.sb3 import CLAMP, ScaledFeatures
from rl.ppo.vec_env import BatchVecEnv, make_sb3

from worlds import straight

TINY = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "device": "cpu"}


def test_plain_ppo_plays_the_default_environment():
    model = PPO("MultiInputPolicy", gymnasium.make("nppsim/Npp-v0"), **TINY)
    model.learn(16)
    observation, _ = model.env.envs[0].reset(seed=0)
    action, _ = model.predict(observation)
    assert action in range(6)


def test_the_example_of_the_batched_environment_runs(monkeypatch):
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


def test_the_extractor_scales_all_observations():
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


def test_the_extractor_takes_stacks():
    env = make_sb3([straight()], num_envs=2, observations=layout.ALL[:7], stacking=Stacking(state=2), threads=1)
    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures}, **TINY).learn(16)


def test_vec_normalize_takes_the_default_observations():
    sampler = make_sampler(["simple"], CurriculumConfig(), 0)
    env = VecNormalize(BatchVecEnv(BatchSimulator([straight()], 2, threads=1), sampler))
    env.reset()
    for _ in range(20):
        observations, *_ = env.step(np.full(2, 2))
    assert all(np.isfinite(values).all() for values in observations.values())
