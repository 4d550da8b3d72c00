"""Plug-in of the studio for trained agents; nppsim finds it through the entry-point group ``nppsim.agents``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl.studio.agent import LoadedAgent
from rl.studio.training import read_experiment


class CheckpointPlugin:
    """A ``nppsim.studio.agents.Plugin`` for checkpoints and exported networks.

    Its experiments are folders written by ``scripts/train_and_compare.py``.
    """

    def __init__(self, shipped: Path | None = None):
        """shipped: file of the agent shipped with the project."""
        self._shipped = shipped

    def load_agent(self, path: Path) -> LoadedAgent:
        """Load a checkpoint or an exported network.  Raises CheckpointError or ExportError."""
        return LoadedAgent(path)

    def shipped_agent(self) -> Path | None:
        """Return the file of the shipped agent, or None if it is missing."""
        return self._shipped if self._shipped and self._shipped.is_file() else None

    def read_experiment(self, folder: Path) -> Mapping[str, Any]:
        """Return the state of an experiment; see ``rl.studio.training``.  Raises ResultsError."""
        return read_experiment(folder)
