"""Ghosts: a second run of the same level in a film, from a replay or from the planner."""

from pathlib import Path

import numpy as np

from nppsim.levels.level import Level
from nppsim.planner.plan import plan
from nppsim.replays.replay import Replay, ReplayError

PLANNER = "planner"  # name of the planner's run


def ghost_inputs(level: Level, place: str) -> tuple[np.ndarray, str]:
    """Return the inputs (uint8[frames]) and the name of the ghost's run.

    place: path of a replay of the same level, or PLANNER to search for a run.
    Raises ReplayError for a replay of another level, and if the planner finds no run.
    """
    if place != PLANNER:
        replay = Replay.load(place)
        if replay.level != level:
            raise ReplayError(f"{place} was recorded on another level; the ghost must be a run of the same level")
        return replay.inputs, Path(place).name
    run = plan(level)
    if run is None:
        raise ReplayError("the planner found no run of this level; film it without a ghost, or with a replay as ghost")
    return run.inputs, PLANNER
