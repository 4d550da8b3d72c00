"""Proximal policy optimisation on the batched simulator: rollouts, advantages and updates.

    ppo = PPO(env, "vision_free", config, plan, statistics=statistics)
    ppo.learn(1_000_000, callback=...)   # callbacks and loggers are those of Stable-Baselines3

One iteration of ``learn`` (in ``base``) is ``collect_rollouts`` → ``compute_gae`` → ``update``.  ``rollout_buffer`` stores a
rollout, and ``losses`` has the loss functions.  The classes in ``variants`` override methods; ``make_ppo`` chooses one.
Source: Schulman et al. 2017 (PPO), Schulman et al. 2016 (GAE).
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3.common.callbacks import BaseCallback

from nppsim.physics.outcomes import WON
from rl.config.ppo import KL_TOLERANCE
from rl.distributed.ranks import check_agreement
from rl.policy.policy import sample_actions
from rl.ppo.base import EPISODE_WINDOW, BasePPO
from rl.ppo.logs import rollout_metrics, update_metrics
from rl.ppo.losses import (
    NOT_FINITE,
    DivergedError,
    GradientStatistics,
    Losses,
    LossWeights,
    Samples,
    evaluate_rollout,
    normalized,
    ppo_losses,
    set_gradients,
)


class PPO(BasePPO):
    """PPO on arrays over all environments; see ``BasePPO`` for arguments and attributes."""

    losses_type: Any = Losses  # named tuple that ``minibatch_losses`` returns

    # Rollout

    def collect_rollouts(self, callback: BaseCallback) -> bool:
        """Fill the buffer with ``n_steps`` decisions per environment; return False if training must end."""
        callback.on_rollout_start()
        self.stop_training = self.ranks.broadcast(self.stop_training)
        if self.stop_training:
            return False
        self.policy.clear_graph_cache()
        buffer, sim = self.rollout_buffer, self.sim
        episodes, from_start = [np.empty(0, sim.episode.dtype)], [np.empty(0, bool)]
        timeouts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []  # decisions, final observations
        begin = self._clocks()
        buffer.begin(sim.obs)
        for t in range(self.n_steps):
            before = time.perf_counter()
            actions = self._act(t)
            acted = time.perf_counter()
            self._decided[t] = self.sampler.counted_levels(sim)
            self.sampler.watch(sim, actions)
            sim.step(actions)
            self.phase_seconds["inference"] += acted - before
            self.phase_seconds["environment"] += time.perf_counter() - acted
            dones = sim.terminated | sim.truncated
            self._store_outcome(t, dones)
            if sim.truncated.any():
                envs = np.flatnonzero(sim.truncated)
                final = self.final_observations(sim.final_obs, t)
                timeouts.append((t * sim.num_envs + envs, {key: final[key][envs] for key in buffer.obs}))
            if sim.finished.size:
                episodes.append(self.sampler.next_episodes(sim))
                from_start.append(self.sampler.true_starts)
            self.after_decision(t)
            self.num_timesteps += sim.num_envs * self.ranks.size
            callback.update_locals({"actions": actions, "rewards": sim.rewards, "dones": dones})
            if not callback.on_step():
                return False
        if timeouts:
            index = torch.from_numpy(np.concatenate([decisions for decisions, _ in timeouts])).to(self.device)
            final = {key: np.concatenate([obs[key] for _, obs in timeouts]) for key in buffer.obs}
            self.bootstrap_timeouts(index, final)
        self.estimate_advantages()
        self.explained_variance = buffer.explained_variance()
        self.critic_only = self.critic_only and not self._critic_warmup_ends()
        seconds = self._count_time(begin)
        self.decisions_played += len(buffer) * self.ranks.size
        counted = np.concatenate(episodes)[np.concatenate(from_start)]
        self.counted_episodes = self.ranks.all_gather_rows(counted)
        self.sampler.gather_episodes(self.ranks.all_gather_rows)
        self.record_rollout(seconds)
        callback.on_rollout_end()
        return True

    @property
    def observations(self) -> Mapping[str, np.ndarray]:
        """Observations [N, ...] for the next decision."""
        return self.sim.obs

    def final_observations(self, final_obs: Mapping[str, np.ndarray], t: int) -> Mapping[str, np.ndarray]:
        """Return the final observations of episodes that ended with decision t.  final_obs: from the simulator."""
        return final_obs

    def after_decision(self, t: int) -> None:
        """Update the state of a subclass after decision t, when new episodes have begun."""

    def policy_outputs(self, t: int, rows: slice, obs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits float32[n, 6] and values float32[n] for the environments ``rows`` at decision t."""
        return self.policy.logits_and_values(obs)

    def _act(self, t: int) -> np.ndarray:
        """Sample actions int64[N]; store observations, policy outputs and actions in row t of the buffer."""
        buffer, current = self.rollout_buffer, self.observations
        self.policy.cache_graphs(self.policy.to_tensors(current))
        if t:
            buffer.store_ages(t)

        @torch.no_grad()
        def part(rows: slice) -> torch.Tensor:
            logits, values = self.policy_outputs(t, rows, buffer.store_observations(t, rows, current))
            buffer.values[t, rows] = values
            buffer.log_probs[t, rows] = F.log_softmax(logits, dim=1)
            return logits.cpu()

        actions = sample_actions(torch.cat(self.pool.map_rows(self.sim.num_envs, part)), self.action_rng)
        buffer.actions[t] = actions.to(self.device)
        return actions.numpy()

    def _store_outcome(self, t: int, dones: np.ndarray) -> None:
        buffer, sim = self.rollout_buffer, self.sim
        buffer.rewards[t].copy_(torch.from_numpy(sim.rewards))
        buffer.episode_ends[t].copy_(torch.from_numpy(dones))
        buffer.wins[t].copy_(torch.from_numpy(sim.terminated & (sim.episode["outcome"] == WON)))

    def bootstrap_timeouts(self, index: torch.Tensor, final: Mapping[str, np.ndarray]) -> torch.Tensor:
        """Add gamma times the value of the final observation to the reward of decisions at which an episode timed out.

        index: int64[n], indices of these decisions in the flattened rollout.
        final: their final observations [n, ...].
        Returns the added values float32[n].
        """
        added = self.gamma * self.predict_values(final)
        self.rollout_buffer.flat("rewards")[index] += added
        return added

    def estimate_advantages(self) -> None:
        """Compute the advantages and returns of the rollout."""
        self.rollout_config, buffer = self.active_config, self.rollout_buffer
        advantages, returns = compute_gae(
            buffer.rewards,
            buffer.values,
            buffer.episode_ends,
            self.predict_values(self.observations),
            self.gamma,
            self.gae_lambda,
        )
        buffer.advantages.copy_(advantages)
        buffer.returns.copy_(returns)

    @torch.no_grad()
    def predict_values(self, obs: Mapping[str, np.ndarray]) -> torch.Tensor:
        """Return the values float32[N] of observations [N, ...]."""
        return self.policy.logits_and_values(self.policy.to_tensors(obs))[1]

    def record_rollout(self, seconds: float) -> None:
        """Record metrics of the latest rollout and of ``counted_episodes``.  seconds: duration of the rollout."""
        for episode in self.counted_episodes[-EPISODE_WINDOW:]:
            self.episode_returns.append(float(episode["ret"]))
            self.episode_lengths.append(int(episode["decisions"]))
            self.episode_wins.append(bool(episode["outcome"] == WON))
        self.record(rollout_metrics(self.counted_episodes, self.rollout_buffer.flat("actions")))
        self.record(self.sampler.metrics())
        self.logger.record("sim/decisions_per_s", self.sim.num_envs * self.ranks.size * self.n_steps / seconds)

    # Update

    def update(self) -> None:
        """Train for ``n_epochs`` passes over the rollout; stop early if the KL divergence exceeds its limit."""
        begin = self._clocks()
        rate, weights = self.ranks.broadcast((self._learning_rate(), self.loss_weights()))
        for group in self.policy.optimizer.param_groups:
            group["lr"] = rate
        period = self.config.gradient_statistics_freq
        statistics = GradientStatistics() if period and (self.updates + 1) % period == 0 else None
        self.losses, norms, kl, stopped = [], [], 0.0, False
        for samples, minibatches in self._optimizer_steps(self.samples(weights)):
            losses = self._backward(samples, minibatches, weights)
            kl = losses.approx_kl
            stopped = self._exceeds_target_kl(kl, weights)
            if stopped:
                break
            if statistics is not None:
                statistics.add(self.policy)
            norms.append(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_grad_norm))
            self.policy.optimizer.step()
            self.losses.append(losses)
        self.updates += 1
        if not weights.critic_only:
            self.actor_updates += 1
        metrics = {"learning_rate": rate, "last_kl": kl, "stopped_early": float(stopped), "gamma": self.gamma}
        self._record_update(weights, norms, metrics)
        self.record(statistics.means() if statistics else {})
        self._update_curriculum()
        check_agreement(self)
        seconds = self._count_time(begin)
        self.phase_seconds["update"] += seconds
        self.logger.record("sim/update_s", seconds)

    def loss_weights(self) -> LossWeights:
        """Return the coefficients of the losses for the next update."""
        config, progress = self.config, self.progress
        penalty = 0.0
        if self.reference is not None and not self.critic_only:
            penalty = self.kl_penalty_scale * config.bc_kl_coef_at(progress - self.kl_penalty_start)
        # Adam's steps do not depend on the scale of gradients, but on the balance between critic and actor.  So the value
        # loss is divided by the variance of the returns, as a simple alternative to PopArt (van Hasselt et al. 2016).
        variance = float(self.ranks.all_gather(self.rollout_buffer.returns).var())
        return LossWeights(
            clip_range=self.active_config.clip_range_at(progress),
            vf_coef=config.vf_coef,
            ent_coef=self.active_config.ent_coef_at(progress),
            bc_kl_coef=penalty,
            critic_only=self.critic_only,
            return_variance=variance if config.scale_value_loss and variance > 0 else 1.0,
            clip_range_vf=config.clip_range_vf_at(progress),
        )

    def samples(self, weights: LossWeights) -> Samples:
        """Return the inputs of the losses for all decisions of the rollout."""
        buffer, reference_log_probs = self.rollout_buffer, None
        if self.reference is not None and weights.bc_kl_coef > 0:
            reference_log_probs = evaluate_rollout(self.reference, buffer, self.pool, self.batch_size)[0]
        advantages = buffer.flat("advantages")
        return Samples(
            actions=buffer.flat("actions"),
            log_probs=buffer.flat("log_probs"),
            advantages=normalized(advantages, buffer.all_gather(advantages)),
            returns=buffer.flat("returns"),
            reference_log_probs=reference_log_probs,
            values=buffer.flat("values") if self.config.clip_range_vf is not None else None,
        )

    def _optimizer_steps(self, samples: Samples) -> Iterator[tuple[Samples, list[torch.Tensor]]]:
        """Yield the samples and the minibatches of each optimiser step; the gradients of its minibatches are accumulated."""
        for epoch in range(self.n_epochs):
            self.n_passes += 1
            samples, minibatches = self.begin_epoch(epoch, samples)
            while group := list(islice(minibatches, self.config.gradient_accumulation)):
                yield samples, group

    def begin_epoch(self, epoch: int, samples: Samples) -> tuple[Samples, Iterator[torch.Tensor]]:
        """Return the samples and the minibatches (indices int64[B] of decisions) of a pass over the rollout.

        samples: those of the previous pass.
        """
        return samples, self.rollout_buffer.minibatches(self.batch_size, self.rng)

    def _backward(self, samples: Samples, minibatches: Sequence[torch.Tensor], weights: LossWeights) -> Losses[float]:
        """Set the gradients of one optimiser step, averaged over all processes; return the mean losses."""

        def losses_of(observations: Mapping[str, torch.Tensor], part: Samples) -> Losses[torch.Tensor]:
            return self.minibatch_losses(observations, part, weights)

        means = set_gradients(
            self.policy,
            self.pool,
            self.rollout_buffer.observations,
            samples,
            minibatches,
            losses_of,
            critic_only=weights.critic_only,
            segment=self.rollout_buffer.segment,
        )
        gradients = [parameter.grad for parameter in self.policy.parameters() if parameter.grad is not None]
        losses: Losses[float] = self.losses_type(*self.ranks.all_reduce_mean(gradients, means))
        if not all(map(math.isfinite, losses)):
            values = ", ".join(f"{name} {value:.3g}" for name, value in losses._asdict().items())
            raise DivergedError(f"update {self.updates + 1}: the loss is not finite ({values}); {NOT_FINITE}")
        return losses

    def minibatch_losses(
        self, observations: Mapping[str, torch.Tensor], samples: Samples, weights: LossWeights
    ) -> Losses[torch.Tensor]:
        """Return all losses of a minibatch."""
        return ppo_losses(*self.policy.logits_and_values(observations), samples, weights)

    def _exceeds_target_kl(self, kl: float, weights: LossWeights) -> bool:
        limit = self.config.target_kl
        return limit is not None and kl > KL_TOLERANCE * limit and not weights.critic_only

    def _learning_rate(self) -> float:
        """Return the learning rate of the next update; after imitation, it rises linearly over the first actor updates."""
        rate = self.active_config.learning_rate_at(self.progress)
        warmup = self.config.learning_rate_warmup_updates if self.reference is not None and not self.critic_only else 0
        return rate * min(1.0, (self.actor_updates + 1) / (warmup + 1))

    def _critic_warmup_ends(self) -> bool:
        """Return True if the critic explains the returns after the minimum number of updates, or at the maximum number."""
        config = self.config
        explains = self.explained_variance >= config.critic_warmup_explained_variance
        minimum = config.critic_warmup_min_updates if explains else config.critic_warmup_max_updates
        return self.updates >= min(minimum, config.critic_warmup_max_updates)

    def _update_curriculum(self) -> None:
        begin = time.perf_counter()
        decided, advantages = None, None
        if self.sampler.wants_advantages:
            decided, advantages = self._decided, self.rollout_buffer.advantages.cpu().numpy()
        self.sampler.update(self.sim, decided, advantages, all_gather=self.ranks.all_gather_rows)
        self.apply_stage_settings()
        self.logger.record("sim/curriculum_s", time.perf_counter() - begin)

    def _record_update(self, weights: LossWeights, norms: list[torch.Tensor], metrics: Mapping[str, float]) -> None:
        gradient_norms = torch.stack(norms).tolist() if norms else []
        if not all(map(math.isfinite, gradient_norms)):
            raise DivergedError(f"update {self.updates}: a gradient is not finite; {NOT_FINITE}")
        metrics = {**metrics, "explained_variance": self.explained_variance, "n_updates": self.n_passes}
        metrics |= update_metrics(self.losses, gradient_norms, weights)
        self.record({f"train/{name}": value for name, value in metrics.items()})


def compute_gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    episode_ends: torch.Tensor,
    last_values: torch.Tensor,
    gamma: float,
    gae_lambda: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute generalised advantage estimates; return (advantages, returns), float32[T, N] both.

    rewards, values: float32[T, N].  The reward at a time-out includes the discounted value of the final observation.
    episode_ends: bool[T, N], True for the last decision of an episode.
    last_values: float32[N], values of the observations after the last decision.
    gae_lambda: 0 for one-step temporal differences, 1 for Monte-Carlo returns.
    Source: Schulman et al. 2016.
    """
    advantages = torch.empty_like(values)
    advantage, next_values = torch.zeros_like(last_values), last_values
    for t in reversed(range(len(values))):
        continues = (~episode_ends[t]).float()
        delta = rewards[t] + gamma * next_values * continues - values[t]
        advantage = advantages[t] = delta + gamma * gae_lambda * continues * advantage
        next_values = values[t]
    return advantages, advantages + values
