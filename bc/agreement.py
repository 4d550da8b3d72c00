"""Tolerances for comparing two computations of the same numbers, and helpers to recompute a gradient step.

Source of Adam: Kingma & Ba 2015.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

CLOSE = 1e-3  # tolerance, relative to the largest number
CLOSE_COARSE = 0.1  # in bfloat16 and on GPUs, where results depend on the batch that a row is in
ROUNDING = 1e-6  # absolute, for gradients near 0
BETAS = (0.9, 0.999)  # of Adam and AdamW
Tensors = dict[str, torch.Tensor]


def closeness(policy: Any, close: float = CLOSE) -> float:
    """Relative tolerance of two forward passes: ``close`` in float32 on a CPU, the default precision of a module."""
    exact = getattr(policy, "precision", "float32") == "float32" and next(policy.parameters()).device.type == "cpu"
    return close if exact else CLOSE_COARSE


def gradients_of(loss: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> Tensors:
    """Name -> gradient, of the parameters that the loss depends on."""
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(parameters, found, strict=True) if gradient is not None}


def cut_off(gradients: Tensors, longest: float) -> tuple[Tensors, float]:
    """Clip gradients to a norm; return them and the norm before clipping."""
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients.values()))
    share = min(1.0, longest / (norm + 1e-6))
    return {name: g * share for name, g in gradients.items()}, norm


def farthest(found: Tensors, wanted: Tensors) -> tuple[str, float, float]:
    """(tensor with the largest difference, this difference, largest expected number); missing tensors count as zero."""
    off = {}
    for name in {**wanted, **found}:
        known = [some[name] for some in (found, wanted) if name in some]
        off[name] = float((known[0] - known[1] if len(known) == 2 else known[0]).abs().max())
    worst = max(off, key=lambda name: (not off[name] < math.inf, off[name]))
    return worst, off[worst], max((float(g.abs().max()) for g in wanted.values()), default=0.0)


def adam_move(gradient: torch.Tensor, memory: Mapping[str, torch.Tensor], rate: float, eps: float) -> torch.Tensor:
    """Step of Adam for one parameter, float64, to be subtracted.

    memory: optimiser state of the parameter before the step; empty before the first.
    """
    g, steps = gradient.double(), float(memory.get("step", 0)) + 1
    first, second = (memory[key].double() if memory else torch.zeros_like(g) for key in ("exp_avg", "exp_avg_sq"))
    first, second = BETAS[0] * first + (1 - BETAS[0]) * g, BETAS[1] * second + (1 - BETAS[1]) * g.square()
    return rate * first / (1 - BETAS[0] ** steps) / ((second / (1 - BETAS[1] ** steps)).sqrt() + eps)


def memory_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> dict[str, Tensors]:
    """Name -> copy of the optimiser state, for parameters that have one."""
    state = optimizer.state
    return {
        name: {key: torch.as_tensor(value).clone() for key, value in state[parameter].items()}
        for name, parameter in parameters.items()
        if parameter in state
    }
