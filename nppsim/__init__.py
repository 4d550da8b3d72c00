"""nppsim: the N++ physics, exact and fast, with observations and Gymnasium environments."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import nppsim.gym  # registers the environments

if TYPE_CHECKING:
    from nppsim.actions import ACTION_INPUT
    from nppsim.bank import LevelBank
    from nppsim.batch import BatchSimulator
    from nppsim.gym.env import NppEnv
    from nppsim.gym.vector_env import NppVectorEnv
    from nppsim.levels.level import Level, LevelError
    from nppsim.replays.replay_set import Replay, ReplayError
    from nppsim.simulate import Run, simulate
    from nppsim.verify import verify

__version__ = "0.1.0"
_MODULES = {
    "ACTION_INPUT": "nppsim.actions",
    "BatchSimulator": "nppsim.batch",
    "Level": "nppsim.levels.level",
    "LevelBank": "nppsim.bank",
    "LevelError": "nppsim.levels.level",
    "NppEnv": "nppsim.gym.env",
    "NppVectorEnv": "nppsim.gym.vector_env",
    "Replay": "nppsim.replays.replay_set",
    "ReplayError": "nppsim.replays.replay_set",
    "Run": "nppsim.simulate",
    "simulate": "nppsim.simulate",
    "verify": "nppsim.verify",
}
__all__ = ["__version__", *_MODULES]


def _public(name: str) -> property:
    """Return a property that imports the module of a public name at its first use: Numba takes two seconds.

    The import of the module ``nppsim.simulate`` sets an attribute of this name, which must stay the function.
    """

    def get(_: ModuleType) -> Any:
        return getattr(importlib.import_module(_MODULES[name]), name)

    return property(get, lambda _module, _value: None)


sys.modules[__name__].__class__ = type("_Package", (ModuleType,), {name: _public(name) for name in _MODULES})
