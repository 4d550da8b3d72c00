"""Time and score of a run as N++ displays them, in seconds with three decimals.

    seconds(754)                     # 12.567
    score(754, gold=3)               # 83.450: 90 s, 2 s per piece of gold, minus the time without its first frame

The score is the time left on the game's clock, which does not count the first frame of a level.  The game ends a run when
the clock reaches 0.  Source: docs/physics.md, section 9.5.
"""

from nppsim.actions import FRAMES_PER_SECOND

START_S = 90  # time on the clock at the spawn
GOLD_S = 2  # time added to the clock per piece of gold


def seconds(frames: int) -> float:
    """Convert frames to seconds."""
    return round(frames / FRAMES_PER_SECOND, 3)


def score(frames: int, gold: int, levels: int = 1) -> float:
    """Return the score of a run that wins after ``frames`` frames with ``gold`` pieces of gold.

    levels: number of levels played in a row with one clock.
    """
    return round(START_S + GOLD_S * gold - max(frames - levels, 0) / FRAMES_PER_SECOND, 3)


def time_text(frames: int) -> str:
    """Format the time of ``frames`` frames, e.g. ``12.567 s``."""
    return f"{seconds(frames):.3f} s"
