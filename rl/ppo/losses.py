"""PPO's losses on a minibatch, as plain functions of tensors; tests compare them with Stable-Baselines3's own.

Source: Schulman et al. 2017 (PPO); the pull towards the BC policy after Schmitt et al. 2018 (kickstarting); imitation of
own wins after Oh et al. 2018 (self-imitation learning).
"""

from dataclasses import dataclass, fields, replace
from typing import Generic, NamedTuple, Self, TypeVar

import torch
import torch.nn.functional as F

Number = TypeVar("Number", torch.Tensor, float)


class Losses(NamedTuple, Generic[Number]):
    """Means over a minibatch; each is logged under its name, below ``train/``.

    policy_gradient_loss: PPO's clipped surrogate, negated.
    value_loss: mean squared error of the values against the returns.
    entropy_loss: minus the policy's entropy, nats.
    loss: what the optimiser minimises.
    approx_kl: divergence of the policy from the one that played, nats: over all actions, so there is nothing to estimate.
    clip_fraction: share of decisions whose probability ratio is outside the clip range.
    bc_kl: divergence of the policy from the BC policy, nats; 0 where there is no pull.
    self_imitation_loss: minus the log-probability of actions, times what they gained beyond expectation; 0 without.
    """

    policy_gradient_loss: Number
    value_loss: Number
    entropy_loss: Number
    loss: Number
    approx_kl: Number
    clip_fraction: Number
    bc_kl: Number
    self_imitation_loss: Number


@dataclass(frozen=True)
class LossSettings:
    """What the parts of the loss weigh during one update.

    clip_range: how far the probability ratio may leave 1 before a decision stops pulling.
    vf_coef, ent_coef, bc_kl_coef, self_imitation_coef: weights of value loss, entropy, divergence from the BC policy and
        imitation of own wins.
    critic_only: the loss is the value loss alone.
    return_variance: the value loss weighs vf_coef over this.
    clip_range_vf: how far a value may leave the one that was given while it was played, before it stops being pulled; None:
        as far as it likes.
    """

    clip_range: float
    vf_coef: float
    ent_coef: float
    bc_kl_coef: float = 0.0
    critic_only: bool = False
    return_variance: float = 1.0
    self_imitation_coef: float = 0.0
    clip_range_vf: float | None = None


@dataclass(frozen=True)
class Samples:
    """What the losses need to know about B decisions.

    actions: int64[B].
    log_probs: float32[B, 6], of all actions, by the policy that played.
    advantages, returns: float32[B]; advantages are normalised over the rollout.
    cloned_log_probs: float32[B, 6], of all actions, by the BC policy; None where there is no pull towards it.
    surprises: float32[B], 0 or what a won episode gained beyond expectation from there on, in units of the advantages'
        spread; None where own wins are not imitated.
    values: float32[B], while it was played; None where values are not clipped.
    weights: float32[B], of the decisions in all means, 1 on average in a minibatch; None: all the same.
    """

    actions: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    cloned_log_probs: torch.Tensor | None = None
    surprises: torch.Tensor | None = None
    values: torch.Tensor | None = None
    weights: torch.Tensor | None = None

    def take(self, index: torch.Tensor) -> Self:
        """The decisions ``index``, int64[b]."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: values[index] for name, values in given.items() if values is not None})


def losses(
    logits: torch.Tensor, values: torch.Tensor, samples: Samples, settings: LossSettings
) -> Losses[torch.Tensor]:
    """All losses of a minibatch; logits float32[B, 6] and values float32[B] are the present network's."""

    def mean(parts: torch.Tensor) -> torch.Tensor:
        return parts.mean() if samples.weights is None else (samples.weights * parts).mean()

    clip = settings.clip_range
    log_probs_all = F.log_softmax(logits, dim=1)
    probs = log_probs_all.exp()
    log_probs = log_probs_all.gather(1, samples.actions[:, None])[:, 0]
    ratio = (log_probs - samples.log_probs.gather(1, samples.actions[:, None])[:, 0]).exp()
    gain = torch.min(samples.advantages * ratio, samples.advantages * ratio.clamp(1 - clip, 1 + clip))
    policy_loss = -mean(gain)
    if settings.clip_range_vf is not None and samples.values is not None:
        farthest = settings.clip_range_vf
        values = samples.values + (values - samples.values).clamp(-farthest, farthest)
    value_loss = mean((values - samples.returns).square())
    entropy = -mean((probs * log_probs_all).sum(dim=1))
    weighed_value_loss = settings.vf_coef / settings.return_variance * value_loss
    loss = policy_loss - settings.ent_coef * entropy + weighed_value_loss
    bc_kl = self_imitation_loss = torch.zeros((), device=logits.device)
    if samples.cloned_log_probs is not None:
        bc_kl = mean(divergence(samples.cloned_log_probs, log_probs_all))
        loss = loss + settings.bc_kl_coef * bc_kl
    if samples.surprises is not None:
        self_imitation_loss = -mean(samples.surprises * log_probs)
        loss = loss + settings.self_imitation_coef * self_imitation_loss
    if settings.critic_only:
        loss = weighed_value_loss
    with torch.no_grad():
        approx_kl = mean(divergence(samples.log_probs, log_probs_all))
        clip_fraction = ((ratio - 1).abs() > clip).float().mean()
    return Losses(
        policy_loss, value_loss, -entropy, loss, approx_kl, clip_fraction, bc_kl, self_imitation_loss
    )  # fmt: skip


def divergence(of: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence float32[B], nats, between distributions given as log-probabilities float32[B, A].

    Sum over actions of exp(of) (of - to): large where ``of`` does often what ``to`` seldom does.
    """
    return (of.exp() * (of - to)).sum(dim=1)


def normalised(advantages: torch.Tensor, among: torch.Tensor | None = None) -> torch.Tensor:
    """Advantages, moved and scaled so that those they are among (None: only these) have mean 0 and standard deviation 1."""
    among = advantages if among is None else among
    return (advantages - among.mean()) / (among.std() + 1e-8)
