"""Make your own levels as text: python examples/own_levels.py [FOLDER]

Write a level as text, verify with the planner that it can be finished, and save it in a level set.
"""

import sys
from pathlib import Path

from nppsim import Level, LevelBank, NppEnv, Replay
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.planner import plan

WIDTH, HEIGHT = 42, 23  # tiles of a level
ROOM = [
    "......................",
    "......................",
    "......................",
    "...........##.........",
    "......................",
    "8#########....########",  # 8: a slope that rises to the right
]
RECORDS = """
ninja 4.5 7.5
exit-door 22 7.5
exit-switch 13 5.5
mine 8 7.5
"""


def typed_level() -> Level:
    """Build a level that is solid except for the room in its upper left corner."""
    rows = [("##" + row).ljust(WIDTH, "#") for row in ROOM]
    rows = ["#" * WIDTH] * 2 + rows + ["#" * WIDTH] * (HEIGHT - 2 - len(rows))
    return Level.from_text("nppsim level 1\ntitle: Mind the gap\ntiles:\n" + "\n".join(rows) + "\nrecords:" + RECORDS)


def main(folder: str = "my_levels") -> int:
    """Write the level and a replay; return the length of the replay in frames."""
    level = typed_level()
    assert LevelBank([level]).reachable[0], "the exit switch or the exit cannot be reached"
    run = plan(level, budget=1_000_000)
    assert run is not None, "the planner finds no run: make it easier, or raise the budget"
    LevelSet.write(folder, [(level, LevelEntry("mine", par_frames=run.frames))])
    level.save(Path(folder) / ".as_text.level")  # a hidden file is not part of the level set
    Replay(level, run.inputs, success=True).save(f"{folder}.replay")
    env = NppEnv(levels=folder)
    env.reset(seed=0)
    print(f"{folder}: 1 level, par {run.frames} frames; {folder}.replay finishes it")
    return run.frames


if __name__ == "__main__":
    main(*sys.argv[1:])
