"""Settings of the observation ``foresight``.

sim = BatchSimulator(levels, 64, observations=("state", "foresight"), foresight=Foresight(horizon=20, noise=0.1))
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nppsim.actions import NUM_ACTIONS
from nppsim.observe.layout import CONTINUATIONS
from nppsim.physics.shooters import GAUSS_CREDIT, GAUSS_PREFIRE, ROCKET_MAX_SPEED, ROCKET_PREFIRE, ROCKET_SPEEDS
from nppsim.settings import check_settings, require, setting

HORIZON = 40  # frames; default
# With longer branches plus ESCAPE_FRAMES, an evil ninja could reach positions of the branch (FOLLOW_FRAMES).
MAX_HORIZON = 59
NUM_ESCAPES = 18
BRANCHES = tuple(NUM_ACTIONS * (1 + i) for i in range(len(CONTINUATIONS)))

# A ``Foresight`` for kernels.  continuations: number of CONTINUATIONS that are simulated.  flight: px, longest flight of a
# rocket not yet launched.  credit: largest gain of a gauss turret's timer in time to shoot.
FORESIGHT_DTYPE = np.dtype(
    [
        ("horizon", "i4"),
        ("continuations", "i4"),
        ("escapes", "i4"),
        ("credit", "i4"),
        ("noise", "f8"),
        ("flight", "f8"),
    ],
    align=True,
)
_PARTS = {"horizon": r"\d+", "branches": r"\d+", "escapes": r"\d+", "noise": r"[01]\.\d+"}
_NAME = re.compile("-?".join(f"(?:{name}({value}))?" for name, value in _PARTS.items()))
NAME_SYNTAX = "horizonN, branchesN, escapesN and noiseX, in this order, joined by -"


@dataclass(frozen=True)
class Foresight:
    """Settings of simulator look-ahead.  Defaults: the true simulator.

    The shape of the observation does not depend on them.  With fewer than 24 branches, the last continuations repeat the
    first one; with 0 escapes, no dead ends are marked.  With noise, each action in turn exchanges its outcomes with another
    action with this probability.  The draws are a fixed function of the ninja's state.
    Raises ConfigError for invalid values.
    """

    flag_prefix: ClassVar[str] = "foresight-"
    horizon: int = setting(HORIZON, "frames of a branch of look-ahead", low=1, high=MAX_HORIZON)
    branches: int = setting(BRANCHES[-1], f"branches of look-ahead: {', '.join(map(str, BRANCHES))}", low=1)
    escapes: int = setting(
        NUM_ESCAPES, "input sequences tried beyond the horizon to find dead ends", low=0, high=NUM_ESCAPES
    )
    noise: float = setting(
        0.0, "probability that an action exchanges its outcomes with another one (model error)", low=0, high=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
        require(self.branches in BRANCHES, f"give {', '.join(map(str, BRANCHES))}", "branches", self.branches)
        require(self.noise == round(self.noise, 4), "give at most four decimals", "noise", self.noise)
        object.__setattr__(self, "noise", float(self.noise))

    def __bool__(self) -> bool:
        """True if a setting is not at its default."""
        return self != FORESIGHT

    @property
    def name(self) -> str:
        """Suffix of an architecture's name, without the "+"; "" for the defaults."""
        own = (name for name in _PARTS if getattr(self, name) != getattr(FORESIGHT, name))
        return "-".join(f"{name}{getattr(self, name)}" for name in own)

    @classmethod
    def named(cls, name: str) -> "Foresight":
        """Parse a ``name``; raise ValueError with a description of the syntax if it is invalid."""
        match = _NAME.fullmatch(name)
        if match is not None:
            texts = {part: text for part, text in zip(_PARTS, match.groups(), strict=True) if text}
            values: dict[str, Any] = {
                part: float(text) if part == "noise" else int(text) for part, text in texts.items()
            }
            foresight = cls(**values)
            if foresight.name == name and name:
                return foresight
        raise ValueError(f"give {NAME_SYNTAX}")

    def record(self) -> np.ndarray:
        """Return FORESIGHT_DTYPE[1]."""
        launched = max(self.horizon + 1 - ROCKET_PREFIRE, 0)
        credit = int(max(GAUSS_CREDIT)) * max(self.horizon - GAUSS_PREFIRE, 0)
        flight = float(sum(ROCKET_SPEEDS[:launched])) + ROCKET_MAX_SPEED * max(launched - len(ROCKET_SPEEDS), 0)
        values = self.horizon, self.branches // NUM_ACTIONS, self.escapes, credit, self.noise, flight
        return np.array([values], FORESIGHT_DTYPE)


FORESIGHT = Foresight()
