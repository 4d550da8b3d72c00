"""Off-policy corrections of PPO: targets of the current critic, V-trace, and prioritised minibatches.

    class OffPolicyPPO(OffPolicy, PPO): ...     # the same with RecurrentPPO or HierarchicalPPO

With ``returns_from="current"``, the current critic re-estimates the targets before each further pass over a rollout,
optionally with V-trace.  With ``prioritised_alpha``, minibatches prefer large advantages.
Source: Espeholt et al. 2018 (V-trace), Schaul et al. 2016 (prioritised replay).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from rl.config.ppo import PPOConfig
from rl.ppo.losses import Samples, evaluate_rollout, normalized
from rl.ppo.ppo import PPO


def is_off_policy(config: PPOConfig) -> bool:
    """Return True if the settings need ``OffPolicy``."""
    return config.returns_from == "current" or config.prioritised_alpha > 0


@dataclass(frozen=True, eq=False)
class Timeouts:
    """Decisions of a rollout at which an episode timed out.

    index: int64[n], indices of the decisions in the flattened rollout.
    final: final observations [n, ...], after these decisions.
    added: float32[n], discounted values of the final observations, which were added to the rewards.
    """

    index: torch.Tensor
    final: Mapping[str, np.ndarray]
    added: torch.Tensor


class OffPolicy(PPO):
    """PPO with off-policy corrections, to combine with another subclass of PPO.

    timeouts: time-outs of the latest rollout; None without any.
    """

    timeouts: Timeouts | None = None

    def collect_rollouts(self, callback: BaseCallback) -> bool:
        self.timeouts = None
        return super().collect_rollouts(callback)

    def bootstrap_timeouts(self, index: torch.Tensor, final: Mapping[str, np.ndarray]) -> torch.Tensor:
        added = super().bootstrap_timeouts(index, final)
        self.timeouts = Timeouts(index, final, added)
        return added

    def begin_epoch(self, epoch: int, samples: Samples) -> tuple[Samples, Iterator[torch.Tensor]]:
        config = self.active_config
        if epoch and config.returns_from == "current":
            samples = self.reestimate(samples)
        if not config.prioritised_alpha:
            return super().begin_epoch(epoch, samples)
        probabilities = priorities(samples.advantages, config.prioritised_alpha)
        weights = importance_weights(probabilities, config.prioritised_beta).to(self.device)
        minibatches = draw(probabilities, self.batch_size, self.rng)
        return replace(samples, weights=weights), (rows.to(self.device) for rows in minibatches)

    @torch.no_grad()
    def reestimate(self, samples: Samples) -> Samples:
        """Return samples with advantages and returns of the current critic, and with V-trace of the current policy."""
        config, buffer = self.active_config, self.rollout_buffer
        log_probs, values = evaluate_rollout(self.policy, buffer, self.pool, self.batch_size)
        rewards = buffer.rewards.clone()
        if self.timeouts is not None:
            change = config.gamma * self.predict_values(self.timeouts.final) - self.timeouts.added
            rewards.view(-1)[self.timeouts.index] += change
        ratios, clips = torch.ones_like(rewards), (1.0, 1.0)
        if config.vtrace_rho_clip is not None:
            actions = buffer.flat("actions")[:, None]
            log_ratios = log_probs.gather(1, actions) - buffer.flat("log_probs").gather(1, actions)
            ratios, clips = log_ratios.exp().view(buffer.shape), (config.vtrace_rho_clip, config.vtrace_c_clip)
        advantages, returns = vtrace(
            rewards,
            values.view(buffer.shape),
            buffer.episode_ends,
            self.predict_values(self.observations),
            ratios,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            clips=clips,
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
