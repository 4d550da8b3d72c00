"""PPO over the batched simulator: Stable-Baselines3's algorithm and logs, with loops that never leave the tensors.

The three steps are plain: ``collect_rollouts`` plays, ``TensorRolloutBuffer`` estimates advantages, ``train`` updates.
Source: Schulman et al. 2017 (PPO), 2016 (GAE).
"""

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv

from hardware import Plan
from hardware.thread_pool import ThreadPool
from nppsim import reward
from nppsim.actions import ACTION_TAGS, NUM_ACTIONS
from nppsim.batch import BatchSimulator
from nppsim.errors import UserError
from nppsim.observe.statistics import ObservationStatistics
from nppsim.outcomes import WON
from rl.config.ppo import KL_TOLERANCE, PPOConfig
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess, checksum
from rl.policy.policy import NppPolicy, check_optimiser_coverage, sample_actions
from rl.ppo.gradients import Further, GradientStatistics, set_gradients
from rl.ppo.losses import Losses, LossSettings
from rl.ppo.passes import Later, Passes, asked, samples_of
from rl.ppo.rollout import TensorRolloutBuffer
from rl.ppo.steering import steered
from rl.ppo.vec_env import BatchVecEnv

PARTS = ("environment", "inference", "update")  # whose time is taken; the rest is bookkeeping
HEADS = {"actor": ("policy_net", "action_net"), "critic": ("value_net",)}  # parts of the names of their parameters
Extended = tuple[torch.Tensor, Mapping[str, torch.Tensor], torch.Tensor]
NOTHING_EXTENDED: Extended = (torch.empty(0, dtype=torch.int64), {}, torch.empty(0))


class DivergedError(UserError, RuntimeError):
    """Training produced numbers that are not finite, or parts of the network that do not learn."""


class CutOff(NamedTuple):
    """Episodes that time ended: numbers of their last decisions in the rollout, int64[n], and what was seen after these."""

    decisions: np.ndarray
    obs: dict[str, np.ndarray]


class BatchPPO(PPO):
    """PPO whose environments, rollouts and updates are arrays of all environments at once.

    env: BatchVecEnv over a BatchSimulator.
    architecture: name of the network.
    config: a settled PPOConfig.
    plan: sizes and precision.
    statistics: for the policy's normaliser.
    ranks: the processes that train together; each has environments, sampler and random numbers of its own.
    ``anchor_to`` makes it stay close to a BC policy for a while.
    speed: seconds spent so far in each of PARTS; decisions_played, and seconds in rollouts and updates: since training
        began.
    in_force: the configuration with what the curriculum's present stage changes.
    played_under: the same when the latest rollout ended, and so in the update after it.
    ending: whether training is to end before the next rollout.
    reserved: seconds that what follows the last update will take, as far as a time budget counts it.
    Raises DivergedError when an update meets numbers that are not finite.
    """

    policy: NppPolicy
    rollout_buffer: TensorRolloutBuffer  # type: ignore[assignment]  # called like SB3's, stores tensors
    buffer_class: type[TensorRolloutBuffer] = TensorRolloutBuffer
    buffer_settings: Mapping[str, Any] = MappingProxyType({})  # of the buffer's class, beyond the stacking
    further: Further | None = None  # what the loss has beyond PPO's own

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
            raise ValueError("the configuration leaves numbers to the hardware plan: give config.settled(plan, ...)")
        if env.sim.gamma != config.gamma:
            raise ValueError(f"the simulator shapes with gamma={env.sim.gamma}, PPO discounts with {config.gamma}")
        super().__init__(
            NppPolicy,
            env,
            learning_rate=config.learning_rate,
            n_steps=plan.rollout_length,
            batch_size=plan.minibatch_size,
            n_epochs=config.n_epochs,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            clip_range=config.clip_range,
            ent_coef=config.ent_coef_start,
            vf_coef=config.vf_coef,
            max_grad_norm=config.max_grad_norm,
            target_kl=config.target_kl,
            rollout_buffer_class=self.buffer_class,  # type: ignore[arg-type]  # called like SB3's, stores tensors
            rollout_buffer_kwargs={"stacking": env.sim.stacking, **self.buffer_settings},
            policy_kwargs={"architecture": architecture, "statistics": statistics, "precision": plan.precision},
            seed=seed,
            device=device,
        )
        check_optimiser_coverage(self.policy)
        if env.sim.stacking != self.policy.stacking:
            raise ValueError(f"the simulator shows {env.sim.stacking}, {architecture} reads {self.policy.stacking}")
        self.config = config
        self.ranks = ranks
        self.rollout_buffer.all_gather = ranks.all_gather
        self._returns = self.rollout_buffer.returns  # in an update, those of all processes
        self.batch_env, self.sim, self.sampler = env, env.sim, env.sampler
        self.reference: NppPolicy | None = None
        self.steered_rate = config.learning_rate  # in force only with desired_kl
        self.speed = dict.fromkeys(PARTS, 0.0)
        self.critic_only = False  # whether the next update leaves the actor alone
        self.explained_variance = float("nan")  # of the latest rollout's returns, by the values while it was played
        self.hold = 1.0  # times the configured pull towards the reference
        self.held_since = 0.0  # progress at which that pull began
        self.updates = 0
        self.actor_updates = 0  # those in which the actor learned
        self.steps: list[Losses[float]] = []  # losses of each step of the latest update
        self.norms: list[torch.Tensor] = []  # of the gradients in these, before they were cut off
        self.decisions_played = 0
        self.seconds = 0.0  # spent in rollouts and updates
        self.processor_seconds = 0.0  # that this process's threads computed in these
        self.ended = np.empty(0, env.sim.episode.dtype)  # records of the episodes that ended in the latest rollout
        self.counts = np.empty(0, bool)  # of these, whether they began where their level does
        self.counted = self.ended  # those of all processes that began where their level does
        self.ending = False
        self.reserved = 0.0
        self.spent_before = 0.0  # ``spent`` when this process went on with the run
        self._began = math.nan  # time.perf_counter() when training began or went on
        self._extended = NOTHING_EXTENDED  # time-outs of the latest rollout, as ``Later`` has them
        self._decided = np.zeros((plan.rollout_length, env.sim.num_envs), np.int32)  # level of each decision
        self.rng = np.random.default_rng(seed)
        self.sampling = torch.Generator().manual_seed(seed)
        self._pool = ThreadPool(plan.torch_threads)
        self.in_force = self.played_under = config
        self.enter_stage()

    def enter_stage(self) -> None:
        """Let the settings of the stage that is learned now be in force; one discount for rollouts, time-outs and shaping."""
        before = self.in_force
        self.in_force = replace(self.config, **self.sampler.config.changes_in(self.sampler.stage))  # type: ignore[arg-type]
        if self.in_force.gamma != before.gamma:
            self.gamma = self.rollout_buffer.gamma = self.sim.gamma = self.in_force.gamma

    def anchor_to(self, cloned: NppPolicy) -> None:
        """Let the critic learn alone until it can judge, then pull the actor towards ``cloned``, less and less."""
        self.reference = copy.deepcopy(cloned).requires_grad_(False)
        self.critic_only = True

    def own_state(self) -> dict[str, Any]:
        """What a checkpoint keeps of training beyond what every PPO has; see ``rl.ppo.saving``."""
        return {}

    def load_own_state(self, training: Mapping[str, Any]) -> None:
        """Continue where ``own_state`` was taken; training: all that the checkpoint has of training."""

    def restore(self, policy_state: Mapping[str, Any], optimizer_state: Mapping[str, Any], actor_updates: int) -> None:
        """Go back to earlier weights, in all processes; everything else stays as it is.

        actor_updates: that the actor has had; if few or none, its learning rate rises again, as Adam knows little of it.
        """
        self.ranks.call_peers(BatchPPO.restore, policy_state, optimizer_state, actor_updates)
        self.policy.load_state_dict(policy_state)
        self.policy.optimizer.load_state_dict(dict(optimizer_state))
        self.actor_updates = actor_updates

    def hold_closer(self) -> None:
        """From now on, pull twice as hard as before, towards the present policy, and let go as slowly as at the start."""
        self.ranks.call_peers(BatchPPO.hold_closer)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        self.hold *= 2
        self.held_since = self.progress

    def _critic_can_judge(self) -> bool:
        """Whether the critic's warm-up ends: it explains enough of the rollout's returns, or has had its time."""
        config = self.config
        good = self.explained_variance >= config.critic_warmup_explained_variance
        return (good and self.updates >= config.critic_warmup_min_updates) or (
            self.updates >= config.critic_warmup_max_updates
        )

    @property
    def progress(self) -> float:
        """0 at the start of training, 1 at its end: by decisions or by the time budget, whichever is further on."""
        done = self.num_timesteps / self.config.total_timesteps
        if self.config.time_budget_minutes:
            left = 60 * self.config.time_budget_minutes - self.reserved
            done = max(done, self.spent / left if left > 0 else 1.0)
        return min(done, 1.0)

    @property
    def spent(self) -> float:
        """Seconds since training began, all that it takes included: evaluations, checkpoints, uploads.

        The time between an interruption and the resumption is no part of it.
        """
        return self.spent_before + (0.0 if math.isnan(self._began) else time.perf_counter() - self._began)

    def _setup_learn(self, *arguments: Any, **keywords: Any) -> tuple[int, BaseCallback]:
        """Stable-Baselines3's, with its clock set back to where training began."""
        self._began = time.perf_counter()
        fresh = self._last_obs is None
        prepared = super()._setup_learn(*arguments, **keywords)
        if fresh and self.config.desync_episodes:
            desynchronise(self.sim, self.rng)
            self.sampler.adopt(self.sim)
        self._num_timesteps_at_start = 0
        self.start_time -= int(1e9 * self.spent_before)
        return prepared

    def dump_logs(self, iteration: int = 0) -> None:
        """Stable-Baselines3's; iterations count from the beginning of training, not of this process."""
        super().dump_logs(self.updates + 1)

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        """The environment as it is: the networks read images as the simulator draws them, so nothing is transposed."""
        assert isinstance(env, VecEnv)
        return env

    # -----------------------------------------------------------------------------------------------------------------
    # Rollout

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Play ``n_rollout_steps`` decisions in every environment; False if a callback wants to stop."""
        callback.on_rollout_start()
        self._begin_together()
        if self.ending:
            return False
        self.policy.forget()
        buffer, sim = self.rollout_buffer, self.sim
        episodes, counts = [np.empty(0, sim.episode.dtype)], [np.empty(0, bool)]
        cut_off: list[CutOff] = []
        self._extended = NOTHING_EXTENDED
        begin, processor = time.perf_counter(), time.process_time()
        buffer.begin(sim.obs)
        for t in range(n_rollout_steps):
            deciding = time.perf_counter()
            actions = self._decide(t)
            decided = time.perf_counter()
            self._decided[t] = self.sampler.credited(sim)
            self.sampler.watch(sim, actions)
            sim.step(actions)
            self.speed["inference"] += decided - deciding
            self.speed["environment"] += time.perf_counter() - decided
            self._store_outcome(t)
            if sim.truncated.any():
                cut_off.append(self._cut_off(t))
            if sim.finished.size:
                episodes.append(self._begin_next_episodes())
                counts.append(self.sampler.true_starts)
            self._prepare_decision(t)
            self.num_timesteps += sim.num_envs * self.ranks.size
            if not callback.on_step():
                return False
        if cut_off:
            self._extend(cut_off)
        self._estimate()
        self.explained_variance = buffer.explained_variance()
        self.critic_only = self.critic_only and not self._critic_can_judge()
        seconds = time.perf_counter() - begin
        self.seconds += seconds
        self.processor_seconds += time.process_time() - processor
        self.decisions_played += len(buffer) * self.ranks.size
        self.ended, self.counts = np.concatenate(episodes), np.concatenate(counts)
        counted = self.ended[self.counts] if self.sampler.starts else self.ended
        self.counted = self.ranks.all_gather_rows(counted)
        self.sampler.pool(self.ranks.all_gather_rows)
        self._log_rollout(self.counted, seconds)
        callback.on_rollout_end()
        return True

    @property
    def seen(self) -> Mapping[str, np.ndarray]:
        """All that the next decisions are made on: observations [N, ...]."""
        return self.sim.obs

    def last_seen(self, final_obs: Mapping[str, np.ndarray], t: int) -> Mapping[str, np.ndarray]:
        """The same after the last decision of episodes that decision t of the rollout ended, whose observations these are."""
        return final_obs

    def _prepare_decision(self, t: int) -> None:
        """Whatever is to be known for the decision after decision t, when its episode has begun."""

    def _estimate(self) -> None:
        """Advantages and returns of the rollout."""
        self.played_under = self.in_force
        self.rollout_buffer.compute_returns_and_advantages(self._values(self.seen))

    def _begin_together(self) -> None:
        """The first process decides whether there is a rollout; the others do what it orders until then."""
        if self.ranks.rank:
            self.ending = self.ranks.serve(self)
        else:
            self.ranks.release(self.ending)

    def _decide(self, t: int) -> np.ndarray:
        """Actions int64[N] for the present observations; row t of the buffer keeps what was observed and decided."""
        buffer, seen = self.rollout_buffer, self.seen
        self.policy.remember(self.policy.to_tensors(seen))
        if t:
            buffer.note_ages(t)

        @torch.no_grad()
        def part(rows: slice) -> torch.Tensor:
            logits, values = self.judge(t, rows, buffer.observe(t, rows, seen))
            buffer.values[t, rows] = values
            buffer.log_probs[t, rows] = F.log_softmax(logits, dim=1)
            return logits.cpu()

        actions = sample_actions(torch.cat(self._pool.map_rows(self.sim.num_envs, part)), self.sampling)
        buffer.actions[t] = actions.to(self.device)
        return actions.numpy()

    def judge(self, t: int, rows: slice, shown: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits float32[n, 6] and values float32[n] for what environments ``rows`` show before decision t."""
        return self.policy.logits_and_values(shown)

    def shown(self, policy: NppPolicy, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """What a policy is shown of the rollout's decisions ``index``, int64[B], when it learns from them."""
        return self.rollout_buffer.observations(index)

    def _store_outcome(self, t: int) -> None:
        """Rewards and ends of decision t."""
        buffer, sim = self.rollout_buffer, self.sim
        buffer.rewards[t].copy_(torch.from_numpy(sim.rewards))
        buffer.episode_ends[t].copy_(torch.from_numpy(sim.terminated | sim.truncated))
        buffer.wins[t].copy_(torch.from_numpy(sim.terminated & (sim.episode["outcome"] == WON)))

    def _cut_off(self, t: int) -> CutOff:
        """The episodes that time ended in decision t."""
        envs = np.flatnonzero(self.sim.truncated)
        final = self.last_seen(self.sim.final_obs, t)
        obs = {key: final[key][envs] for key in self.rollout_buffer.obs}
        return CutOff(t * self.sim.num_envs + envs, obs)

    def _extend(self, cut_off: list[CutOff]) -> None:
        """Where time ran out, the reward includes the value of the last observation.

        That value counts times gamma: the state was no worse for the clock, so a time-out is not learned as an end.
        """
        rewards = self.rollout_buffer.flat("rewards")
        index = torch.from_numpy(np.concatenate([some.decisions for some in cut_off])).to(self.device)
        obs = {key: np.concatenate([some.obs[key] for some in cut_off]) for key in self.rollout_buffer.obs}
        added = self.gamma * self._values(obs)
        rewards[index] += added
        if self.config.returns_from == "current":
            self._extended = index, self.policy.to_tensors(obs), added

    def _begin_next_episodes(self) -> np.ndarray:
        """Records of the episodes that have just ended; what comes after is drawn."""
        return self.sampler.next_episodes(self.sim)

    @torch.no_grad()
    def _values(self, obs: Mapping[str, np.ndarray]) -> torch.Tensor:
        return self.policy.logits_and_values(self.policy.to_tensors(obs))[1]

    def _log_rollout(self, episodes: np.ndarray, seconds: float) -> None:
        """episodes: records of those that ended in the rollout and count."""
        assert self.ep_info_buffer is not None and self.ep_success_buffer is not None  # made by learn()
        for episode in episodes[-self._stats_window_size :]:
            self.ep_info_buffer.append({"r": float(episode["ret"]), "l": int(episode["decisions"]), "t": 0.0})
            self.ep_success_buffer.append(bool(episode["outcome"] == WON))
        record = self.logger.record
        record("sim/decisions_per_s", self.sim.num_envs * self.ranks.size * self.n_steps / seconds)
        record("sim/episodes", len(episodes))
        record("sim/distinct_levels", len(np.unique(episodes["level"])))
        if len(episodes):
            record("sim/wins", int((episodes["outcome"] == WON).sum()))
            for name, value in zip(reward.TERMS, episodes["terms"].mean(axis=0), strict=True):
                record(f"reward/{name}", float(value))
            record("reward/return", float(episodes["ret"].mean()))
        for tag, value in self.sampler.metrics().items():
            record(tag, value)
        counts = torch.bincount(self.rollout_buffer.flat("actions"), minlength=NUM_ACTIONS).cpu().numpy()
        for name, share in zip(ACTION_TAGS, counts / counts.sum(), strict=True):
            record(f"actions/frequency/{name}", share)

    # -----------------------------------------------------------------------------------------------------------------
    # Update

    def train(self) -> None:
        """One update: ``n_epochs`` passes over the rollout in minibatches, fewer if the policy has moved too far."""
        begin, processor = time.perf_counter(), time.process_time()
        self._returns = self.ranks.all_gather(self.rollout_buffer.returns)
        rate, settings = self.ranks.broadcast((self._learning_rate(), self._loss_settings()))
        for group in self.policy.optimizer.param_groups:
            group["lr"] = rate
        passes = self._passes(settings)
        steps: list[Losses[float]] = []
        norms: list[torch.Tensor] = []
        statistics = self._gradient_statistics()
        kl, stopped = 0.0, False
        for index in self._steps(passes):
            numbers = self._finite(
                self._averaged(
                    set_gradients(
                        self.policy,
                        self._pool,
                        partial(self.shown, self.policy),
                        passes.samples,
                        index,
                        settings,
                        self.batch_size,
                        self.further,
                        self.rollout_buffer.segment,
                    )
                )
            )
            kl = numbers.approx_kl
            stopped = self._moved_too_far(numbers, settings)
            if stopped:
                break
            if statistics is not None:
                statistics.add(self.policy)
            norms.append(self._descend())
            steps.append(numbers)
        self.steps, self.norms = steps, norms
        self.updates += 1
        if not settings.critic_only:
            self._steer(kl)
            self.actor_updates += 1
        self._log_steps(steps, norms)
        if statistics is not None:
            for tag, value in statistics.means().items():
                self.logger.record(f"gradients/{tag}", value)
        self._log_update(settings, rate, kl, stopped)
        self._advance_curriculum()
        self._agree()
        seconds = time.perf_counter() - begin
        self.speed["update"] += seconds
        self.seconds += seconds
        self.processor_seconds += time.process_time() - processor
        self.logger.record("sim/update_s", seconds)

    def _averaged(self, numbers: Losses[float]) -> Losses[float]:
        """Losses over all processes; gradients become those over all processes, too."""
        gradients = [parameter.grad for parameter in self.policy.parameters() if parameter.grad is not None]
        return type(numbers)(*self.ranks.all_reduce_mean(gradients, numbers))

    def _agree(self) -> None:
        """RanksError unless all processes have come to the same."""
        facts = {"updates": self.updates, "decisions": self.num_timesteps, "stage": self.sampler.stage}
        if self.ranks.size > 1:  # hashing takes time
            facts |= {"weights": checksum(self.policy.state_dict()), "curriculum": self.sampler.common_digest()}
        self.ranks.check_equal(facts)

    def _advance_curriculum(self) -> None:
        """Shares of levels from now on; those that wait to be played are drawn by them, so none is older than a rollout."""
        begin = time.perf_counter()
        if self.sampler.wants_advantages:
            advantages = self.rollout_buffer.advantages.cpu().numpy()
            self.sampler.update(self.sim, self._decided, advantages, all_gather=self.ranks.all_gather_rows)
        else:
            self.sampler.update(self.sim, all_gather=self.ranks.all_gather_rows)
        self.enter_stage()
        self.logger.record("sim/curriculum_s", time.perf_counter() - begin)

    def _loss_settings(self) -> LossSettings:
        """What the losses weigh at this progress of training."""
        config, progress = self.config, self.progress
        pulled = self.reference is not None and not self.critic_only
        return LossSettings(
            clip_range=config.clip_range_at(progress),
            vf_coef=config.vf_coef,
            ent_coef=self.in_force.ent_coef_at(progress),
            bc_kl_coef=self.hold * config.bc_kl_coef_at(progress - self.held_since) if pulled else 0.0,
            critic_only=self.critic_only,
            return_variance=self._return_variance(),
            self_imitation_coef=config.self_imitation_coef,
            clip_range_vf=config.clip_range_vf_at(progress),
        )

    def _return_variance(self) -> float:
        """What the value loss is divided by, so that neither the rewards' size nor the policy's skill changes its weight.

        Values stay in the units of the rewards, unlike with PopArt (van Hasselt et al. 2016): Adam's steps do not depend
        on the size of a gradient, so only the balance with the actor's in the shared trunk matters.
        """
        spread = float(self._returns.var())
        return spread if self.config.scale_value_loss and spread > 0 else 1.0

    def _passes(self, settings: LossSettings) -> Passes:
        """What this update learns from."""
        buffer, reference, later = self.rollout_buffer, None, None
        if self.reference is not None and settings.bc_kl_coef > 0:
            reference = asked(self.reference, buffer, self._pool, self.batch_size)[0]
        if self.config.returns_from == "current":
            later = Later(self.policy.to_tensors(self.seen), *self._extended)
        samples = samples_of(self.config, buffer, settings, reference)
        return Passes(self.in_force, buffer, self.policy, self._pool, self.batch_size, self.rng, samples, later)

    def _gradient_statistics(self) -> GradientStatistics | None:
        """What is to be known of the gradients of this update; None: nothing."""
        period = self.config.gradient_statistics_freq
        return GradientStatistics() if period and (self.updates + 1) % period == 0 else None

    def _learning_rate(self) -> float:
        rate = self.steered_rate if self.config.desired_kl else self.in_force.learning_rate_at(self.progress)
        return rate if self.critic_only else rate * self._risen

    @property
    def _risen(self) -> float:
        """Share of the learning rate, which rises when a cloned actor begins to learn.

        Adam's first step is as long as its rate, whatever the gradient: at 1e-3 that alone moves a BC policy by 0.08 nats.
        """
        warmup = self.config.learning_rate_warmup_updates if self.reference is not None else 0
        return min(1.0, (self.actor_updates + 1) / (warmup + 1))

    def _steer(self, kl: float) -> None:
        """Set the next update's learning rate, where it is steered; kl: how far this one has moved the policy."""
        desired = self.config.desired_kl_at(self.progress)
        if desired and self._risen == 1:
            self.steered_rate = steered(self.steered_rate, kl, desired)

    def _steps(self, passes: Passes) -> Iterator[torch.Tensor]:
        """Decisions of every step of the optimiser in this update."""
        for number in range(self.n_epochs):
            self._n_updates += 1
            yield from passes.steps(number)

    def _finite(self, numbers: Losses[float]) -> Losses[float]:
        if not all(map(math.isfinite, numbers)):
            told = ", ".join(f"{name} {value:.3g}" for name, value in numbers._asdict().items())
            raise DivergedError(
                f"update {self.updates + 1}: the loss is not finite ({told}); lower --initial-lr, or look for "
                "observations that are not finite"
            )
        return numbers

    def _moved_too_far(self, numbers: Losses[float], settings: LossSettings) -> bool:
        limit = self.config.target_kl
        return limit is not None and numbers.approx_kl > KL_TOLERANCE * limit and not settings.critic_only

    def _descend(self) -> torch.Tensor:
        """One step of the optimiser; returns the gradient's norm before clipping, as a tensor: nobody waits for it here."""
        norms = [torch.nn.utils.clip_grad_norm_(part, self.config.max_grad_norm) for part in self._parts_to_clip()]
        self.policy.optimizer.step()
        return torch.stack(norms).norm()

    def _parts_to_clip(self) -> list[list[torch.nn.Parameter]]:
        """Parameters with gradients, by what is shortened together: all, or actor, critic and shared layers apart."""
        parts: dict[str, list[torch.nn.Parameter]] = {}
        for name, parameter in self.policy.named_parameters():
            if parameter.grad is not None:
                heads = (head for head, marks in HEADS.items() if any(mark in name for mark in marks))
                parts.setdefault(next(heads, "") if self.config.clip_apart else "", []).append(parameter)
        return list(parts.values())

    def _log_steps(self, steps: list[Losses[float]], norms: list[torch.Tensor]) -> None:
        """Means over the steps of an update; nothing where there were none.

        DivergedError for a gradient that is not finite: after the last step, no loss would tell before the next update.
        """
        if steps:
            lengths = torch.stack(norms).tolist()
            if not all(map(math.isfinite, lengths)):
                raise DivergedError(
                    f"update {self.updates}: a gradient is not finite; lower --initial-lr, or look for observations that are "
                    "not finite"
                )
            for name, value in zip(steps[0]._fields, np.mean(steps, axis=0), strict=True):
                self.logger.record(f"train/{name}", float(value))
            self.logger.record("train/grad_norm", float(np.mean(lengths)))

    def _log_update(self, settings: LossSettings, rate: float, kl: float, stopped: bool) -> None:
        """kl: from the policy that played, at the last minibatch."""
        self.logger.record("train/explained_variance", self.explained_variance)
        self.logger.record("train/learning_rate", rate)
        self.logger.record("train/last_kl", kl)
        self.logger.record("train/ent_coef", settings.ent_coef)
        self.logger.record("train/gamma", self.gamma)
        self.logger.record("train/bc_kl_coef", settings.bc_kl_coef)
        self.logger.record("train/clip_range", settings.clip_range)
        if settings.clip_range_vf is not None:
            self.logger.record("train/clip_range_vf", settings.clip_range_vf)
        self.logger.record("train/n_updates", self._n_updates)
        self.logger.record("train/stopped_early", float(stopped))

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "batch_env",
            "sim",
            "sampler",
            "ranks",
            "reference",
            "sampling",
            "_pool",
            "_decided",
            "counts",
            "_extended",
            "_returns",
            "steps",
            "norms",
        ]


def desynchronise(sim: BatchSimulator, rng: np.random.Generator) -> None:
    """Let less than the whole time be left in each environment's present episode, evenly spread; later ones have it all.

    Otherwise all environments begin together, and time-outs come in waves.
    """
    left = sim.bank.time_limit[sim.level]
    frames = rng.integers(0, left) // sim.frame_skip * sim.frame_skip
    sim.state.ninja["frame"][: sim.num_envs] = frames
    sim.observe()
