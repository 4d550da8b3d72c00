"""Small samples that several checks look at."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from nppsim.observe import layout
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import FOLLOWS
from rl.ppo.ppo import PPO

Observed = Mapping[str, torch.Tensor]  # raw observations of some decisions: key -> [rows, *shape]
SAMPLE = 256  # decisions that checks of the network look at


def parts_of(ppo: PPO) -> dict[str, Any]:
    """What checks look at after an update."""
    return {"ppo": ppo, "policy": ppo.policy, "sample": observed(ppo, SAMPLE)}


def observed(ppo: PPO, rows: int, seed: int = 0) -> Observed:
    """Raw observations of so many decisions of the rollout, drawn at random."""
    index = np.random.default_rng(seed).choice(
        len(ppo.rollout_buffer), min(rows, len(ppo.rollout_buffer)), replace=False
    )
    found = ppo.rollout_buffer.observations(torch.from_numpy(np.sort(index)).to(ppo.device))
    return {key: values for key, values in found.items() if key != FOLLOWS}  # each by itself


def bytes_differ(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> list[str]:
    """Names of what is not, byte for byte, the same in both: "game_state.vx", "player_frame"."""
    names = []
    for key in {*first, *second}:
        if key not in first or key not in second:
            names.append(f"{key} (only in one)")
        elif first[key].dtype != second[key].dtype or first[key].shape != second[key].shape:
            names.append(f"{key} ({first[key].dtype}{first[key].shape} and {second[key].dtype}{second[key].shape})")
        elif first[key].tobytes() != second[key].tobytes():
            names += different_components(key, first[key], second[key])
    return sorted(names)


def different_components(key: str, first: np.ndarray, second: np.ndarray) -> list[str]:
    """Names of the components of a key in which two batches differ; the key alone for images."""
    components = layout.SPECS[key].components if key in layout.SPECS else ()
    if not components:
        return [key]
    different = (first != second).reshape(-1, first.shape[-1]).any(axis=0)
    return [f"{key}.{components[i]}" for i in np.flatnonzero(different)] or [f"{key} (signs of zero)"]


@contextlib.contextmanager
def in_float32(policy: NppPolicy) -> Iterator[None]:
    """The policy computes in float32 meanwhile: rounding must not hide that something changes."""
    before = policy.precision
    policy.precision = "float32"
    try:
        yield
    finally:
        policy.precision = before
