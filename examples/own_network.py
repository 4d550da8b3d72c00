"""Train with your own network, any nn.Module: python examples/own_network.py [--steps N]

The surroundings go through convolutions, the vectors through a layer; Stable-Baselines3 does the rest.
"""

import argparse

import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from nppsim import NppEnv
from nppsim.observe import layout

VECTORS = ("game_state", "reachability_features")


class MyNetwork(BaseFeaturesExtractor):
    """Observations (key -> [N, ...]) to features [N, 128]."""

    def __init__(self, observation_space: spaces.Dict):
        super().__init__(observation_space, features_dim=128)
        self.map = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU())
        scale = [size for key in VECTORS for size in layout.SPECS[key].scale]
        self.register_buffer("scale", torch.tensor(scale))
        self.join = nn.Sequential(nn.Linear(16 * 4 * 4 + len(scale), 128), nn.ReLU())

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        cells = observations["surroundings"].reshape(-1, 3, 19, 19) / 255  # its axes: docs/observations.md
        vectors = torch.cat([observations[key] for key in VECTORS], dim=1) / self.scale
        return self.join(torch.cat([self.map(cells).flatten(1), vectors], dim=1))


def main(argv: list[str] | None = None) -> PPO:
    """Train and return the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--rollout", type=int, default=512)
    args = parser.parse_args(argv)
    env = NppEnv(observations=(*VECTORS, "surroundings"))
    kwargs = {"features_extractor_class": MyNetwork}
    model = PPO("MultiInputPolicy", env, n_steps=args.rollout, policy_kwargs=kwargs, device="cpu")
    return model.learn(args.steps)


if __name__ == "__main__":
    main()
