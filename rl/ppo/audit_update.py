"""What must hold of every update, worked out a second time by other means than training's own.

faults_of_update(ppo, kept)               # after the update; kept: of the rollout before it (rl.ppo.audit)
"""

import math
from collections.abc import Iterator

import numpy as np
import torch

from bc.agreement import CLOSE
from rl.config.ppo import KL_TOLERANCE
from rl.policy.policy import MOST_STEPS
from rl.ppo.audit import MOST_ENTROPY, Fault, Kept, all_gather, checksums, numbers, steps_of, value_scale
from rl.ppo.hierarchy.audit import command_terms, high_level_stands_still
from rl.ppo.losses import Losses
from rl.ppo.ppo import BatchPPO
from rl.ppo.steering import LIMITS

NO_RATE = 1e-7  # a learning rate below moves weights of 1 by less than float32 can tell
STEP = 1.5  # factor of a steered learning rate; a second time here, so that it is not changed in one place
ALWAYS_LOGGED = tuple(
    f"train/{name}"
    for name in (
        "explained_variance",
        "learning_rate",
        "last_kl",
        "ent_coef",
        "bc_kl_coef",
        "clip_range",
        "stopped_early",
    )
)


def faults_of_update(ppo: BatchPPO, kept: Kept) -> Iterator[Fault]:
    """What is wrong with the update that has just ended."""
    logged = ppo.logger.name_to_value
    absent = [tag for tag in ALWAYS_LOGGED if tag not in logged]
    if absent:
        yield Fault(
            "metrics", f"not logged any more: {', '.join(absent)}; was the logger replaced, or a record dropped?"
        )
        return
    if not ppo.ranks.rank:  # whose clock counts
        yield from rate_is_as_configured(ppo, kept, logged)
    yield from rollout_is_untouched(ppo, kept)
    yield from explained_variance_is_right(ppo, logged)
    minibatches = len(ppo.rollout_buffer) // ppo.batch_size
    steps, wanted = steps_of(ppo) - kept.steps, ppo.n_epochs * math.ceil(minibatches / ppo.config.gradient_accumulation)
    counts = kept.steps + wanted < MOST_STEPS
    if counts and ((steps != wanted and not logged["train/stopped_early"]) or steps > wanted):
        yield Fault("steps", f"the optimiser made {steps} steps, {wanted} were to be made")
    yield from ends_where_it_should(ppo, kept, logged)
    yield from rate_is_steered_as_it_should(ppo, kept, logged)
    can_move = "train/loss" in logged and ppo.policy.optimizer.param_groups[0]["lr"] > NO_RATE
    yield from weights_move_where_they_should(ppo, kept, can_move)
    if "train/loss" in logged:
        yield from means_are_of_the_steps(ppo, logged)
        yield from losses_add_up(ppo, kept, logged)
        yield from high_level_stands_still(ppo, kept, logged)


def rate_is_as_configured(ppo: BatchPPO, kept: Kept, logged: dict) -> Iterator[Fault]:
    """Learning rate, clip range and weights of the losses, from the configuration and the progress of training."""
    warming = kept.config.learning_rate_warmup_updates if ppo.reference is not None and not kept.critic_only else 0
    risen = min(1.0, (kept.actor_updates + 1) / (warming + 1))
    # Under a time budget progress is measured by the clock, and the update began between these two moments.
    pulled = ppo.reference is not None and not kept.critic_only
    before, after = (scheduled(kept, pulled, ppo.held_since, progress) for progress in (kept.progress, ppo.progress))
    for group in ppo.policy.optimizer.param_groups:
        rate, *ends = float(group["lr"]), before["learning rate"] * risen, after["learning rate"] * risen
        if kept.config.desired_kl is None and not between(rate, *ends):
            yield Fault(
                "learning rate", f"the optimiser's learning rate is {rate:.3g}, by the schedule it is {ends[0]:.3g}"
            )
        elif not rate > 0 and (kept.config.desired_kl or max(ends) > 0):  # a schedule may end with none
            yield Fault("learning rate", f"the optimiser's learning rate is {rate:g}: nothing is learned")
    for tag in before.keys() - {"learning rate"}:
        if not between(logged.get(tag, math.nan), before[tag], after[tag]):
            yield Fault(
                "settings", f"{tag} was {logged.get(tag, 'not logged')}, by the configuration it is {before[tag]:.6g}"
            )


def scheduled(kept: Kept, pulled: bool, held_since: float, progress: float) -> dict[str, float]:
    """What the configuration says at this progress of training (0 to 1), its warm-up left aside.

    pulled: whether the actor is, towards a BC policy, since ``held_since``.
    """
    config = kept.config
    moved = progress if config.schedules else 0.0
    annealed = 1 + (config.learning_rate_end_share - 1) * moved if config.anneal_learning_rate else 1.0
    clips = {"train/clip_range": (config.clip_range, config.clip_range_end)}
    if config.clip_range_vf is not None:
        clips["train/clip_range_vf"] = config.clip_range_vf, config.clip_range_vf_end
    pull = 1 - (progress - held_since) / config.bc_kl_share if config.bc_kl_share else 0.0
    return {
        "learning rate": (config.learning_rate or 0.0) * annealed,
        **{tag: start if end is None else start + (end - start) * moved for tag, (start, end) in clips.items()},
        "train/ent_coef": config.ent_coef_start + (config.ent_coef_end - config.ent_coef_start) * moved,
        "train/bc_kl_coef": kept.hold * config.bc_kl_coef_start * max(pull, 0.0) if pulled else 0.0,
    }


def between(value: float, *ends: float) -> bool:
    """Whether a number lies between two others, or is as close to one as rounding lets it be."""
    return min(ends) <= value <= max(ends) or any(math.isclose(value, end, rel_tol=1e-6, abs_tol=1e-12) for end in ends)


def rollout_is_untouched(ppo: BatchPPO, kept: Kept) -> Iterator[Fault]:
    """The update has changed nothing of what it learned from."""
    changed = [name for name, total in checksums(ppo).items() if total != kept.sums[name]]
    if changed:
        yield Fault("targets", f"{', '.join(changed)} of the rollout changed during the update that learned from them")


def explained_variance_is_right(ppo: BatchPPO, logged: dict) -> Iterator[Fault]:
    """The share of the returns' variance that the values explain, from its definition."""
    returns, values = all_gather(ppo, "returns"), all_gather(ppo, "values")
    found = float(logged.get("train/explained_variance", math.nan))
    if returns.var() > 0:
        wanted = float(1 - (returns - values).var() / returns.var())
        if not math.isclose(found, wanted, rel_tol=CLOSE, abs_tol=CLOSE):
            yield Fault(
                "metrics", f"train/explained_variance is logged as {found:.4g}, by its definition it is {wanted:.4g}"
            )


def weights_move_where_they_should(ppo: BatchPPO, kept: Kept, stepped: bool) -> Iterator[Fault]:
    """Finite weights; all moved, or in an update of the critic alone, the critic's and no other.

    stepped: whether the update made a step; one that ends before its first step moves nothing.
    """
    for name, parameter in ppo.policy.named_parameters():
        if not torch.isfinite(parameter).all():
            yield Fault(
                "weights",
                f"{name} is not finite after the update; go back to the last checkpoint and lower --initial-lr",
            )
        learns = parameter.requires_grad and ("value_net" in name or not kept.critic_only)
        moved = not torch.equal(parameter.detach(), kept.weights[name])
        if learns and stepped and not moved and not ppo.policy.may_rest(name):
            yield Fault(
                "weights", f"{name} did not move in the update: no gradient, no learning rate, or not in the optimiser"
            )
        elif moved and not learns:
            yield Fault("weights", f"{name} moved in an update in which it was to stay as it is")


def ends_where_it_should(ppo: BatchPPO, kept: Kept, logged: dict) -> Iterator[Fault]:
    """An update ends early where the policy has moved further than it may, and nowhere else."""
    limit = None if kept.critic_only or ppo.config.target_kl is None else KL_TOLERANCE * ppo.config.target_kl
    stopped, moved = bool(logged["train/stopped_early"]), float(logged["train/last_kl"])
    beyond = [step.approx_kl for step in ppo.steps if limit is not None and step.approx_kl > limit]
    if beyond or stopped != (limit is not None and moved > limit):
        told = "has ended early" if stopped else "went on"
        allowed = "however far" if limit is None else f"up to {limit:.3g} nats"
        yield Fault(
            "steps",
            f"the update {told} at {max([moved, *beyond]):.3g} nats from the policy that played, it may go {allowed}",
        )


def rate_is_steered_as_it_should(ppo: BatchPPO, kept: Kept, logged: dict) -> Iterator[Fault]:
    """A steered learning rate falls after updates that went too far, and rises after those that did not go far enough."""
    config, before, after = kept.config, kept.steered_rate, ppo.steered_rate
    if not config.desired_kl:
        return
    annealed = config.anneal_learning_rate and config.schedules
    moved, told = float(logged["train/last_kl"]), []
    for progress in (kept.progress, ppo.progress):  # between which the update ended, under a time budget
        share = 1 + (config.learning_rate_end_share - 1) * progress if annealed else 1.0
        desired = config.desired_kl * share**2
        factor = 1 / STEP if moved > 2 * desired else STEP if moved < desired / 2 else 1.0
        factor = factor if desired else 1.0
        rises = kept.critic_only or (
            ppo.reference is not None and kept.actor_updates < config.learning_rate_warmup_updates
        )
        told.append((desired, before if rises else min(max(before * factor, LIMITS[0]), LIMITS[1])))
    if not any(math.isclose(after, wanted, rel_tol=1e-9) for _, wanted in told):
        yield Fault(
            "learning rate",
            f"it was {before:.4g} in an update that went {moved:.3g} nats, where {told[0][0]:.3g} are desired, and is "
            f"{after:.4g} now, where {told[0][1]:.4g} was to be: it is steered the wrong way, too far or not at all",
        )


def means_are_of_the_steps(ppo: BatchPPO, logged: dict) -> Iterator[Fault]:
    """What is logged of losses and gradients are the means over the steps of this very update."""
    wanted = {name: [float(getattr(step, name)) for step in ppo.steps] for name in ppo.steps[0]._fields}
    wanted["grad_norm"] = [float(norm) for norm in ppo.norms]
    for name, values in wanted.items():
        mean = math.fsum(values) / len(values)
        if f"train/{name}" in logged and not math.isclose(logged[f"train/{name}"], mean, rel_tol=CLOSE, abs_tol=1e-9):
            yield Fault(
                "losses",
                f"train/{name} is logged as {logged[f'train/{name}']:.6g}, its mean over the update's steps is {mean:.6g}",
            )


def losses_add_up(ppo: BatchPPO, kept: Kept, logged: dict) -> Iterator[Fault]:
    """The loss is the weighted sum of its parts, and each part is possible."""
    config = ppo.config
    part = {name: float(logged.get(f"train/{name}", math.nan)) for name in Losses._fields}
    absent = [name for name, value in part.items() if math.isnan(value)]
    if absent:
        yield Fault("losses", f"train/{', train/'.join(absent)} of the update: not logged, or not a number")
        return
    value = config.vf_coef / value_scale(ppo, config) * part["value_loss"]
    terms = [value]
    if not kept.critic_only:
        entropy = logged["train/ent_coef"] * part["entropy_loss"]
        pulls = logged["train/bc_kl_coef"] * part["bc_kl"], config.self_imitation_coef * part["self_imitation_loss"]
        terms += [part["policy_gradient_loss"], entropy, *pulls]
    terms += command_terms(ppo, kept, logged)
    size = sum(map(abs, terms)) + CLOSE
    if not abs(sum(terms) - part["loss"]) <= 10 * CLOSE * size:
        yield Fault(
            "losses",
            f"the loss is {part['loss']:.5g}, its weighted parts sum to {sum(terms):.5g}: a sign or weight is wrong",
        )
    possible = {
        "entropy_loss": -MOST_ENTROPY - CLOSE <= part["entropy_loss"] <= CLOSE,
        "value_loss": part["value_loss"] >= 0,
        "approx_kl": part["approx_kl"] >= -CLOSE,
        "bc_kl": part["bc_kl"] >= -CLOSE,
        "clip_fraction": 0 <= part["clip_fraction"] <= 1,
    }
    for name, good in possible.items():
        if not good:
            yield Fault("losses", f"train/{name} is {part[name]:.5g}, which it cannot be")
    log_probs = numbers(ppo, "log_probs")
    played = -float((np.exp(log_probs) * log_probs).sum(axis=2).mean())
    others = logged["train/stopped_early"] or (kept.config.prioritised_alpha and kept.config.prioritised_beta < 1)
    if not others and abs(-part["entropy_loss"] - played) > 0.2 + 3 * math.sqrt(max(part["approx_kl"], 0.0)):
        yield Fault(
            "losses",
            f"the update logs an entropy of {-part['entropy_loss']:.3g}, the rollout was played with {played:.3g}",
        )
