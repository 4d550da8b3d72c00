"""Checks of learning in a trial run: gradients, inputs and outputs of the network, imitation, first updates."""

import copy
import math
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from bc.train import BCResult
from nppsim.actions import NUM_ACTIONS
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.checks.check import CHECKPOINT, TRIAL, UPDATE, CheckFailed, CheckSkipped, CheckWarned, check, require
from rl.config import ExperimentConfig
from rl.policy import checkpoint
from rl.policy.constants import CLAMP
from rl.policy.policy import NppPolicy
from rl.ppo.losses import kl_divergence
from rl.ppo.ppo import PPO
from rl.training.alarms import missing_gradients

Observed = Mapping[str, torch.Tensor]  # raw observations of some decisions: key -> [rows, *shape]
FITTED, STEPS, RATE = 64, 150, 1e-3  # decisions, steps and learning rate of ``a_small_batch_is_fitted``
MAX_MEAN_DIFFERENCE = 3.0  # limit for means of the rollout and the statistics, in standard deviations of the statistics
MAX_STD_RATIO = 5.0  # ratios of standard deviations must be below this and above its inverse
STD_OFFSET = 0.1  # added to the standard deviations of both, so that nearly constant observations are not compared
MAX_CLAMPED = 0.2  # largest share of normalised values outside the range to which the network clamps them
NAMED = 8  # largest number of inputs that a warning names
OFTEN_CLAMPED = 0.01  # share of decisions; an input that is clamped in more of them gets a warning
_OTHER_DATA = (
    "the normaliser's statistics come from other levels: use demonstrations of the training levels, or train without "
    "imitation and --init-from"
)


def _in_float32(policy: NppPolicy) -> NppPolicy:
    """Return a copy that computes in float32, so that rounding does not hide differences."""
    policy = copy.deepcopy(policy)
    policy.precision = "float32"
    return policy


@check(UPDATE)
def every_parameter_gets_a_gradient(policy: NppPolicy) -> str:
    """Check that every parameter is in the optimiser once and has a non-zero gradient after the first update."""
    parameters = dict(policy.named_parameters())
    frozen = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    require(not frozen, f"not trainable: {', '.join(frozen)}", "set requires_grad, or remove them from the network")
    optimised = Counter(id(p) for group in policy.optimizer.param_groups for p in group["params"])
    same = optimised == Counter(map(id, parameters.values()))
    require(same, "the optimiser has other parameters than the network", "create every layer in the constructor")
    for _, message in missing_gradients(policy):
        raise CheckFailed(message, "connect them to the output, or remove them")
    norms = {name: float(p.grad.norm()) for name, p in parameters.items() if p.grad is not None}
    smallest = min(norms, key=lambda name: norms[name])
    return f"{len(norms)} tensors; smallest norm {norms[smallest]:.1e} ({smallest})"


@check(UPDATE, CHECKPOINT)
def every_input_has_an_effect(policy: NppPolicy, sample: Observed) -> str:
    """Check that every float observation affects the outputs, and that the policy is neither constant nor deterministic."""
    keys = policy.features_extractor.normalize.float_keys
    inputs = [sample[key].clone().requires_grad_(True) for key in keys]
    with torch.enable_grad():
        logits, values = _in_float32(policy).logits_and_values({**sample, **dict(zip(keys, inputs, strict=True))})
        # a weighted sum of the outputs, since gradients could cancel out in a plain sum
        outputs = (logits * torch.linspace(-1, 1, logits.shape[1], device=logits.device)).sum() + 0.7 * values.sum()
        gradients = torch.autograd.grad(outputs, inputs, materialize_grads=True) if inputs else ()
    unused = [
        f"{key}[{i}]"
        for key, gradient in zip(keys, gradients, strict=True)
        for i in torch.nonzero((gradient == 0).all(dim=0).flatten()).flatten().tolist()
    ]
    message = f"{len(unused)} components have no effect: {', '.join(unused[:8])}"
    require(not unused, message, "connect them to an encoder of the network, or remove the observation key")
    spread = float(logits.detach().std(dim=0).mean())
    require(spread > 1e-6, f"logits differ between decisions by {spread:.1e}", "look for dead layers in the network")
    entropy = float(torch.distributions.Categorical(logits=logits.detach()).entropy().mean())
    require(entropy > 1e-3, f"the entropy is {entropy:.1e} nats", "lower --bc-epochs, or raise --ent-coef-start")
    return f"{sum(values[0].numel() for values in inputs)} components of {', '.join(keys)}; entropy {entropy:.2f} nats"


@check(UPDATE)
def imitation_beats_action_frequencies(bc_result: BCResult) -> str:
    """Check that the BC policy predicts held-out decisions better than the frequencies of actions do."""
    shares = np.array(bc_result.action_histogram) / sum(bc_result.action_histogram)
    chance = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    loss, trained = bc_result.validation.loss or math.inf, bc_result.training.loss or math.inf
    baselines = ", ".join(f"{name} {metrics.accuracy:.0%}" for name, metrics in bc_result.baselines.items())
    accuracy = f"accuracy {bc_result.validation.accuracy:.0%} ({baselines})"
    message = f"validation loss {loss:.2f} nats (action frequencies: {chance:.2f}), {accuracy}"
    limit = math.log(len(shares)) + 0.2
    require(trained < limit, f"training loss {trained:.2f} nats, limit {limit:.2f}", "lower --bc-learning-rate")
    if loss >= chance:
        raise CheckWarned(message, "raise --bc-epochs, or use more demonstrations")
    return message


@check(UPDATE)
@torch.no_grad()
def the_first_update_stays_near_the_bc_policy(ppo: PPO, bc_policy: NppPolicy, probe: dict[str, np.ndarray]) -> str:
    """Check that the policy is still close to the BC policy on held-out decisions after the first update of the actor."""
    now, before = (
        torch.log_softmax(_in_float32(policy).logits_and_values(policy.to_tensors(probe))[0].cpu(), dim=1)
        for policy in (ppo.policy, bc_policy)
    )
    kl = float(kl_divergence(before, now).mean())
    agree = float((now.argmax(dim=1) == before.argmax(dim=1)).float().mean())
    message = f"KL divergence {kl:.3f} nats (limit 1), {agree:.0%} of greedy actions agree on {len(now)} decisions"
    require(kl < 1, message, "lower --initial-lr")
    return message


@check(UPDATE)
@torch.no_grad()
def the_rollout_resembles_the_statistics(ppo: PPO, statistics: ObservationStatistics) -> str:
    """Check that the observations of the rollout have similar statistics as those of the normaliser.

    It warns of inputs that are often clamped, or that are constant in the statistics but not in the rollout.
    """
    normalize, buffer = ppo.policy.features_extractor.normalize, ppo.rollout_buffer
    if not normalize.float_keys:
        raise CheckSkipped("the network observes only images, which are not normalised")
    everything = torch.arange(len(buffer), device=buffer.device)
    z = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest].cpu().numpy()
    texts, unusual, ratios = [], [], []
    often: dict[str, float] = {}  # name of an input -> share of decisions in which it is clamped
    constant: list[str] = []
    for key, columns in normalize.columns.items():
        rollout, measured = z[:, columns], statistics.std[key] / statistics.divisor[key]
        for index, values in zip(np.ndindex(measured.shape), rollout.T, strict=True):
            name, share = layout.component_name(key, index), float((np.abs(values) >= CLAMP).mean())
            often |= {name: share} if share > OFTEN_CLAMPED else {}
            constant += [name] if measured[index] == 0 and np.ptp(values) > 0 else []
        means, clamped = np.abs(rollout.mean(axis=0)), float((np.abs(rollout) >= CLAMP).mean())
        spread, usual = (float(np.sqrt(np.mean(std**2))) + STD_OFFSET for std in (rollout.std(axis=0), measured))
        ratios.append(spread / usual)
        texts.append(
            f"{key}: {rollout.min():.1f} to {rollout.max():.1f}, mean off by {means.mean():.1f} (at most "
            f"{means.max():.1f}), standard deviation × {ratios[-1]:.2f}, {clamped:.1%} clamped"
        )
        require(float(means.mean()) < MAX_MEAN_DIFFERENCE and clamped < MAX_CLAMPED, texts[-1], _OTHER_DATA)
        unusual += [texts[-1]] if means.max() > 2 * MAX_MEAN_DIFFERENCE else []
    typical, few = float(np.median(ratios)), buffer.shape[1] < 2  # observations of a single level vary less
    message = f"standard deviations × {typical:.2f}: {'; '.join(texts)}"
    require(few or 1 / MAX_STD_RATIO < typical < MAX_STD_RATIO, message, _OTHER_DATA)
    if often:
        worst = sorted(often, key=often.__getitem__, reverse=True)[:NAMED]
        named = ", ".join(f"{name} ({often[name]:.0%})" for name in worst)
        unusual.append(f"{len(often)} inputs are clamped in more than {OFTEN_CLAMPED:.0%} of decisions: {named}")
    if constant:
        unusual.append(f"{len(constant)} inputs are constant in the statistics: {', '.join(constant[:NAMED])}")
    if unusual:
        raise CheckWarned("; ".join(unusual), _OTHER_DATA)
    return message


@check(TRIAL)
def a_saved_policy_is_loaded_unchanged(policy: NppPolicy, sample: Observed, config: ExperimentConfig) -> str:
    """Check that a saved and loaded policy has bit-identical outputs, and the same precision and frame skip."""
    with tempfile.TemporaryDirectory(prefix="doctor_") as folder:
        path = checkpoint.save(Path(folder) / "policy.safetensors", policy, frame_skip=config.frame_skip)
        loaded, stored = checkpoint.load_policy(path)
    measured = f"frame skip {stored['frame_skip']}, {loaded.precision} after loading"
    same = stored["frame_skip"] == config.frame_skip and loaded.precision == policy.precision
    require(same, measured, "look for code of yours that changes checkpoints")
    with torch.no_grad():
        outputs = [network.logits_and_values(sample) for network in (policy, loaded.to(policy.device))]
    gap = max(float((a - b).abs().max()) for a, b in zip(*outputs, strict=True))
    require(gap == 0, f"outputs differ by {gap:.3g} after loading", "register all state of your layers as buffers")
    return f"{len(policy.state_dict())} tensors, {len(next(iter(sample.values())))} decisions"


@check(TRIAL)
@torch.enable_grad()
def a_small_batch_is_fitted(policy: NppPolicy, sample: Observed) -> str:
    """Check that a copy of the network can fit random actions and values of a few decisions."""
    rng = np.random.default_rng(0)
    policy = _in_float32(policy)
    optimiser = torch.optim.Adam(policy.parameters(), lr=RATE)
    batch = {key: values[:FITTED] for key, values in sample.items()}
    rows = len(next(iter(batch.values())))
    actions = torch.from_numpy(rng.integers(0, NUM_ACTIONS, rows)).to(policy.device)
    returns = torch.from_numpy(rng.normal(size=rows)).float().to(policy.device)
    losses = []
    for _ in range(STEPS):
        logits, values = policy.logits_and_values(batch)
        loss = functional.cross_entropy(logits, actions) + functional.mse_loss(values, returns)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    message = f"loss {losses[0]:.2f} → {losses[-1]:.2f} in {STEPS} steps on {rows} decisions"
    require(math.isfinite(losses[-1]) and losses[-1] < 0.8 * losses[0], message, "look for layers that do not learn")
    return message
