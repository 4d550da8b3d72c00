"""How closely two ways to compute the same numbers must agree, and what audits of gradients share."""

import math
from typing import Any

import torch

CLOSE = 1e-3  # share of the largest number, that two ways to compute it may differ by
CLOSE_COARSE = 0.1  # the same in bfloat16 and on GPUs, where it matters in which batch a row is computed
Tensors = dict[str, torch.Tensor]


def closeness(policy: Any) -> float:
    """How closely two passes through a network agree; a module that names no precision computes in float32."""
    exact = getattr(policy, "precision", "float32") == "float32" and next(policy.parameters()).device.type == "cpu"
    return CLOSE if exact else CLOSE_COARSE


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
