"""Mutations of rollouts, losses, updates and schedules of PPO."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bc.thread_pool import summed_gradients
from rl.config import PPOConfig
from rl.config.curriculum import CurriculumConfig
from rl.ppo.logs import update_metrics
from rl.ppo.losses import normalized, ppo_losses
from rl.ppo.ppo import PPO, compute_gae
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.ppo.variants.off_policy import OffPolicy, importance_weights, priorities, vtrace
from tests.mutation.mutation import Patch, mutation


def _group(patch: Patch, **changes: object) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        ppo.policy.optimizer.param_groups[0].update(changes)

    patch.wrap(PPO, "__init__", changed)


def _in_updates(patch: Patch, change: Callable[..., Any]) -> None:
    """Change the losses while an update is made."""
    now = {"updating": False}

    def update(original, ppo):
        now["updating"] = True
        original(ppo)
        now["updating"] = False

    patch.wrap(PPO, "update", update)
    patch.everywhere(ppo_losses, lambda original, *given: (change if now["updating"] else _plainly)(original, *given))


def _plainly(original: Callable[..., Any], *given: Any) -> Any:
    return original(*given)


def _steps(patch: Patch, change: Callable[[list, list], tuple[list, list]]) -> None:
    """Change losses and norms of an update's steps on their way to the log."""

    patch.everywhere(update_metrics, lambda original, losses, norms, weights: original(*change(losses, norms), weights))


def _gae(patch: Patch, change: Callable[..., tuple]) -> None:
    """Change the arguments of ``compute_gae``: rewards, values, episode_ends, last_values, gamma, gae_lambda."""
    patch.everywhere(compute_gae, lambda original, *given: original(*change(*given)))


mutation("advantages with the wrong sign in the loss", "tests/rl/ppo/test_losses.py").everywhere(
    normalized, lambda original, *given: -original(*given)
)


@mutation("advantages with the wrong sign in the rollout", "tests/rl/ppo/test_rollout_buffer.py").everywhere(
    compute_gae
)
def _(original, *given):
    advantages, returns = original(*given)
    return -advantages, returns


@mutation("entropy with the wrong sign", "tests/rl/ppo/test_losses.py").everywhere(ppo_losses)
def _(original, logits, values, samples, settings):
    return original(logits, values, samples, replace(settings, ent_coef=-settings.ent_coef))


@mutation("the clip range is a tenth of what is configured", "tests/rl/ppo/test_losses.py").everywhere(ppo_losses)
def _(original, logits, values, samples, settings):
    return original(logits, values, samples, replace(settings, clip_range=settings.clip_range / 10))


@mutation("the policy's loss is not clipped", "tests/rl/ppo/test_losses.py").everywhere(ppo_losses)
def _(original, logits, values, samples, settings):
    parts = original(logits, values, samples, settings)
    chosen = F.log_softmax(logits, dim=1).gather(1, samples.actions[:, None])[:, 0]
    ratio = (chosen - samples.log_probs.gather(1, samples.actions[:, None])[:, 0]).exp()
    plain = -(ratio * samples.advantages).mean()
    return parts._replace(policy_gradient_loss=plain, loss=parts.loss - parts.policy_gradient_loss + plain)


@mutation("the value loss has the wrong sign", "tests/rl/ppo/test_losses.py").everywhere(ppo_losses)
def _(original, logits, values, samples, settings):
    return original(logits, values, samples, replace(settings, vf_coef=-settings.vf_coef))


@mutation("rollouts discount with another gamma", "tests/rl/ppo/test_rollout_buffer.py")
def _(patch: Patch) -> None:
    _gae(patch, lambda rewards, values, ends, last, gamma, lam: (rewards, values, ends, last, 0.97, lam))


@mutation("lambda is 1 in the rollouts", "tests/rl/ppo/test_rollout_buffer.py")
def _(patch: Patch) -> None:
    _gae(patch, lambda rewards, values, ends, last, gamma, lam: (rewards, values, ends, last, gamma, 1.0))


mutation("truncated episodes are not bootstrapped", "tests/rl/ppo/variants/test_off_policy.py").set(
    PPO, "bootstrap_timeouts", lambda ppo, index, final: torch.zeros(len(index))
)


@mutation("the bootstrap value of a truncated episode is added one decision early", "tests/rl/ppo/test_ppo.py").wrap(
    PPO, "bootstrap_timeouts"
)
def _(original, ppo, index, final):
    return original(ppo, (index - ppo.sim.num_envs).clamp(min=0), final)


@mutation("the last value of the rollout is 0", "tests/rl/ppo/test_rollout_buffer.py")
def _(patch: Patch) -> None:
    _gae(patch, lambda rewards, values, ends, last, *more: (rewards, values, ends, torch.zeros_like(last), *more))


@mutation("advantages cross the ends of episodes", "tests/rl/ppo/test_rollout_buffer.py")
def _(patch: Patch) -> None:
    _gae(patch, lambda rewards, values, ends, *more: (rewards, values, torch.zeros_like(ends), *more))


mutation("the learning rate is 0", "tests/rl/ppo/test_ppo.py").set(PPO, "_learning_rate", lambda ppo: 0.0)


mutation("the KL penalty to the BC policy never ends", "tests/rl/ppo/test_ppo.py").wrap(
    PPOConfig, "bc_kl_coef_at", lambda original, config, progress: config.bc_kl_coef_start
)


@mutation("the actor moves while only the critic is to learn", "tests/rl/ppo/test_ppo.py").wrap(PPO, "update")
def _(original, ppo):
    original(ppo)
    if ppo.critic_only:
        with torch.no_grad():
            ppo.policy.action_net.bias.add_(0.01)


mutation("the critic's warm-up ends immediately", "tests/rl/ppo/test_ppo.py").set(
    PPO, "_critic_warmup_ends", lambda ppo: True
)


@mutation("every optimiser step is made fifteen times", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_backward")
def _(original, ppo, *given):
    found = original(ppo, *given)
    for _ in range(14):
        ppo.policy.optimizer.step()
    return found


@mutation("gradients of minibatches add up", "tests/rl/ppo/variants/test_off_policy.py")
def _(patch: Patch) -> None:
    added: dict[int, tuple[torch.Tensor | None, torch.Tensor | int]] = {}  # parameters too, so that no id comes again

    def changed(original, pool, rows, loss, parameters, *begins):
        means, gradients = original(pool, rows, loss, parameters, *begins)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                gradient += added.get(id(parameter), (None, 0))[1]
                added[id(parameter)] = parameter, gradient.clone()
        return means, gradients

    patch.everywhere(summed_gradients, changed)


@mutation("weights decay", "tests/rl/ppo/test_ppo.py")
def _(patch: Patch) -> None:
    _group(patch, weight_decay=0.1)


@mutation("rows of the batch are permuted between observing and deciding", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_act")
def _(original, ppo, t):
    before = {key: values.copy() for key, values in ppo.sim.obs.items()}
    for key, values in ppo.sim.obs.items():
        values[:] = np.roll(before[key], 1, axis=0)
    actions = original(ppo, t)
    for key, values in ppo.sim.obs.items():
        values[:] = before[key]
    return actions


mutation("actions go to other environments", "tests/rl/ppo/test_ppo.py").wrap(
    PPO, "_act", lambda original, ppo, t: np.roll(original(ppo, t), 1)
)


@mutation("log-probabilities of the previous decision are stored", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_act")
def _(original, ppo, t):
    actions = original(ppo, t)
    if t:
        ppo.rollout_buffer.log_probs[t - 1] = ppo.rollout_buffer.log_probs[t]
    return actions


@mutation("observations are stored a decision late", "tests/rl/ppo/variants/test_off_policy.py").wrap(PPO, "_act")
def _(original, ppo, t):
    actions = original(ppo, t)
    for store in ppo.rollout_buffer.obs.values():
        if t:
            store[t - 1] = store[t]
    return actions


@mutation("stacks of the rollout reach into the episode before", "tests/rl/ppo/test_stacked_rollouts.py").wrap(
    RolloutBuffer, "store_ages"
)
def _(original, buffer, t):
    buffer.ages[t] = buffer.ages[0]


@mutation("updates are skipped", "tests/rl/ppo/variants/test_off_policy.py").wrap(PPO, "__init__")
def _(original, ppo, *given, **named):
    original(ppo, *given, **named)
    ppo.policy.optimizer.step = lambda *nothing: None


@mutation("ratios are to the current policy, not to the rollout policy", "tests/rl/ppo/test_ppo.py")
def _(patch: Patch) -> None:
    _in_updates(
        patch,
        lambda original, logits, values, samples, settings: original(
            logits, values, replace(samples, log_probs=F.log_softmax(logits.detach(), dim=1)), settings
        ),
    )


@mutation("negative advantages are clamped to 0", "tests/rl/ppo/test_ppo.py")
def _(patch: Patch) -> None:
    _in_updates(
        patch,
        lambda original, logits, values, samples, settings: original(
            logits, values, replace(samples, advantages=samples.advantages.clamp(min=0)), settings
        ),
    )


@mutation("minibatches are drawn with repetition", "tests/rl/ppo/test_ppo.py").wrap(RolloutBuffer, "minibatches")
def _(original, buffer, size, rng):
    for index in original(buffer, size, rng):
        yield index[torch.from_numpy(np.random.default_rng(0).integers(0, len(index), len(index)))]


@mutation("progress runs at half speed", "tests/rl/ppo/variants/test_off_policy.py")
def _(patch: Patch) -> None:
    original = PPO.progress.fget  # type: ignore[attr-defined]
    patch.set(PPO, "progress", property(lambda ppo: original(ppo) / 2))


mutation("updates end early without a target KL", "tests/rl/ppo/test_ppo.py").set(
    PPO, "_exceeds_target_kl", lambda ppo, kl, weights: kl > 1e-4
)


mutation("target KL does not end updates", "tests/rl/ppo/test_ppo.py").set(
    PPO, "_exceeds_target_kl", lambda ppo, kl, weights: False
)


@mutation("clip fraction and KL are swapped in the log", "tests/rl/ppo/test_ppo.py")
def _(patch: Patch) -> None:
    def change(steps, norms):
        return [one._replace(approx_kl=one.clip_fraction, clip_fraction=one.approx_kl) for one in steps], norms

    _steps(patch, change)


@mutation("losses are logged an update late", "tests/rl/ppo/test_ppo.py")
def _(patch: Patch) -> None:
    before: list[tuple] = []

    def change(steps, norms):
        before.append((steps, norms))
        return before[-2] if len(before) > 1 else before[-1]

    _steps(patch, change)


@mutation("the gradient norm is logged after clipping", "tests/rl/ppo/variants/test_off_policy.py")
def _(patch: Patch) -> None:
    _steps(patch, lambda steps, norms: (steps, [min(norm, 0.5) for norm in norms]))


mutation("decisions per second are counted twice", "tests/rl/ppo/test_ppo.py").wrap(
    PPO, "record_rollout", lambda original, ppo, seconds: original(ppo, seconds / 2)
)


@mutation("only wins count for the success rate", "tests/rl/ppo/test_ppo.py").wrap(PPO, "record_rollout")
def _(original, ppo, seconds):
    original(ppo, seconds)
    won = [one for one in ppo.episode_wins if one]
    ppo.episode_wins.clear()
    ppo.episode_wins.extend(won)


mutation("importance weights of prioritised draws are 1", "tests/rl/ppo/variants/test_off_policy.py").everywhere(
    importance_weights, lambda original, chances, beta: torch.ones(len(chances))
)


mutation("importance weights of prioritised draws are inverted", "tests/rl/ppo/variants/test_off_policy.py").everywhere(
    importance_weights, lambda original, chances, beta: original(chances, -beta)
)


mutation("priorities are ignored", "tests/rl/ppo/variants/test_off_policy.py").everywhere(
    priorities, lambda original, advantages, alpha: np.full(len(advantages), 1 / len(advantages))
)


mutation("V-trace ratios are inverted", "tests/rl/ppo/variants/test_off_policy.py").everywhere(
    vtrace, lambda original, *given, **named: original(*given[:4], 1 / given[4], *given[5:], **named)
)


mutation("targets are not re-estimated between passes", "tests/rl/ppo/variants/test_off_policy.py").set(
    OffPolicy, "reestimate", lambda ppo, samples: samples
)


@mutation("advantages of later passes are not normalised", "tests/rl/ppo/variants/test_off_policy.py").wrap(
    OffPolicy, "reestimate"
)
def _(original, ppo, samples):
    samples = original(ppo, samples)
    return replace(samples, advantages=5 * samples.advantages)


@mutation("actions are drawn with the same random numbers in each rollout", "tests/rl/ppo/test_ppo.py").wrap(
    PPO, "collect_rollouts"
)
def _(original, ppo, callback):
    ppo.action_rng.manual_seed(0)
    return original(ppo, callback)


mutation("the order of decisions does not come from the seed", "tests/rl/ppo/test_gradients.py").wrap(
    RolloutBuffer, "minibatches", lambda original, buffer, size, rng: original(buffer, size, np.random.default_rng())
)


mutation("a stage has the settings of the next one", "tests/rl/ppo/test_stage_settings.py").wrap(
    CurriculumConfig, "changes_in", lambda original, config, stage: original(config, "simpler")
)


@mutation("PPO overrides some of its settings", "tests/rl/ppo/test_ppo.py").wrap(PPO, "__init__")
def _(original, ppo, env, architecture, config, *given, **named):
    config = replace(config, vf_coef=1.5, ent_coef_end=config.ent_coef_start)
    original(ppo, env, architecture, config, *given, **named)
