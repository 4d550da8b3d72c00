"""The former place of ``nppsim.pictures.render``, for programs that import it from here."""

from nppsim.pictures.render import *
