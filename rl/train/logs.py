"""Where Stable-Baselines3's logger leaves its numbers."""

import os
from typing import Any

from stable_baselines3.common.logger import KVWriter, filter_excluded_keys

from rl.events import EventWriter


class ScalarOutput(KVWriter):
    """TensorBoard's event file, on disk after each ``dump``; see ``EventWriter`` for its folder and its errors."""

    def __init__(self, folder: str | os.PathLike):
        self._writer = EventWriter(folder)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write one row.  Raises TypeError or ValueError for what is no number."""
        for tag, value in sorted(filter_excluded_keys(key_values, key_excluded, "tensorboard").items()):
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
