"""One step of an update, worked out a second time: its loss from the formulas, in float64, its gradient, and Adam by hand.

    step = OneStep(ppo, kept, turn) # after the rollout, before the update, which it watches
    step.end(ppo)                   # after it
    step.faults(ppo, before)        # before: ``first`` of the update that was looked at last

Whatever is wrong between rollout and weights (a sign, a weight, stale probabilities, other rows, another normalisation, a
gradient cut off elsewhere, a forgetful optimiser) makes that step another one.  Source: Schulman et al. 2017 (PPO); Kingma
& Ba 2015 (Adam).
"""

import copy
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bc.agreement import CLOSE, Tensors, adam_move, closeness, cut_off, farthest, gradients_of, memory_of
from rl.policy.policy import ADAM, NppPolicy
from rl.ppo.audit import MOST_SIGMAS, Fault, Kept, all_gather, numbers, value_scale
from rl.ppo.hierarchy.audit import command_loss
from rl.ppo.losses import Losses
from rl.ppo.ppo import HEADS, BatchPPO
from rl.ppo.recurrent_audit import asked_in_steps

EDGE = 2e-6  # by which a ratio in float32 may be another than in float64
FEW = 1e-6  # times its size, that a weight may be rounded by
GROUPS = 8  # of decisions, by their chances of being drawn
CERTAIN = math.log(
    1e12
)  # logarithm of how many ways there must be to draw a step's decisions, to call two alike no chance


class OneStep:
    """Watches the update that comes, until ``end``.

    kept: of the rollout.
    turn: which step is looked at; as it counts up, the first, the last and others have their turn.
    """

    def __init__(self, ppo: BatchPPO, kept: Kept, turn: int):
        self.kept = kept
        config = kept.config
        taken, most = len(ppo.rollout_buffer) // ppo.batch_size, config.gradient_accumulation
        one_pass = [ppo.batch_size * min(most, taken - first) for first in range(0, taken, most)]
        self.sizes = one_pass * ppo.n_epochs  # decisions of each step
        self.in_pass = len(one_pass)
        self.anew = config.returns_from == "current"  # whether later passes have targets of their own
        self.used_alike = not config.prioritised_alpha
        self.passes = ppo.n_epochs
        last = len(self.sizes) - 1
        self.number = min((0, last, last // 2, 1)[turn % 4], last)
        self.rng = copy.deepcopy(ppo.rng)  # as the order of the decisions is drawn with
        self.parameters = dict(ppo.policy.named_parameters())
        self.moments_before = memory_of(ppo.policy.optimizer, self.parameters)
        self.changed: list[str] = []  # weights and moments that changed between rollout and update
        self.steps = 0
        self.weights: Tensors = {}  # before the step that is looked at
        self.of_pass: Tensors = {}  # before the first step of its pass
        self.moments: dict[str, Tensors] = {}
        self.gradients: Tensors = {}  # as the optimiser got them
        self.after: Tensors = {}
        self.first: int | None = None  # checksum of the decisions of the first step
        self.seen: list[torch.Tensor] = []  # rows that were shown to the network, in their order
        optimiser = ppo.policy.optimizer
        self._hooks = [
            optimiser.register_step_pre_hook(lambda *_: self._before_step(ppo)),
            optimiser.register_step_post_hook(lambda *_: self._after_step()),
        ]
        show = ppo.rollout_buffer.observations

        def shown(index: torch.Tensor, keys: Iterable[str] | None = None) -> Tensors:
            self.seen.append(index)
            return show(index, keys)

        ppo.rollout_buffer.observations = shown  # type: ignore[method-assign]

    def _before_step(self, ppo: BatchPPO) -> None:
        if not self.steps:
            moments, weights = memory_of(ppo.policy.optimizer, self.parameters), self._weights()
            memory = {**moments, **self.moments_before}
            self.changed = [
                f"moments of {one}" for one in memory if not _equal(moments.get(one), self.moments_before.get(one))
            ]
            self.changed += [name for name in weights if not torch.equal(weights[name], self.kept.weights[name])]
        if self.steps == self.number - self.number % self.in_pass:
            self.of_pass = self._weights()
        if self.steps == self.number:
            self.weights, self.moments = self._weights(), memory_of(ppo.policy.optimizer, self.parameters)
            self.gradients = {name: p.grad.clone() for name, p in self.parameters.items() if p.grad is not None}

    def _after_step(self) -> None:
        if self.steps == self.number:
            self.after = self._weights()
        self.steps += 1

    def _weights(self) -> Tensors:
        return {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def end(self, ppo: BatchPPO) -> None:
        """Watch no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        vars(ppo.rollout_buffer).pop("observations", None)

    def faults(self, ppo: BatchPPO, before: int | None = None) -> Iterator[Fault]:
        """What was wrong with the update.  before: ``first`` of an earlier one."""
        kept = self.kept
        if self.changed:
            yield Fault(
                "optimiser",
                f"{len(self.changed)} tensors changed between the rollout and the first step of its update, e.g. "
                f"{self.changed[0]}: something but the update writes to weights or to Adam's memory",
            )
        pulled = ppo.reference is not None and not kept.critic_only and ppo.logger.name_to_value["train/bc_kl_coef"] > 0
        passes = self._rows_of_passes(len(ppo.rollout_buffer), pulled)
        rows = torch.cat(passes)
        if self.used_alike:
            yield from self._rows_are_all_used(ppo, rows)
            yield from self._rows_are_shuffled(ppo, rows, before)
            yield from self._rows_are_the_runs_own(ppo, rows)
        if self.after:
            first = sum(self.sizes[: self.number])
            targets = Targets.of(ppo, kept, self._policy(ppo, self.of_pass) if self._has_others else None)
            if not self.used_alike:
                yield from targets.drawn_by_their_chances(passes[self.number // self.in_pass])
            yield from self._gradient_is_right(ppo, kept, targets, rows[first : first + self.sizes[self.number]])
            yield from self._adam_is_right(ppo)

    @property
    def _has_others(self) -> bool:
        """Whether the step that is looked at has other targets than the rollout came with."""
        return self.anew and self.number >= self.in_pass

    def _rows_of_passes(self, size: int, pulled: bool) -> list[torch.Tensor]:
        """Decisions that each pass has shown, in their order.

        The BC policy is asked about all of them first, and before a later pass with targets of its own the policy is.
        """
        rows = torch.cat(self.seen) if self.seen else torch.empty(0, dtype=torch.int64)
        each, found = sum(self.sizes[: self.in_pass]), []
        for number in range(self.passes):
            rows = rows[size:] if (pulled if not number else self.anew) else rows
            found.append(rows[:each])
            rows = rows[each:]
        return [*found[:-1], torch.cat([found[-1], rows])]

    @staticmethod
    def _policy(ppo: BatchPPO, weights: Tensors) -> NppPolicy:
        """The policy as it was with these weights."""
        mirror = copy.deepcopy(ppo.policy)
        with torch.no_grad():
            for name, parameter in mirror.named_parameters():
                parameter.copy_(weights[name])
        return mirror

    def _rows_are_the_runs_own(self, ppo: BatchPPO, rows: torch.Tensor) -> Iterator[Fault]:
        """The first minibatch is the one that the run's own random numbers give: the seed, or the checkpoint, decides."""
        if len(ppo.rollout_buffer) % ppo.batch_size:
            return  # which is a fault with a name of its own
        wanted = next(type(ppo.rollout_buffer).minibatches(ppo.rollout_buffer, ppo.batch_size, self.rng))
        if not torch.equal(rows[: len(wanted)].sort().values, wanted.sort().values):
            yield Fault(
                "minibatches",
                "the first minibatch is not the one that the run's own random numbers give: seed and checkpoint do not "
                "decide about the order of the decisions",
            )

    def _rows_are_all_used(self, ppo: BatchPPO, rows: torch.Tensor) -> Iterator[Fault]:
        """Every decision is learned from once in each pass."""
        size, stopped = len(ppo.rollout_buffer), bool(ppo.logger.name_to_value["train/stopped_early"])
        if size % ppo.batch_size:
            return  # which is a fault with a name of its own
        used = torch.bincount(rows.cpu(), minlength=size)
        wanted = sum(self.sizes[: self.steps + 1]) if stopped else sum(self.sizes)
        if len(used) != size or int(used.sum()) != wanted or int(used.max()) - int(used.min()) > int(stopped):
            yield Fault(
                "minibatches",
                f"{len(rows)} decisions were learned from, {wanted} should have been; each {int(used.min())} to "
                f"{int(used.max())} times, where {ppo.n_epochs} passes use all equally often: rows are repeated or left out",
            )

    def _rows_are_shuffled(self, ppo: BatchPPO, rows: torch.Tensor, before: int | None) -> Iterator[Fault]:
        """Each pass has an order of its own: what its first step learns from is drawn anew."""
        size, pieces = (
            self.sizes[0] // ppo.rollout_buffer.segment,
            len(ppo.rollout_buffer) // ppo.rollout_buffer.segment,
        )
        ways = math.lgamma(pieces + 1) - math.lgamma(size + 1) - math.lgamma(max(pieces - size, 0) + 1)
        if ways < CERTAIN or size >= pieces:
            return
        each = sum(self.sizes) // self.passes
        begins = [start for start in range(0, len(rows), each) if start + self.sizes[0] <= len(rows)]
        firsts = [rows[start : start + self.sizes[0]].sort().values for start in begins]
        if not firsts:
            return
        self.first = zlib.crc32(firsts[0].cpu().numpy().tobytes())
        told = ""
        if any(torch.equal(firsts[0], other) for other in firsts[1:]):
            told = "two passes over the rollout begin with the same decisions"
        elif self.first == before:
            told = "two updates begin with the same decisions"
        elif int(firsts[0][-1] - firsts[0][0]) + 1 == len(firsts[0]):
            told = "the first step learns from decisions that follow each other"
        if told:
            yield Fault("minibatches", f"{told}: they are not shuffled, or always alike")

    def _gradient_is_right(self, ppo: BatchPPO, kept: Kept, targets: "Targets", rows: torch.Tensor) -> Iterator[Fault]:
        """The gradient that the optimiser got is that of the loss by its formulas, over all processes, and cut off."""
        mirror = self._policy(ppo, self.weights)
        moving = {
            name: parameter
            for name, parameter in mirror.named_parameters()
            if parameter.requires_grad and (not kept.critic_only or "value_net" in name)
        }
        parts, on_edge = losses_by_formula(ppo, kept, mirror, rows, targets)
        loss = parts["loss"] + command_loss(ppo, kept, mirror, rows, targets.weights_of(rows))
        wanted = gradients_of(loss, moving)
        *told, on_edge = ppo.ranks.all_reduce_mean(
            list(wanted.values()), [*(float(part.detach()) for part in parts.values()), on_edge]
        )
        yield from self._losses_are_right(ppo, dict(zip(parts, told, strict=True)), len(rows))
        norms = []
        for part in _clipped_together(list(wanted), ppo.config.clip_apart):
            shortened, norm = cut_off({name: wanted[name] for name in part}, ppo.config.max_grad_norm)
            wanted.update(shortened)
            norms.append(norm)
        size, noted = math.hypot(*norms), float(ppo.norms[self.number])
        if not abs(noted - size) <= 10 * closeness(ppo.policy) * size + 1e-12:
            yield Fault(
                "gradients", f"the gradient's norm in step {self.number + 1} is noted as {noted:.4g}, it is {size:.4g}"
            )
        worst, off, largest = farthest(self.gradients, wanted)
        if not on_edge and not off <= closeness(ppo.policy, 0.1 * CLOSE) * largest + 1e-12:
            yield Fault(
                "gradients",
                f"the gradient of {worst} in step {self.number + 1} differs by {off:.2g} from that of the loss by its "
                f"formulas, whose largest is {largest:.2g}: loss, minibatch, normalisation, clone or clipping are others",
            )

    def _losses_are_right(self, ppo: BatchPPO, wanted: dict[str, float], count: int) -> Iterator[Fault]:
        """What the step notes of its losses is what the formulas give.  count: of its decisions."""
        noted = ppo.steps[self.number]._asdict()
        others = set(noted) - set(Losses._fields)  # parts that are added to the loss, and looked at elsewhere
        for name, value in wanted.items():
            rounded = 2.0 / count if name == "clip_fraction" else 0.0  # a ratio on the edge may be rounded either way
            if name == "loss" and others:
                continue
            if not abs(noted[name] - value) <= closeness(ppo.policy) * (1 + abs(value)) + rounded:
                yield Fault(
                    "losses",
                    f"{name} of step {self.number + 1} is noted as {noted[name]:.5g}, by its formula it is {value:.5g}",
                )

    def _adam_is_right(self, ppo: BatchPPO) -> Iterator[Fault]:
        """The weights after the step are those that Adam makes of this gradient and its own memory."""
        rate = ppo.policy.optimizer.param_groups[0]["lr"]
        for name, gradient in self.gradients.items():
            before = self.weights[name].double()
            move = adam_move(gradient, self.moments.get(name, {}), rate, ADAM["eps"])
            off = (self.after[name].double() - (before - move)).abs()
            if not bool((off <= 10 * CLOSE * move.abs() + FEW * before.abs() + 1e-3 * FEW).all()):
                yield Fault(
                    "optimiser",
                    f"step {self.number + 1} moved {name} by up to {float(off.max()):.2g} more or less than Adam does with "
                    "this gradient: other constants, weight decay, or a step that is made twice",
                )
                return


@dataclass(frozen=True, eq=False)
class Targets:
    """What a pass learns from, worked out in float64.

    advantages: float64[T * N], normalised.
    spread: that they were divided by.
    returns: float64[T * N].
    chances: float64[T * N], of being drawn; None: all decisions are taken once.
    weights: float64[T * N], of the decisions in the losses; None: all alike.
    """

    advantages: torch.Tensor
    spread: torch.Tensor
    returns: torch.Tensor
    chances: torch.Tensor | None = None
    weights: torch.Tensor | None = None

    @classmethod
    def of(cls, ppo: BatchPPO, kept: Kept, policy: NppPolicy | None) -> "Targets":
        """policy: before the pass, where its targets are estimated anew; None: they are those of the rollout."""
        buffer, config = ppo.rollout_buffer, kept.config
        advantages, returns = buffer.flat("advantages").double(), buffer.flat("returns").double()
        if policy is not None:
            advantages, returns = estimated_anew(ppo, kept, policy)
        among = ppo.ranks.all_gather(advantages.float()).double()
        spread = among.std() + 1e-8
        advantages = (advantages - among.mean()) / spread
        chances = weights = None
        if config.prioritised_alpha:
            sizes = advantages.abs() ** config.prioritised_alpha
            chances = sizes / sizes.sum() if sizes.any() else torch.full_like(sizes, 1 / len(sizes))
            weights = torch.where(chances > 0, (len(chances) * chances) ** -config.prioritised_beta, 0.0)
        return cls(advantages, spread, returns, chances, weights)

    def weights_of(self, rows: torch.Tensor) -> torch.Tensor:
        """float64[B], 1 on average: of the decisions of a step."""
        if self.weights is None:
            return torch.ones(len(rows), dtype=torch.float64, device=rows.device)
        return self.weights[rows] / self.weights[rows].mean()

    def drawn_by_their_chances(self, rows: torch.Tensor) -> Iterator[Fault]:
        """Decisions are drawn as often as their chances say: in groups of about the same chance, from rare to frequent."""
        assert self.chances is not None
        order = self.chances.argsort()
        group = torch.empty_like(order)
        group[order] = (self.chances[order].cumsum(0) * GROUPS).long().clamp(max=GROUPS - 1)
        chance = torch.zeros(GROUPS, dtype=torch.float64, device=order.device).index_add_(0, group, self.chances)
        counts = torch.bincount(group[rows], minlength=GROUPS)
        off = (counts - len(rows) * chance).abs()
        spread = ((len(rows) * chance * (1 - chance)).clamp(min=1.0) + off / 3).sqrt()  # see ``deviations``
        sigmas = float((off / spread).max())
        if not sigmas < MOST_SIGMAS:
            yield Fault(
                "minibatches",
                f"decisions of large and small advantages are drawn {sigmas:.0f} standard deviations more or less often than "
                "--prioritised-alpha says",
            )


@torch.no_grad()
def estimated_anew(ppo: BatchPPO, kept: Kept, policy: NppPolicy) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns), float64[T * N] both, as this policy and its critic see the rollout.

    With V-trace: errors count times rho, and what comes later times c, both probability ratios, cut off.
    Source: Espeholt et al. 2018.
    """
    config, buffer = kept.config, ppo.rollout_buffer
    order = torch.arange(len(buffer), device=ppo.device)
    pieces = order.split(ppo.batch_size) if buffer.segment == 1 else (order,)
    asked = [asked_in_steps(ppo, policy, piece, 0) for piece in pieces]
    values = torch.cat([some for _, some in asked]).double().cpu().numpy().reshape(buffer.shape)
    log_probs = torch.cat([some for some, _ in asked]).double().log_softmax(dim=1)
    actions = buffer.flat("actions")[:, None]
    ratio = (log_probs - buffer.flat("log_probs").double()).gather(1, actions).exp().cpu().numpy().reshape(buffer.shape)
    rewards, goes_on = numbers(ppo, "rewards").copy(), ~numbers(ppo, "episode_ends")
    where, seen, added = ppo._extended
    if len(where):
        present = policy.logits_and_values(seen)[1].double().cpu().numpy()
        rewards.reshape(-1)[where.cpu().numpy()] += config.gamma * present - added.double().cpu().numpy()
    last = policy.logits_and_values(policy.to_tensors(ppo.seen))[1].double().cpu().numpy()
    errors = rewards + config.gamma * np.vstack([values[1:], last[None]]) * goes_on - values
    rho = c = np.ones_like(errors)
    if config.vtrace_rho_clip is not None:
        rho, c = np.minimum(ratio, config.vtrace_rho_clip), np.minimum(ratio, config.vtrace_c_clip)
    advantages, corrections, later = np.empty_like(errors), np.empty_like(errors), np.zeros_like(last)
    for t in range(len(errors) - 1, -1, -1):
        carried = config.gamma * config.gae_lambda * goes_on[t] * later
        advantages[t], later = errors[t] + carried, rho[t] * errors[t] + c[t] * carried
        corrections[t] = later
    found = (torch.from_numpy(some.ravel()).to(ppo.device) for some in (advantages, corrections + values))
    return next(found), next(found)


def losses_by_formula(
    ppo: BatchPPO, kept: Kept, policy: NppPolicy, rows: torch.Tensor, targets: Targets
) -> tuple[dict[str, torch.Tensor], float]:
    """Losses of a policy on these decisions of the rollout, in float64, by the names of ``Losses``; weights are the logged
    ones, which are held against the schedules elsewhere (``audit_update``).

    And 1.0 if rounding decides for one of the decisions whether it is clipped, where the gradient has a step; otherwise 0.0.
    """
    config, buffer = kept.config, ppo.rollout_buffer
    weight = {
        name: float(ppo.logger.name_to_value[f"train/{name}"]) for name in ("clip_range", "ent_coef", "bc_kl_coef")
    }
    logits, values = asked_in_steps(ppo, policy, rows, config.memory_burn_in)
    log_probs, values = logits.double().log_softmax(dim=1), values.double()
    near = torch.zeros_like(rows, dtype=torch.bool)
    played = buffer.flat("log_probs")[rows].double()
    actions = buffer.flat("actions")[rows, None]
    if config.clip_range_vf is not None:
        reach = float(ppo.logger.name_to_value["train/clip_range_vf"])
        before = buffer.flat("values")[rows].double()
        near |= ((values - before).abs() - reach).abs() < EDGE
        values = before + (values - before).clamp(-reach, reach)
    advantages, each = targets.advantages[rows], targets.weights_of(rows)
    ratio = (log_probs - played).gather(1, actions)[:, 0].exp()
    clip = weight["clip_range"]
    near |= ((ratio - 1).abs() - clip).abs() < EDGE
    clipped = ratio.clamp(1 - clip, 1 + clip)
    parts = {
        "policy_gradient_loss": -(each * torch.minimum(ratio * advantages, clipped * advantages)).mean(),
        "value_loss": (each * (values - targets.returns[rows]).square()).mean(),
        "entropy_loss": (each * (log_probs.exp() * log_probs).sum(dim=1)).mean(),
        "approx_kl": (each * (played.exp() * (played - log_probs)).sum(dim=1)).mean(),
        "clip_fraction": ((ratio < 1 - clip) | (ratio > 1 + clip)).double().mean(),
        "bc_kl": torch.zeros(()).double(),
        "self_imitation_loss": torch.zeros(()).double(),
    }
    if ppo.reference is not None and weight["bc_kl_coef"] > 0 and not kept.critic_only:
        with torch.no_grad():
            cloned = asked_in_steps(ppo, ppo.reference, rows, 0)[0].double().log_softmax(dim=1)
        parts["bc_kl"] = (each * (cloned.exp() * (cloned - log_probs)).sum(dim=1)).mean()
    if config.self_imitation_coef:
        gained = surprises(ppo)[rows] / (all_gather(ppo, "advantages").std() + 1e-8)
        parts["self_imitation_loss"] = -(each * gained * log_probs.gather(1, actions)[:, 0]).mean()
    loss = config.vf_coef / value_scale(ppo, config) * parts["value_loss"]
    if not kept.critic_only:
        loss = loss + parts["policy_gradient_loss"] + weight["ent_coef"] * parts["entropy_loss"]
        loss = loss + weight["bc_kl_coef"] * parts["bc_kl"] + config.self_imitation_coef * parts["self_imitation_loss"]
    return {**parts, "loss": loss}, float(near.any())


def surprises(ppo: BatchPPO) -> torch.Tensor:
    """float64[T * N]: what won episodes brought beyond the critic's expectation, from their ends backwards."""
    rewards, values, ends, wins = (numbers(ppo, name) for name in ("rewards", "values", "episode_ends", "wins"))
    found, to_come, won = np.zeros_like(values), np.zeros_like(values[0]), np.zeros_like(wins[0])
    for t in range(len(values) - 1, -1, -1):
        won = np.where(ends[t], wins[t], won)
        to_come = rewards[t] + ppo.rollout_buffer.gamma * np.where(ends[t], 0.0, to_come)
        found[t] = np.where(won, np.maximum(to_come - values[t], 0.0), 0.0)
    return torch.from_numpy(found.ravel()).to(ppo.device)


def _clipped_together(names: list[str], apart: bool) -> list[list[str]]:
    """Names of parameters whose gradients are shortened together."""
    if not apart:
        return [names]
    parts: dict[str, list[str]] = {}
    for name in names:
        head = [head for head, marks in HEADS.items() if any(mark in name for mark in marks)]
        parts.setdefault(head[0] if head else "shared", []).append(name)
    return list(parts.values())


def _equal(one: Tensors | None, other: Tensors | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
