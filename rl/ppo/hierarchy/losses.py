"""What the high level adds to PPO's loss: the same parts, over the choices of subtasks.

A choice weighs as much as a decision of the low level: sums over the choices of a minibatch are divided by its decisions, so
that the few choices in it do not pull the shared layers harder than all the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
import torch.nn.functional as F

from rl.policy.commander import COMMAND
from rl.policy.policy import NppPolicy
from rl.ppo.losses import Losses, LossSettings, Number, Samples, divergence


class HierarchicalLosses(NamedTuple, Generic[Number]):
    """The fields of Losses, and those of the high level, as sums over the choices of a minibatch divided by its decisions.

    command_gradient_loss, command_value_loss, command_entropy_loss, command_kl: as policy_gradient_loss, value_loss,
        entropy_loss and approx_kl.
    """

    policy_gradient_loss: Number
    value_loss: Number
    entropy_loss: Number
    loss: Number
    approx_kl: Number
    clip_fraction: Number
    bc_kl: Number
    self_imitation_loss: Number
    command_gradient_loss: Number
    command_value_loss: Number
    command_entropy_loss: Number
    command_kl: Number


@dataclass(frozen=True, kw_only=True)
class HierarchicalSamples(Samples):
    """What the losses need to know about B decisions, and about the choices of subtasks before some of them.

    chooses: bool[B], whether there was one; the rest means nothing where there was none.
    command_log_probs: float32[B, 5], of all subtasks, when it was made.
    command_advantages, command_returns: float32[B]; advantages are normalised over the choices.
    """

    chooses: torch.Tensor
    command_log_probs: torch.Tensor
    command_advantages: torch.Tensor
    command_returns: torch.Tensor


class CommandLosses:
    """Callable: see ``rl.ppo.gradients.Further``."""

    kind = HierarchicalLosses

    def __call__(
        self,
        parts: Losses[torch.Tensor],
        policy: NppPolicy,
        seen: Mapping[str, torch.Tensor],
        samples: HierarchicalSamples,
        settings: LossSettings,
    ) -> HierarchicalLosses[torch.Tensor]:
        """All losses of a minibatch.  parts: those of the low level."""
        rows = samples.chooses.nonzero()[:, 0]
        if not len(rows):
            nothing = torch.zeros((), device=samples.chooses.device)
            return HierarchicalLosses(*parts, *[nothing] * 4)
        logits, values = policy.choose_subtasks({key: tensor[rows] for key, tensor in seen.items()})
        some, chosen = samples.take(rows), seen[COMMAND][rows, :1]
        weights = 1.0 if some.weights is None else some.weights
        log_probs = F.log_softmax(logits, dim=1)
        ratio = (log_probs - some.command_log_probs).gather(1, chosen)[:, 0].exp()
        clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
        gain = torch.min(some.command_advantages * ratio, some.command_advantages * clipped)
        share = len(samples.chooses)
        policy_loss = -(weights * gain).sum() / share
        value_loss = (weights * (values - some.command_returns).square()).sum() / share
        entropy_loss = (weights * (log_probs.exp() * log_probs).sum(dim=1)).sum() / share
        with torch.no_grad():
            kl = (weights * divergence(some.command_log_probs, log_probs)).sum() / share
        added = settings.vf_coef / settings.return_variance * value_loss
        if not settings.critic_only:
            added = added + policy_loss + settings.ent_coef * entropy_loss
        whole = parts._replace(loss=parts.loss + added)
        return HierarchicalLosses(*whole, policy_loss, value_loss, entropy_loss, kl)


def normalised_choices(advantages: torch.Tensor, chooses: torch.Tensor) -> torch.Tensor:
    """Advantages with mean 0 and standard deviation 1 over the choices; 0 where there are fewer than two."""
    some = advantages[chooses]
    if len(some) < 2:
        return torch.zeros_like(advantages)
    return torch.where(chooses, (advantages - some.mean()) / (some.std() + 1e-8), 0.0)
