"""nppsim: the N++ physics, exact and fast, with observations and Gymnasium environments."""

__version__ = "0.1.0"

from nppsim._numba.progress import print_progress
from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.gym.env import NppEnv
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.levels.level import Level, LevelError
from nppsim.replays.replay_set import Replay, ReplayError
from nppsim.simulate import Run, simulate
from nppsim.verify import verify

print_progress()
