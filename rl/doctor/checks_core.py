"""The core of PPO: advantages, losses and gradients against plain computations, and what an update did."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from gymnasium import spaces

from hardware.thread_pool import ThreadPool
from nppsim.actions import NUM_ACTIONS
from rl.config import PPOConfig
from rl.doctor.doctor import BEFORE, UPDATE, CheckSkipped, check, require
from rl.doctor.samples import made_up_policy
from rl.policy.architectures import Architecture
from rl.ppo.audit import MOST_SIGMAS, deviations
from rl.ppo.gradients import set_gradients
from rl.ppo.losses import Losses, LossSettings, Samples, divergence, losses, normalised
from rl.ppo.ppo import BatchPPO
from rl.ppo.rollout import TensorRolloutBuffer

_PROGRAM = "this is a mistake in the program, not in your settings: please report it"
TOLERANCE = 1e-4  # of sums in float32, as a share of the largest number


def plain_advantages(
    rewards: np.ndarray, values: np.ndarray, ends: np.ndarray, last: np.ndarray, gamma: float, gae_lambda: float
) -> np.ndarray:
    """float64[T, N]: generalised advantages by their definition, a sum over later decisions for each one.

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


@check(BEFORE)
def advantages_are_what_they_are_defined_as(settings: PPOConfig) -> str:
    """Advantages and returns of a made-up rollout with ends are those of the definition, summed decision by decision."""
    rng = np.random.default_rng(0)
    shape = 24, 5
    buffer = _made_up_buffer(*shape, settings)
    rewards, values = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    ends, last = rng.random(shape) < 0.15, rng.normal(size=shape[1]).astype(np.float32)
    for name, array in (("rewards", rewards), ("values", values), ("episode_ends", ends)):
        getattr(buffer, name).copy_(torch.from_numpy(array))
    buffer.compute_returns_and_advantages(torch.from_numpy(last))
    wanted = plain_advantages(rewards, values, ends, last, settings.gamma, settings.gae_lambda)
    gap = float(np.abs(buffer.advantages.numpy() - wanted).max())
    require(gap < TOLERANCE * np.abs(wanted).max(), f"advantages are off by up to {gap:.3g}", _PROGRAM)
    gap = float(np.abs(buffer.returns.numpy() - wanted - values).max())
    require(gap < TOLERANCE * np.abs(wanted).max(), f"returns are off by up to {gap:.3g}", _PROGRAM)
    scaled = normalised(buffer.advantages)
    mean, std = float(scaled.mean()), float(scaled.std())
    require(abs(mean) < 1e-5 and abs(std - 1) < 1e-3, f"normalised to mean {mean:.3g}, spread {std:.3g}", _PROGRAM)
    same = bool(((scaled > 0) == (buffer.advantages > buffer.advantages.mean())).all())
    require(same, "normalising changes which decisions were better than the others", _PROGRAM)
    return f"gamma {settings.gamma}, lambda {settings.gae_lambda}, off by {gap:.0e}"


def _made_up_buffer(length: int, count: int, settings: PPOConfig) -> TensorRolloutBuffer:
    return TensorRolloutBuffer(
        length,
        spaces.Dict({}),
        spaces.Discrete(NUM_ACTIONS),
        gae_lambda=settings.gae_lambda,
        gamma=settings.gamma,
        n_envs=count,
    )


def plain_losses(logits: np.ndarray, values: np.ndarray, samples: Mapping, settings: LossSettings) -> dict[str, float]:
    """The losses of a minibatch in float64, decision by decision; samples: fields of ``Samples`` as arrays."""
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
        cloned = np.exp(samples["cloned_log_probs"][i])
        sums["bc_kl"] += weight * float((cloned * np.log(cloned / p)).sum())
        sums["self_imitation_loss"] -= weight * samples["surprises"][i] * math.log(p[action])
    means = {name: total / rows for name, total in sums.items()}
    means["loss"] = (
        means["policy_gradient_loss"]
        + settings.vf_coef / settings.return_variance * means["value_loss"]
        + settings.ent_coef * means["entropy_loss"]
        + settings.bc_kl_coef * means["bc_kl"]
        + settings.self_imitation_coef * means["self_imitation_loss"]
    )
    return means


def _made_up_samples(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """(logits, values, fields of ``Samples``) of decisions that differ in every respect."""
    rng = np.random.default_rng(seed)

    def log_probs(near: np.ndarray | None = None) -> np.ndarray:
        x = rng.normal(size=(rows, NUM_ACTIONS)) if near is None else near + 0.3 * rng.normal(size=near.shape)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    logits = rng.normal(size=(rows, NUM_ACTIONS))
    samples = {
        "actions": rng.integers(0, NUM_ACTIONS, rows),
        "log_probs": log_probs(logits),
        "advantages": rng.normal(size=rows),
        "returns": rng.normal(size=rows),
        "cloned_log_probs": log_probs(),
        "surprises": np.maximum(rng.normal(size=rows), 0),
        "values": rng.normal(size=rows),
    }
    return logits, rng.normal(size=rows), samples


def _tensors(samples: Mapping[str, np.ndarray]) -> Samples:
    return Samples(
        **{name: torch.from_numpy(x if x.dtype == np.int64 else x.astype(np.float32)) for name, x in samples.items()}
    )


@check(BEFORE)
def losses_are_what_they_are_defined_as(settings: PPOConfig) -> str:
    """All losses of a made-up minibatch are those of their formulas, computed decision by decision in float64."""
    logits, values, samples = _made_up_samples(200)
    samples["weights"] = np.linspace(0.5, 1.5, 200)
    weights = LossSettings(
        clip_range=settings.clip_range,
        vf_coef=settings.vf_coef,
        ent_coef=0.01,
        bc_kl_coef=0.2,
        return_variance=1.7,
        self_imitation_coef=0.1,
        clip_range_vf=settings.clip_range_vf or 0.5,
    )
    wanted = plain_losses(logits, values, samples, weights)
    found = losses(torch.from_numpy(logits).float(), torch.from_numpy(values).float(), _tensors(samples), weights)
    for name, value in found._asdict().items():
        require(
            abs(float(value) - wanted[name]) < TOLERANCE * max(1, abs(wanted[name])),
            f"{name} is {float(value):.6f}, by its formula {wanted[name]:.6f}",
            _PROGRAM,
        )
    return ", ".join(f"{name} {float(value):.3f}" for name, value in found._asdict().items())


@check(BEFORE)
def gradients_point_the_right_way(settings: PPOConfig) -> str:
    """A step down the loss makes good actions likelier, a sure policy less sure, and values nearer to the returns; beyond
    the clip range nothing pulls."""
    flat = torch.full((1, NUM_ACTIONS), 1 / NUM_ACTIONS).log()
    base = {"clip_range": settings.clip_range, "vf_coef": 0.0, "ent_coef": 0.0}

    def pull(logits: torch.Tensor, advantage: float = 0.0, **weights: float) -> tuple[torch.Tensor, torch.Tensor]:
        """What descending the loss would change logits and value (0, its return is 1) by."""
        logits, value = logits.clone().requires_grad_(True), torch.zeros(1, requires_grad=True)
        samples = Samples(torch.zeros(1, dtype=torch.int64), flat, torch.tensor([advantage]), torch.ones(1))
        loss = losses(logits, value, samples, LossSettings(**{**base, **weights})).loss  # type: ignore[arg-type]
        gradients = torch.autograd.grad(loss, [logits, value], allow_unused=True)
        down = [torch.zeros_like(x) if g is None else -g for x, g in zip((logits, value), gradients, strict=True)]
        return down[0][0], down[1]

    better, worse = pull(flat, 1.0)[0][0], pull(flat, -1.0)[0][0]
    require(
        float(better) > 0 > float(worse), f"a good action is moved by {better:.3g}, a bad one by {worse:.3g}", _PROGRAM
    )
    sure = torch.zeros(1, NUM_ACTIONS)
    sure[0, 2] = 3.0
    spread = pull(sure, ent_coef=1.0)[0]
    require(
        float(spread[2]) < 0, f"the entropy bonus moves a sure policy's choice by {float(spread[2]):+.3g}", _PROGRAM
    )
    require(float(pull(flat, vf_coef=1.0)[1]) > 0, "values move away from their returns", _PROGRAM)
    beyond = flat.clone()
    beyond[0, 0] += 5 * settings.clip_range + 1  # far likelier than when it was played
    if (
        settings.clip_range < NUM_ACTIONS - 1
    ):  # an action that was as likely as others can become so many times likelier
        require(not bool(pull(beyond, 1.0)[0].any()), "beyond the clip range, a good action is still pulled", _PROGRAM)
        require(bool(pull(beyond, -1.0)[0].any()), "beyond the clip range, a bad action is not pulled back", _PROGRAM)
    inside = flat.clone()
    inside[0, 0] += 0.5 * settings.clip_range
    require(bool(pull(inside, 1.0)[0].any()), "inside the clip range, nothing pulls", _PROGRAM)
    return f"clip range {settings.clip_range}"


@check(BEFORE)
def parts_of_a_batch_add_up(architecture: Architecture) -> str:
    """Gradients of a minibatch shared out among threads, and accumulated over its parts, are those of the whole."""
    policy, obs = made_up_policy(architecture.name, rows=60)
    rows = 60
    _, _, samples = _made_up_samples(rows)
    weights = LossSettings(clip_range=0.2, vf_coef=0.5, ent_coef=0.01, bc_kl_coef=0.2, self_imitation_coef=0.1)

    def gradients(threads: int, size: int) -> dict[str, torch.Tensor]:
        set_gradients(
            policy,
            ThreadPool(threads),
            lambda index: {key: values[index] for key, values in obs.items()},
            _tensors(samples),
            torch.arange(rows),
            weights,
            size,
        )
        return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}

    policy.zero_grad()
    logits, values = policy.logits_and_values(obs)
    losses(logits, values, _tensors(samples), weights).loss.backward()
    whole = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in whole.values())
    worst = 0.0
    for threads, size in ((1, rows), (3, rows), (2, rows // 4 + 1)):
        parts = gradients(threads, size)
        require(parts.keys() == whole.keys(), f"{threads} threads give other tensors gradients", _PROGRAM)
        worst = max(worst, *(float((parts[name] - whole[name]).abs().max()) for name in whole))
    require(worst < TOLERANCE * max(1.0, largest), f"gradients differ by up to {worst:.3g} of {largest:.3g}", _PROGRAM)
    return f"{len(whole)} tensors, 1 to 3 threads, off by {worst:.0e} of {largest:.2g}"


@check(BEFORE)
def schedules_are_the_configured_ones(settings: PPOConfig) -> str:
    """Learning rate, entropy weight, clip ranges and the pull to the clone run straight from their starts to their ends."""
    assert settings.learning_rate is not None
    end_share = settings.learning_rate_end_share if settings.anneal_learning_rate and settings.schedules else 1.0
    ent_end = settings.ent_coef_end if settings.schedules else settings.ent_coef_start
    clip_end = settings.clip_range_end if settings.schedules and settings.clip_range_end else settings.clip_range
    lines = {
        "learning_rate": (settings.learning_rate_at, settings.learning_rate, settings.learning_rate * end_share, 1.0),
        "ent_coef": (settings.ent_coef_at, settings.ent_coef_start, ent_end, 1.0),
        "clip_range": (settings.clip_range_at, settings.clip_range, clip_end, 1.0),
        "bc_kl_coef": (settings.bc_kl_coef_at, settings.bc_kl_coef_start, 0.0, settings.bc_kl_share),
    }
    if (start := settings.clip_range_vf) is not None:
        end = settings.clip_range_vf_end if settings.schedules and settings.clip_range_vf_end else start
        lines["clip_range_vf"] = (lambda progress: settings.clip_range_vf_at(progress) or 0.0), start, end, 1.0
    told = []
    for name, (at, start, end, until) in lines.items():
        for share in (0.0, 0.25, 0.5, 0.99):
            wanted = start + (end - start) * share
            found = at(share * until)
            right = abs(found - wanted) <= 1e-9 + 1e-6 * abs(start) or until == 0
            require(right, f"{name} is {found:.3g} at {share * until:.2f} of training, not {wanted:.3g}", _PROGRAM)
        told.append(f"{name} {start:g} → {end:g}")
    require(settings.learning_rate > 0, "the learning rate is 0", "give --initial-lr")
    return ", ".join(told)


# ---------------------------------------------------------------------------------------------------------------------
# After an update


@check(UPDATE)
def one_discount_everywhere(ppo: BatchPPO, settings: PPOConfig) -> str:
    """Shaping, advantages and configuration have one gamma and one lambda; the sizes are the plan's."""
    buffer = ppo.rollout_buffer
    configured = ppo.sampler.config.changes_in(ppo.sampler.stage).get("gamma") or settings.gamma
    found = {"configuration": configured, "PPO": ppo.gamma, "rollouts": buffer.gamma, "simulator": ppo.sim.gamma}
    require(len(set(found.values())) == 1, f"gamma differs: {found}", "leave --pbrs-gamma out")
    decays = {settings.gae_lambda, ppo.gae_lambda, buffer.gae_lambda}
    require(len(decays) == 1, f"lambda differs: {decays}", _PROGRAM)
    return f"gamma {ppo.gamma}, lambda {ppo.gae_lambda}"


@check(UPDATE)
def the_rollout_adds_up(ppo: BatchPPO) -> str:
    """The advantages in the buffer follow from its rewards, values and ends; returns are advantages plus values."""
    buffer = ppo.rollout_buffer
    fields = ("rewards", "values", "advantages", "returns", "episode_ends")
    rewards, values, advantages, returns, ends = (getattr(buffer, name).cpu().numpy() for name in fields)
    for name, array in (("rewards", rewards), ("values", values), ("advantages", advantages)):
        require(
            bool(np.isfinite(array).all()), f"{name} of the rollout are not finite", "look at observations and rewards"
        )
    goes_on = ~ends[:-1]
    gamma = ppo.played_under.gamma  # an ended stage may have changed it since
    delta = rewards[:-1] + gamma * values[1:] * goes_on - values[:-1]
    wanted = delta + gamma * ppo.gae_lambda * goes_on * advantages[1:]
    size = max(1.0, float(np.abs(advantages).max()))
    gap = float(np.abs(wanted - advantages[:-1]).max()) if len(wanted) else 0.0
    require(gap < TOLERANCE * size, f"advantages are off by up to {gap:.3g}", _PROGRAM)
    gap = float(np.abs(returns - advantages - values).max())
    require(gap < TOLERANCE * size, f"returns are off by up to {gap:.3g}", _PROGRAM)
    require(float(returns.std()) > 0, "all returns are equal", "rewards do not depend on what is done: see the audit")
    sums = np.exp(buffer.log_probs.cpu().numpy().astype(np.float64)).sum(axis=-1)
    require(float(np.abs(sums - 1).max()) < 1e-4, "probabilities of the actions do not sum to 1", _PROGRAM)
    return f"{advantages.size} decisions, returns {returns.mean():+.2f} ± {returns.std():.2f}, {int(ends.sum())} ends"


@check(UPDATE)
def decisions_are_the_policys(ppo: BatchPPO) -> str:
    """The actions in the buffer are drawn from the probabilities beside them: as often, all together, as these say."""
    buffer = ppo.rollout_buffer
    probs = buffer.flat("log_probs").double().exp().cpu().numpy()
    sigmas, counts = deviations(probs, ppo.rollout_buffer.flat("actions").cpu().numpy())
    told = f"{counts.sum()} decisions, furthest off by {sigmas:.1f} standard deviations"
    require(
        sigmas < MOST_SIGMAS,
        told,
        "actions are remapped or not sampled from this policy: the update would learn from others",
    )
    return told


@check(UPDATE)
def the_update_moved_the_weights(ppo: BatchPPO) -> str:
    """The optimiser has made steps with a learning rate that follows from the configuration, in every tensor."""
    state = ppo.policy.optimizer.state
    idle = [
        name
        for name, parameter in ppo.policy.named_parameters()
        if not ppo.policy.may_rest(name)
        and (parameter not in state or not float(state[parameter]["exp_avg_sq"].sum()) > 0)
    ]
    require(not idle, f"no step was ever made in {', '.join(idle[:6])}", "look at gradients and at target_kl")
    rates = {group["lr"] for group in ppo.policy.optimizer.param_groups}
    require(len(rates) == 1 and min(rates) > 0, f"learning rates are {sorted(rates)}", "give --initial-lr")
    rate = rates.pop()
    if ppo.config.desired_kl:
        return f"learning rate {rate:.2e}, steered"
    warmup = ppo.config.learning_rate_warmup_updates if ppo.reference is not None else 0
    risen = min(1.0, ppo.actor_updates / (warmup + 1))
    highest = (ppo.played_under.learning_rate or 0) * risen
    lowest = ppo.played_under.learning_rate_at(ppo.progress) * risen
    good = 0.98 * lowest <= rate <= 1.02 * highest
    require(good, f"the learning rate is {rate:.3g}, configured are {lowest:.3g} to {highest:.3g}", _PROGRAM)
    return f"learning rate {rate:.2e} in update {ppo.updates}"


@check(UPDATE)
def the_update_is_measured_from_the_policy_that_played(ppo: BatchPPO) -> str:
    """The divergence from the policy that played is that of one update: small, and more than nothing."""
    index = torch.from_numpy(
        np.random.default_rng(0).choice(len(ppo.rollout_buffer), min(512, len(ppo.rollout_buffer)))
    )
    index = index.to(ppo.device)
    played = ppo.rollout_buffer.flat("log_probs")[index]
    with torch.no_grad():
        logits, _ = ppo.policy.logits_and_values(ppo.rollout_buffer.observations(index))
    kl = float(divergence(played, torch.log_softmax(logits, dim=1)).mean())
    require(kl > 0, "the update has not moved the policy at all", "look at the learning rate and at target_kl")
    require(kl < 1, f"{kl:.2f} nats from the policy that played", "lower --initial-lr; are observations those it saw?")
    return f"{kl:.4f} nats after the update"


@check(UPDATE)
def the_losses_in_force_are_configured(ppo: BatchPPO) -> str:
    """Clip range and weights of the losses are those of the configuration; the pull is towards the clone."""
    settings, config = ppo._loss_settings(), ppo.config
    for name in ("vf_coef", "self_imitation_coef"):
        found, wanted = getattr(settings, name), getattr(config, name)
        require(found == wanted, f"{name} in force is {found}, configured {wanted}", _PROGRAM)
    for name in ("clip_range", "clip_range_vf"):
        found, start, end = getattr(settings, name), getattr(config, name), getattr(config, f"{name}_end")
        ends = {start} if end is None else {start, end}
        right = found is None if start is None else found is not None and min(ends) <= found <= max(ends)
        require(right, f"{name} in force is {found}", _PROGRAM)
    ent = ppo.in_force.ent_coef_end, ppo.in_force.ent_coef_start
    require(min(ent) - 1e-12 <= settings.ent_coef <= max(ent) + 1e-12, f"ent_coef is {settings.ent_coef}", _PROGRAM)
    require(not settings.critic_only, "the critic still learns alone", _PROGRAM)
    if ppo.reference is None:
        raise CheckSkipped("no clone to be pulled to; weights are as configured")
    return f"clip {settings.clip_range}, entropy {settings.ent_coef:.3g}, pull {settings.bc_kl_coef:.3g}"
