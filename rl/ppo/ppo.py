"""Proximal policy optimisation on the batched simulator: rollouts, advantages, updates and the training loop.

    ppo = PPO(env, "vision_free", config, plan, statistics=statistics)
    ppo.learn(1_000_000, callback=...)   # callbacks and loggers are those of Stable-Baselines3

One iteration is ``collect_rollouts`` → ``compute_gae`` → ``update``.  ``rollout_buffer`` stores a rollout, and ``losses`` has
the loss functions.  ``recurrent`` (GRU) and ``hierarchical`` (subtasks) override methods of PPO.  ``off_policy`` has V-trace
and prioritised minibatches.  Source: Schulman et al. 2017 (PPO), Schulman et al. 2016 (GAE).
"""

import copy
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import get_device, set_random_seed

from hardware import Plan
from hardware.thread_pool import ThreadPool
from nppsim.observe.statistics import ObservationStatistics
from nppsim.physics.outcomes import WON
from rl.config.ppo import KL_TOLERANCE, PPOConfig
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess, check_agreement
from rl.policy.policy import NppPolicy, sample_actions
from rl.ppo import logs
from rl.ppo.losses import (
    NOT_FINITE,
    DivergedError,
    GradientStatistics,
    Losses,
    LossWeights,
    Samples,
    loss_weights,
    normalized,
    set_gradients,
)
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.ppo.variants import off_policy
from rl.ppo.vec_env import BatchVecEnv, desynchronize

PHASES = ("environment", "inference", "update")  # measured phases of training


class PPO:
    """PPO on arrays over all environments.

    env: environments.
    architecture: name of an architecture.
    config: settings that ``PPOConfig.settled`` has returned.
    plan: hardware plan with sizes, precision and number of threads.
    statistics: statistics for the normaliser of the policy.
    ranks: the processes that train together; each has its own environments, sampler and random generators.
    active_config: the settings with the changes of the curriculum's current stage.
    rollout_config: the active settings of the latest rollout.
    seconds: duration of all rollouts and updates.
    phase_seconds: duration of each of PHASES.
    stop_training: callbacks set it to True to end training before the next rollout.
    reserved_s: seconds of the time budget that are reserved for evaluations after training.
    Training raises DivergedError for losses or gradients that are not finite.
    """

    buffer_class: type[RolloutBuffer] = RolloutBuffer
    buffer_settings: Mapping[str, Any] = MappingProxyType({})  # additional arguments of the buffer
    high_level_losses: Any = None  # losses of a high level, see ``rl.ppo.variants.hierarchical``

    def __init__(
        self,
        env: BatchVecEnv,
        architecture: str,
        config: PPOConfig,
        plan: Plan,
        *,
        statistics: ObservationStatistics,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: SingleProcess = SINGLE_PROCESS,
    ):
        if config.learning_rate is None or config.n_epochs is None:
            raise ValueError("config has no learning rate or number of epochs: pass config.settled(plan)")
        if env.sim.gamma != config.gamma:
            raise ValueError(f"the simulator shapes with gamma={env.sim.gamma}, PPO discounts with {config.gamma}")
        self.config, self.ranks, rate = config, ranks, float(config.learning_rate)
        self.env, self.sim, self.sampler = env, env.sim, env.sampler
        self.device = get_device(device)
        set_random_seed(seed, using_cuda=self.device.type == "cuda")
        env.action_space.seed(seed)
        env.seed(seed)
        self.n_steps, self.batch_size, self.n_epochs = plan.rollout_length, plan.minibatch_size, config.n_epochs
        self.gamma, self.gae_lambda = config.gamma, config.gae_lambda
        self.rollout_buffer = self.buffer_class(
            self.n_steps,
            env.observation_space,
            env.action_space,
            device=self.device,
            n_envs=env.num_envs,
            stacking=env.sim.stacking,
            **self.buffer_settings,
        )
        self.rollout_buffer.all_gather = ranks.all_gather
        self.policy = NppPolicy(
            env.observation_space,
            env.action_space,
            lambda remaining: rate,  # initial rate; each update sets its scheduled rate
            architecture=architecture,
            statistics=statistics,
            precision=plan.precision,
        ).to(self.device)
        if env.sim.stacking != self.policy.stacking:
            raise ValueError(f"the simulator shows {env.sim.stacking}, {architecture} reads {self.policy.stacking}")
        self.logger = Logger(None, [])
        self.rng = np.random.default_rng(seed)
        self.action_rng = torch.Generator().manual_seed(seed)
        self.pool = ThreadPool(plan.torch_threads)
        # level of each decision; -1 in episodes that began at a start state
        self._decided = np.zeros((self.n_steps, env.num_envs), np.int32)
        self._init_progress()
        self.active_config = self.rollout_config = config
        self.apply_stage_settings()

    def _init_progress(self) -> None:
        """Initialise the attributes that training changes."""
        self.num_timesteps = 0
        self.updates = 0
        self.actor_updates = 0  # number of updates that changed the actor
        self.n_passes = 0  # number of passes over rollouts
        self.reference: NppPolicy | None = None  # reference policy of the KL penalty
        self.kl_penalty_scale = 1.0  # factor of the coefficient in the settings
        self.kl_penalty_start = 0.0  # progress at which the schedule of the penalty began
        self.critic_only = False  # True if the next update leaves the actor unchanged
        self.explained_variance = math.nan  # explained variance in the latest rollout
        self.losses: list[Losses[float]] = []  # losses of each step of the latest update
        self.episode_returns: deque[float] = deque(maxlen=logs.EPISODE_WINDOW)
        self.episode_lengths: deque[int] = deque(maxlen=logs.EPISODE_WINDOW)
        self.episode_wins: deque[bool] = deque(maxlen=logs.EPISODE_WINDOW)
        # Episodes of all processes that ended in the latest rollout, without those from start states.
        self.counted_episodes = np.empty(0, self.sim.episode.dtype)
        self.bootstrap: off_policy.BootstrapInputs | None = None  # time-outs, if returns_from is "current"
        self.decisions_played = 0
        self.seconds = self.cpu_seconds = 0.0  # wall time and CPU time of rollouts and updates
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self.stop_training = self.started = False
        self.reserved_s = self.elapsed_before_s = 0.0
        self._began = math.nan  # time.perf_counter() when ``learn`` began

    # The loop

    def learn(self, total_timesteps: int, callback: BaseCallback | list[BaseCallback] | None = None) -> "PPO":
        """Train until the processes have made ``total_timesteps`` decisions in total, or a callback ends training."""
        callbacks = callback if isinstance(callback, BaseCallback) else CallbackList(callback or [])
        self.start(callbacks)
        callbacks.on_training_start(locals(), globals())
        while self.num_timesteps < total_timesteps and self.collect_rollouts(callbacks):
            logs.dump(self)
            self.update()
        callbacks.on_training_end()
        return self

    def start(self, callback: BaseCallback) -> None:
        """Start the clock, and the first episodes unless a checkpoint was loaded."""
        callback.init_callback(self)  # type: ignore[arg-type]  # callbacks read attributes only
        if not math.isnan(self._began):
            self.elapsed_before_s = self.elapsed_s
        self._began = time.perf_counter()
        if not self.started:
            self.env.reset()
            if self.config.desync_episodes:
                desynchronize(self.sim, self.rng)
                self.sampler.adopt(self.sim)
            self.started = True

    def get_env(self) -> BatchVecEnv:
        """Return the environments, for callbacks."""
        return self.env

    @property
    def progress(self) -> float:
        """Progress of training, 0 to 1: by decisions or by the time budget, whichever is larger."""
        done = self.num_timesteps / self.config.total_timesteps
        if self.config.time_budget_minutes:
            budget = 60 * self.config.time_budget_minutes - self.reserved_s
            done = max(done, self.elapsed_s / budget if budget > 0 else 1.0)
        return min(done, 1.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds of training with evaluations and checkpoints, without the time of interruptions."""
        return self.elapsed_before_s + (0.0 if math.isnan(self._began) else time.perf_counter() - self._began)

    def apply_stage_settings(self) -> None:
        """Apply the settings of the curriculum's current stage; its discount also applies to reward shaping."""
        before = self.active_config.gamma
        changes: dict[str, Any] = self.sampler.config.changes_in(self.sampler.stage)
        self.active_config = replace(self.config, **changes)
        if self.active_config.gamma != before:
            self.gamma = self.sim.gamma = self.active_config.gamma

    # Rollout

    def collect_rollouts(self, callback: BaseCallback) -> bool:
        """Fill the buffer with ``n_steps`` decisions per environment; return False if training must end."""
        callback.on_rollout_start()
        if self.ranks.rank:  # the first process decides whether there is another rollout
            self.stop_training = self.ranks.serve(self)
        else:
            self.ranks.release(self.stop_training)
        if self.stop_training:
            return False
        self.policy.forget()
        buffer, sim = self.rollout_buffer, self.sim
        episodes, from_start = [np.empty(0, sim.episode.dtype)], [np.empty(0, bool)]
        timeouts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        begin, cpu_begin = time.perf_counter(), time.process_time()
        buffer.begin(sim.obs)
        for t in range(self.n_steps):
            before = time.perf_counter()
            actions = self._act(t)
            acted = time.perf_counter()
            self._decided[t] = self.sampler.credited(sim)
            self.sampler.watch(sim, actions)
            sim.step(actions)
            self.phase_seconds["inference"] += acted - before
            self.phase_seconds["environment"] += time.perf_counter() - acted
            self._store_outcome(t)
            if sim.truncated.any():
                envs = np.flatnonzero(sim.truncated)
                final = self.final_observations(sim.final_obs, t)
                timeouts.append((t * sim.num_envs + envs, {key: final[key][envs] for key in buffer.obs}))
            if sim.finished.size:
                episodes.append(self.sampler.next_episodes(sim))
                from_start.append(self.sampler.true_starts)
            self.after_decision(t)
            self.num_timesteps += sim.num_envs * self.ranks.size
            if not callback.on_step():
                return False
        self._bootstrap_timeouts(timeouts)
        self.estimate_advantages()
        self.explained_variance = buffer.explained_variance()
        self.critic_only = self.critic_only and not self._critic_warmup_ends()
        seconds = time.perf_counter() - begin
        self.seconds += seconds
        self.cpu_seconds += time.process_time() - cpu_begin
        self.decisions_played += len(buffer) * self.ranks.size
        counted = np.concatenate(episodes)[np.concatenate(from_start)]
        self.counted_episodes = self.ranks.all_gather_rows(counted)
        self.sampler.pool(self.ranks.all_gather_rows)
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
        """Hook for subclasses after decision t, when new episodes have begun."""

    def policy_outputs(self, t: int, rows: slice, obs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits float32[n, 6] and values float32[n] for the environments ``rows`` at decision t."""
        return self.policy.logits_and_values(obs)

    def _act(self, t: int) -> np.ndarray:
        """Sample actions int64[N]; store observations, policy outputs and actions in row t of the buffer."""
        buffer, current = self.rollout_buffer, self.observations
        self.policy.remember(self.policy.to_tensors(current))
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

    def _store_outcome(self, t: int) -> None:
        buffer, sim = self.rollout_buffer, self.sim
        buffer.rewards[t].copy_(torch.from_numpy(sim.rewards))
        buffer.episode_ends[t].copy_(torch.from_numpy(sim.terminated | sim.truncated))
        buffer.wins[t].copy_(torch.from_numpy(sim.terminated & (sim.episode["outcome"] == WON)))

    def _bootstrap_timeouts(self, timeouts: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> None:
        """Add gamma times the value of the final observation to the reward of decisions at which an episode timed out.

        timeouts: (indices of decisions int64[n], their final observations) of each step with time-outs.
        """
        index, obs, added = torch.empty(0, dtype=torch.int64), {}, torch.empty(0)
        if timeouts:
            index = torch.from_numpy(np.concatenate([decisions for decisions, _ in timeouts])).to(self.device)
            arrays = {key: np.concatenate([final[key] for _, final in timeouts]) for key in self.rollout_buffer.obs}
            added = self.gamma * self.predict_values(arrays)
            self.rollout_buffer.flat("rewards")[index] += added
            obs = self.policy.to_tensors(arrays)
        if self.config.returns_from == "current":
            self.bootstrap = off_policy.BootstrapInputs(index, obs, added)

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

    def _critic_warmup_ends(self) -> bool:
        config, good = self.config, self.explained_variance >= self.config.critic_warmup_explained_variance
        minimum = config.critic_warmup_min_updates if good else config.critic_warmup_max_updates
        return self.updates >= min(minimum, config.critic_warmup_max_updates)

    def _learning_rate(self) -> float:
        """Return the rate of the next update; after imitation, a warm-up limits the first steps of a new optimiser."""
        rate = self.active_config.learning_rate_at(self.progress)
        warmup = self.config.learning_rate_warmup_updates if self.reference is not None and not self.critic_only else 0
        return rate * min(1.0, (self.actor_updates + 1) / (warmup + 1))

    # Update

    def update(self) -> None:
        """Train for ``n_epochs`` passes over the rollout; stop early if the KL divergence exceeds its limit."""
        begin, cpu_begin = time.perf_counter(), time.process_time()
        rate, weights = self.ranks.broadcast((self._learning_rate(), loss_weights(self)))
        for group in self.policy.optimizer.param_groups:
            group["lr"] = rate
        period = self.config.gradient_statistics_freq
        statistics = GradientStatistics() if period and (self.updates + 1) % period == 0 else None
        self.losses, norms, kl, stopped = [], [], 0.0, False
        for samples, index in self._gradient_steps(self.samples(weights)):
            losses = self._backward(samples, index, weights)
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
        logs.record_update(self, weights, norms, learning_rate=rate, last_kl=kl, stopped_early=float(stopped))
        for tag, value in (statistics.means() if statistics else {}).items():
            self.logger.record(f"gradients/{tag}", value)
        self._update_curriculum()
        check_agreement(self)
        seconds = time.perf_counter() - begin
        self.phase_seconds["update"] += seconds
        self.seconds += seconds
        self.cpu_seconds += time.process_time() - cpu_begin
        self.logger.record("sim/update_s", seconds)

    def samples(self, weights: LossWeights) -> Samples:
        """Return the inputs of the losses for all decisions of the rollout."""
        buffer, reference_log_probs = self.rollout_buffer, None
        if self.reference is not None and weights.bc_kl_coef > 0:
            reference_log_probs = off_policy.evaluate(self.reference, buffer, self.pool, self.batch_size)[0]
        advantages = buffer.flat("advantages")
        everywhere = buffer.all_gather(advantages)
        return Samples(
            actions=buffer.flat("actions"),
            log_probs=buffer.flat("log_probs"),
            advantages=normalized(advantages, everywhere),
            returns=buffer.flat("returns"),
            reference_log_probs=reference_log_probs,
            values=buffer.flat("values") if self.config.clip_range_vf is not None else None,
        )

    def _gradient_steps(self, samples: Samples) -> Iterator[tuple[Samples, torch.Tensor]]:
        """Yield (samples, indices int64[B] of decisions) for each optimiser step, which may accumulate minibatches."""
        config, buffer = self.config, self.rollout_buffer
        for epoch in range(self.n_epochs):
            self.n_passes += 1
            if epoch and config.returns_from == "current":
                samples = off_policy.reestimate(self, samples)
            if config.prioritised_alpha:
                samples, minibatches = off_policy.prioritized(self, samples)
            else:
                minibatches = buffer.minibatches(self.batch_size, self.rng)
            while group := list(islice(minibatches, config.gradient_accumulation)):
                yield samples, off_policy.step_rows(group, config.gradient_zeroing)

    def _backward(self, samples: Samples, index: torch.Tensor, weights: LossWeights) -> Losses[float]:
        """Set the gradients of one step, averaged over all processes; return the mean losses."""
        losses = set_gradients(
            self.policy,
            self.pool,
            self.rollout_buffer.observations,
            samples,
            index.split(self.batch_size),
            weights,
            self.high_level_losses,
            self.rollout_buffer.segment,
        )
        gradients = [parameter.grad for parameter in self.policy.parameters() if parameter.grad is not None]
        losses = type(losses)(*self.ranks.all_reduce_mean(gradients, losses))
        if not all(map(math.isfinite, losses)):
            values = ", ".join(f"{name} {value:.3g}" for name, value in losses._asdict().items())
            raise DivergedError(f"update {self.updates + 1}: the loss is not finite ({values}); {NOT_FINITE}")
        return losses

    def _exceeds_target_kl(self, kl: float, weights: LossWeights) -> bool:
        limit = self.config.target_kl
        return limit is not None and kl > KL_TOLERANCE * limit and not weights.critic_only

    # Reference policy, checkpoints, curriculum

    def set_reference(self, policy: NppPolicy) -> None:
        """Set the BC policy: first train the critic alone until it explains the returns, then add the KL penalty."""
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        self.critic_only = True

    def increase_kl_penalty(self) -> None:
        """Double the KL penalty, make the current policy its reference, and restart its schedule."""
        self.ranks.call_peers(PPO.increase_kl_penalty)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        self.kl_penalty_scale *= 2
        self.kl_penalty_start = self.progress

    def restore(self, policy_state: Mapping[str, Any], optimizer_state: Mapping[str, Any], actor_updates: int) -> None:
        """Load earlier weights in all processes.  actor_updates: the value of this attribute with those weights."""
        self.ranks.call_peers(PPO.restore, policy_state, optimizer_state, actor_updates)
        self.policy.load_state_dict(policy_state)
        self.policy.optimizer.load_state_dict(copy.deepcopy(dict(optimizer_state)))  # it would not copy tensors
        self.actor_updates = actor_updates

    def extra_state(self) -> dict[str, Any]:
        """Return the additional state of a subclass for checkpoints."""
        return {}

    def load_extra_state(self, training: Mapping[str, Any]) -> None:
        """Load ``extra_state`` from the training state of a checkpoint."""

    def record_rollout(self, seconds: float) -> None:
        """Record metrics of the latest rollout.  seconds: its duration."""
        logs.record_rollout(self, seconds)

    def _update_curriculum(self) -> None:
        begin = time.perf_counter()
        decided, advantages = None, None
        if self.sampler.wants_advantages:
            decided, advantages = self._decided, self.rollout_buffer.advantages.cpu().numpy()
        self.sampler.update(self.sim, decided, advantages, all_gather=self.ranks.all_gather_rows)
        self.apply_stage_settings()
        self.logger.record("sim/curriculum_s", time.perf_counter() - begin)


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
