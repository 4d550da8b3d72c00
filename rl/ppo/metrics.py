"""Metrics that PPO logs: Stable-Baselines3's tags, and ``sim/``, ``reward/``, ``actions/`` of this simulator."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from stable_baselines3.common.utils import safe_mean

from nppsim import reward
from nppsim.actions import ACTION_TAGS, NUM_ACTIONS
from nppsim.outcomes import WON
from rl.ppo.losses import NOT_FINITE, DivergedError, LossWeights

EPISODE_WINDOW = 100  # episodes in the means of ``rollout/``

if TYPE_CHECKING:
    from rl.ppo.ppo import PPO


def record_rollout(ppo: "PPO", seconds: float) -> None:
    """Record figures of the latest rollout and of its counted episodes."""
    episodes, record = ppo.counted_episodes, ppo.logger.record
    for episode in episodes[-EPISODE_WINDOW:]:
        ppo.episode_returns.append(float(episode["ret"]))
        ppo.episode_lengths.append(int(episode["decisions"]))
        ppo.episode_wins.append(bool(episode["outcome"] == WON))
    record("sim/decisions_per_s", ppo.sim.num_envs * ppo.ranks.size * ppo.n_steps / seconds)
    record("sim/episodes", len(episodes))
    record("sim/distinct_levels", len(np.unique(episodes["level"])))
    if len(episodes):
        record("sim/wins", int((episodes["outcome"] == WON).sum()))
        for name, value in zip(reward.TERMS, episodes["terms"].mean(axis=0), strict=True):
            record(f"reward/{name}", float(value))
        record("reward/return", float(episodes["ret"].mean()))
    for tag, value in ppo.sampler.metrics().items():
        record(tag, value)
    counts = torch.bincount(ppo.rollout_buffer.flat("actions"), minlength=NUM_ACTIONS).cpu().numpy()
    for name, share in zip(ACTION_TAGS, counts / counts.sum(), strict=True):
        record(f"actions/frequency/{name}", share)


def record_update(ppo: "PPO", weights: LossWeights, norms: list[torch.Tensor], **values: float) -> None:
    """Record mean losses of the latest update, its coefficients and further values.

    norms: of the gradients of each step before clipping.  DivergedError if one is not finite.
    """
    record = ppo.logger.record
    if ppo.losses:
        lengths = torch.stack(norms).tolist()
        if not all(map(math.isfinite, lengths)):
            raise DivergedError(f"update {ppo.updates}: a gradient is not finite; {NOT_FINITE}")
        for name, value in zip(ppo.losses[0]._fields, np.mean(ppo.losses, axis=0), strict=True):
            record(f"train/{name}", float(value))
        record("train/grad_norm", float(np.mean(lengths)))
    for name in ("ent_coef", "bc_kl_coef", "clip_range", "clip_range_vf"):
        if (coefficient := getattr(weights, name)) is not None:
            record(f"train/{name}", coefficient)
    for name, value in values.items():
        record(f"train/{name}", value)
    record("train/explained_variance", ppo.explained_variance)
    record("train/gamma", ppo.gamma)
    record("train/n_updates", ppo.n_passes)


def dump(ppo: "PPO") -> None:
    """Write everything recorded since the last call, with means over the latest episodes and the speed of training."""
    record, elapsed = ppo.logger.record, max(ppo.elapsed_s, 1e-9)
    record("time/iterations", ppo.updates + 1, exclude="tensorboard")
    if ppo.episode_returns:
        record("rollout/ep_rew_mean", safe_mean(ppo.episode_returns))
        record("rollout/ep_len_mean", safe_mean(ppo.episode_lengths))
        record("rollout/success_rate", safe_mean(ppo.episode_wins))
    record("time/fps", int(ppo.num_timesteps / elapsed))
    record("time/time_elapsed", int(elapsed), exclude="tensorboard")
    record("time/total_timesteps", ppo.num_timesteps, exclude="tensorboard")
    ppo.logger.dump(step=ppo.num_timesteps)
