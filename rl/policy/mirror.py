"""Mirror images of observations, for networks that treat left and right equally (``NAME+mirror``).

The outputs of a network for an observation and for its mirror image are averaged, which makes any network equivariant.
Source: van der Pol et al. 2020 (MDP Homomorphic Networks).
"""

from collections.abc import Iterable, Mapping

import torch

from nppsim.actions import MIRRORED_ACTION
from nppsim.observe.layout import SPECS
from rl.policy.constants import MIRROR_AXES, MIRROR_POSITIONS, MIRROR_SIGNS, WIDTH


def mirror_image(key: str, values: torch.Tensor) -> torch.Tensor:
    """Return the observations of one key as they would be in the mirrored level, in the same shape.

    values: tensor [N, *shape], or [N, size] as in ``nppsim.gym.spaces``; all keys except ``graph_state``.
    """
    image = values.reshape(-1, *SPECS[key].shape)
    if key in MIRROR_AXES:
        return image.flip(MIRROR_AXES[key]).reshape(values.shape)
    if key == "foresight":
        image = image[:, MIRRORED_ACTION.tolist()]
    image = image * image.new_tensor(MIRROR_SIGNS[key])
    if x := MIRROR_POSITIONS.get(key):
        exists = (image[..., x] != 0) | (image[..., [i + 1 for i in x]] != 0)
        image[..., x] = torch.where(exists, WIDTH - image[..., x], image[..., x])
    return image.reshape(values.shape)


def with_mirror_images(observations: Mapping[str, torch.Tensor], keys: Iterable[str]) -> dict[str, torch.Tensor]:
    """Return observations of 2 N rows: those given, then their mirror images."""
    return {key: torch.cat((observations[key], mirror_image(key, observations[key]))) for key in keys}


def averaged(logits: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Average the outputs for observations and mirror images: float32[2 N, 6], float32[2 N] -> float32[N, 6], float32[N]."""
    own, other = logits.unflatten(0, (2, -1))  # chunk() cannot be exported for any number of rows
    return (own + other[:, MIRRORED_ACTION.tolist()]) / 2.0, values.unflatten(0, (2, -1)).mean(dim=0)
