"""From imitation to PPO: the clone's knowledge arrives whole, and PPO sees what the clone was shown."""

import math

import numpy as np
import torch

from bc.train import BCResult
from nppsim.observe import layout
from nppsim.observe.statistics import MIN_SCALE_SHARE, ObservationStatistics
from rl.doctor.doctor import UPDATE, CheckSkipped, CheckWarned, check, require
from rl.doctor.samples import in_float32
from rl.policy.architectures import HIGH_LEVEL
from rl.policy.networks import CLAMP
from rl.policy.policy import NppPolicy
from rl.policy.weight_map import TransferReport
from rl.ppo.losses import kl_divergence
from rl.ppo.ppo import PPO

_PROGRAM = "this is a mistake in the program, not in your settings"
_OTHER_DATA = "the demonstrations do not look like these levels: use demonstrations of such levels, or --no-pretraining"
MOST_MEAN = (
    3.0  # distance of means, in spreads of the demonstrations: of a key, an error; twice of a component, a warning
)
MOST_SPREAD = 5.0  # times that of the demonstrations, and the inverse, of most keys; one may be of doors unmet so far
SMALL_SPREAD = 0.1  # added to both, so that what hardly varies is not compared
MOST_CUT_OFF = 0.2  # share of normalised numbers beyond what the network clamps to


@check(UPDATE)
def every_weight_was_transferred(moved: TransferReport) -> str:
    """Every tensor of the clone was copied into PPO's policy, and every tensor of that was filled, or has no counterpart."""
    told = f"{moved.used} of {moved.source} tensors into {moved.filled} of {moved.target}"
    new = [name for name in moved.fresh if name.startswith(HIGH_LEVEL)]
    whole = moved.used == moved.source == moved.filled == moved.target - len(new)
    whole = whole and len(new) == len(moved.fresh) and not moved.skipped
    require(whole, told, "give both the same architecture: see rl/policy/weight_map.py")
    return f"{told}, {moved.values:,} numbers"


@check(UPDATE)
def the_clone_has_learned(cloning: BCResult) -> str:
    """The clone predicts held-out decisions better than action frequencies alone do; trivial predictors stand beside it."""
    shares = np.array(cloning.action_histogram) / sum(cloning.action_histogram)
    chance = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    loss = cloning.validation.loss or math.inf
    beside = ", ".join(f"{name} {metrics.accuracy:.0%}" for name, metrics in cloning.baselines.items())
    told = f"loss {loss:.2f} nats (frequencies alone {chance:.2f}), {cloning.validation.accuracy:.0%} right ({beside})"
    trained = cloning.training.loss or math.inf
    require(trained < math.log(len(shares)) + 0.2, f"loss on training decisions {trained:.2f}; {told}", _PROGRAM)
    if loss >= chance:
        raise CheckWarned(told, "more --bc-epochs or more demonstrations: this clone is no better than chance")
    return told


@check(UPDATE)
def the_reference_is_the_clone(ppo: PPO, clone: NppPolicy) -> str:
    """What PPO is pulled towards is the clone, bit for bit, and does not learn."""
    if ppo.reference is None:
        raise CheckSkipped("PPO is not pulled towards anything")
    wanted, found = clone.state_dict(), ppo.reference.state_dict()
    different = [name for name in wanted if not torch.equal(wanted[name], found[name])]
    require(not different, f"the reference differs from the clone in {', '.join(different[:6])}", _PROGRAM)
    learning = [name for name, parameter in ppo.reference.named_parameters() if parameter.requires_grad]
    require(not learning, f"the reference learns: {', '.join(learning[:6])}", _PROGRAM)
    shared = {p.data_ptr() for p in ppo.policy.parameters()} & {p.data_ptr() for p in ppo.reference.parameters()}
    require(not shared, f"{len(shared)} tensors are shared by policy and reference", _PROGRAM)
    return f"{len(wanted)} tensors"


@check(UPDATE)
@torch.no_grad()
def the_learner_remembers_the_clone(ppo: PPO, clone: NppPolicy, probe: dict[str, np.ndarray]) -> str:
    """After its first update the actor still acts much like the clone on held-out decisions."""
    with in_float32(clone), in_float32(ppo.policy):
        mine, theirs = (
            torch.log_softmax(policy.logits_and_values(policy.to_tensors(probe))[0].cpu(), dim=1)
            for policy in (ppo.policy, clone)
        )
    kl = float(kl_divergence(theirs, mine).mean())
    agree = float((mine.argmax(dim=1) == theirs.argmax(dim=1)).float().mean())
    told = f"{kl:.3f} nats from the clone, {agree:.0%} of likeliest actions agree on {len(mine)} decisions"
    require(kl < 1, told, "weights were lost on the way, or the first step was far too long: lower --initial-lr")
    return told


@check(UPDATE)
def one_normaliser_everywhere(ppo: PPO, clone: NppPolicy, statistics: ObservationStatistics) -> str:
    """The clone, PPO and the reference normalise with the statistics of the demonstrations, for the layout they observe."""
    for name, policy in (("the clone", clone), ("PPO", ppo.policy), ("the reference", ppo.reference)):
        if policy is None:
            continue
        inside = policy.statistics
        require(inside is not None, f"{name} has no statistics", _PROGRAM)
        assert inside is not None
        for key in statistics.float_keys:
            same = np.array_equal(inside.mean[key], statistics.mean[key]) and np.allclose(
                inside.std[key], statistics.std[key], rtol=1e-12, atol=0
            )
            require(same, f"{name} normalises {key} with other statistics", _PROGRAM)
    prints = {statistics.fingerprint, layout.fingerprint(ppo.sim.keys), layout.fingerprint(ppo.policy.observations)}
    require(len(prints) == 1, "layouts of statistics, training and network differ", _PROGRAM)
    return f"{len(statistics.float_keys)} keys, layout {statistics.fingerprint}"


@check(UPDATE)
@torch.no_grad()
def the_normaliser_is_frozen(ppo: PPO) -> str:
    """The normaliser divides by what its statistics say, does not learn, and gives finite numbers."""
    normalize = ppo.policy.features_extractor.normalize
    require(not list(normalize.parameters()), "the normaliser has weights that learn", _PROGRAM)
    statistics = ppo.policy.statistics
    require(statistics is not None, "the normaliser is empty", _PROGRAM)
    assert statistics is not None
    for key, columns in normalize.columns.items():
        least = MIN_SCALE_SHARE * np.asarray(layout.SPECS[key].scale)
        wanted = np.maximum(statistics.std[key], least).reshape(-1)
        same = np.allclose(normalize.divisor[columns].cpu(), wanted, rtol=1e-9, atol=0)
        require(same, f"{key} is not divided by the spread of its statistics", _PROGRAM)
    return f"{normalize.size} components of {statistics.count} observations"


@check(UPDATE)
@torch.no_grad()
def the_rollout_looks_like_the_demonstrations(
    ppo: PPO, statistics: ObservationStatistics, probe: dict[str, np.ndarray]
) -> str:
    """Range, mean and spread of each observation in the rollout are near those of the demonstrations."""
    normalize, buffer = ppo.policy.features_extractor.normalize, ppo.rollout_buffer
    everything = torch.arange(len(buffer), device=buffer.device)
    z = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest].cpu()
    told, odd, ratios = [], [], []
    for key, columns in normalize.columns.items():
        ours, shown = z[:, columns], (statistics.std[key] / statistics.divisor[key]).reshape(-1)
        means = ours.mean(dim=0).abs()
        spread = float(ours.std(dim=0).square().mean().sqrt())
        ratio = (spread + SMALL_SPREAD) / (float(np.sqrt((shown**2).mean())) + SMALL_SPREAD)
        cut_off = float((ours.abs() >= CLAMP).float().mean())
        found = (
            f"{key}: {float(ours.min()):.1f} to {float(ours.max()):.1f} spreads, mean off by {float(means.mean()):.1f} (at "
            f"most {float(means.max()):.1f}), spread × {ratio:.2f}, {cut_off:.1%} cut off"
        )
        require(float(means.mean()) < MOST_MEAN and cut_off < MOST_CUT_OFF, found, _OTHER_DATA)
        ratios.append(ratio)
        told.append(found)
        if float(means.max()) > 2 * MOST_MEAN:
            odd.append(found)
    typical = float(np.median(ratios))
    few = buffer.shape[1] < 2  # one level varies less than many do
    require(few or 1 / MOST_SPREAD < typical < MOST_SPREAD, f"spread × {typical:.2f}: {'; '.join(told)}", _OTHER_DATA)
    for key in (key for key in ppo.policy.observations if key not in normalize.columns):
        first, second = float(buffer.flat_obs(key).float().mean()), float(probe[key].mean())
        found = f"{key}: mean {first:.2f}, demonstrations {second:.2f}"
        require(abs(first - second) < 0.5 * max(float(probe[key].max()), 1.0), found, _OTHER_DATA)
        told.append(found)
    if odd:
        raise CheckWarned("; ".join(odd), _OTHER_DATA)
    return "; ".join(told)
