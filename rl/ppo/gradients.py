"""The gradients of one step: of minibatches that a pool shares out among its threads; and figures on them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from hardware.thread_pool import ThreadPool, summed_gradients
from rl.policy.policy import NppPolicy
from rl.ppo.losses import Losses, LossSettings, Samples, losses


class Further(Protocol):
    """Parts of a loss beyond PPO's own.  kind: the named tuple that it returns, which begins with the fields of Losses."""

    kind: type[Any]

    def __call__(
        self,
        parts: Losses[torch.Tensor],
        policy: NppPolicy,
        seen: Mapping[str, torch.Tensor],
        samples: Any,
        settings: LossSettings,
        /,
    ) -> Any:
        """All losses of a minibatch.  parts: PPO's own.  seen, samples: observations and facts of its decisions."""


def set_gradients(
    policy: NppPolicy,
    pool: ThreadPool,
    observations: Callable[[torch.Tensor], Mapping[str, torch.Tensor]],
    samples: Samples,
    index: torch.Tensor,
    settings: LossSettings,
    size: int | None = None,
    further: Further | None = None,
    segment: int = 1,
) -> Any:
    """The losses of a step; every parameter that is to move has its gradient then, and no other has one.

    policy: that learns.
    pool: who computes.
    observations: those of the decisions of a rollout with the given numbers.
    samples: all decisions of the rollout.
    index: int64[B], numbers of the step's decisions.
    settings: of the losses.
    size: decisions that go through the network together; the gradients of such minibatches are accumulated, each with its
        share of the decisions, so that the sum is that of one minibatch of B.  None: B.
    further: what else the loss has.
    segment: decisions that stay together; a divisor of B and ``size``.
    Returns Losses, or what ``further`` makes of them, as floats.
    """
    # The trunk is shared: the cloned actor must not move while the critic learns.
    moving = [
        parameter
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad and ("value_net" in name or not settings.critic_only)
    ]
    policy.optimizer.zero_grad(set_to_none=True)
    if samples.weights is not None:
        samples = replace(samples, weights=samples.weights / samples.weights[index].mean())
    total = torch.zeros(())
    for minibatch in index.split(size or len(index)):

        def loss(rows: slice, of: torch.Tensor = minibatch) -> tuple[torch.Tensor, torch.Tensor]:
            mine = of[rows]
            seen, some = observations(mine), samples.take(mine)
            logits, values = policy.logits_and_values(seen)
            parts = losses(logits, values, some, settings)
            if further is not None:
                parts = further(parts, policy, seen, some, settings)
            return parts.loss, torch.stack(parts)

        begins = np.arange(0, len(minibatch), segment) if segment > 1 else None
        means, gradients = summed_gradients(pool, len(minibatch), loss, moving, begins)
        share = len(minibatch) / len(index)
        total = total.to(means.device) + share * means
        for parameter, gradient in zip(moving, gradients, strict=True):
            if gradient is not None:
                gradient = gradient if share == 1 else share * gradient
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return (Losses if further is None else further.kind)(*total.tolist())


class GradientStatistics:
    """Mean, variance and norm of the gradients of an update, of all and of each layer, before they are shortened."""

    def __init__(self) -> None:
        self._rows: list[dict[str, torch.Tensor]] = []

    def add(self, policy: NppPolicy) -> None:
        """Note the gradients that the policy has now."""
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
        """Figure/layer -> its mean over the steps; nothing where there were none."""
        names = self._rows[0] if self._rows else {}
        return {name: float(torch.stack([row[name] for row in self._rows]).mean()) for name in names}
