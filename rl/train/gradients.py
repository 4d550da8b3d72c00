"""The gradients of a minibatch, whose decisions a team shares out among its threads."""

from collections.abc import Callable, Mapping, Sequence

import torch

from rl.policy.policy import NppPolicy
from rl.train.losses import Losses, LossSettings, Samples, losses
from rl.train.team import Team


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


def summed_gradients(
    team: Team,
    rows: int,
    loss: Callable[[slice], tuple[torch.Tensor, torch.Tensor]],
    parameters: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Means over a batch and the gradients of its loss, computed in parts and added in their order.

    rows: of the batch.
    loss: rows -> (the loss to differentiate, whatever else is to be averaged), means over those rows.
    parameters: of which the gradients are wanted.
    Returns the averages and, for each parameter, its gradient; None where the loss does not depend on it.
    """

    def part(of: slice) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        share = (of.stop - of.start) / rows
        minimised, averaged = loss(of)
        return averaged.detach() * share, torch.autograd.grad(minimised * share, parameters, allow_unused=True)

    averages, gradients = zip(*team.share(rows, part), strict=True)
    return sum(averages[1:], averages[0]), [_sum(parts) for parts in zip(*gradients, strict=True)]


def _sum(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    known = [part for part in parts if part is not None]
    # Contiguous like the parameters: the fused optimiser reads memory as it lies.
    return sum(known[1:], known[0]).contiguous() if known else None
