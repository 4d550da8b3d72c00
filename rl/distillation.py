"""Distillation of a teacher policy into a student, on the states that the student visits.

    distiller = Distiller(student, teacher, env, settings, rollout_length=64, pool=ThreadPool(2), seed=0)
    while distiller.progress < 1:
        metrics = distiller.update()

The student acts, so training covers the states that its own mistakes lead to (DAgger, Ross et al. 2011).  The loss is the
KL divergence from the teacher's action distribution (policy distillation, Rusu et al. 2016).  The teacher may observe more
than the student, e.g. simulator look-ahead (learning by cheating, Chen et al. 2019).  Every second pass over a rollout is
over the mirror images of its decisions.  The student's value function learns the returns of the same rollouts, for PPO.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces

from bc.thread_pool import ThreadPool, summed_gradients
from nppsim.actions import MIRRORED_ACTION, NUM_ACTIONS
from nppsim.errors import UserError
from nppsim.gym.spaces import observation_space
from nppsim.physics.outcomes import WON
from rl.config.distillation import MAX_GRAD_NORM, DistillationConfig
from rl.config.ppo import PPOConfig
from rl.policy.mirror import mirror_image
from rl.policy.policy import NppPolicy, sample_actions
from rl.ppo.losses import kl_divergence
from rl.ppo.ppo import compute_gae
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.ppo.vec_env import BatchVecEnv
from rl.seeds import spawn_seeds

WARM_UP = 0.1  # share of the distillation in which the learning rate rises; then it falls
LOWEST_RATE = 0.1  # first and last learning rate, as a share of the highest one
VF_COEF = 0.05  # weight of the value loss / variance of the returns; small, as the policy shares its encoder
_REMEDY = "look at both with scripts/doctor.py --checkpoint, or lower --teacher-learning-rate"


class DistillationError(UserError, RuntimeError):
    """A teacher that cannot be used, or a distillation that diverged."""


class Distiller:
    """Distillation of one student.

    ``state`` and ``load`` resume a distillation between two updates; on a CPU, the result is the same bit for bit.
    teacher: policy without frame stacking; it observes the newest frame of stacked observations.
    env: environments with the observations of both policies.
    rollout_length: number of decisions per environment and update.
    decisions, updates: number of decisions and updates so far.
    """

    def __init__(
        self,
        student: NppPolicy,
        teacher: NppPolicy,
        env: BatchVecEnv,
        settings: DistillationConfig,
        *,
        rollout_length: int,
        pool: ThreadPool,
        seed: int,
    ):
        self.student, self.teacher, self.env, self.settings, self.pool = student, teacher, env, settings, pool
        self.decisions = self.updates = 0
        order_seed, action_seed = spawn_seeds(seed, 2)
        self.rng, self.sampling = np.random.default_rng(order_seed), torch.Generator().manual_seed(action_seed)
        self._seconds_before, self._began = 0.0, time.monotonic()
        self._mirrors = "graph_state" not in student.observations  # graphs have no mirror images
        self._trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.Adam(self._trained, lr=settings.learning_rate, fused=True)
        self._buffer = RolloutBuffer(
            rollout_length,
            observation_space(student.observations, student.stacking),
            spaces.Discrete(NUM_ACTIONS),
            device=student.device,
            n_envs=env.num_envs,
            stacking=student.stacking,
        )
        env.reset()

    @property
    def name(self) -> str:
        """Name of the next update, for messages."""
        return f"distillation update {self.updates + 1}"

    @property
    def seconds(self) -> float:
        """Duration of training without interruptions."""
        return self._seconds_before + time.monotonic() - self._began

    @property
    def progress(self) -> float:
        """Progress, 0 to 1: by decisions or by minutes, whichever is larger."""
        done = self.decisions / self.settings.decisions
        if self.settings.minutes is not None:
            done = max(done, self.seconds / (60 * self.settings.minutes))
        return min(done, 1.0)

    def update(self) -> dict[str, float]:
        """Collect a rollout and train on it; return metrics.

        divergence: KL divergence KL(teacher || student) during the rollout, in nats.
        agreement: share of decisions in which both policies have the same deterministic action.
        decisions_per_s: speed of rollout and gradient steps together.
        success: share of won episodes among the student's episodes that ended; absent if none did.
        Raises DistillationError if the loss or a gradient is not finite.
        """
        begin, progress = time.perf_counter(), self.progress
        rate = self.settings.learning_rate * max(LOWEST_RATE, min(progress / WARM_UP, 1 - progress))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        episodes, divergence, agreement = self._collect_rollout()
        self._learn()
        self.decisions += len(self._buffer)
        self.updates += 1
        speed = len(self._buffer) / (time.perf_counter() - begin)
        metrics = {"divergence": divergence, "agreement": agreement, "decisions_per_s": speed}
        return metrics | ({"success": float((episodes["outcome"] == WON).mean())} if len(episodes) else {})

    def state(self) -> dict[str, Any]:
        """Return the state for ``load``, without the weights of the student."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "decisions": self.decisions,
            "updates": self.updates,
            "environments": self.env.state(),
            "curriculum": self.env.sampler.state_dict(),
            "shuffling": self.rng.bit_generator.state,
            "sampling": self.sampling.get_state(),
            "seconds": self.seconds,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a ``state``; the caller restores the weights of the student."""
        self._optimizer.load_state_dict(state["optimizer"])
        self.decisions, self.updates = state["decisions"], state["updates"]
        self.env.load(state["environments"])
        self.env.sampler.load_state_dict(state["curriculum"])
        self.rng.bit_generator.state = state["shuffling"]
        self.sampling.set_state(state["sampling"])
        self._seconds_before, self._began = state["seconds"], time.monotonic()

    def _collect_rollout(self) -> tuple[np.ndarray, float, float]:
        """Fill the buffer; return finished episodes, divergence and agreement."""
        sim, sampler, buffer = self.env.sim, self.env.sampler, self._buffer
        self.student.eval()
        self.student.clear_graph_cache()
        episodes, divergence, agreed = [np.empty(0, sim.episode.dtype)], 0.0, 0.0
        buffer.begin(sim.obs)
        for t in range(buffer.shape[0]):
            if t:
                buffer.store_ages(t)
            logits = self._decide(t)
            targets = buffer.log_probs[t].cpu()
            divergence += float(kl_divergence(targets, F.log_softmax(logits, dim=1)).mean())
            agreed += float((logits.argmax(dim=1) == targets.argmax(dim=1)).float().mean())
            actions = sample_actions(logits, self.sampling).numpy()
            buffer.actions[t] = torch.from_numpy(actions).to(buffer.device)
            sampler.watch(sim, actions)
            sim.step(actions)
            buffer.rewards[t].copy_(torch.from_numpy(sim.rewards))
            buffer.episode_ends[t].copy_(torch.from_numpy(sim.terminated | sim.truncated))
            if sim.truncated.any():
                envs = np.flatnonzero(sim.truncated)
                buffer.rewards[t, envs] += sim.gamma * self._values(sim.final_obs, envs)
            if sim.finished.size:
                episodes.append(sampler.next_episodes(sim))
        sampler.update(sim)
        last = self._values(sim.obs, np.arange(sim.num_envs))
        returns = compute_gae(
            buffer.rewards, buffer.values, buffer.episode_ends, last, sim.gamma, PPOConfig.gae_lambda
        )[1]
        buffer.returns.copy_(returns)
        if not math.isfinite(divergence):
            raise DistillationError(f"{self.name}: the divergence from the teacher is {divergence}; {_REMEDY}")
        return np.concatenate(episodes), divergence / buffer.shape[0], agreed / buffer.shape[0]

    @torch.no_grad()
    def _values(self, observations: Mapping[str, np.ndarray], envs: np.ndarray) -> torch.Tensor:
        """Return the student's values float32[n] in the environments ``envs``, int64[n]."""
        inputs = self.student.to_tensors({key: observations[key][envs] for key in self.student.observations})
        return self.student.logits_and_values(inputs)[1]

    def _decide(self, t: int) -> torch.Tensor:
        """Return student logits float32[N, 6]; store observations and teacher log-probabilities in row t."""
        buffer, sim, seen = self._buffer, self.env.sim, self.env.sim.obs
        self.student.cache_graphs(self.student.to_tensors({key: seen[key] for key in self.student.observations}))

        @torch.no_grad()
        def part(rows: slice) -> torch.Tensor:
            logits, buffer.values[t, rows] = self.student.logits_and_values(buffer.store_observations(t, rows, seen))
            buffer.log_probs[t, rows] = self.teacher.log_probs(sim.latest, rows)
            return logits.float().cpu()

        return torch.cat(self.pool.map_rows(self.env.num_envs, part))

    def _learn(self) -> None:
        """Minimise the divergence from the stored outputs of the teacher, and the error of the values."""
        buffer, targets, returns = self._buffer, self._buffer.flat("log_probs"), self._buffer.flat("returns")
        value_weight = VF_COEF / max(float(returns.var()), 1e-8)
        self.student.train()
        size = min(self.settings.minibatch_size, len(buffer))
        for epoch in range(self.settings.epochs):
            mirrored = self._mirrors and epoch % 2 == 1
            for index in buffer.minibatches(size, self.rng):

                def loss(
                    rows: slice, samples: torch.Tensor = index, mirrored: bool = mirrored
                ) -> tuple[torch.Tensor, torch.Tensor]:
                    observations, target = buffer.observations(samples[rows]), targets[samples[rows]]
                    if mirrored:
                        observations = {key: mirror_image(key, values) for key, values in observations.items()}
                        target = target[:, MIRRORED_ACTION.tolist()]
                    logits, values = self.student.logits_and_values(observations)
                    divergence = kl_divergence(target, F.log_softmax(logits.float(), dim=1)).mean()
                    value_loss = (values - returns[samples[rows]]).square().mean()
                    return divergence + value_weight * value_loss, divergence.detach()

                divergence, gradients = summed_gradients(self.pool, len(index), loss, self._trained)
                self._step(float(divergence), gradients)

    def _step(self, divergence: float, gradients: list[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            parameter.grad = gradient
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained, MAX_GRAD_NORM))
        if not math.isfinite(divergence) or not math.isfinite(norm):
            raise DistillationError(
                f"{self.name}: the divergence from the teacher is {divergence}, the norm of the gradients {norm}; {_REMEDY}"
            )
        self._optimizer.step()
