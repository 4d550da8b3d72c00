"""The former place of ``nppsim.levels.level``, for programs that import it from here."""

from nppsim.levels.kinds import *
from nppsim.levels.level import *
