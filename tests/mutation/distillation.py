"""Mutations of distillation."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from rl import distillation
from rl.distillation import Distiller
from rl.ppo.losses import divergence
from tests.mutation.mutation import Patch, mutation


def _answers(patch: Patch, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Change what a lesson keeps of the teacher's answers, given those and the student's logits."""

    def changed(original, course, t):
        logits = original(course, t)
        course._buffer.log_probs[t] = change(course._buffer.log_probs[t].clone(), logits)
        return logits

    patch.wrap(Distiller, "_decide", changed)


@mutation("teacher outputs belong to neighbouring environments", tests=("tests/rl/test_distillation.py",))
def _(patch: Patch) -> None:
    _answers(patch, lambda told, logits: told.roll(1, dims=0))


@mutation("the student is trained on its own outputs", tests=("tests/rl/test_distillation.py",))
def _(patch: Patch) -> None:
    _answers(patch, lambda told, logits: F.log_softmax(logits, dim=1))


@mutation("the teacher collects the rollouts of the student", tests=("tests/rl/test_distillation.py",))
def _(patch: Patch) -> None:
    def changed(original, course, t):
        original(course, t)
        return course._buffer.log_probs[t].clone()

    patch.wrap(Distiller, "_decide", changed)


@mutation("distillation minimises the reverse divergence", tests=("tests/rl/test_distillation.py",))
def _(patch: Patch) -> None:
    patch.set(distillation, "divergence", lambda of, to: divergence(to, of))


@mutation("distillation steps go up the gradient", tests=("tests/rl/test_distillation.py",))
def _(patch: Patch) -> None:
    patch.wrap(
        Distiller,
        "_step",
        lambda original, course, away, gradients: original(
            course, away, [None if one is None else -one for one in gradients]
        ),
    )


@mutation("the learning rate of distillation is 0", tests=("tests/rl/test_distillation.py",))
def _(patch: Patch) -> None:
    def changed(original, course, *given):
        course._optimizer.param_groups[0]["lr"] = 0.0
        original(course, *given)

    patch.wrap(Distiller, "_step", changed)
