"""The studio's plug-in for this project's agents (entry point of the group ``nppsim.agents``)."""

from typing import Any

from nppsim.errors import needed


def checkpoints() -> Any:
    """``rl.studio.Checkpoints``.  Raises MissingPackageError without PyTorch."""
    needed("torch", "train")
    from rl.studio import Checkpoints

    return Checkpoints()
