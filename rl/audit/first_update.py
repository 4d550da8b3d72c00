"""Checks of one update: scalars on disk, gradients everywhere, inputs consistent with the normaliser's statistics."""

from collections.abc import Iterator
from pathlib import Path

import torch

from rl.audit.alarms import Problem
from rl.events import EventsError, require_tags
from rl.policy.policy import NppPolicy
from rl.ppo.logs import BOARD
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer

REQUIRED_TAGS = (
    *(f"train/{name}" for name in ("loss", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl")),
    *(f"train/{name}" for name in ("clip_fraction", "clip_range", "explained_variance", "learning_rate", "n_updates")),
    "time/fps",
    "sim/decisions_per_s",
)
ENOUGH_ENVS = 4  # with fewer, one level with rare entities dominates the mean
MAX_INPUT_MEAN = 4.0  # standard deviations


def first_update_problems(ppo: PPO, folder: Path, scalars: bool) -> list[Problem]:
    """Problems of the latest update.  scalars: also write the logger's values and read the tags back."""
    problems: list[Problem] = []
    if scalars:
        ppo.logger.dump(step=ppo.num_timesteps)
        try:
            require_tags(folder / BOARD, REQUIRED_TAGS)
        except EventsError as error:
            problems.append(("scalars", str(error)))
    if ppo.actor_updates:
        problems += missing_gradients(ppo.policy)
    problems += unusual_inputs(ppo.policy, ppo.rollout_buffer)
    return problems


def missing_gradients(policy: NppPolicy) -> Iterator[Problem]:
    """Trainable tensors whose gradient is absent or all zero."""
    silent = [
        name
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad
        and not policy.may_lack_gradient(name)
        and (parameter.grad is None or not bool(parameter.grad.any()))
    ]
    if silent:
        yield "gradients", f"no gradient reaches {', '.join(silent)}: these parts of the network do not learn"


@torch.no_grad()
def unusual_inputs(policy: NppPolicy, buffer: RolloutBuffer) -> Iterator[Problem]:
    """Normalised inputs whose mean over a rollout is far from 0."""
    normalize = policy.features_extractor.normalize
    everything = torch.arange(len(buffer), device=buffer.device)
    inputs = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest]
    mean = inputs.mean(dim=0).abs().max().item()
    if mean > MAX_INPUT_MEAN and buffer.shape[1] >= ENOUGH_ENVS:
        yield (
            "inputs",
            f"a normalised input averages {mean:.1f} standard deviations from its statistics: the demonstrations differ "
            "from these levels; use demonstrations of such levels, or --no-pretraining",
        )
