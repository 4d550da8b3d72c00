"""All names of ``--architectures``, observations for networks, and the precision of their layers."""

from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from bc.dataset import BCDataset
from nppsim.batch import BatchSimulator
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.policy.architectures import ALIASES, ARCHITECTURES, get_architecture
from rl.policy.graph_network import TypedLinear
from rl.policy.policy import build_policy
from rl.policy.recurrent import RECURRENT_STATE
from rl.ppo.update_benchmark import graph_states

# Every suffix after a +, alone and combined, for networks with and without images and graph.
WITH_PARTS = (
    "full_hgt+deep2+subtasks50",
    "mlp_baseline+gru",
    "mlp_baseline+visual2-state3-repeat",
    "vision_free+deep2",
    "vision_free+gru",
    "vision_free+subtasks50",
    "vision_free_foresight+deep2+mirror",
    "vision_free_foresight+horizon20-branches12-escapes0-noise0.1+unshielded",
    "vision_free_foresight+state4+deep2+gru",
    "vision_free_gcn+subtasks50",
)
EVERY_NAME = sorted({*ARCHITECTURES, *ALIASES, *WITH_PARTS})


def simulator_for(name, levels, num_envs):
    """Return a simulator with the observations of a network."""
    network = get_architecture(name)
    seen = {"observations": network.observations, "stacking": network.stacking, "foresight": network.foresight}
    return BatchSimulator(levels, num_envs, **seen, threads=1)


def observed(sim, steps=16):
    """Return (observations of random play per decision, their statistics)."""
    rng, seen, statistics = np.random.default_rng(0), [], ObservationStatistics(sim.keys)
    sim.reset()
    for _ in range(steps):
        seen.append({key: values.copy() for key, values in sim.obs.items()})
        statistics.update({key: sim.latest[key] for key in statistics.float_keys})
        sim.step(rng.integers(0, 6, sim.num_envs))
    return {key: np.concatenate([some[key] for some in seen]) for key in sim.obs}, statistics


def remembering(policy, tensors):
    """Return the same with a non-zero memory state for recurrent policies."""
    if policy.memory is None:
        return tensors
    rows = len(next(iter(tensors.values())))
    states = torch.empty(rows, policy.memory.size).uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    return {**tensors, RECURRENT_STATE: states}


def dataset_of(name, levels, rows=32):
    """Return random play as a dataset whose actions are all "right"."""
    network = get_architecture(name)
    sim = BatchSimulator(levels, 4, observations=network.observations, threads=1)  # a dataset contains single frames
    obs = {key: values[:rows] for key, values in observed(sim)[0].items()}
    dataset = BCDataset(
        path="made", key="made", frame_skip=4, observations=obs, actions=np.full(rows, 2, np.int8),
        previous_actions=np.full(rows, 2, np.int8), demonstration=np.arange(rows, dtype=np.int32) // (rows // 4),
        categories=("made",), names=tuple("abcd"), level_fingerprints=tuple("abcd"), category=np.zeros(4, np.int16),
        validation=np.arange(4) == 0, selection="made", bank=sim.bank,
    )  # fmt: skip
    return dataset.stacked(network.stacking)


@contextmanager
def number_formats(policy):
    """Context manager; fills a dictionary: name of each layer with weights -> dtypes of its outputs."""
    found = {}

    def note(name):
        def hook(layer, given, answer):
            answer = answer[0] if isinstance(answer, tuple) else answer
            answer = answer.data if isinstance(answer, nn.utils.rnn.PackedSequence) else answer
            found.setdefault(name, set()).add(answer.dtype)

        return hook

    kinds = (nn.Linear, nn.Conv2d, nn.GRU, TypedLinear)
    hooks = [
        layer.register_forward_hook(note(name)) for name, layer in policy.named_modules() if isinstance(layer, kinds)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def made_up_policy(architecture, rows):
    """Return an untrained policy and random observations [rows, ...] that match its normaliser."""
    rng = np.random.default_rng(0)
    known = get_architecture(architecture)
    keys, stacking = known.observations, known.stacking
    obs: dict[str, np.ndarray] = {}
    for spec in (layout.SPECS[key] for key in keys):
        shape = rows, *stacking.shape(spec.key)
        if spec.key == "graph_state":
            obs[spec.key] = graph_states(rows)
            continue
        floats = spec.dtype == "float32"
        obs[spec.key] = rng.normal(size=shape).astype(np.float32) if floats else rng.integers(0, 256, shape, np.uint8)
    statistics = ObservationStatistics(keys)
    statistics.update({key: values[:, -1] if stacking.frames(key) > 1 else values for key, values in obs.items()})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = build_policy(architecture, statistics)
    return policy, {key: torch.from_numpy(values) for key, values in obs.items()}


@torch.no_grad()
def parts_without_effect(policy, obs):
    """Key of each image -> numbers of its parts (rows, columns, planes; cells of the surroundings) that change no output."""
    found = {}
    for key in [key for key in policy.observations if layout.SPECS[key].dtype == "uint8" and key != "graph_state"]:
        changed = inverted_parts(obs[key][0], policy.stacking.frames(key))
        batch = {other: values[:1].expand(len(changed), *values.shape[1:]) for other, values in obs.items()}
        before, after = (policy.logits_and_values(some) for some in (batch, batch | {key: changed}))
        same = (before[0] == after[0]).all(dim=1) & (before[1] == after[1])
        found[key] = torch.nonzero(same).flatten().tolist()
    return found


def inverted_parts(image, frames):
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


def _inverted(image, flags):
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
