"""A second run of a level for a film: from a replay, or found by the planner."""

from pathlib import Path

import numpy as np

from nppsim.levels.level import Level
from nppsim.planner.plan import plan
from nppsim.replays.replay import Replay, ReplayError

PLANNER = "planner"  # name of the planner's run


def second_run(level: Level, source: str) -> tuple[np.ndarray, str]:
    """Return the inputs (uint8[frames]) and the name of the run.

    source: path of a replay of the same level, or PLANNER to search for a run.
    Raises ReplayError for a replay of another level, and if the planner finds no run.
    """
    if source != PLANNER:
        replay = Replay.load(source)
        if replay.level != level:
            raise ReplayError(f"{source} was recorded on another level; give a replay of the same level")
        return replay.inputs, Path(source).name
    run = plan(level)
    if run is None:
        raise ReplayError("the planner found no run of this level; leave out the second run, or give a replay")
    return run.inputs, PLANNER
