"""Checks of learning in a short trial training: gradients, inputs and outputs of the network, imitation, first updates."""

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
from nppsim.observe.statistics import ObservationStatistics
from rl.checks.doctor import CHECKPOINT, REHEARSAL, UPDATE, CheckFailed, CheckWarned, Doctor, check, require
from rl.config import ExperimentConfig
from rl.policy import checkpoint
from rl.policy.networks import CLAMP
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import FOLLOWS
from rl.ppo.losses import kl_divergence
from rl.ppo.ppo import PPO
from rl.training.alarms import missing_gradients
from rl.training.callbacks import PPOCallback

Observed = Mapping[str, torch.Tensor]  # raw observations of some decisions: key -> [rows, *shape]
SAMPLE = 256  # number of decisions drawn from the rollout
FITTED, STEPS, RATE = 64, 150, 1e-3  # decisions, steps and learning rate of ``a_small_batch_is_fitted``
MAX_MEAN_DIFFERENCE = 3.0  # limit for means of rollout and demonstrations, in standard deviations of the demonstrations
MAX_STD_RATIO = 5.0  # ratios of standard deviations must be below this and above its inverse
STD_OFFSET = 0.1  # added to the standard deviations of both, so that nearly constant observations are not compared
MAX_CLAMPED = 0.2  # largest share of normalised values outside the range to which the network clamps them
_OTHER_DATA = "demonstrations and training levels differ: use demonstrations of such levels, or --no-pretraining"


class ExamineFirstUpdate(PPOCallback):
    """Makes the checks after the first update of the actor, on observations of random decisions of its rollout."""

    def __init__(self, doctor: Doctor):
        super().__init__()
        self.doctor, self._done = doctor, False

    def _on_rollout_start(self) -> None:
        if not self.model.actor_updates or self._done:
            return
        self._done = True
        ppo, buffer = self.model, self.model.rollout_buffer
        index = np.random.default_rng(0).choice(len(buffer), min(SAMPLE, len(buffer)), replace=False)
        found = buffer.observations(torch.from_numpy(np.sort(index)).to(ppo.device))
        sample = {key: values for key, values in found.items() if key != FOLLOWS}
        self.doctor.provide(ppo=ppo, policy=ppo.policy, sample=sample)
        self.doctor.examine(UPDATE)

    _on_training_end = _on_rollout_start


def _in_float32(policy: NppPolicy) -> NppPolicy:
    """Return a copy that computes in float32, so that rounding does not hide differences."""
    policy = copy.deepcopy(policy)
    policy.precision = "float32"
    return policy


@check(UPDATE)
def every_parameter_gets_a_gradient(policy: NppPolicy) -> str:
    """Check that every parameter is in the optimiser once and has a non-zero gradient after the first update."""
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    frozen = [name for name, parameter in policy.named_parameters() if not parameter.requires_grad]
    require(not frozen, f"not trainable: {', '.join(frozen)}", "set requires_grad, or remove them from the network")
    optimised = Counter(id(p) for group in policy.optimizer.param_groups for p in group["params"])
    same = optimised == Counter(names.keys())
    require(same, "the optimiser has other parameters than the network", "create every layer in the constructor")
    for _, problem in missing_gradients(policy):
        raise CheckFailed(problem, "connect them to the output, or remove them")
    norms = {name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None}
    weakest = min(norms, key=lambda name: norms[name])
    return f"{len(norms)} tensors; weakest {norms[weakest]:.1e} ({weakest})"


@check(UPDATE, CHECKPOINT)
def every_input_has_an_effect(policy: NppPolicy, sample: Observed) -> str:
    """Check that logits or value have a non-zero gradient with respect to each component of the float observations."""
    obs = dict(sample)
    floats = policy.features_extractor.normalize.float_keys
    for key in floats:
        obs[key] = obs[key].clone().requires_grad_(True)
    logits, values = _in_float32(policy).logits_and_values(obs)
    # a weighted sum of the outputs, since gradients could cancel out in a plain sum
    mixture = (logits * torch.linspace(-1, 1, logits.shape[1], device=logits.device)).sum() + 0.7 * values.sum()
    gradients = torch.autograd.grad(mixture, [obs[key] for key in floats], materialize_grads=True)
    unread = []
    for key, gradient in zip(floats, gradients, strict=True):
        silent = (gradient == 0).all(dim=0).flatten()
        unread += [f"{key}[{i}]" for i in torch.nonzero(silent).flatten().tolist()]
    found = f"{len(unread)} components have no effect: {', '.join(unread[:8])}"
    require(not unread, found, "connect them to an encoder of the network, or remove the observation key")
    return f"{sum(obs[key][0].numel() for key in floats)} components of {', '.join(floats)}"


@check(UPDATE, CHECKPOINT)
@torch.no_grad()
def outputs_depend_on_observations(policy: NppPolicy, sample: Observed) -> str:
    """Check that logits and values differ between observations, and that the policy is not deterministic."""
    logits, values = policy.logits_and_values(sample)
    spread, value_spread = float(logits.std(dim=0).mean()), float(values.std())
    probabilities = torch.softmax(logits, dim=1)
    entropy = float(-(probabilities * torch.log(probabilities.clamp(min=1e-30))).sum(dim=1).mean())
    require(spread > 1e-6, f"logits differ only by {spread:.1e}", "look for dead layers in the network")
    require(value_spread > 0, "all observations have the same value", "look for dead layers in the critic")
    require(entropy > 1e-3, f"the entropy is {entropy:.1e} nats", "lower --bc-epochs, or raise --ent-coef-start")
    return f"standard deviation of logits {spread:.2f}, of values {value_spread:.2f}; entropy {entropy:.2f} nats"


@check(UPDATE)
def imitation_beats_action_frequencies(bc_result: BCResult) -> str:
    """Check that the BC policy predicts held-out decisions better than the frequencies of actions do."""
    shares = np.array(bc_result.action_histogram) / sum(bc_result.action_histogram)
    chance = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    loss, trained = bc_result.validation.loss or math.inf, bc_result.training.loss or math.inf
    others = ", ".join(f"{name} {metrics.accuracy:.0%}" for name, metrics in bc_result.baselines.items())
    found = f"loss {loss:.2f} nats (frequencies: {chance:.2f}), accuracy {bc_result.validation.accuracy:.0%} ({others})"
    require(
        trained < math.log(len(shares)) + 0.2, f"loss on training decisions {trained:.2f}", "lower --bc-learning-rate"
    )
    if loss >= chance:
        raise CheckWarned(found, "raise --bc-epochs, or use more demonstrations")
    return found


@check(UPDATE)
@torch.no_grad()
def the_first_update_stays_near_the_bc_policy(ppo: PPO, bc_policy: NppPolicy, probe: dict[str, np.ndarray]) -> str:
    """Check that the policy is still close to the BC policy on held-out decisions after the first update of the actor."""
    mine, theirs = (
        torch.log_softmax(_in_float32(policy).logits_and_values(policy.to_tensors(probe))[0].cpu(), dim=1)
        for policy in (ppo.policy, bc_policy)
    )
    kl = float(kl_divergence(theirs, mine).mean())
    agree = float((mine.argmax(dim=1) == theirs.argmax(dim=1)).float().mean())
    found = f"KL divergence {kl:.3f} nats, {agree:.0%} of greedy actions agree on {len(mine)} decisions"
    require(kl < 1, found, "lower --initial-lr")
    return found


@check(UPDATE)
@torch.no_grad()
def the_rollout_resembles_the_demonstrations(ppo: PPO, statistics: ObservationStatistics) -> str:
    """Check that normalised observations of the rollout have similar statistics as in the demonstrations."""
    normalize, buffer = ppo.policy.features_extractor.normalize, ppo.rollout_buffer
    everything = torch.arange(len(buffer), device=buffer.device)
    z = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest].cpu().numpy()
    rows, odd, ratios = [], [], []
    for key, columns in normalize.columns.items():
        ours, demonstrated = z[:, columns], statistics.std[key] / statistics.divisor[key]
        means, clamped = np.abs(ours.mean(axis=0)), float((np.abs(ours) >= CLAMP).mean())
        spread, wanted = (float(np.sqrt(np.mean(std**2))) + STD_OFFSET for std in (ours.std(axis=0), demonstrated))
        ratios.append(spread / wanted)
        rows.append(
            f"{key}: {ours.min():.1f} to {ours.max():.1f}, mean off by {means.mean():.1f} (at most {means.max():.1f}), "
            f"standard deviation × {ratios[-1]:.2f}, {clamped:.1%} clamped"
        )
        require(float(means.mean()) < MAX_MEAN_DIFFERENCE and clamped < MAX_CLAMPED, rows[-1], _OTHER_DATA)
        odd += [rows[-1]] if means.max() > 2 * MAX_MEAN_DIFFERENCE else []
    typical, few = float(np.median(ratios)), buffer.shape[1] < 2  # observations of a single level vary less
    found = f"standard deviations × {typical:.2f}: {'; '.join(rows)}"
    require(few or 1 / MAX_STD_RATIO < typical < MAX_STD_RATIO, found, _OTHER_DATA)
    if odd:
        raise CheckWarned("; ".join(odd), _OTHER_DATA)
    return found


@check(REHEARSAL)
def a_saved_policy_is_loaded_unchanged(policy: NppPolicy, sample: Observed, config: ExperimentConfig) -> str:
    """Check that a saved and loaded policy has bit-identical outputs, and the same precision and frame skip."""
    with tempfile.TemporaryDirectory(prefix="doctor_") as folder:
        path = checkpoint.save(Path(folder) / "policy.safetensors", policy, frame_skip=config.frame_skip)
        loaded, stored = checkpoint.load_policy(path)
    found = f"frame skip {stored['frame_skip']}, {loaded.precision} after loading"
    same = stored["frame_skip"] == config.frame_skip and loaded.precision == policy.precision
    require(same, found, "look for code of yours that changes checkpoints")
    with torch.no_grad():
        outputs = [one.logits_and_values(sample) for one in (policy, loaded.to(policy.device))]
    gap = max(float((a - b).abs().max()) for a, b in zip(*outputs, strict=True))
    require(gap == 0, f"outputs differ by {gap:.3g} after loading", "register all state of your layers as buffers")
    return f"{len(policy.state_dict())} tensors, {len(next(iter(sample.values())))} decisions"


@check(REHEARSAL)
def a_small_batch_is_fitted(policy: NppPolicy, sample: Observed) -> str:
    """Check that a copy of the network can fit random actions and values of a few decisions."""
    generator = np.random.default_rng(0)
    policy = _in_float32(policy)
    optimiser = torch.optim.Adam(policy.parameters(), lr=RATE)
    batch = {key: values[:FITTED] for key, values in sample.items()}
    rows = len(next(iter(batch.values())))
    actions = torch.from_numpy(generator.integers(0, NUM_ACTIONS, rows)).to(policy.device)
    wanted = torch.from_numpy(generator.normal(size=rows)).float().to(policy.device)
    losses = []
    with torch.enable_grad():
        for _ in range(STEPS):
            logits, values = policy.logits_and_values(batch)
            loss = functional.cross_entropy(logits, actions) + functional.mse_loss(values, wanted)
            losses.append(loss.item())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    found = f"loss {losses[0]:.2f} → {losses[-1]:.2f} in {STEPS} steps on {rows} decisions"
    require(math.isfinite(losses[-1]) and losses[-1] < 0.8 * losses[0], found, "look for layers that do not learn")
    return found
