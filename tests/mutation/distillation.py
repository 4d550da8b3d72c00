"""Mutations of distillation."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from nppsim.actions import NUM_ACTIONS
from rl import distillation
from rl.distillation import Distiller
from rl.ppo.losses import kl_divergence
from tests.mutation.mutation import Patch, mutation


def _targets(patch: Patch, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Change the stored teacher outputs, given those and the student's logits."""

    def changed(original, distiller, t):
        logits = original(distiller, t)
        distiller._buffer.log_probs[t] = change(distiller._buffer.log_probs[t].clone(), logits)
        return logits

    patch.wrap(Distiller, "_decide", changed)


@mutation("teacher outputs belong to neighbouring environments", "tests/rl/test_distillation.py")
def _(patch: Patch) -> None:
    _targets(patch, lambda outputs, logits: outputs.roll(1, dims=0))


@mutation("the student is trained on its own outputs", "tests/rl/test_distillation.py")
def _(patch: Patch) -> None:
    _targets(patch, lambda outputs, logits: F.log_softmax(logits, dim=1))


@mutation("the teacher collects the rollouts of the student", "tests/rl/test_distillation.py").wrap(
    Distiller, "_decide"
)
def _(original, distiller, t):
    original(distiller, t)
    return distiller._buffer.log_probs[t].clone()


mutation("distillation minimises the reverse divergence", "tests/rl/test_distillation.py").set(
    distillation, "kl_divergence", lambda p, q: kl_divergence(q, p)
)


mutation("distillation steps go up the gradient", "tests/rl/test_distillation.py").wrap(
    Distiller,
    "_step",
    lambda original, distiller, away, gradients: original(
        distiller, away, [None if one is None else -one for one in gradients]
    ),
)


@mutation("the learning rate of distillation is 0", "tests/rl/test_distillation.py").wrap(Distiller, "_step")
def _(original, distiller, *given):
    distiller._optimizer.param_groups[0]["lr"] = 0.0
    original(distiller, *given)


mutation("mirror images have the actions of the originals", "tests/rl/test_distillation.py").set(
    distillation, "MIRRORED_ACTION", np.arange(NUM_ACTIONS)
)
