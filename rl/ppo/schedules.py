"""Schedules of PPO: learning rate and loss coefficients at the current progress of training."""

from typing import TYPE_CHECKING

from rl.ppo.losses import LossWeights

if TYPE_CHECKING:
    from rl.ppo.ppo import PPO


def loss_weights(ppo: "PPO") -> LossWeights:
    """Return the coefficients of the losses for the next update."""
    config, progress = ppo.config, ppo.progress
    penalty = 0.0
    if ppo.reference is not None and not ppo.critic_only:
        penalty = ppo.kl_penalty_scale * config.bc_kl_coef_at(progress - ppo.kl_penalty_start)
    # Adam's steps do not depend on the scale of gradients, but on the balance between critic and actor.  So the value loss is
    # divided by the variance of the returns, as a simple alternative to PopArt (van Hasselt et al. 2016).
    variance = float(ppo.ranks.all_gather(ppo.rollout_buffer.returns).var())
    return LossWeights(
        clip_range=ppo.active_config.clip_range_at(progress),
        vf_coef=config.vf_coef,
        ent_coef=ppo.active_config.ent_coef_at(progress),
        bc_kl_coef=penalty,
        critic_only=ppo.critic_only,
        return_variance=variance if config.scale_value_loss and variance > 0 else 1.0,
        clip_range_vf=config.clip_range_vf_at(progress),
    )


def learning_rate(ppo: "PPO") -> float:
    """Return the learning rate of the next update; a warm-up after imitation limits the first steps of a new optimiser."""
    rate = ppo.active_config.learning_rate_at(ppo.progress)
    warmup = ppo.config.learning_rate_warmup_updates if ppo.reference is not None and not ppo.critic_only else 0
    return rate * min(1.0, (ppo.actor_updates + 1) / (warmup + 1))
