"""What must hold of lessons, worked out a second time by other means; see ``rl.distillation``.

check_decisions(student, buffer, divergence, "lesson 1")     # after the student has played, before it learns
again = LearningAgain(distiller)                             # before it learns
again.before_step(index); again.after_step()               # of each step
again.end(size)
"""

import copy
from typing import TYPE_CHECKING

import torch

from bc.agreement import ROUNDING, closeness, cut_off, farthest, gradients_of
from nppsim.errors import UserError
from rl.config.distillation import MAX_GRAD_NORM
from rl.policy.policy import NppPolicy
from rl.ppo.audit import MOST_SIGMAS, deviations
from rl.ppo.rollout import TensorRolloutBuffer

if TYPE_CHECKING:
    from rl.distillation import Distiller

_AT_ONCE = 1024  # decisions
_REPORT = "please report this"


class DistillationError(UserError, RuntimeError):
    """A teacher that cannot teach, or lessons that have gone wrong; the message says why and what to do."""


@torch.no_grad()
def check_decisions(student: NppPolicy, buffer: TensorRolloutBuffer, divergence: float, lesson: str) -> None:
    """DistillationError unless the student played, and parted from its teacher by as much as is told, nats."""
    rows = torch.arange(len(buffer), device=buffer.device).split(_AT_ONCE)
    logits = torch.cat([student.logits_and_values(buffer.observations(index))[0].double() for index in rows])
    log_probs, told = logits.log_softmax(dim=1), buffer.flat("log_probs").double()
    away = float((told.exp() * (told - log_probs)).sum(dim=1).mean())
    if not abs(away - divergence) <= 10 * closeness(student) * (1 + away):
        raise DistillationError(
            f"{lesson}: the student is {away:.4f} nats from what its teacher said, told are {divergence:.4f}: answers are of "
            f"other states, or of another network; {_REPORT}"
        )
    sigmas, _ = deviations(log_probs.exp().cpu().numpy(), buffer.flat("actions").cpu().numpy())
    if not sigmas < MOST_SIGMAS:
        raise DistillationError(
            f"{lesson}: what was played is {sigmas:.0f} standard deviations from the student's own probabilities: somebody "
            f"else plays, so that the student is not taught where its mistakes lead to; {_REPORT}"
        )


class LearningAgain:
    """Watches what a lesson is learned from, and its first step.

    distiller: that learns.
    """

    def __init__(self, distiller: "Distiller"):
        self.distiller = distiller
        self.name = distiller.name
        self.mirror: NppPolicy | None = copy.deepcopy(distiller.student)
        self.shown: list[torch.Tensor] = []

    def before_step(self, index: torch.Tensor) -> None:
        """Take note of a minibatch, int64[B]."""
        self.shown.append(index)

    def after_step(self) -> None:
        """Check gradient (clipped divergence from the teacher) and effect of the first step."""
        if self.mirror is None:
            return
        distiller, index, mirror = self.distiller, self.shown[0], self.mirror
        self.mirror = None
        log_probs = mirror.logits_and_values(distiller._buffer.observations(index))[0].double().log_softmax(dim=1)
        told = distiller._buffer.flat("log_probs")[index].double()
        loss = (told.exp() * (told - log_probs)).sum(dim=1).mean()
        known = gradients_of(loss, {name: p for name, p in mirror.named_parameters() if p.requires_grad})
        found = {name: p.grad for name, p in distiller.student.named_parameters() if p.grad is not None}
        name, off, largest = farthest(found, cut_off(known, MAX_GRAD_NORM)[0])
        if not off <= closeness(distiller.student) * largest + ROUNDING:
            raise DistillationError(
                f"{self.name}: the gradient of {name} differs by {off:.2g} from that of the divergence from the teacher, "
                f"whose largest is {largest:.2g}: something else is learned; {_REPORT}"
            )
        still = [
            name
            for name, before in mirror.named_parameters()
            if name in found and found[name].any() and torch.equal(before, distiller.student.get_parameter(name))
        ]
        if still:
            raise DistillationError(
                f"{self.name}: its first step has not moved {', '.join(still[:3])}: no rate; {_REPORT}"
            )

    def end(self, size: int) -> None:
        """DistillationError unless each pass has shown every decision once, but for a last minibatch that is short.

        size: of a minibatch.
        """
        distiller = self.distiller
        count, epochs = len(distiller._buffer), distiller.settings.epochs
        shown = torch.cat(self.shown) if self.shown else torch.empty(0, dtype=torch.int64)
        times = torch.bincount(shown.cpu(), minlength=count)
        if len(shown) != epochs * (count // size) * size or int(times.max()) > epochs:
            raise DistillationError(
                f"{self.name}: {len(shown)} decisions were learned from in {epochs} passes over {count}, each "
                f"{int(times.min())} to {int(times.max())} times; {_REPORT}"
            )
        half = len(shown) // 2
        if epochs == 2 and count > size >= 32 and torch.equal(shown[:half], shown[half:]):
            raise DistillationError(f"{self.name}: both passes had the same order: nothing is shuffled; {_REPORT}")
