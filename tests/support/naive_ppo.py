"""Advantages and losses of PPO by their definitions, decision by decision in float64."""

import numpy as np

from rl.ppo.losses import Losses


def plain_advantages(rewards, values, ends, last, gamma, gae_lambda):
    """float64[T, N]: generalised advantages as sums over later decisions.

    rewards, values, ends: [T, N].
    last: [N], values after the last decision.
    gamma, gae_lambda: discount and decay.
    """
    length, count = rewards.shape
    following = np.concatenate([values[1:], last[None]]).astype(np.float64)
    deltas = rewards + gamma * following * ~ends - values
    advantages = np.zeros((length, count))
    for t in range(length):
        for i in range(count):
            weight = 1.0
            for later in range(t, length):
                advantages[t, i] += weight * deltas[later, i]
                if ends[later, i]:
                    break
                weight *= gamma * gae_lambda
    return advantages


def plain_losses(logits, values, samples, settings):
    """Losses of a minibatch; samples: fields of ``Samples`` as arrays."""
    sums = dict.fromkeys(Losses._fields, 0.0)
    rows = len(logits)
    for i in range(rows):
        p = np.exp(logits[i] - logits[i].max())
        p /= p.sum()
        old = np.exp(samples["log_probs"][i])
        action, advantage = samples["actions"][i], samples["advantages"][i]
        ratio = p[action] / old[action]
        clipped = min(max(ratio, 1 - settings.clip_range), 1 + settings.clip_range)
        weight, value = samples["weights"][i] if "weights" in samples else 1.0, values[i]
        if settings.clip_range_vf is not None:
            played = samples["values"][i]
            value = min(max(value, played - settings.clip_range_vf), played + settings.clip_range_vf)
        sums["policy_gradient_loss"] -= weight * min(ratio * advantage, clipped * advantage)
        sums["value_loss"] += weight * (value - samples["returns"][i]) ** 2
        sums["entropy_loss"] += weight * float((p * np.log(p)).sum())
        sums["approx_kl"] += weight * float((old * np.log(old / p)).sum())
        sums["clip_fraction"] += abs(ratio - 1) > settings.clip_range
        cloned = np.exp(samples["reference_log_probs"][i])
        sums["bc_kl"] += weight * float((cloned * np.log(cloned / p)).sum())
    means = {name: total / rows for name, total in sums.items()}
    means["loss"] = (
        means["policy_gradient_loss"]
        + settings.vf_coef / settings.return_variance * means["value_loss"]
        + settings.ent_coef * means["entropy_loss"]
        + settings.bc_kl_coef * means["bc_kl"]
    )
    return means
