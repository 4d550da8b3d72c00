"""What must hold of the high level in every rollout and update, worked out a second time; see ``rl.ppo.audit``.

All functions say nothing of PPO without subtasks.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from bc.agreement import closeness
from nppsim.observe import layout
from rl.policy.commander import COMMAND, EXIT, EXIT_SWITCH, EXPLORE, LOCKED_DOOR, MINE, NO_SUBTASK, SUBTASKS
from rl.policy.policy import NppPolicy
from rl.ppo.audit import Fault, Kept, numbers, settings_of_stage, value_scale
from rl.ppo.hierarchy.losses import HierarchicalLosses
from rl.ppo.hierarchy.ppo import HierarchicalPPO
from rl.ppo.losses import Losses
from rl.ppo.ppo import BatchPPO

LOOKED_AT = ("entity_positions", "reachability_features")
EXPLORED_PX = 144.0  # six tiles; a second time here, so that it is not changed in one place
FEW_CHOICES = 3  # of subtasks per episode
EXTRA = HierarchicalLosses._fields[len(Losses._fields) :]


def faults_of_commands(ppo: BatchPPO) -> Iterator[Fault]:
    """What is wrong with the subtasks of the rollout that has just ended."""
    if not isinstance(ppo, HierarchicalPPO):
        return
    command = ppo.rollout_buffer.obs[COMMAND].cpu().numpy()
    if not ppo.commanding:
        if (command[..., 0] != NO_SUBTASK).any() or numbers(ppo, "chooses").any():
            yield Fault("subtasks", "there are subtasks in the rollout before the curriculum has come to their stage")
        return
    choices = ppo.logger.name_to_value.get("hierarchy/choices_per_episode", math.inf)
    if choices < FEW_CHOICES:
        yield Fault(
            "choices",
            f"{choices:.1f} subtasks per episode, {FEW_CHOICES} at least give the high level something to say: lower "
            "--high-level-update-freq, or train without it",
            stop=False,
        )
    yield from _subtasks_follow_their_rules(ppo, command)
    yield from _completions_are_right(ppo, command[..., 0])
    yield from _choices_are_the_policys(ppo, command[..., 0])
    yield from _advantages_are_right(ppo)


def _subtasks_follow_their_rules(ppo: HierarchicalPPO, command: np.ndarray) -> Iterator[Fault]:
    """One subtask lasts until it is over; a new one is given with every episode, and in time."""
    chooses, subtask, age = numbers(ppo, "chooses"), command[..., 0], command[..., 1]
    due = numbers(ppo, "episode_ends") | numbers(ppo, "completed")
    wrong = {
        "is none": (subtask < 0) | (subtask >= len(SUBTASKS)),
        "is not new where it was chosen": chooses != (age == 0),
        "lasts too long": age >= ppo.commands.longest,
        "goes on over its end": (due[:-1] & ~chooses[1:]),
        "changes without a choice": ~chooses[1:] & ((subtask[1:] != subtask[:-1]) | (age[1:] != age[:-1] + 1)),
    }
    for what, where in wrong.items():
        if where.any():
            yield Fault(
                "subtasks",
                f"the subtask {what} in {int(where.sum())} decisions: environments or decisions were mixed up",
            )


def _completions_are_right(ppo: HierarchicalPPO, subtask: np.ndarray) -> Iterator[Fault]:
    """Subtasks that were chosen in the rollout are completed where the observations after a decision say so."""
    buffer, place = (
        ppo.rollout_buffer,
        {key: layout.slots(layout.SPECS[key].components) for key in ("hazards", *LOOKED_AT)},
    )
    seen = {
        key: np.concatenate([buffer.obs[key].cpu().numpy(), ppo.sim.latest[key][None]]).astype(np.float64)
        for key in ("switch_states", "hazards", *LOOKED_AT)
    }
    where, way = seen["entity_positions"], seen["reachability_features"]
    nearest = seen["hazards"].reshape(*where.shape[:2], *layout.SPECS["hazards"].shape)[:, :, 0]
    ninja = np.stack([where[..., place["entity_positions"].ninja_x], where[..., place["entity_positions"].ninja_y]])
    doors = (seen["switch_states"].reshape(*where.shape[:2], layout.NUM_DOORS, -1)[..., -1] > 0).sum(axis=2)
    left = way[..., place["reachability_features"].path_to_exit]
    taken = way[..., place["reachability_features"].switch_collected] > 0
    away = np.hypot(nearest[..., place["hazards"].dx], nearest[..., place["hazards"].dy])
    chooses, ends, found = (numbers(ppo, name) for name in ("chooses", "episode_ends", "completed"))
    since, envs = np.full(chooses.shape[1], -1), np.arange(chooses.shape[1])
    for t in range(len(chooses)):
        since[chooses[t]] = t
        wanted = np.select(
            [subtask[t] == EXIT_SWITCH, subtask[t] == LOCKED_DOOR, subtask[t] == MINE, subtask[t] == EXPLORE],
            [
                taken[t + 1],
                doors[t + 1] > doors[since, envs],
                left[since, envs] - left[t + 1] > away[since, envs],
                np.hypot(*(ninja[:, t + 1] - ninja[:, since, envs])) >= EXPLORED_PX,
            ],
            default=False,
        )
        wanted = np.where(ends[t], numbers(ppo, "wins")[t] & (subtask[t] == EXIT), wanted)
        wrong = (wanted != found[t]) & (since >= 0)
        if wrong.any():
            name = SUBTASKS[subtask[t][wrong][0]]
            yield Fault(
                "subtasks",
                f"by what decision {t} has led to, {name} is {'' if wanted[wrong][0] else 'not '}completed in environment "
                f"{int(envs[wrong][0])}, and it counts as the opposite: its rule, or what it is held against, is another",
            )
            return


def _choices_are_the_policys(ppo: HierarchicalPPO, subtask: np.ndarray) -> Iterator[Fault]:
    """What was chosen has the probabilities that the high level gives, asked again.

    Choices before a rollout's first decision were made by the weights of the rollout before.
    """
    buffer = ppo.rollout_buffer
    rows = buffer.chooses.clone()
    rows[0] = False
    index = rows.flatten().nonzero()[:, 0]
    if not len(index):
        return
    index = index[:: max(1, len(index) // 256)]
    with torch.no_grad():
        logits, values = ppo.policy.choose_subtasks(buffer.observations(index))
    probs, stored = logits.softmax(dim=1), buffer.flat("command_log_probs")[index].exp()
    taken = torch.from_numpy(subtask.reshape(-1, 1)).to(ppo.device)[index]
    off = float((probs - stored).abs().max())
    value_off = float((values - buffer.flat("command_values")[index]).abs().max()) / max(1.0, float(values.abs().max()))
    if not (
        off <= closeness(ppo.policy)
        and value_off <= closeness(ppo.policy)
        and bool((stored.gather(1, taken) > 0).all())
    ):
        yield Fault(
            "subtasks",
            f"probabilities of subtasks in the rollout are off by up to {off:.2g}, values by {value_off:.2g} of their size, "
            "or subtasks were given that could not be chosen: observations, choices or weights were mixed up",
        )


def _advantages_are_right(ppo: HierarchicalPPO) -> Iterator[Fault]:
    """Advantages and returns of choices by their definition, environment by environment, choice by choice."""
    config = settings_of_stage(ppo)
    rewards, values, ends = (numbers(ppo, name) for name in ("rewards", "command_values", "episode_ends"))
    chooses, found = numbers(ppo, "chooses"), numbers(ppo, "command_advantages")
    with torch.no_grad():
        last = ppo.policy.logits_and_values(ppo.policy.to_tensors(ppo.seen))[1].cpu().numpy().astype(np.float64)
    last = np.where(ppo._chosen, ppo._command_values.numpy(), last)
    wanted = np.zeros_like(found)
    for env in range(found.shape[1]):
        following, trace, end = last[env], 0.0, len(rewards)
        for t in np.flatnonzero(chooses[:, env])[::-1]:
            cut = t + np.flatnonzero(ends[t:end, env])[:1]
            stop = int(cut[0]) + 1 if len(cut) else end
            powers = config.gamma ** np.arange(stop - t)
            beyond = 0.0 if len(cut) else config.gamma ** (stop - t)
            wanted[t, env] = powers @ rewards[t:stop, env] - values[t, env]
            wanted[t, env] += beyond * (following + config.gae_lambda * trace)
            following, trace, end = values[t, env], wanted[t, env], t
    off, size = np.abs(found - wanted).max(), 1 + np.abs(wanted).max()
    if not off <= closeness(ppo.policy) * size:
        yield Fault(
            "subtasks",
            f"advantages of choices differ by {off:.3g} from their definition over the decisions that each lasts (gamma "
            f"{config.gamma:g}, lambda {config.gae_lambda:g})",
        )


def command_terms(ppo: BatchPPO, kept: Kept, logged: Mapping[str, float]) -> list[float]:
    """The weighed parts of an update's loss that the high level has, by what is logged; NaN where that is missing."""
    if not isinstance(ppo, HierarchicalPPO):
        return []
    part = {name: float(logged.get(f"train/{name}", math.nan)) for name in EXTRA}
    terms = [ppo.config.vf_coef / value_scale(ppo, ppo.config) * part["command_value_loss"]]
    if not kept.critic_only:
        terms += [part["command_gradient_loss"], logged["train/ent_coef"] * part["command_entropy_loss"]]
    return terms


def command_loss(
    ppo: BatchPPO, kept: Kept, policy: NppPolicy, rows: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """What the high level adds to the loss of these decisions of the rollout, by its formulas in float64.

    weights: float64[B], of the decisions.
    """
    total = torch.zeros((), dtype=torch.float64, device=ppo.device)
    if not isinstance(ppo, HierarchicalPPO):
        return total
    config, buffer, logged = kept.config, ppo.rollout_buffer, ppo.logger.name_to_value
    value_weight = config.vf_coef / value_scale(ppo, config)
    everybody = buffer.command_advantages[buffer.chooses].double()
    clip, entropy_weight = logged["train/clip_range"], logged["train/ent_coef"]
    chosen_at = buffer.flat("chooses")[rows]
    index, weights = rows[chosen_at], weights[chosen_at]
    if not len(index):
        return total
    seen = buffer.observations(index)
    logits, values = policy.choose_subtasks(seen)
    log_probs = logits.double().log_softmax(dim=1)
    for i, row in enumerate(index.tolist()):
        total = total + value_weight * weights[i] * (values[i].double() - buffer.flat("command_returns")[row]).square()
        if kept.critic_only:
            continue
        advantage = 0.0
        if len(everybody) > 1:
            advantage = (buffer.flat("command_advantages")[row].double() - everybody.mean()) / (everybody.std() + 1e-8)
        chosen = int(seen[COMMAND][i, 0])
        ratio = (log_probs[i, chosen] - buffer.flat("command_log_probs")[row, chosen]).exp()
        total = total - weights[i] * torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        total = total + entropy_weight * weights[i] * (log_probs[i].exp() * log_probs[i]).sum()
    return total / len(rows)


def high_level_stands_still(ppo: BatchPPO, kept: Kept, logged: Mapping[str, float]) -> Iterator[Fault]:
    """Where choices were learned from, the high level has moved."""
    if not isinstance(ppo, HierarchicalPPO) or logged["train/stopped_early"] or ppo.config.prioritised_alpha:
        return
    if int(ppo.rollout_buffer.chooses.sum()) < 2 or len(ppo.rollout_buffer) % ppo.batch_size:
        return
    for name, parameter in ppo.policy.named_parameters():
        learns = "value_net" in name or not kept.critic_only
        if learns and ppo.policy.may_rest(name) and torch.equal(parameter.detach(), kept.weights[name]):
            yield Fault("weights", f"{name} did not move in an update that learned from choices of subtasks")
