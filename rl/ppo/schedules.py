"""Schedules of PPO: learning rate and loss coefficients at the current progress of training."""

from typing import TYPE_CHECKING

from rl.ppo.losses import LossWeights

if TYPE_CHECKING:
    from rl.ppo.ppo import PPO

FACTOR = 1.5  # factor of each change of the adaptive learning rate
LIMITS = (1e-5, 1e-2)  # smallest and largest adaptive learning rate


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
        self_imitation_coef=config.self_imitation_coef,
        clip_range_vf=config.clip_range_vf_at(progress),
    )


def learning_rate(ppo: "PPO") -> float:
    """Return the learning rate of the next update."""
    rate = ppo.adaptive_rate if ppo.config.desired_kl else ppo.active_config.learning_rate_at(ppo.progress)
    return rate if ppo.critic_only else rate * warmup_share(ppo)


def warmup_share(ppo: "PPO") -> float:
    """Return the warm-up factor of the learning rate after imitation; it limits the first steps of a new optimiser."""
    warmup = ppo.config.learning_rate_warmup_updates if ppo.reference is not None else 0
    return min(1.0, (ppo.actor_updates + 1) / (warmup + 1))


def adapt_learning_rate(ppo: "PPO", kl: float) -> None:
    """Adapt the learning rate after an update with KL divergence ``kl``, if ``desired_kl`` is set."""
    desired = ppo.config.desired_kl_at(ppo.progress)
    if desired and warmup_share(ppo) == 1:
        ppo.adaptive_rate = adapted(ppo.adaptive_rate, kl, desired)


def adapted(rate: float, kl: float, desired: float) -> float:
    """Return the new learning rate: lower if ``kl`` is above twice ``desired``, higher if ``kl`` is below half of it.

    Source: Schulman et al. 2017, section 4 (rule for the coefficient of a penalty); Rudin et al. 2022 (for learning rates).
    """
    if kl > 2 * desired:
        rate /= FACTOR
    elif kl < desired / 2:
        rate *= FACTOR
    return min(max(rate, LIMITS[0]), LIMITS[1])
