"""PPO over the batched simulator: Stable-Baselines3's algorithm and logs, with loops that never leave the tensors.

The three steps are plain: ``collect_rollouts`` plays, ``TensorRolloutBuffer`` estimates advantages, ``train`` updates.
Source: Schulman et al. 2017 (PPO), 2016 (GAE); the pull towards the cloned policy after Schmitt et al. 2018 (kickstarting).
"""

import copy
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from hardware import Plan
from nppsim import reward
from nppsim.decision import WON
from nppsim.errors import UserError
from nppsim.observe.statistics import ObservationStatistics
from rl.config import PPOConfig
from rl.policy.policy import NppPolicy, sample_actions
from rl.train.rollout import TensorRolloutBuffer
from rl.train.vec_env import BatchVecEnv

PHASES = ("environment", "inference", "update", "rest")


class DivergedError(UserError, RuntimeError):
    """Training produced numbers that are not finite, or parts of the network that do not learn."""


class BatchPPO(PPO):
    """PPO whose environments, rollouts and updates are arrays of all environments at once.

    env: BatchVecEnv over a BatchSimulator.  config: a settled PPOConfig.  plan: sizes and precision.
    statistics: for the policy's normaliser.  ``anchor_to`` makes it stay close to a cloned policy for a while.
    speed: seconds spent so far in each of PHASES; decisions_played and seconds: since training began.
    Raises DivergedError when an update meets numbers that are not finite.
    """

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
    ):
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
            rollout_buffer_class=TensorRolloutBuffer,
            policy_kwargs={"architecture": architecture, "statistics": statistics, "precision": plan.precision},
            seed=seed,
            device=device,
        )
        if env.sim.gamma != config.gamma:
            raise ValueError(f"the simulator shapes with gamma={env.sim.gamma}, PPO discounts with {config.gamma}")
        self.config = config
        self.sim, self.sampler = env.sim, env.sampler
        self.reference: NppPolicy | None = None
        self.speed = dict.fromkeys(PHASES, 0.0)
        self.updates = 0
        self.decisions_played = 0
        self.seconds = 0.0  # spent in rollouts and updates
        self._rng = np.random.default_rng(seed)
        self._sampling = torch.Generator().manual_seed(seed)
        self._critic = [p for name, p in self.policy.named_parameters() if "value_net" in name]

    def anchor_to(self, cloned: NppPolicy) -> None:
        """Let the critic learn alone for ``critic_warmup_updates``, then pull the actor towards ``cloned``, less and less."""
        self.reference = copy.deepcopy(cloned).requires_grad_(False)

    @property
    def critic_only(self) -> bool:
        """Whether the next update leaves the actor alone."""
        return self.reference is not None and self.updates < self.config.critic_warmup_updates

    @property
    def progress(self) -> float:
        """0 at the start of training, 1 at its end: by decisions or by the time budget, whichever is further on."""
        done = self.num_timesteps / self.config.total_timesteps
        if self.config.time_budget_minutes:
            done = max(done, self.seconds / 60 / self.config.time_budget_minutes)
        return min(done, 1.0)

    @staticmethod
    def _wrap_env(env, verbose: int = 0, monitor_wrapper: bool = True):
        """The environment as it is: the networks read images as the simulator draws them, so nothing is transposed."""
        return env

    def collect_rollouts(self, env, callback: BaseCallback, rollout_buffer, n_rollout_steps: int) -> bool:
        """Play ``n_rollout_steps`` decisions in every environment; False if a callback wants to stop."""
        callback.on_rollout_start()
        buffer, sim, policy, device = rollout_buffer, self.sim, self.policy, self.device
        episodes: list[np.ndarray] = []
        sequence = time.perf_counter()
        for t in range(n_rollout_steps):
            begin = time.perf_counter()
            with torch.no_grad():
                for key, values in buffer.obs.items():
                    values[t].copy_(torch.from_numpy(sim.obs[key]))
                logits, values = policy.logits_and_values({key: store[t] for key, store in buffer.obs.items()})
                log_probs = F.log_softmax(logits, dim=1)
                actions = sample_actions(logits.cpu(), self._sampling)
                buffer.logits[t] = logits
                buffer.values[t] = values
                buffer.actions[t] = actions.to(device)
                buffer.log_probs[t] = log_probs.gather(1, buffer.actions[t, :, None])[:, 0]
            acted = time.perf_counter()
            sim.step(actions.numpy())
            stepped = time.perf_counter()
            self.speed["inference"] += acted - begin
            self.speed["environment"] += stepped - acted
            buffer.rewards[t].copy_(torch.from_numpy(sim.rewards))
            buffer.episode_ends[t].copy_(torch.from_numpy(sim.terminated | sim.truncated))
            if sim.finished.size:
                cut_off = np.flatnonzero(sim.truncated)
                if cut_off.size:
                    rest = self._values({key: sim.final_obs[key][cut_off] for key in buffer.obs})
                    buffer.rewards[t, torch.from_numpy(cut_off).to(device)] += self.gamma * rest
                ended = sim.episode[sim.finished]
                episodes.append(ended)
                self.sampler.record(ended["level"], ended["outcome"] == WON)
                sim.next_level[sim.finished] = self.sampler.draw(sim.finished.size)
            self.num_timesteps += sim.num_envs
            if not callback.on_step():
                return False
        buffer.compute_returns_and_advantages(self._values(sim.obs))
        total = time.perf_counter() - sequence
        self.seconds += total
        self.decisions_played += len(buffer)
        self._log_rollout(np.concatenate(episodes) if episodes else np.empty(0, sim.episode.dtype), total)
        callback.on_rollout_end()
        return True

    @torch.no_grad()
    def _values(self, obs) -> torch.Tensor:
        return self.policy.logits_and_values(self.policy.to_tensors(obs))[1]

    def _log_rollout(self, episodes: np.ndarray, seconds: float) -> None:
        for episode in episodes[-self.ep_info_buffer.maxlen :]:
            self.ep_info_buffer.append({"r": float(episode["ret"]), "l": int(episode["decisions"]), "t": 0.0})
            self.ep_success_buffer.append(bool(episode["outcome"] == WON))
        record = self.logger.record
        record("sim/decisions_per_s", self.sim.num_envs * self.n_steps / seconds)
        record("sim/episodes", len(episodes))
        record("sim/distinct_levels", len(np.unique(episodes["level"])))
        if len(episodes):
            record("sim/wins", int((episodes["outcome"] == WON).sum()))
            for name, value in zip(reward.TERMS, episodes["terms"].mean(axis=0), strict=True):
                record(f"reward/{name}", float(value))
            record("reward/return", float(episodes["ret"].mean()))
        for tag, value in self.sampler.metrics().items():
            record(tag, value)
        counts = torch.bincount(self.rollout_buffer.flat("actions"), minlength=6).cpu().numpy()
        for name, share in zip(("none", "left", "right", "jump", "jump_left", "jump_right"), counts, strict=True):
            record(f"actions/frequency/{name}", share / counts.sum())

    def train(self) -> None:
        """One update: ``n_epochs`` passes over the rollout in minibatches."""
        begin = time.perf_counter()
        buffer, config, policy = self.rollout_buffer, self.config, self.policy
        progress = self.progress
        rate, ent_coef, kl_coef = (
            config.learning_rate_at(progress), config.ent_coef_at(progress), config.bc_kl_coef_at(progress)
        )  # fmt: skip
        for group in policy.optimizer.param_groups:
            group["lr"] = rate
        critic_only = self.critic_only
        advantages = buffer.flat("advantages")
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        actions, old_log_probs, returns = (buffer.flat(name) for name in ("actions", "log_probs", "returns"))
        anchor = self._reference_log_probs() if self.reference is not None and kl_coef > 0 and not critic_only else None
        sums: dict[str, float] = {}
        steps, stopped = 0, False
        for _ in range(self.n_epochs):
            for index in buffer.minibatches(self.batch_size, self._rng):
                logits, values = policy.logits_and_values(buffer.observations(index))
                log_probs_all = F.log_softmax(logits, dim=1)
                probs = log_probs_all.exp()
                log_probs = log_probs_all.gather(1, actions[index][:, None])[:, 0]
                log_ratio = log_probs - old_log_probs[index]
                ratio = log_ratio.exp()
                advantage = advantages[index]
                clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
                value_loss = F.mse_loss(values, returns[index])
                entropy = -(probs * log_probs_all).sum(dim=1).mean()
                loss = policy_loss - ent_coef * entropy + config.vf_coef * value_loss
                bc_kl = torch.zeros(())
                if anchor is not None:
                    pulled = anchor[index]
                    bc_kl = (pulled.exp() * (pulled - log_probs_all)).sum(dim=1).mean()
                    loss = loss + kl_coef * bc_kl
                if critic_only:
                    loss = config.vf_coef * value_loss
                with torch.no_grad():
                    approx_kl = (ratio - 1 - log_ratio).mean()
                    clip_fraction = ((ratio - 1).abs() > config.clip_range).float().mean()
                measured = torch.stack(
                    [policy_loss, value_loss, -entropy, loss, approx_kl, clip_fraction, bc_kl.to(loss.device)]
                ).tolist()
                if not np.isfinite(measured).all():
                    raise DivergedError(
                        f"update {self.updates + 1}: the loss is not finite ({measured}); lower --initial-lr, "
                        "or look for observations that are not finite"
                    )
                if config.target_kl and measured[4] > 1.5 * config.target_kl and not critic_only:
                    stopped = True
                    break
                policy.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                if critic_only:  # the trunk is shared: the cloned actor must not move while the critic learns
                    keep = {id(p) for p in self._critic}
                    for parameter in policy.parameters():
                        if id(parameter) not in keep:
                            parameter.grad = None
                norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
                policy.optimizer.step()
                steps += 1
                names = ("policy_gradient_loss", "value_loss", "entropy_loss", "loss", "approx_kl", "clip_fraction")
                for name, value in zip((*names, "bc_kl", "grad_norm"), (*measured, float(norm)), strict=True):
                    sums[name] = sums.get(name, 0.0) + value
            if stopped:
                break
        self.updates += 1
        self._n_updates += self.n_epochs
        for name, value in sums.items():
            self.logger.record(f"train/{name}", value / max(steps, 1))
        spread = returns.var()
        explained = float(1 - (returns - buffer.flat("values")).var() / spread) if spread > 0 else float("nan")
        self.logger.record("train/explained_variance", explained)
        self.logger.record("train/learning_rate", rate)
        self.logger.record("train/ent_coef", ent_coef)
        self.logger.record("train/bc_kl_coef", kl_coef)
        self.logger.record("train/clip_range", config.clip_range)
        self.logger.record("train/n_updates", self._n_updates)
        self.logger.record("train/stopped_early", float(stopped))
        seconds = time.perf_counter() - begin
        self.speed["update"] += seconds
        self.seconds += seconds
        self.logger.record("sim/update_s", seconds)

    @torch.no_grad()
    def _reference_log_probs(self) -> torch.Tensor:
        """float32[T * N, 6]: the cloned policy's log-probabilities of the rollout's observations."""
        buffer = self.rollout_buffer
        parts = []
        for index in torch.arange(len(buffer), device=self.device).split(self.batch_size):
            parts.append(F.log_softmax(self.reference.logits_and_values(buffer.observations(index))[0], dim=1))
        return torch.cat(parts)

    def save_plain(self, path: str | Path) -> None:
        """Write a zip that ``stable_baselines3.PPO.load`` reads and can go on training with its own buffers."""
        ours = ("config", "speed", "updates", "decisions_played", "seconds", "_rng")
        self.save(path, exclude=[*ours, "rollout_buffer_class", "rollout_buffer_kwargs"])

    def training_state(self) -> dict:
        """Everything beside the weights that training needs to go on, as tensors, numbers, texts and dictionaries."""
        return {
            "optimizer": self.policy.optimizer.state_dict(),
            "num_timesteps": self.num_timesteps,
            "updates": self.updates,
            "seconds": self.seconds,
            "decisions_played": self.decisions_played,
            "speed": dict(self.speed),
            "curriculum": json.dumps(self.sampler.state_dict()),
            "shuffling": json.dumps(self._rng.bit_generator.state),
            "sampling": self._sampling.get_state(),
            "reference": None if self.reference is None else self.reference.state_dict(),
        }

    def load_training_state(self, policy_state: dict, training: dict) -> None:
        """Continue from a checkpoint's weights and ``training_state``; environments start new episodes."""
        self.policy.load_state_dict(policy_state)
        self.policy.optimizer.load_state_dict(training["optimizer"])
        for name in ("num_timesteps", "updates", "seconds", "decisions_played"):
            setattr(self, name, training[name])
        self.speed.update(training["speed"])
        self.sampler.load_state_dict(json.loads(training["curriculum"]))
        self._rng.bit_generator.state = json.loads(training["shuffling"])
        self._sampling.set_state(training["sampling"])
        if training["reference"] is not None:
            self.reference = copy.deepcopy(self.policy).requires_grad_(False)
            self.reference.load_state_dict(training["reference"])

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "sim", "sampler", "reference", "_critic", "_sampling"]
