"""The network: everything in it learns, everything it is shown counts."""

import hashlib
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from nppsim.observe import layout
from rl.doctor.doctor import CHECKPOINT, UPDATE, CheckFailed, check, require
from rl.doctor.samples import Observed, in_float32
from rl.policy.networks import CLAMP, ByteLinear
from rl.policy.policy import NppPolicy, build_policy

_ONCE = "observations are raw everywhere, and scaled by the first layer only: see rl/policy/networks.py"
_BUILD = "every layer must exist before the optimiser is made from policy.parameters(): see rl/policy/networks.py"


@check(UPDATE)
def every_parameter_is_in_the_optimiser_once(policy: NppPolicy) -> str:
    """Every parameter of the policy may learn, and is in the optimiser exactly once; nothing else is."""
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    frozen = [name for name, parameter in policy.named_parameters() if not parameter.requires_grad]
    held = Counter(id(p) for group in policy.optimizer.param_groups for p in group["params"])
    missing = [name for key, name in names.items() if key not in held]
    twice = [names.get(key, "?") for key, times in held.items() if times > 1]
    foreign = len(held.keys() - names.keys())
    require(not frozen, f"frozen: {', '.join(frozen)}", "set requires_grad on them, or take them out of the network")
    require(not missing, f"the optimiser lacks {', '.join(missing)}", _BUILD)
    require(not twice and not foreign, f"held twice: {', '.join(twice)}; {foreign} that are not the policy's", _BUILD)
    return f"{len(names)} tensors, {sum(p.numel() for p in policy.parameters()):,} numbers"


@check(UPDATE)
def every_gradient_arrives(policy: NppPolicy) -> str:
    """The actor's first update leaves a finite gradient, not all zero, in every trainable tensor."""
    norms = {}
    for name, parameter in policy.named_parameters():
        gradient = parameter.grad
        if policy.may_rest(name):  # which the audit of updates looks at
            continue
        require(gradient is not None, f"no gradient reaches {name}", "connect it to the loss, or take it out")
        assert gradient is not None
        require(bool(torch.isfinite(gradient).all()), f"gradient of {name} is not finite", "lower --initial-lr")
        norms[name] = float(gradient.norm())
    silent = [name for name, norm in norms.items() if norm == 0]
    require(not silent, f"the gradient of {', '.join(silent)} is zero", "look for what cuts it off from the loss")
    weakest = min(norms, key=lambda name: norms[name])
    return f"{len(norms)} tensors; weakest {norms[weakest]:.1e} ({weakest})"


@check(UPDATE, CHECKPOINT)
def every_vector_component_is_read(policy: NppPolicy, sample: Observed) -> str:
    """Logits and value depend on every component of every float observation: their gradients by it are not zero."""
    obs = dict(sample)
    floats = policy.features_extractor.normalize.float_keys
    for key in floats:
        obs[key] = obs[key].clone().requires_grad_(True)
    with in_float32(policy):
        logits, values = policy.logits_and_values(obs)
    # a fixed mixture of the outputs: their plain sum could cancel out
    mixture = (logits * torch.linspace(-1, 1, logits.shape[1], device=logits.device)).sum() + 0.7 * values.sum()
    gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        mixture, [obs[key] for key in floats], allow_unused=True
    )
    unread = []
    for key, gradient in zip(floats, gradients, strict=True):
        if gradient is None:
            unread.append(key)
            continue
        silent = (gradient == 0).all(dim=0).flatten()
        unread += [f"{key}[{i}]" for i in torch.nonzero(silent).flatten().tolist()]
    require(
        not unread,
        f"{len(unread)} components change nothing: {', '.join(unread[:8])}",
        "give them to an encoder in rl/policy/architectures.py, and look for layers that are cut off",
    )
    return f"all {sum(obs[key][0].numel() for key in floats)} components of {', '.join(floats)}"


@check(UPDATE, CHECKPOINT)
@torch.no_grad()
def every_part_of_the_images_is_read(policy: NppPolicy, sample: Observed) -> str:
    """Logits or value change when any row, column or plane of an image (any cell of the surroundings) is inverted."""
    images = [key for key in policy.observations if layout.SPECS[key].dtype == "uint8"]
    one = {key: values[:1] for key, values in sample.items()}
    told = []
    for key in images:
        changed = _inverted_parts(one[key][0], policy.stacking.frames(key))
        batch = {other: values.expand(len(changed), *values.shape[1:]) for other, values in one.items()}
        before = torch.cat(_outputs(policy, batch), dim=1)  # as many rows, so that each is rounded alike
        after = torch.cat(_outputs(policy, batch | {key: changed}), dim=1)
        unread = torch.nonzero((after == before).all(dim=1)).flatten().tolist()
        require(
            not unread,
            f"{len(unread)} of {len(changed)} parts of {key} change nothing, the first is number {unread[:1]}",
            "look at the encoder of that image: layers that are dead, or an image cut off at its edge",
        )
        told.append(f"{len(changed)} parts of {key}")
    return ", ".join(told) or "no images are read"


def _outputs(policy: NppPolicy, obs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    with in_float32(policy):
        logits, values = policy.logits_and_values(obs)
    return [logits, values[:, None]]


def _inverted_parts(image: torch.Tensor, frames: int) -> torch.Tensor:
    """Copies of an image, uint8[parts, *shape], each with another part inverted; images hold bytes or flags.

    frames: of a stack; parts of each of them.
    """
    flags = int(image.max()) <= 1
    if frames == 1:
        return _inverted(image, flags)
    copies = []
    for place in range(frames):
        parts = _inverted(image[place], flags)
        copies.append(image.repeat(len(parts), *[1] * image.ndim))
        copies[-1][:, place] = parts
    return torch.cat(copies)


def _inverted(image: torch.Tensor, flags: bool) -> torch.Tensor:
    """Copies of a single frame."""
    height, width = (size for size in image.shape if size not in (1, 3))
    masks = torch.zeros((height + width, height, width), dtype=torch.bool)
    for i in range(height):
        masks[i, i] = True
    for j in range(width):
        masks[height + j, :, j] = True
    if image.shape[0] == 3:  # planes first: each cell of each plane by itself
        masks = torch.eye(image.numel(), dtype=torch.bool).view(-1, *image.shape)
    else:
        masks = masks.view(-1, *image.shape)
    masks = masks.to(image.device)
    return torch.where(masks, (1 if flags else 255) - image, image)


@check(UPDATE, CHECKPOINT)
@torch.no_grad()
def inputs_are_scaled_once(policy: NppPolicy, sample: Observed) -> str:
    """Vectors reach the network as (raw - mean) / divisor, cut off, and bytes as byte / 255: computed a second time."""
    normalize, rows = policy.features_extractor.normalize, len(next(iter(sample.values())))
    wanted = np.concatenate(
        [
            ((sample[key].cpu().numpy().reshape(rows, -1, len(mean)) - mean) / divisor).reshape(rows, -1)
            for key, columns in normalize.columns.items()
            for mean, divisor in [(normalize.mean[columns].cpu().numpy(), normalize.divisor[columns].cpu().numpy())]
        ],
        axis=1,
    ).clip(-CLAMP, CLAMP)
    gap = float(np.abs(normalize(sample).cpu().numpy() - wanted).max())
    require(gap < 1e-3, f"normalised vectors are off by up to {gap:.3g}", _ONCE)
    images = [module for module in policy.modules() if isinstance(module, ByteLinear)]
    worst = 0.0

    def compare(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        nonlocal worst
        (pixels,) = inputs
        require(pixels.dtype == torch.uint8, f"an image reaches its first layer as {pixels.dtype}", _ONCE)
        plain = pixels.double() / 255 @ module.weight.double().T + module.bias.double()
        worst = max(worst, float((output.double() - plain).abs().max()))

    handles = [module.register_forward_hook(compare) for module in images]
    try:
        with in_float32(policy):
            policy.features(sample)
    finally:
        for handle in handles:
            handle.remove()
    require(worst < 1e-3, f"the first layer of an image is off by up to {worst:.3g}", _ONCE)
    return f"{wanted.shape[1]} components off by {gap:.0e}, {len(images)} layers of bytes off by {worst:.0e}"


@check(UPDATE, CHECKPOINT)
@torch.no_grad()
def no_layer_is_dead(policy: NppPolicy, sample: Observed) -> str:
    """Every layer answers differently to different observations, with finite numbers."""
    shares: dict[str, float] = {}
    handles = []

    def watch(name: str) -> Callable:
        def remember(module: nn.Module, inputs: tuple, output: torch.Tensor | tuple) -> None:
            # a recurrent layer gives its last states, too
            answers = output[0] if isinstance(output, tuple) else output
            flat = answers.detach().float().flatten(1)
            if not bool(torch.isfinite(flat).all()):
                raise CheckFailed(
                    f"{name} gives numbers that are not finite", "lower --initial-lr, or look at its input"
                )
            shares[name] = float((flat.std(dim=0) > 0).float().mean())

        return remember

    leaves = [(name, module) for name, module in policy.named_modules() if not list(module.children())]
    try:
        for name, module in leaves:
            if any(True for _ in module.parameters()) or isinstance(module, nn.ReLU):
                handles.append(module.register_forward_hook(watch(name)))
        policy.logits_and_values(sample)
    finally:
        for handle in handles:
            handle.remove()
    dead = [name for name, share in shares.items() if share == 0]
    require(
        not dead,
        f"always the same answer from {', '.join(dead)}",
        "its weights are zero or its units are all cut off: initialise it anew, lower --initial-lr",
    )
    weakest = min(shares, key=lambda name: shares[name])
    return f"{len(shares)} layers; fewest live units {shares[weakest]:.0%} ({weakest})"


@check(UPDATE, CHECKPOINT)
@torch.no_grad()
def different_observations_get_different_answers(policy: NppPolicy, sample: Observed) -> str:
    """Logits and values differ between observations of the rollout, and the policy still chooses."""
    logits, values = policy.logits_and_values(sample)
    spread, value_spread = float(logits.std(dim=0).mean()), float(values.std())
    probabilities = torch.softmax(logits, dim=1)
    entropy = float(-(probabilities * torch.log(probabilities.clamp(min=1e-30))).sum(dim=1).mean())
    require(spread > 1e-6, f"logits differ by {spread:.1e} only", "the network does not look at what it sees")
    require(value_spread > 0, "every state has the same value", "the critic does not look at what it sees")
    require(
        entropy > 1e-3, f"entropy is {entropy:.1e} nats", "the policy is frozen: fewer --bc-epochs, more entropy bonus"
    )
    return f"logits spread by {spread:.2f}, values by {value_spread:.2f}; entropy {entropy:.2f} nats"


@check(UPDATE, CHECKPOINT)
def the_network_is_the_one_in_the_table(policy: NppPolicy) -> str:
    """The layers are those that the table of architectures describes: same names, shapes and number of weights."""
    with torch.random.fork_rng(devices=[]):
        wanted = listing(build_policy(policy.architecture))
    have = listing(policy)
    different = sorted(set(wanted) ^ set(have))
    require(not different, f"layers differ: {'; '.join(different[:6])}", "build the policy with build_policy")
    digest = hashlib.sha256("\n".join(have).encode()).hexdigest()[:12]
    return f"{policy.architecture}, {sum(p.numel() for p in policy.parameters()):,} weights, layers {digest}"


def listing(policy: NppPolicy) -> list[str]:
    """A line per tensor and per layer without weights: name, shape or kind."""
    tensors = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in policy.state_dict().items()]
    return tensors + [f"{name} {type(module).__name__}" for name, module in policy.named_modules()]
