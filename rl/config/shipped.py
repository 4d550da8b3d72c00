"""Pickled policies for other processes, which compute with one thread and import its plugins first."""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from rl.config import plugins


@dataclass(frozen=True)
class Shipped:
    """Contents of a shipped agent: ``pickled``, the policy, and ``plugins`` that it needs."""

    pickled: bytes
    plugins: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: Any, own: Iterable[str] = ()) -> "Shipped":
        """Anything that can be pickled; own: plugins, of which files must lie at the same places wherever it goes."""
        places = (str(Path(plugin).resolve()) if plugin.endswith(".py") else plugin for plugin in own)
        return cls(pickle.dumps(policy), tuple(places))

    def unpack(self) -> Any:
        """The policy, read once in each process, which from then on computes with one thread: what a network computes may
        depend on their number.  ConfigError for a plugin that is not there."""
        return _unpacked(self)


@lru_cache(maxsize=1)
def _unpacked(shipped: Shipped) -> Any:
    plugins.load(shipped.plugins)
    torch.set_num_threads(1)
    return pickle.loads(shipped.pickled)
