"""Losses of PPO on a minibatch, their gradients, and statistics of gradients.

Source: Schulman et al. 2017 (PPO), Schmitt et al. 2018 (kickstarting: KL penalty to the BC policy).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from bc.thread_pool import ThreadPool, summed_gradients
from nppsim.errors import UserError
from rl.policy.policy import NppPolicy
from rl.ppo.rollout_buffer import RolloutBuffer

Number = TypeVar("Number", torch.Tensor, float)
NOT_FINITE = "lower --initial-lr, or look for observations that are not finite"


class DivergedError(UserError, RuntimeError):
    """Training that produced numbers that are not finite."""


class Losses(NamedTuple, Generic[Number]):
    """Means over a minibatch.  Each mean is logged as ``train/<name>``.

    policy_gradient_loss: negated clipped surrogate objective of PPO.
    value_loss: mean squared error between values and returns.
    entropy_loss: negated entropy of the policy in nats.
    loss: weighted sum that the optimiser minimises.
    approx_kl: KL divergence from the rollout policy in nats; a sum over all actions, so it is exact.
    clip_fraction: share of decisions whose probability ratio is outside the clip range.
    bc_kl: KL divergence from the BC policy in nats; 0 without a penalty.
    """

    policy_gradient_loss: Number
    value_loss: Number
    entropy_loss: Number
    loss: Number
    approx_kl: Number
    clip_fraction: Number
    bc_kl: Number


@dataclass(frozen=True)
class LossWeights:
    """Coefficients of the loss during one update.

    clip_range: clip range of the probability ratio.
    vf_coef, ent_coef, bc_kl_coef: weights of value loss, entropy and KL penalty.
    critic_only: True to use the value loss alone and leave the parameters of the actor unchanged.
    return_variance: divisor of the value loss.
    clip_range_vf: clip range of the values; None: no clipping.
    """

    clip_range: float
    vf_coef: float
    ent_coef: float
    bc_kl_coef: float = 0.0
    critic_only: bool = False
    return_variance: float = 1.0
    clip_range_vf: float | None = None


@dataclass(frozen=True)
class Samples:
    """B decisions of a rollout, with the inputs of the losses.

    actions: int64[B].
    log_probs: float32[B, 6], log-probabilities of all actions under the rollout policy.
    advantages, returns: float32[B]; the advantages are normalised over the rollout.
    reference_log_probs: float32[B, 6], log-probabilities of all actions under the BC policy, for the KL penalty.
    values: float32[B], values during the rollout; None if values are not clipped.
    weights: float32[B], importance weights; None: all weights are 1.
    """

    actions: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    reference_log_probs: torch.Tensor | None = None
    values: torch.Tensor | None = None
    weights: torch.Tensor | None = None

    def take(self, index: torch.Tensor) -> Self:
        """Return the samples of the decisions ``index``, int64[b]."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: tensor[index] for name, tensor in values.items() if tensor is not None})


def ppo_losses(
    logits: torch.Tensor, values: torch.Tensor, samples: Samples, weights: LossWeights
) -> Losses[torch.Tensor]:
    """Return all losses of a minibatch.  logits: float32[B, 6], and values: float32[B], of the current network."""

    def mean(parts: torch.Tensor) -> torch.Tensor:
        return parts.mean() if samples.weights is None else (samples.weights * parts).mean()

    clip = weights.clip_range
    log_probs_all = F.log_softmax(logits, dim=1)
    probs = log_probs_all.exp()
    log_probs = log_probs_all.gather(1, samples.actions[:, None])[:, 0]
    ratio = (log_probs - samples.log_probs.gather(1, samples.actions[:, None])[:, 0]).exp()
    surrogate = torch.min(samples.advantages * ratio, samples.advantages * ratio.clamp(1 - clip, 1 + clip))
    policy_loss = -mean(surrogate)
    if weights.clip_range_vf is not None and samples.values is not None:
        clip_vf = weights.clip_range_vf
        values = samples.values + (values - samples.values).clamp(-clip_vf, clip_vf)
    value_loss = mean((values - samples.returns).square())
    entropy = -mean((probs * log_probs_all).sum(dim=1))
    weighted_value_loss = weights.vf_coef / weights.return_variance * value_loss
    loss = policy_loss - weights.ent_coef * entropy + weighted_value_loss
    bc_kl = torch.zeros((), device=logits.device)
    if samples.reference_log_probs is not None:
        bc_kl = mean(kl_divergence(samples.reference_log_probs, log_probs_all))
        loss = loss + weights.bc_kl_coef * bc_kl
    if weights.critic_only:
        loss = weighted_value_loss
    with torch.no_grad():
        approx_kl = mean(kl_divergence(samples.log_probs, log_probs_all))
        clip_fraction = ((ratio - 1).abs() > clip).float().mean()
    return Losses(policy_loss, value_loss, -entropy, loss, approx_kl, clip_fraction, bc_kl)


def kl_divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return KL(p || q) float32[B] in nats.  p, q: log-probabilities float32[B, A]."""
    return (p.exp() * (p - q)).sum(dim=1)


def normalized(advantages: torch.Tensor, among: torch.Tensor | None = None) -> torch.Tensor:
    """Normalise advantages by mean and standard deviation of ``among``; None: of the advantages themselves."""
    among = advantages if among is None else among
    return (advantages - among.mean()) / (among.std() + 1e-8)


@torch.no_grad()
def evaluate_rollout(
    policy: NppPolicy, buffer: RolloutBuffer, pool: ThreadPool, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Evaluate a policy on a whole rollout; return log-probabilities float32[T * N, 6] and values float32[T * N].

    size: number of decisions per pass through the network.
    """
    order = buffer.evaluation_order()

    @torch.no_grad()
    def part(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        pieces = [policy.logits_and_values(buffer.observations(index)) for index in order[rows].split(size)]
        return torch.cat([F.log_softmax(logits, dim=1) for logits, _ in pieces]), torch.cat([v for _, v in pieces])

    begins = np.arange(0, len(buffer), buffer.segment) if buffer.segment > 1 else None
    log_probs, values = (torch.cat(parts) for parts in zip(*pool.map_rows(len(buffer), part, begins), strict=True))
    back = order.argsort() if buffer.segment > 1 else slice(None)
    return log_probs[back], values[back]


def set_gradients(
    policy: NppPolicy,
    pool: ThreadPool,
    observations: Callable[[torch.Tensor], Mapping[str, torch.Tensor]],
    samples: Samples,
    minibatches: Sequence[torch.Tensor],
    losses_of: Callable[[Mapping[str, torch.Tensor], Any], Losses[torch.Tensor]],
    *,
    critic_only: bool = False,
    segment: int = 1,
) -> list[float]:
    """Set the gradients of one optimiser step; return the means of all losses over its decisions.

    Parameters that the step does not train have no gradient.
    policy: the policy to train.
    pool: threads that share each minibatch.
    observations: function that returns the observations of decisions, given their indices int64[B].
    samples: all decisions of the rollout.
    minibatches: indices int64[B] of the decisions of each pass through the network; the gradients are accumulated.
    losses_of: function that returns the losses of decisions, given their observations and samples.
    critic_only: True to leave the parameters of the actor unchanged.
    segment: number of consecutive decisions that must stay together; it must divide each B.
    """
    # While the critic is trained alone, the shared encoder must not change, as the actor depends on it.
    trained = [
        parameter
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad and ("value_net" in name or not critic_only)
    ]
    policy.optimizer.zero_grad(set_to_none=True)
    if samples.weights is not None:
        samples = replace(samples, weights=samples.weights / samples.weights[torch.cat([*minibatches])].mean())
    total, size = torch.zeros(()), sum(map(len, minibatches))
    for minibatch in minibatches:

        def loss(rows: slice, indices: torch.Tensor = minibatch) -> tuple[torch.Tensor, torch.Tensor]:
            losses = losses_of(observations(indices[rows]), samples.take(indices[rows]))
            return losses.loss, torch.stack(losses)

        begins = np.arange(0, len(minibatch), segment) if segment > 1 else None
        means, gradients = summed_gradients(pool, len(minibatch), loss, trained, begins)
        share = len(minibatch) / size
        total = total.to(means.device) + share * means
        for parameter, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                gradient = gradient if share == 1 else share * gradient
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return total.tolist()


class GradientStatistics:
    """Mean, variance and norm of gradients before clipping, for the network and for each layer."""

    def __init__(self) -> None:
        self._rows: list[dict[str, torch.Tensor]] = []

    def add(self, policy: NppPolicy) -> None:
        """Add the current gradients of the policy, which are those of one optimiser step."""
        layers: dict[str, list[torch.Tensor]] = {}
        for name, parameter in policy.named_parameters():
            if parameter.grad is not None:
                layers.setdefault(name.rpartition(".")[0], []).append(parameter.grad.flatten())
        parts = {layer: torch.cat(gradients) for layer, gradients in layers.items()}
        row: dict[str, torch.Tensor] = {}
        for layer, gradient in {"all": torch.cat(list(parts.values())), **parts}.items():
            row[f"mean/{layer}"], row[f"norm/{layer}"] = gradient.mean(), gradient.norm()
            row[f"variance/{layer}"] = gradient.var(correction=0)
        self._rows.append(row)

    def means(self) -> dict[str, float]:
        """Return the means over all steps by "gradients/statistic/layer"; empty without steps."""
        names = self._rows[0] if self._rows else {}
        return {f"gradients/{name}": float(torch.stack([row[name] for row in self._rows]).mean()) for name in names}
