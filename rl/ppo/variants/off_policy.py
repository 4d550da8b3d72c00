"""Optional off-policy corrections of PPO, and variants of its update for comparisons.

With ``returns_from="current"``, the current critic re-estimates the targets, optionally with V-trace.  With
``prioritised_alpha``, minibatches prefer large advantages.  With ``gradient_zeroing="minibatch"``, each minibatch
discards the accumulated gradients.
Source: Espeholt et al. 2018 (V-trace), Schaul et al. 2016 (prioritised replay).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from hardware.thread_pool import ThreadPool
from rl.policy.policy import NppPolicy
from rl.ppo.losses import Samples, normalized
from rl.ppo.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from rl.ppo.ppo import PPO


@dataclass(frozen=True, eq=False)
class BootstrapInputs:
    """Decisions of a rollout at which an episode timed out.

    index: int64[n], indices of the decisions in the flattened rollout.
    obs: final observations [n, ...], after these decisions.
    added: float32[n], discounted values of the final observations, which were added to the rewards.
    """

    index: torch.Tensor
    obs: Mapping[str, torch.Tensor]
    added: torch.Tensor


@torch.no_grad()
def reestimate(ppo: "PPO", samples: Samples) -> Samples:
    """Return samples with advantages and returns of the current critic, and with V-trace of the current policy."""
    config, buffer, bootstrap = ppo.active_config, ppo.rollout_buffer, ppo.bootstrap
    log_probs, values = evaluate(ppo.policy, buffer, ppo.pool, ppo.batch_size)
    rewards = buffer.rewards.clone()
    if bootstrap is not None and len(bootstrap.index):
        current = ppo.policy.logits_and_values(bootstrap.obs)[1]
        rewards.view(-1)[bootstrap.index] += config.gamma * current - bootstrap.added
    ratios = torch.ones_like(rewards)
    if config.vtrace_rho_clip is not None:
        actions = buffer.flat("actions")[:, None]
        change = log_probs.gather(1, actions) - buffer.flat("log_probs").gather(1, actions)
        ratios = change.exp().view(buffer.shape)
    advantages, returns = vtrace(
        rewards,
        values.view(buffer.shape),
        buffer.episode_ends,
        ppo.predict_values(ppo.observations),
        ratios,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clips=(1.0, 1.0) if config.vtrace_rho_clip is None else (config.vtrace_rho_clip, config.vtrace_c_clip),
    )
    advantages = advantages.flatten()
    advantages = normalized(advantages, buffer.all_gather(advantages))
    return replace(samples, advantages=advantages, returns=returns.flatten())


def vtrace(
    rewards: torch.Tensor,
    values: torch.Tensor,
    episode_ends: torch.Tensor,
    last_values: torch.Tensor,
    ratios: torch.Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    clips: tuple[float, float] = (1.0, 1.0),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute V-trace targets; return (advantages, returns), float32[T, N] both.

    With ratios of 1, the result is that of ``compute_gae``.
    rewards, values, episode_ends, last_values: as in ``compute_gae``.
    ratios: float32[T, N], probability of each action under the current policy divided by that under the rollout policy.
    clips: largest ratio for the error of a decision (rho), and for later errors (c).
    The advantage of a decision does not contain its own ratio, as PPO's loss multiplies by the ratio.
    """
    advantages, traces = torch.empty_like(values), torch.empty_like(values)
    trace, next_values = torch.zeros_like(last_values), last_values
    for t in reversed(range(len(values))):
        continues = (~episode_ends[t]).float()
        delta = rewards[t] + gamma * next_values * continues - values[t]
        advantages[t] = delta + gamma * gae_lambda * continues * trace
        rho, c = (ratios[t].clamp(max=clip) for clip in clips)
        trace = traces[t] = rho * delta + gamma * gae_lambda * c * continues * trace
        next_values = values[t]
    return advantages, traces + values


@torch.no_grad()
def evaluate(
    policy: NppPolicy, buffer: RolloutBuffer, pool: ThreadPool, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Evaluate a policy on a whole rollout; return log-probabilities float32[T * N, 6] and values float32[T * N].

    size: number of decisions per pass through the network.
    """
    order = buffer.evaluation_order()

    @torch.no_grad()
    def part(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        pieces = [policy.logits_and_values(buffer.observations(index)) for index in order[rows].split(size)]
        return torch.cat([F.log_softmax(logits, dim=1) for logits, _ in pieces]), torch.cat([v for _, v in pieces])

    begins = np.arange(0, len(buffer), buffer.segment) if buffer.segment > 1 else None
    log_probs, values = (torch.cat(parts) for parts in zip(*pool.map_rows(len(buffer), part, begins), strict=True))
    back = order.argsort() if buffer.segment > 1 else slice(None)
    return log_probs[back], values[back]


def prioritized(ppo: "PPO", samples: Samples) -> tuple[Samples, Iterator[torch.Tensor]]:
    """Return samples with importance weights, and minibatches that prefer large advantages."""
    config, device = ppo.active_config, ppo.device
    probabilities = priorities(samples.advantages, config.prioritised_alpha)
    weights = importance_weights(probabilities, config.prioritised_beta).to(device)
    return replace(samples, weights=weights), (rows.to(device) for rows in draw(probabilities, ppo.batch_size, ppo.rng))


def step_rows(group: Sequence[torch.Tensor], gradient_zeroing: str) -> torch.Tensor:
    """Return the decisions, int64[B], whose gradients an optimiser step uses.

    group: decisions of each accumulated minibatch.
    gradient_zeroing: "minibatch" if each minibatch discards the gradients of those before it.
    """
    return group[-1] if gradient_zeroing == "minibatch" or len(group) == 1 else torch.cat([*group])


def priorities(advantages: torch.Tensor, alpha: float) -> np.ndarray:
    """Return the probability of drawing each decision, float64[B], proportional to abs(advantage) ** alpha."""
    sizes = advantages.abs().double().cpu().numpy() ** alpha
    total = sizes.sum()
    return sizes / total if total > 0 else np.full(len(sizes), 1 / len(sizes))


def importance_weights(probabilities: np.ndarray, beta: float) -> torch.Tensor:
    """Return importance weights float32[B]; 0 if a decision is never drawn.

    beta: 1 corrects fully for the probabilities of the draw, 0 not at all.
    """
    weights = np.zeros(len(probabilities))
    possible = probabilities > 0
    weights[possible] = (len(probabilities) * probabilities[possible]) ** -beta
    return torch.from_numpy(weights).float()


def draw(probabilities: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """Yield minibatches int64[size], drawn with replacement; as many minibatches as in an epoch."""
    count = len(probabilities) // size
    numbers = rng.choice(len(probabilities), (count, size), p=probabilities)
    yield from torch.from_numpy(numbers)
