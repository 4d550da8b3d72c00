"""Hierarchical PPO: a high-level policy chooses subtasks, and a low-level policy chooses actions for the subtask.

    ppo = HierarchicalPPO(env, "vision_free+subtasks50", config, plan, statistics=statistics)

The subtask is part of the observation of the low level.  After each decision, the high level replaces finished subtasks.  It
learns from each choice, with the discounted rewards during the subtask.  At the end of a rollout, the critic of the low level
estimates the value of an unfinished subtask.  Both levels have the same rewards and discount.

With ``from_stage``, training is plain PPO until the curriculum reaches that stage.  The weights of subtasks are zero until
then, so the policy does not change abruptly.
"""

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3.common.callbacks import BaseCallback

from nppsim.errors import ConfigError
from rl.curriculum import CurriculumManager
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, sample_actions
from rl.policy.subtasks import EXIT, SUBTASK, SUBTASKS, ActiveSubtasks
from rl.ppo.losses import Losses, LossWeights, Samples, kl_divergence
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer

STATE = "hierarchy"  # key in a checkpoint's training state


# The losses of the low level, then policy gradient loss, value loss, entropy loss and KL divergence of the high level.  Those
# of the high level are sums over the choices, divided by the number of decisions.
_FIELDS = (
    *Losses._fields,
    "high_level_gradient_loss",
    "high_level_value_loss",
    "high_level_entropy_loss",
    "high_level_kl",
)
HierarchicalLosses = cast(Any, namedtuple("HierarchicalLosses", _FIELDS))


@dataclass(frozen=True, kw_only=True)
class HierarchicalSamples(Samples):
    """B decisions, and the choices of subtasks before some of them.

    chooses: bool[B], True if a subtask was chosen before the decision; the other fields are valid only for these decisions.
    high_level_log_probs: float32[B, 5], log-probabilities of all subtasks under the rollout policy.
    high_level_advantages, high_level_returns: float32[B]; the advantages are normalised over the choices.
    """

    chooses: torch.Tensor
    high_level_log_probs: torch.Tensor
    high_level_advantages: torch.Tensor
    high_level_returns: torch.Tensor


def add_high_level_losses(
    losses: Losses[torch.Tensor],
    policy: NppPolicy,
    observations: Mapping[str, torch.Tensor],
    samples: HierarchicalSamples,
    weights: LossWeights,
) -> Any:
    """Return the HierarchicalLosses of a minibatch.  losses: losses of the low level."""
    rows = samples.chooses.nonzero()[:, 0]
    if not len(rows):
        zero = torch.zeros((), device=samples.chooses.device)
        return HierarchicalLosses(*losses, *[zero] * 4)
    logits, values = policy.choose_subtasks({key: tensor[rows] for key, tensor in observations.items()})
    choices, chosen = samples.take(rows), observations[SUBTASK][rows, :1]
    importance = 1.0 if choices.weights is None else choices.weights
    log_probs = F.log_softmax(logits, dim=1)
    ratio = (log_probs - choices.high_level_log_probs).gather(1, chosen)[:, 0].exp()
    clipped = ratio.clamp(1 - weights.clip_range, 1 + weights.clip_range)
    surrogate = torch.min(choices.high_level_advantages * ratio, choices.high_level_advantages * clipped)
    count = len(samples.chooses)  # all decisions: the weight of a choice must not depend on the number of choices
    policy_loss = -(importance * surrogate).sum() / count
    value_loss = (importance * (values - choices.high_level_returns).square()).sum() / count
    entropy_loss = (importance * (log_probs.exp() * log_probs).sum(dim=1)).sum() / count
    with torch.no_grad():
        kl = (importance * kl_divergence(choices.high_level_log_probs, log_probs)).sum() / count
    added = weights.vf_coef / weights.return_variance * value_loss
    if not weights.critic_only:
        added = added + policy_loss + weights.ent_coef * entropy_loss
    total = losses._replace(loss=losses.loss + added)
    return HierarchicalLosses(*total, policy_loss, value_loss, entropy_loss, kl)


def normalized_choices(advantages: torch.Tensor, chooses: torch.Tensor) -> torch.Tensor:
    """Normalise advantages over the choices; return zeros if there are fewer than two choices."""
    chosen = advantages[chooses]
    if len(chosen) < 2:
        return torch.zeros_like(advantages)
    return torch.where(chooses, (advantages - chosen.mean()) / (chosen.std() + 1e-8), 0.0)


class HierarchicalBuffer(RolloutBuffer):
    """A rollout with the active subtasks and the choices of subtasks.

    obs[SUBTASK]: int64[T, N, 2], the active subtask and the number of decisions since it was chosen, before the decision.
    chooses: bool[T, N], True if the subtask was chosen immediately before the decision.
    high_level_log_probs: float32[T, N, 5], log-probabilities of all subtasks; 0 without a choice.
    high_level_values, high_level_advantages, high_level_returns: float32[T, N]; 0 without a choice.
    completed: bool[T, N], True if the decision completed its subtask.
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        self.obs[SUBTASK] = torch.zeros((*self.shape, 2), dtype=torch.int64, device=self.device)
        self.chooses, self.completed = torch.zeros((2, *self.shape), dtype=torch.bool, device=self.device)
        self.high_level_log_probs = torch.zeros((*self.shape, len(SUBTASKS)), device=self.device)
        self.high_level_values, self.high_level_advantages, self.high_level_returns = torch.zeros(
            (3, *self.shape), device=self.device
        )


class HierarchicalPPO(PPO):
    """PPO with subtasks.  Other arguments are those of PPO.

    architecture: name of an architecture with subtasks.
    from_stage: stage of the curriculum at which subtasks begin; None: immediately.
    high_level_active: True after subtasks have begun.
    active_subtasks: the active subtasks.
    Raises ConfigError for an unknown stage.
    """

    rollout_buffer: HierarchicalBuffer
    buffer_class = HierarchicalBuffer
    losses_type = HierarchicalLosses

    def __init__(self, env: Any, architecture: str, *arguments: Any, from_stage: str | None = None, **keywords: Any):
        check_stage(from_stage, env.sampler)
        super().__init__(env, architecture, *arguments, **keywords)
        self.from_stage = from_stage
        self.high_level_active = False
        count = self.sim.num_envs
        self.active_subtasks = ActiveSubtasks(count, get_architecture(architecture).subtasks)
        self._chosen = np.zeros(count, bool)  # True if a subtask was chosen before the next decision
        self._log_probs = torch.zeros(count, len(SUBTASKS))  # log-probabilities of the subtasks at the latest choice
        self._high_level_values = torch.zeros(count)

    # Rollout

    @property
    def observations(self) -> Mapping[str, np.ndarray]:
        return {**self.sim.obs, SUBTASK: self.active_subtasks.active}

    def final_observations(self, final_obs: Mapping[str, np.ndarray], t: int) -> Mapping[str, np.ndarray]:
        """Add the subtask of decision t, whose age has grown by one decision."""
        subtask = self.rollout_buffer.obs[SUBTASK][t].cpu().numpy().copy()
        subtask[:, 1] += subtask[:, 0] >= 0
        return {**final_obs, SUBTASK: subtask}

    def collect_rollouts(self, callback: BaseCallback) -> bool:
        if not self.high_level_active and self._stage_is_reached():
            self.high_level_active = True
            self._choose(np.arange(self.sim.num_envs))
        return super().collect_rollouts(callback)

    def _stage_is_reached(self) -> bool:
        stages = self.sampler.stages
        return self.from_stage is None or stages.index(self.sampler.stage) >= stages.index(self.from_stage)

    @torch.no_grad()
    def _choose(self, envs: np.ndarray) -> None:
        """Let the high level sample new subtasks for the environments ``envs``, int64[k]."""
        self._chosen[envs] = True
        if not len(envs):
            return
        obs = {key: values[envs] for key, values in self.sim.obs.items()}
        logits, values = self.policy.choose_subtasks(self.policy.to_tensors(obs))
        logits, rows = logits.cpu(), torch.from_numpy(envs)
        self._log_probs[rows], self._high_level_values[rows] = F.log_softmax(logits, dim=1), values.cpu()
        self.active_subtasks.start(envs, sample_actions(logits, self.action_rng).numpy(), obs)

    def _act(self, t: int) -> np.ndarray:
        buffer, chosen = self.rollout_buffer, torch.from_numpy(self._chosen)
        buffer.chooses[t] = chosen.to(self.device)
        buffer.high_level_log_probs[t] = (self._log_probs * chosen[:, None]).to(self.device)
        buffer.high_level_values[t] = (self._high_level_values * chosen).to(self.device)
        return super()._act(t)

    def after_decision(self, t: int) -> None:
        """Let the high level replace finished subtasks."""
        if not self.high_level_active:
            return
        ended = self.sim.terminated | self.sim.truncated
        won = self.rollout_buffer.wins[t].cpu().numpy() & (self.active_subtasks.active[:, 0] == EXIT)
        over, completed = self.active_subtasks.step(self.sim.obs, ended)
        self.rollout_buffer.completed[t] = torch.from_numpy(completed | won).to(self.device)
        self._chosen[:] = False
        self._choose(np.flatnonzero(over))

    def estimate_advantages(self) -> None:
        super().estimate_advantages()
        buffer = self.rollout_buffer
        chosen = torch.from_numpy(self._chosen)
        values = self.predict_values(self.observations)
        last = torch.where(chosen.to(self.device), self._high_level_values.to(self.device), values)
        buffer.high_level_advantages, buffer.high_level_returns = compute_smdp_gae(
            buffer.rewards,
            buffer.high_level_values,
            buffer.chooses,
            buffer.episode_ends,
            last,
            self.gamma,
            self.gae_lambda,
        )

    def record_rollout(self, seconds: float) -> None:
        super().record_rollout(seconds)
        self.record(hierarchy_metrics(self.rollout_buffer, self._chosen))

    # Update

    def samples(self, weights: LossWeights) -> Samples:
        buffer = self.rollout_buffer
        chooses = buffer.flat("chooses")
        return HierarchicalSamples(
            **vars(super().samples(weights)),
            chooses=chooses,
            high_level_log_probs=buffer.flat("high_level_log_probs"),
            high_level_advantages=normalized_choices(buffer.flat("high_level_advantages"), chooses),
            high_level_returns=buffer.flat("high_level_returns"),
        )

    def minibatch_losses(
        self, observations: Mapping[str, torch.Tensor], samples: Samples, weights: LossWeights
    ) -> Losses[torch.Tensor]:
        low_level = super().minibatch_losses(observations, samples, weights)
        assert isinstance(samples, HierarchicalSamples)
        return add_high_level_losses(low_level, self.policy, observations, samples, weights)

    # Checkpoints

    def extra_state(self) -> dict[str, Any]:
        return {
            STATE: {
                "high_level_active": self.high_level_active,
                "active_subtasks": self.active_subtasks.state(),
                "chosen": self._chosen.copy(),
                "log_probs": self._log_probs.clone(),
                "values": self._high_level_values.clone(),
            }
        }

    def load_extra_state(self, training: Mapping[str, Any]) -> None:
        state = training[STATE]
        self.high_level_active = bool(state["high_level_active"])
        self.active_subtasks.load(state["active_subtasks"])
        self._chosen[:] = state["chosen"]
        self._log_probs.copy_(state["log_probs"])
        self._high_level_values.copy_(state["values"])


def check_stage(from_stage: str | None, sampler: CurriculumManager) -> None:
    """Raise ConfigError if the curriculum has no stage of the name at which subtasks begin."""
    if from_stage is not None and from_stage not in sampler.stages:
        advice = f"the training dataset has no such levels, only {', '.join(sampler.stages)}"
        raise ConfigError(advice, "--hierarchical-from-stage", from_stage)


def hierarchy_metrics(buffer: HierarchicalBuffer, chosen: np.ndarray) -> dict[str, float]:
    """Return metrics of the high level in a rollout by tag; empty without subtasks.

    chosen: bool[N], True if a subtask was chosen after the last decision.
    The tags are share/SUBTASK, the subtask's share of the decisions; decisions/SUBTASK, its mean number of decisions;
    completed/SUBTASK, the share of its choices that were completed; and choices_per_episode, choices per finished
    episode.  The mean number of decisions and the completed share refer to subtasks that ended in the rollout.  With
    fewer than 3 choices per episode, the high level has little influence.
    """
    stored, ends = buffer.obs[SUBTASK].cpu().numpy(), buffer.episode_ends.cpu().numpy()
    subtask, age = stored[..., 0], stored[..., 1]
    if (subtask < 0).any():
        return {}
    over = np.vstack([buffer.chooses.cpu().numpy()[1:], chosen[None]])
    completed = buffer.completed.cpu().numpy()
    metrics: dict[str, float] = {}
    for number, name in enumerate(SUBTASKS):
        active = subtask == number
        metrics[f"hierarchy/share/{name}"] = float(active.mean())
        if (active & over).any():
            metrics[f"hierarchy/decisions/{name}"] = float(age[active & over].mean()) + 1
            metrics[f"hierarchy/completed/{name}"] = float(completed[active & over].mean())
    if ends.any():
        metrics["hierarchy/choices_per_episode"] = float(over.sum() / ends.sum())
    return metrics


def compute_smdp_gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    chooses: torch.Tensor,
    episode_ends: torch.Tensor,
    last_values: torch.Tensor,
    gamma: float,
    gae_lambda: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute GAE of a semi-Markov decision process.

    rewards: float32[T, N], reward of each decision.
    values: float32[T, N], value before each choice; not used without a choice.
    chooses: bool[T, N], True if a choice was made before the decision, as before the first decision of each episode.
    episode_ends: bool[T, N], True for the last decision of an episode.
    last_values: float32[N], value after the last decision: of the choice made there, or of the unfinished choice.
    Returns (advantages, returns) of the choices, float32[T, N] both; 0 without a choice.

    A choice that lasts d decisions has the reward R = sum over i < d of gamma^i r_i.  With the value V' and the advantage A'
    of the next choice, delta = R + gamma^d V' - V and A = delta + gamma^d lambda A'.  After the end of an episode, V' and A'
    are 0.
    """
    advantages, returns = torch.zeros_like(rewards), torch.zeros_like(rewards)
    earned, discount = torch.zeros_like(last_values), torch.ones_like(last_values)  # reward R and factor gamma^d
    following, trace = last_values, torch.zeros_like(last_values)  # value and advantage of the next choice
    for t in reversed(range(len(rewards))):
        continues = (~episode_ends[t]).float()
        earned = rewards[t] + gamma * continues * earned
        discount = gamma * continues * discount
        advantage = earned + discount * following - values[t] + gae_lambda * discount * trace
        chosen = chooses[t]
        advantages[t] = torch.where(chosen, advantage, 0.0)
        returns[t] = torch.where(chosen, advantage + values[t], 0.0)
        following, trace = torch.where(chosen, values[t], following), torch.where(chosen, advantage, trace)
        earned, discount = torch.where(chosen, 0.0, earned), torch.where(chosen, 1.0, discount)
    return advantages, returns
