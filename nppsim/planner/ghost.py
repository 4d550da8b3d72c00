"""Another run of a level to film beside one's own: a recorded one, or the planner's."""

from pathlib import Path

import numpy as np

from nppsim.levels.level import Level
from nppsim.planner.plan import plan
from nppsim.replays.replay import Replay, ReplayError

PLANNER = "planner"  # whose run it is where no replay is named


def ghost_inputs(level: Level, place: str) -> tuple[np.ndarray, str]:
    """Inputs (uint8[frames]) of the run that a ghost shows, and its name.

    place: of a replay of the same level, or PLANNER.  Raises ReplayError where there is no such run.
    """
    if place != PLANNER:
        replay = Replay.load(place)
        if replay.level != level:
            raise ReplayError(f"{place} was recorded on another level; give a run of the same one as ghost")
        return replay.inputs, Path(place).name
    run = plan(level)
    if run is None:
        raise ReplayError(
            "the planner has found no run of this level; film it without a ghost, or with a replay as ghost"
        )
    return run.inputs, PLANNER
