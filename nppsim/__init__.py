"""nppsim: the N++ physics, exact and fast, with observations and Gymnasium environments."""

from typing import TYPE_CHECKING

import nppsim.gym  # registers the environments
from nppsim._lazy import import_lazily

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
import_lazily(__name__, _MODULES)
