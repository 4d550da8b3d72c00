"""How closely two ways to compute the same numbers must agree, and what audits of single steps share.

Source of Adam: Kingma & Ba 2015.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

CLOSE = 1e-3  # share of the largest number, that two ways to compute it may differ by
CLOSE_COARSE = 0.1  # the same in bfloat16 and on GPUs, where it matters in which batch a row is computed
ROUNDING = 1e-6  # of gradients that are all but 0
BETAS = (0.9, 0.999)  # of Adam and AdamW
Tensors = dict[str, torch.Tensor]


def closeness(policy: Any, close: float = CLOSE) -> float:
    """How closely two passes through a network agree: ``close``, where it computes exactly.

    A module that names no precision computes in float32.
    """
    exact = getattr(policy, "precision", "float32") == "float32" and next(policy.parameters()).device.type == "cpu"
    return close if exact else CLOSE_COARSE


def gradients_of(loss: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> Tensors:
    """Name -> gradient, of those parameters that the loss depends on."""
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(parameters, found, strict=True) if gradient is not None}


def cut_off(gradients: Tensors, longest: float) -> tuple[Tensors, float]:
    """(the gradients, shortened where they are longer together; their norm before that)"""
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients.values()))
    share = min(1.0, longest / (norm + 1e-6))
    return {name: g * share for name, g in gradients.items()}, norm


def farthest(found: Tensors, wanted: Tensors) -> tuple[str, float, float]:
    """(name of the tensor that differs most, by how much, largest number wanted); what one side lacks is zeros there."""
    off = {}
    for name in {**wanted, **found}:
        known = [some[name] for some in (found, wanted) if name in some]
        off[name] = float((known[0] - known[1] if len(known) == 2 else known[0]).abs().max())
    worst = max(off, key=lambda name: (not off[name] < math.inf, off[name]))
    return worst, off[worst], max((float(g.abs().max()) for g in wanted.values()), default=0.0)


def adam_move(gradient: torch.Tensor, memory: Mapping[str, torch.Tensor], rate: float, eps: float) -> torch.Tensor:
    """How far Adam moves a parameter, float64, to be subtracted.

    memory: the optimiser's state of that parameter before the step; empty before the first.
    """
    g, steps = gradient.double(), float(memory.get("step", 0)) + 1
    first, second = (memory[key].double() if memory else torch.zeros_like(g) for key in ("exp_avg", "exp_avg_sq"))
    first, second = BETAS[0] * first + (1 - BETAS[0]) * g, BETAS[1] * second + (1 - BETAS[1]) * g.square()
    return rate * first / (1 - BETAS[0] ** steps) / ((second / (1 - BETAS[1] ** steps)).sqrt() + eps)


def memory_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> dict[str, Tensors]:
    """Name -> copy of what the optimiser remembers of that parameter; none of one that it has never moved."""
    state = optimizer.state
    return {
        name: {key: torch.as_tensor(value).clone() for key, value in state[parameter].items()}
        for name, parameter in parameters.items()
        if parameter in state
    }
