"""Mirror images of observations, for networks that treat left and right equally (``NAME+mirror``).

The outputs of a network for an observation and for its mirror image are averaged, which makes any network equivariant.
Source: van der Pol et al. 2020 (MDP Homomorphic Networks).
"""

from collections.abc import Iterable, Mapping

import torch

from nppsim.actions import MIRRORED_ACTION
from nppsim.levels.stage import CELLS_X, TILE
from nppsim.observe.layout import SPECS

WIDTH = CELLS_X * TILE  # px, width of the stage
# Components that change their sign.
_SIGNED = {
    "game_state": ("vx", "wall_normal", "floor_normal_x", "pad_direction_x"),
    "reachability_features": ("waypoint1_dx", "waypoint2_dx"),
    "entity_positions": (),
    "switch_states": (),
    "hazards": ("dx", "vx"),
    "foresight": ("dx", "vx"),
}
# Positions on the stage: indices of x; y follows.  Both are 0 for an entity that does not exist.
_POSITIONS = {
    "game_state": [0],
    "entity_positions": [i for i, name in enumerate(SPECS["entity_positions"].components) if name.endswith("_x")],
    "switch_states": [i for i, name in enumerate(SPECS["switch_states"].components) if name.endswith("_x")],
}
_AXES = {"surroundings": -1, "player_frame": -2, "global_view": -3}  # horizontal axis of pictures
_SIGNS = {key: [-1.0 if name in signed else 1.0 for name in SPECS[key].components] for key, signed in _SIGNED.items()}


def mirror_image(key: str, values: torch.Tensor) -> torch.Tensor:
    """Return the observations of one key as they would be in the mirrored level, in the same shape.

    values: tensor [N, *shape], or [N, size] as in ``nppsim.gym.spaces``; all keys except ``graph_state``.
    """
    image = values.reshape(-1, *SPECS[key].shape)
    if key in _AXES:
        return image.flip(_AXES[key]).reshape(values.shape)
    if key == "foresight":
        image = image[:, MIRRORED_ACTION.tolist()]
    image = image * image.new_tensor(_SIGNS[key])
    if x := _POSITIONS.get(key):
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
