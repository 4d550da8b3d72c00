"""What must hold of lessons, worked out a second time by other means; see ``rl.distillation``.

check_decisions(pupil, buffer, divergence, "lesson 1")     # after the pupil has played, before it learns
again = LearningAgain(lessons)                             # before it learns
again.before_step(index); again.after_step()               # of each step
again.end(size)
"""

import copy
from typing import TYPE_CHECKING

import torch

from bc.agreement import ROUNDING, closeness, cut_off, farthest, gradients_of
from nppsim.errors import UserError
from rl.policy.policy import NppPolicy
from rl.ppo.audit import MOST_SIGMAS, deviations
from rl.ppo.rollout import TensorRolloutBuffer
from rl.teacher_config import MAX_GRAD_NORM

if TYPE_CHECKING:
    from rl.distillation import Lessons

_AT_ONCE = 1024  # decisions
_REPORT = "please report this"


class TeacherError(UserError, RuntimeError):
    """A teacher that cannot teach, or lessons that have gone wrong; the message says why and what to do."""


@torch.no_grad()
def check_decisions(pupil: NppPolicy, buffer: TensorRolloutBuffer, divergence: float, lesson: str) -> None:
    """TeacherError unless the pupil played, and parted from its teacher by as much as is told, nats."""
    rows = torch.arange(len(buffer), device=buffer.device).split(_AT_ONCE)
    logits = torch.cat([pupil.logits_and_values(buffer.observations(index))[0].double() for index in rows])
    log_probs, told = logits.log_softmax(dim=1), buffer.flat("log_probs").double()
    away = float((told.exp() * (told - log_probs)).sum(dim=1).mean())
    if not abs(away - divergence) <= 10 * closeness(pupil) * (1 + away):
        raise TeacherError(
            f"{lesson}: the pupil is {away:.4f} nats from what its teacher said, told are {divergence:.4f}: answers are of "
            f"other states, or of another network; {_REPORT}"
        )
    sigmas, _ = deviations(log_probs.exp().cpu().numpy(), buffer.flat("actions").cpu().numpy())
    if not sigmas < MOST_SIGMAS:
        raise TeacherError(
            f"{lesson}: what was played is {sigmas:.0f} standard deviations from the pupil's own probabilities: somebody "
            f"else plays, so that the pupil is not taught where its mistakes lead to; {_REPORT}"
        )


class LearningAgain:
    """Watches what a lesson is learned from, and its first step.

    lessons: that learn.
    """

    def __init__(self, lessons: "Lessons"):
        self.lessons = lessons
        self.name = f"lesson {lessons.lessons + 1}"
        self.mirror: NppPolicy | None = copy.deepcopy(lessons.pupil)
        self.shown: list[torch.Tensor] = []

    def before_step(self, index: torch.Tensor) -> None:
        """Take note of a minibatch, int64[B]."""
        self.shown.append(index)

    def after_step(self) -> None:
        """TeacherError unless the gradient of the first step is that of the pupil's divergence from its teacher, cut off, and
        was gone down at a rate above 0."""
        if self.mirror is None:
            return
        lessons, index, mirror = self.lessons, self.shown[0], self.mirror
        self.mirror = None
        log_probs = mirror.logits_and_values(lessons._buffer.observations(index))[0].double().log_softmax(dim=1)
        told = lessons._buffer.flat("log_probs")[index].double()
        loss = (told.exp() * (told - log_probs)).sum(dim=1).mean()
        known = gradients_of(loss, {name: p for name, p in mirror.named_parameters() if p.requires_grad})
        found = {name: p.grad for name, p in lessons.pupil.named_parameters() if p.grad is not None}
        name, off, largest = farthest(found, cut_off(known, MAX_GRAD_NORM)[0])
        if not off <= closeness(lessons.pupil) * largest + ROUNDING:
            raise TeacherError(
                f"{self.name}: the gradient of {name} differs by {off:.2g} from that of the divergence from the teacher, "
                f"whose largest is {largest:.2g}: something else is learned; {_REPORT}"
            )
        still = [
            name
            for name, before in mirror.named_parameters()
            if name in found and found[name].any() and torch.equal(before, lessons.pupil.get_parameter(name))
        ]
        if still:
            raise TeacherError(f"{self.name}: its first step has not moved {', '.join(still[:3])}: no rate; {_REPORT}")

    def end(self, size: int) -> None:
        """TeacherError unless each pass has shown every decision once, but for a last minibatch that is short.

        size: of a minibatch.
        """
        lessons = self.lessons
        count, epochs = len(lessons._buffer), lessons.settings.epochs
        shown = torch.cat(self.shown) if self.shown else torch.empty(0, dtype=torch.int64)
        times = torch.bincount(shown.cpu(), minlength=count)
        if len(shown) != epochs * (count // size) * size or int(times.max()) > epochs:
            raise TeacherError(
                f"{self.name}: {len(shown)} decisions were learned from in {epochs} passes over {count}, each "
                f"{int(times.min())} to {int(times.max())} times; {_REPORT}"
            )
        half = len(shown) // 2
        if epochs == 2 and count > size >= 32 and torch.equal(shown[:half], shown[half:]):
            raise TeacherError(f"{self.name}: both passes had the same order: nothing is shuffled; {_REPORT}")
