"""Deep heads of actor and critic: residual blocks with layer norm and SiLU, in place of plain layers.

    DeepHeads(256, 64, ResidualBlocks(count=2))     # features float[N, 256] -> latents of actor and critic, float[N, 64]

A name asks for them: ``vision_free+deep2``, ``vision_free+deep3-no_residual-no_layer_norm``.  There is no dropout, and no
batch norm: what a network computes must not differ between the rollout and the update that learns from it, as PPO's loss is
about the ratio of the two.
Source: He et al. 2016 (blocks that begin with their norm), Ba et al. 2016 (layer norm), Elfwing et al. 2018 (SiLU).
"""

import torch
import torch.nn.functional as F
from torch import nn

from rl.policy.residual_blocks import ResidualBlocks


class DeepHeads(nn.Module):
    """Actor's and critic's hidden layers, called as Stable-Baselines3 calls its own.

    inputs: size of the features.
    width: of each block, and of the latents.
    """

    def __init__(self, inputs: int, width: int, blocks: ResidualBlocks):
        super().__init__()
        self.latent_dim_pi = self.latent_dim_vf = width
        self.policy_net = _head(inputs, width, blocks)
        self.value_net = _head(inputs, width, blocks)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return self.policy_net(features)

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.value_net(features)


class _Block(nn.Module):
    """float[N, width] to the same: two layers behind a norm, added to what came in."""

    def __init__(self, width: int, blocks: ResidualBlocks):
        super().__init__()
        self.residual = blocks.residual
        self.norm = _norm(width, blocks)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        made = self.second(F.silu(self.first(self.norm(given))))
        return given + made if self.residual else made


def _norm(width: int, blocks: ResidualBlocks) -> nn.Module:
    return nn.LayerNorm(width) if blocks.layer_norm else nn.Identity()


def _head(inputs: int, width: int, blocks: ResidualBlocks) -> nn.Sequential:
    parts = [_Block(width, blocks) for _ in range(blocks.count)]
    return nn.Sequential(nn.Linear(inputs, width), *parts, _norm(width, blocks), nn.SiLU())
