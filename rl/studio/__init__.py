"""Plug-in of the studio for trained agents; nppsim finds it through the entry-point group ``nppsim.agents``.

Only agents that the page cannot play need torch, whose import takes seconds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nppsim.errors import import_optional
from nppsim.studio.agents import PagePolicy, StudioAgent
from rl.studio import policy_file


class CheckpointPlugin:
    """A ``nppsim.studio.agents.Plugin`` for checkpoints and exported networks.

    Its experiments are folders written by ``scripts/train_and_compare.py``.
    """

    def __init__(self, shipped: Path | None = None):
        """shipped: file of the agent shipped with the project."""
        self._shipped = shipped

    def page_policy(self, path: Path) -> PagePolicy | None:
        """Return the policy of a checkpoint for the page; None if it cannot be played there."""
        try:
            data = policy_file.browser_policy(path)
        except policy_file.READ_ERRORS:
            return None
        return PagePolicy(policy_file.settings_of(data)["facts"], data)

    def load_agent(self, path: Path) -> StudioAgent:
        """Load a checkpoint or an exported network.  Raises CheckpointError, ExportError or MissingPackageError."""
        import_optional("torch", "train")
        from rl.studio.agent import LoadedAgent

        return LoadedAgent(path)

    def shipped_agent(self) -> Path | None:
        """Return the file of the shipped agent, or None if it is missing."""
        return self._shipped if self._shipped and self._shipped.is_file() else None

    def read_experiment(self, folder: Path, trust_plugins: bool = False) -> Mapping[str, Any]:
        """Return the state of an experiment; see ``rl.studio.training``.  Raises ResultsError or MissingPackageError."""
        import_optional("torch", "train")
        from rl.studio.training import read_experiment

        return read_experiment(folder, trust_plugins)
