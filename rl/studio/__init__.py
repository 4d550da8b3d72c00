"""Plugin of the studio for trained agents (``nppsim.studio.agents.Plugin``): play, inspect decisions, show a training.

nppsim finds it through the entry-point group ``nppsim.agents``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl.studio.agent import WatchedAgent
from rl.studio.training import read_experiment


class Checkpoints:
    """Agents are checkpoints of this project, or networks exported from them; experiments are folders of
    ``scripts/train_and_compare.py``.
    """

    def __init__(self, shipped: Path | None = None):
        """shipped: path of the agent that comes with the project."""
        self._shipped = shipped

    def load_agent(self, path: Path) -> WatchedAgent:
        """Load a checkpoint or an exported network.  Raises CheckpointError or ExportError."""
        return WatchedAgent(path)

    def shipped_agent(self) -> Path | None:
        """Path of the trained agent shipped with the project, or None."""
        return self._shipped if self._shipped and self._shipped.is_file() else None

    def read_experiment(self, folder: Path) -> Mapping[str, Any]:
        """See ``rl.studio.training``.  Raises ResultsError."""
        return read_experiment(folder)
