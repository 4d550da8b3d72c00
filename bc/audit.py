"""What must hold of imitation, worked out a second time: which decisions an epoch shows, and single steps by their formulas.

    audit = Audit(policy, batches, config, training, optimizer)
    audit.before_step(batch)    # of each batch
    audit.after_step()
    audit.after_epoch()

One step of an epoch is made again: its loss from the formula in float64, its gradient, cut off, and AdamW by hand.  Nothing
here is random, and nothing in training depends on it.  Source: Loshchilov & Hutter 2019 (AdamW), 2017 (the cosine).
"""

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bc.agreement import ROUNDING, Tensors, adam_move, closeness, cut_off, farthest, gradients_of, memory_of
from bc.batches import Batches, Sequences
from nppsim.actions import NUM_ACTIONS
from nppsim.errors import UserError

if TYPE_CHECKING:
    from bc.train import BCConfig

EPS = 1e-8  # of AdamW
SURE = 64, 3  # pieces and batches of an epoch, from which chance hardly ever draws the same order twice
ALONE = 6  # rows of a batch that are looked at by themselves
_REPORT = "this is a mistake in the program, not in your settings: please report it"


class AuditError(UserError, RuntimeError):
    """Imitation that is not what it is defined as; the message says what differs, with figures."""


class Audit:
    """Looks at each epoch of one imitation.

    policy: that learns.
    batches: which show it the demonstrations.
    training: rows to learn from.
    done: steps so far; of a run that goes on, set it to those before.
    """

    def __init__(
        self,
        policy: Any,
        batches: Batches,
        config: "BCConfig",
        training: np.ndarray,
        optimizer: torch.optim.Optimizer,
    ):
        self.policy, self.batches, self.config, self.training = policy, batches, config, training
        self.optimizer, self.done = optimizer, 0
        self.each = batches.steps(training, config.batch_size)
        self._shown: list[np.ndarray] = []
        self._order: np.ndarray | None = None  # rows of the epoch before
        self._step: _Step | None = None

    def before_step(self, batch: np.ndarray) -> None:
        """Take note of a batch, int64[B]; some steps are watched: one of epochs 1, 2, 4, 8 ..., each time a later one."""
        epoch = self.done // self.each + 1
        is_power = not epoch & (epoch - 1)
        if is_power and len(self._shown) == min(epoch, self.each) - 1:
            self._step = _Step(self, batch)
        self._shown.append(batch)

    def after_step(self) -> None:
        """Compare the step with what was to be done, if it is watched."""
        if self._step is not None:
            self._step.compare()
            self._step = None
        self.done += 1

    def after_epoch(self) -> None:
        """AuditError unless every row was shown once, in an order of its own."""
        shown, pieces = np.concatenate(self._shown), self.batches.begins(self.training)
        if not np.array_equal(np.sort(shown), np.sort(self.training)):
            times = np.bincount(shown, minlength=int(self.training.max()) + 1)[self.training]
            raise AuditError(
                f"epoch {-(-self.done // self.each)} of imitation has shown decisions {times.min()} to {times.max()} times, "
                f"{(times != 1).sum()} of {len(times)} not once: {_REPORT}"
            )
        enough = (len(self.training) if pieces is None else len(pieces)) >= SURE[0] and len(self._shown) >= SURE[1]
        for name, other in (("those of the demonstrations", self.training), ("those of the epoch before", self._order)):
            if enough and other is not None and np.array_equal(shown, other):
                raise AuditError(
                    f"the decisions of epoch {-(-self.done // self.each)} of imitation came in the same order as {name}: "
                    f"they are not shuffled; {_REPORT}"
                )
        self._order, self._shown = shown, []

    @property
    def rate(self) -> float:
        """The learning rate of the next step: along a cosine, from the configured one to 0."""
        share = self.done / (self.config.epochs * self.each)
        return self.config.learning_rate * (1 + math.cos(math.pi * share)) / 2


class _Step:
    """A step that is watched.  batch: rows int64[B]."""

    def __init__(self, audit: Audit, batch: np.ndarray):
        self.audit, self.batch = audit, batch
        self.mirror = copy.deepcopy(audit.policy)
        self.memory = memory_of(audit.optimizer, dict(audit.policy.named_parameters()))
        if not audit.done and isinstance(audit.batches, Sequences):
            self._check_remembered(audit.batches)

    def compare(self) -> None:
        """AuditError unless the batch shows what its rows do by themselves, and gradient and weights are those of the
        formulas."""
        self._check_rows()
        wanted, size = self._gradients()
        own = dict(self.audit.policy.named_parameters())
        found = {name: p.grad for name, p in own.items() if p.grad is not None}
        name, off, largest = farthest(found, wanted)
        if not off <= closeness(self.audit.policy) * largest + ROUNDING:
            raise AuditError(
                f"step {self.audit.done + 1} of imitation: the gradient of {name} differs by {off:.2g} from that of the "
                f"loss by its formula, whose largest is {largest:.2g} (norm {size:.2g}): loss, weights of the actions, "
                f"batch or clipping are others; {_REPORT}"
            )
        before = dict(self.mirror.named_parameters())
        for name, gradient in found.items():
            self._check_weights(name, before[name], own[name], gradient)

    def _check_rows(self) -> None:
        """AuditError unless a few rows of the batch are those that they would be alone."""
        batches, dataset = self.audit.batches, self.audit.batches.dataset
        shown, actions = batches.observe(self.batch)
        for place in np.linspace(0, len(self.batch) - 1, ALONE).astype(int).tolist():
            row = self.batch[place]
            alone = dataset.observe(np.array([row]))
            other = [
                key for key, values in alone.items() if not np.array_equal(shown[key][place].cpu().numpy(), values[0])
            ]
            if other or int(actions[place]) != int(dataset.actions[row]):
                raise AuditError(
                    f"step {self.audit.done + 1} of imitation: of decision {row}, a batch shows another "
                    f"{', '.join(other) or 'action'} than the dataset: rows are mixed up; {_REPORT}"
                )

    @torch.no_grad()
    def _check_remembered(self, batches: Sequences) -> None:
        """AuditError unless what is remembered where a few segments begin is what the demonstration leaves behind, looked at
        decision by decision; of the first step, before which all segments were looked at with the same weights."""
        dataset, rows = batches.dataset, self.batch[batches.begins(self.batch)]
        for row in rows[np.linspace(0, len(rows) - 1, ALONE).astype(int)].tolist():
            first = int(np.searchsorted(dataset.demonstration, dataset.demonstration[row]))
            found, state = batches.initial_state(row), None
            for before in range(first, row):
                alone = Batches.observe(batches, np.array([before]))[0]
                shown = self.mirror.in_sequences(alone, torch.zeros(1, dtype=torch.bool, device=batches.device), state)
                state = self.mirror.step(shown)[2]
            off = float((found if state is None else found - state[0]).abs().max())
            if not off <= 10 * closeness(self.audit.policy):
                raise AuditError(
                    f"step 1 of imitation: what is remembered before decision {row} is {off:.2g} away from what its "
                    f"demonstration leaves behind: memories are mixed up or lost; {_REPORT}"
                )

    def _gradients(self) -> tuple[Tensors, float]:
        """Name -> gradient of the loss by its formula, cut off; and its norm before that."""
        audit, dataset = self.audit, self.audit.batches.dataset
        labels = torch.from_numpy(dataset.actions[self.batch].astype(np.int64))
        counts = np.bincount(dataset.actions[audit.training], minlength=NUM_ACTIONS)
        weights = np.maximum(counts, 1).astype(np.float64) ** -audit.config.class_weight_power
        weights *= len(audit.training) / (weights * counts).sum()
        logits = self.mirror.logits_and_values(audit.batches.observe(self.batch)[0])[0].double()
        labels = labels.to(logits.device)
        chosen = logits.gather(1, labels[:, None])[:, 0] - logits.logsumexp(dim=1)
        loss = -(torch.from_numpy(weights).to(logits.device)[labels] * chosen).sum() / len(labels)
        learning = {name: p for name, p in self.mirror.named_parameters() if p.requires_grad}
        return cut_off(gradients_of(loss, learning), audit.config.max_grad_norm)

    @torch.no_grad()
    def _check_weights(self, name: str, before: torch.Tensor, now: torch.Tensor, gradient: torch.Tensor) -> None:
        """AuditError unless a weight is what AdamW makes of this gradient, at the rate of the schedule."""
        rate = self.audit.rate
        move = adam_move(gradient, self.memory.get(name, {}), rate, EPS)
        wanted = before.double() * (1 - rate * self.audit.config.weight_decay) - move
        off = (now.double() - wanted).abs()
        if not bool((off <= 1e-2 * move.abs() + 1e-6 * before.abs() + 1e-9).all()):
            raise AuditError(
                f"step {self.audit.done + 1} of imitation moved {name} by up to {float(off.max()):.2g} more or less than "
                f"AdamW does with this gradient at the learning rate {rate:.3g} of the schedule: rate, decay or moments are "
                f"others; {_REPORT}"
            )
