"""What the first updates show: whether every part of the network learns, and whether its inputs are what it expects."""

import torch

from rl.policy.policy import NppPolicy
from rl.ppo.ppo import DivergedError
from rl.ppo.rollout import TensorRolloutBuffer

ENOUGH_ENVS = 4  # of which one level with something rare does not make the mean
MAX_INPUT_MEAN = 4.0  # of a normalised component over a rollout, in standard deviations: beyond, statistics do not fit


def check_gradients(policy: NppPolicy) -> None:
    """DivergedError unless the last update has left a finite gradient, not all zero, in every tensor that has to learn."""
    silent = [
        name
        for name, p in policy.named_parameters()
        if p.requires_grad and not policy.may_rest(name) and not _learned(p)
    ]
    if silent:
        raise DivergedError(f"no gradient reaches {', '.join(silent)}; the network is not connected as it should be")


def _learned(parameter: torch.nn.Parameter) -> bool:
    return parameter.grad is not None and bool(torch.isfinite(parameter.grad).all()) and bool(parameter.grad.any())


@torch.no_grad()
def check_inputs(policy: NppPolicy, buffer: TensorRolloutBuffer) -> float:
    """The largest mean of a normalised input over a rollout, in standard deviations; DivergedError if it is too large."""
    normalize = policy.features_extractor.normalize
    everything = torch.arange(len(buffer), device=buffer.device)
    inputs = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest]
    mean = inputs.mean(dim=0).abs().max().item()
    if mean > MAX_INPUT_MEAN and buffer.shape[1] >= ENOUGH_ENVS:
        raise DivergedError(
            f"a normalised input averages {mean:.1f} standard deviations away from its statistics: "
            "the demonstrations do not look like these levels; use demonstrations of such levels, or --no-pretraining"
        )
    return mean
