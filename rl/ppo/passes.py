"""What the passes of an update over its rollout learn from: targets, what is taken together, and in which order.

    passes = Passes(config, buffer, policy, pool, size, rng, samples_of(...), later)
    for number in range(epochs):
        for index in passes.steps(number):    # decisions of each step of the optimiser
            learn(passes.samples, index)      # which may be others in each pass

By default every pass has the same targets, from the values that the critic gave while it was played, and every decision once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F

from hardware.thread_pool import ThreadPool
from rl.config.ppo import PPOConfig
from rl.policy.policy import NppPolicy
from rl.ppo.losses import LossSettings, Samples, normalised
from rl.ppo.rollout import TensorRolloutBuffer, estimated


@dataclass(frozen=True, eq=False)
class Later:
    """What was seen after decisions of a rollout, and is no decision of it.

    last: observations float[N, ...] after the last decision of each environment.
    cut_off: int64[n], numbers of the decisions after which time ended an episode.
    cut_off_obs: observations after these.
    cut_off_values: float32[n], their values as they were added to the rewards, times gamma.
    """

    last: Mapping[str, torch.Tensor]
    cut_off: torch.Tensor
    cut_off_obs: Mapping[str, torch.Tensor]
    cut_off_values: torch.Tensor


@dataclass(eq=False)
class Passes:
    """The passes of one update.

    config: of PPO.
    buffer: the rollout; nothing in it changes.
    policy: that learns.
    pool: who computes.
    size: decisions of a minibatch.
    rng: of the order.
    samples: of the present pass.
    later: what targets are estimated anew with; None where they are not.
    """

    config: PPOConfig
    buffer: TensorRolloutBuffer
    policy: NppPolicy
    pool: ThreadPool
    size: int
    rng: np.random.Generator
    samples: Samples
    later: Later | None = None

    def steps(self, number: int) -> Iterator[torch.Tensor]:
        """Decisions int64[B] of each step of the optimiser in a pass: a minibatch, or several that are accumulated.

        number: of the pass; the first one has the targets that the rollout came with.
        """
        if number and self.later is not None:
            self._estimate_again(self.later)
        minibatches = self._minibatches()
        while group := list(islice(minibatches, self.config.gradient_accumulation)):
            yield group[0] if len(group) == 1 else torch.cat(group)

    def _minibatches(self) -> Iterator[torch.Tensor]:
        alpha = self.config.prioritised_alpha
        if not alpha:
            return self.buffer.minibatches(self.size, self.rng)
        chances = priorities(self.samples.advantages, alpha)
        device = self.buffer.device
        self.samples = replace(self.samples, weights=importance(chances, self.config.prioritised_beta).to(device))
        return (rows.to(device) for rows in drawn(chances, self.size, self.rng))

    @torch.no_grad()
    def _estimate_again(self, later: Later) -> None:
        """Advantages and returns by the present critic; with V-trace, as the present policy would have met them."""
        config, buffer = self.config, self.buffer
        log_probs, values = asked(self.policy, buffer, self.pool, self.size)
        rewards = buffer.rewards.clone()
        if len(later.cut_off):
            present = self.policy.logits_and_values(later.cut_off_obs)[1]
            rewards.view(-1)[later.cut_off] += config.gamma * present - later.cut_off_values
        ratios = None
        if config.vtrace_rho_clip is not None:
            actions = buffer.flat("actions")[:, None]
            change = log_probs.gather(1, actions) - buffer.flat("log_probs").gather(1, actions)
            ratios = change.exp().view(buffer.shape)
        advantages, returns = estimated(
            rewards,
            values.view(buffer.shape),
            buffer.episode_ends,
            self.policy.logits_and_values(later.last)[1],
            config.gamma,
            config.gae_lambda,
            ratios,
            (config.vtrace_rho_clip or 0.0, config.vtrace_c_clip),
        )
        advantages = advantages.flatten()
        advantages = normalised(advantages, buffer.all_gather(advantages))
        self.samples = replace(self.samples, advantages=advantages, returns=returns.flatten())


def samples_of(
    config: PPOConfig,
    buffer: TensorRolloutBuffer,
    settings: LossSettings,
    cloned_log_probs: torch.Tensor | None,
) -> Samples:
    """All decisions of a rollout, as it was played.  cloned_log_probs: float32[T * N, 6], None where nothing pulls."""
    surprises, advantages = None, buffer.flat("advantages")
    among = buffer.all_gather(advantages)
    if settings.self_imitation_coef > 0:
        surprises = buffer.surprises().flatten() / (among.std() + 1e-8)
    return Samples(
        actions=buffer.flat("actions"),
        log_probs=buffer.flat("log_probs"),
        advantages=normalised(advantages, among),
        returns=buffer.flat("returns"),
        cloned_log_probs=cloned_log_probs,
        surprises=surprises,
        values=buffer.flat("values") if config.clip_range_vf is not None else None,
    )


@torch.no_grad()
def asked(
    policy: NppPolicy, buffer: TensorRolloutBuffer, pool: ThreadPool, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities float32[T * N, 6] of all actions, values float32[T * N]) by a policy for a whole rollout.

    size: observations that are looked at together.
    """
    order = buffer.in_order()

    @torch.no_grad()
    def part(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        index = order[rows]
        pieces = [policy.logits_and_values(buffer.observations(some)) for some in index.split(size)]
        return torch.cat([F.log_softmax(logits, dim=1) for logits, _ in pieces]), torch.cat([v for _, v in pieces])

    begins = np.arange(0, len(buffer), buffer.segment) if buffer.segment > 1 else None
    log_probs, values = (torch.cat(parts) for parts in zip(*pool.map_rows(len(buffer), part, begins), strict=True))
    back = order.argsort() if buffer.segment > 1 else slice(None)
    return log_probs[back], values[back]


def priorities(advantages: torch.Tensor, alpha: float) -> np.ndarray:
    """float64[B]: chances of being drawn, in proportion to the size of the advantage to the power alpha; sum 1.

    Source: Schaul et al. 2016 (prioritised replay), with advantages in place of one-step errors.
    """
    sizes = advantages.abs().double().cpu().numpy() ** alpha
    total = sizes.sum()
    return sizes / total if total > 0 else np.full(len(sizes), 1 / len(sizes))


def importance(chances: np.ndarray, beta: float) -> torch.Tensor:
    """float32[B]: weights that undo the chances in the mean, wholly with beta 1, not at all with 0.

    What is never drawn has weight 0.
    """
    weights = np.zeros(len(chances))
    some = chances > 0
    weights[some] = (len(chances) * chances[some]) ** -beta
    return torch.from_numpy(weights).float()


def drawn(chances: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """As many minibatches as would hold every decision once, int64[size] each, drawn with replacement."""
    count = len(chances) // size
    numbers = rng.choice(len(chances), (count, size), p=chances)
    yield from torch.from_numpy(numbers)
