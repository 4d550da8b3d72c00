"""A features extractor for plain Stable-Baselines3: brings raw observations to one scale and reads each kind as it should.

    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures})

Needs no statistics, unlike the networks of ``rl.policy.networks``: it divides by the natural sizes that the layout states.
"""

import math

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from torch import nn

from nppsim.errors import UserError
from nppsim.observe import layout

CLAMP = 10.0  # scaled numbers are cut off here; one wild component must not drown the others


class ScaledFeatures(BaseFeaturesExtractor):
    """Observations of ``NppEnv``, ``NppVectorEnv`` or ``BatchVecEnv``, all or some, to features [N, features_dim].

    Numbers are divided by their natural size, ``surroundings`` by 255; pictures go through SB3's NatureCNN (which SB3 has
    transposed and divided by 255).  All pass a linear layer and a ReLU together.
    Raises UserError for keys that are no observations of nppsim.
    """

    def __init__(self, observation_space: spaces.Dict, features_dim: int = 256, picture_dim: int = 128):
        super().__init__(observation_space, features_dim)
        if unknown := sorted(set(observation_space) - set(layout.SPECS)):
            raise UserError(f"{unknown[0]!r} is no observation of nppsim; it has {', '.join(layout.SPECS)}")
        self.pictures = nn.ModuleDict(
            {key: NatureCNN(observation_space[key], picture_dim) for key in observation_space if key in layout.IMAGES}
        )
        self.keys = [key for key in observation_space if key not in layout.IMAGES]
        for key in self.keys:
            self.register_buffer(f"scale_{key}", torch.from_numpy(_scale(layout.SPECS[key])))
        width = sum(math.prod(layout.SPECS[key].shape) for key in self.keys) + picture_dim * len(self.pictures)
        self.fusion = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        parts = [
            (observations[key].flatten(1).float() / getattr(self, f"scale_{key}")).clamp(-CLAMP, CLAMP)
            for key in self.keys
        ]
        parts += [branch(observations[key]) for key, branch in self.pictures.items()]
        return self.fusion(torch.cat(parts, dim=1))


def _scale(spec: layout.ObservationSpec) -> np.ndarray:
    """float32[size]: what each number is divided by."""
    count = math.prod(spec.shape)
    return np.resize(np.array(spec.scale or (255.0,), np.float32), count)
