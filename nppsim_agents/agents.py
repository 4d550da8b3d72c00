"""Plug-in of the studio for agents of this project (entry point of the group ``nppsim.agents``)."""

from typing import Any

from nppsim.errors import import_optional
from nppsim_agents import DATASETS

_SHIPPED = "agents/vision_free_foresight.safetensors"  # in the shipped data


def checkpoints() -> Any:
    """Return the plug-in ``rl.studio.CheckpointPlugin``.  Raises MissingPackageError without safetensors."""
    import_optional("safetensors", "train")
    from rl.studio import CheckpointPlugin

    return CheckpointPlugin(DATASETS and DATASETS / _SHIPPED)
