"""The studio's plug-in for this project's agents (entry point of the group ``nppsim.agents``)."""

import importlib
from typing import Any

from nppsim.errors import needed
from nppsim_agents.commands import IN_WHEEL


def checkpoints() -> Any:
    """``rl.studio.Checkpoints``, from where a wheel or a checkout has it.  MissingPackageError without PyTorch."""
    needed("torch", "train")
    return importlib.import_module("nppsim_agents.rl.studio" if IN_WHEEL else "rl.studio").Checkpoints()
