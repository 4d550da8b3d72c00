"""The former place of ``nppsim.replays.replay``, for programs that import it from here."""

from nppsim.actions import *
from nppsim.replays.replay import *
