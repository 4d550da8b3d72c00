"""Inference for few observations without torch: the network of a policy as one Numba kernel.

    policy = compiled(policy)                            # unchanged if the kernel does not support it
    actions = policy.act(obs, deterministic=True)        # raw observations {key: array [N, *shape]}
    logits, values = policy.compute(obs)

For one observation, torch takes 1.5 ms, most of it to start some 60 operations; the kernel takes 0.1 ms.  Logits equal those
of torch up to rounding.  Each row of a result depends on its observation only, and has the same bits on every CPU.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from nppsim.actions import MIRRORED_ACTION, NUM_ACTIONS
from nppsim.observe.foresight import AHEAD
from nppsim.observe.layout import SPECS
from nppsim.observe.stacking import NO_STACKS
from rl.policy.architectures import Architecture, get_architecture
from rl.policy.constants import (
    DEATH_PENALTY,
    MIRROR_AXES,
    MIRROR_POSITIONS,
    MIRROR_SIGNS,
    PIXEL_SCALE,
)
from rl.policy.inference_kernels import forward
from rl.policy.policy import NppPolicy, sample_actions

MAX_ROWS = 32  # largest number of observations for the kernel; torch is faster for more
ENCODER, HEADS = "features_extractor", "mlp_extractor"


def unsupported(architecture: Architecture) -> str | None:
    """Return the part of a network that neither this kernel nor the page can run; None if they can run the network."""
    parts = {
        "a module of a plug-in": architecture.module,
        "a graph network": architecture.graph,
        "a recurrent state": architecture.memory,
        "subtasks": architecture.subtasks,
        "image encoders": architecture.player_frame or architecture.global_view,
        "attention": architecture.attention,
        "deep heads": architecture.deep,
        "stacked frames": architecture.stacking,
    }
    return next((name for name, present in parts.items() if present), None)


def layers_of(weights: Mapping[str, Any], part: str) -> list[str]:
    """Return the names of the dense layers in one part of a network, in order.  weights: tensors by name."""
    layers = [
        name.removesuffix(".weight") for name in weights if name.startswith(f"{part}.") and name.endswith(".weight")
    ]
    return sorted(layers, key=lambda name: int(name.rpartition(".")[2]))


def branches_of(architecture: Architecture, weights: Mapping[str, Any]) -> list[tuple[list[str], list[str]]]:
    """Return (observation keys, names of the dense layers) of each branch of the encoder.  weights: tensors by name."""
    branches = [
        (list(keys), layers_of(weights, f"{ENCODER}.vectors.{i}.layers"))
        for i, (keys, _) in enumerate(architecture.vectors)
    ]
    if architecture.surroundings:
        branches.append((["surroundings"], [f"{ENCODER}.images.surroundings.linear"]))
    return branches


def mirror_of(key: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return (source, signs, positions) of the mirror image of one observation, whose flat size is n.

    source: int64[n], index of the number that moves to each place.
    signs: float32[n], its factor.
    positions: indices of x positions, which become WIDTH - x where x or the next number is not 0.
    """
    shape = SPECS[key].shape
    source = np.arange(math.prod(shape)).reshape(shape)
    if key in MIRROR_AXES:
        source = np.flip(source, MIRROR_AXES[key])
    if key == "foresight":
        source = source[MIRRORED_ACTION]
    signs = np.broadcast_to(np.array(MIRROR_SIGNS.get(key, [1.0]), np.float32), shape)
    return source.ravel(), signs.ravel(), MIRROR_POSITIONS.get(key, [])


def death_penalty(foresight: np.ndarray) -> np.ndarray:
    """Return ``rl.policy.policy.death_penalty`` of an array: float32[N, 6, 4, 11] -> float32[N, 6]."""
    latest = foresight.reshape(len(foresight), NUM_ACTIONS, -1, len(AHEAD))[..., AHEAD.death].min(axis=2)
    return np.float32(DEATH_PENALTY) * ((latest > 0) + latest)


class CompiledPolicy:
    """A policy with dense layers in float32 on the CPU, with its weights at the time of creation.

    policy: the policy, which computes results for more than MAX_ROWS observations; its weights must not change.
    observations, stacking, foresight, shielded, architecture: those of the policy.
    """

    stacking = NO_STACKS

    def __init__(self, policy: NppPolicy):
        self.policy, self.architecture, self.observations = policy, policy.architecture, policy.observations
        self.foresight, self.shielded = policy.foresight, policy.shielded
        architecture = get_architecture(policy.architecture)
        weights = {name: values.numpy() for name, values in policy.state_dict().items()}
        floats = [key for key in self.observations if SPECS[key].dtype == "float32"]
        self._keys = [*floats, *(key for key in self.observations if key not in floats)]
        sizes = [math.prod(SPECS[key].shape) for key in self._keys]
        begins = dict(zip(self._keys, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        self._normaliser = tuple(
            weights[f"{ENCODER}.normalize.{name}"].astype(np.float32) for name in ("mean", "divisor")
        )
        steps: list[tuple[int, int, int, int, int, bool]] = []
        blocks: list[np.ndarray] = []
        end, size = sum(sizes), 0

        def add(layer: str, begin: int, relu: bool = True, scale: float = 1.0) -> int:
            """Append a layer that reads the work space from ``begin`` on; return where it writes."""
            nonlocal end, size
            weight = weights[f"{layer}.weight"].T * np.float32(scale)
            steps.append((begin, len(weight), end, weight.shape[1], size, relu))
            blocks.extend((weight.ravel(), weights[f"{layer}.bias"]))
            size += weight.size + weight.shape[1]
            end += weight.shape[1]
            return end - weight.shape[1]

        last_layers = []  # of each branch; added one after the other, so that their outputs are concatenated
        for keys, layers in branches_of(architecture, weights):
            begin = begins[keys[0]]
            for layer in layers[:-1]:
                begin = add(layer, begin)
            last_layers.append((layers[-1], begin, PIXEL_SCALE if SPECS[keys[0]].dtype == "uint8" else 1.0))
        features = end
        for layer, begin, scale in last_layers:
            add(layer, begin, scale=scale)
        for layer in layers_of(weights, f"{ENCODER}.fusion"):
            features = add(layer, features)
        ends = []
        for head, output in (("policy_net", "action_net"), ("value_net", "value_net")):
            begin = features
            for layer in layers_of(weights, f"{HEADS}.{head}"):
                begin = add(layer, begin)
            ends.append(add(output, begin, relu=False))
        self._outputs = np.array([*range(ends[0], ends[0] + NUM_ACTIONS), ends[1]])
        self._steps, self._weights = np.array(steps), np.concatenate(blocks)
        images = [(begins[key], *mirror_of(key)) for key in (self._keys if architecture.mirror else ())]
        self._mirror = (
            np.array([begin + i for begin, source, _, _ in images for i in source], np.int64),
            np.array([sign for _, _, signs, _ in images for sign in signs], np.float32),
            np.array([begin + x for begin, _, _, positions in images for x in positions], np.int64),
        )
        self._foresight = begins["foresight"] if policy.shielded else -1

    def __reduce__(self) -> tuple[type["CompiledPolicy"], tuple[NppPolicy]]:
        return type(self), (self.policy,)

    def compute(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return logits float32[N, 6] and values float32[N] for raw observations {key: array [N, *shape]}."""
        rows = len(obs[self._keys[0]])
        if rows > MAX_ROWS:
            return self.policy.compute(obs)
        raw = np.concatenate([obs[key].reshape(rows, -1) for key in self._keys], axis=1, dtype=np.float32)
        outputs = np.empty((rows, NUM_ACTIONS + 1), np.float32)
        forward(
            raw, *self._normaliser, *self._mirror, self._foresight, self._steps, self._weights, self._outputs, outputs
        )
        return outputs[:, :NUM_ACTIONS], outputs[:, NUM_ACTIONS]

    def act(
        self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None = None
    ) -> np.ndarray:
        """Return actions int64[N], as ``NppPolicy.act`` does; an equal ``rng`` gives equal samples."""
        logits, _ = self.compute(obs)
        return logits.argmax(axis=1) if deterministic else sample_actions(torch.from_numpy(logits), rng).numpy()


def compiled(policy: Any) -> Any:
    """Return a ``CompiledPolicy``, or the policy itself if it is not an NppPolicy that the kernel supports."""
    if not isinstance(policy, NppPolicy) or unsupported(get_architecture(policy.architecture)):
        return policy
    return CompiledPolicy(policy) if policy.device.type == "cpu" and policy.precision == "float32" else policy
