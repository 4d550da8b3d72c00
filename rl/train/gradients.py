"""The gradients of a minibatch, whose decisions a team shares out among its threads."""

from collections.abc import Callable, Mapping

import torch

from hardware.team import Team, summed_gradients
from rl.policy.policy import NppPolicy
from rl.train.losses import Losses, LossSettings, Samples, losses


def set_gradients(
    policy: NppPolicy,
    team: Team,
    observations: Callable[[torch.Tensor], Mapping[str, torch.Tensor]],
    samples: Samples,
    index: torch.Tensor,
    settings: LossSettings,
) -> Losses[float]:
    """The losses of a minibatch; every parameter that is to move has its gradient then, and no other has one.

    policy: that learns.
    team: who computes.
    observations: those of the decisions of a rollout with the given numbers.
    samples: all decisions of the rollout.
    index: int64[B], numbers of the minibatch's decisions.
    settings: of the losses.
    """

    def loss(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        mine = index[rows]
        logits, values = policy.logits_and_values(observations(mine))
        parts = losses(logits, values, samples.take(mine), settings)
        return parts.loss, torch.stack(parts)

    # The trunk is shared: the cloned actor must not move while the critic learns.
    moving = [
        parameter
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad and ("value_net" in name or not settings.critic_only)
    ]
    policy.optimizer.zero_grad(set_to_none=True)
    means, gradients = summed_gradients(team, len(index), loss, moving)
    for parameter, gradient in zip(moving, gradients, strict=True):
        parameter.grad = gradient
    return Losses(*means.tolist())
