"""Time and score of a run as N++ shows them, in seconds with three decimals.

    seconds(754)                     # 12.567
    score(754, gold=3)               # 83.433: 90 s, 2 s per piece of gold, minus the time

The clock of the game counts down to the score.  Below 0 the game would have ended the run.
"""

from nppsim.actions import FRAMES_PER_SECOND

START_S = 90  # on the clock at the spawn
GOLD_S = 2  # for each piece of gold


def seconds(frames: int) -> float:
    """Time of so many frames."""
    return round(frames / FRAMES_PER_SECOND, 3)


def score(frames: int, gold: int) -> float:
    """Time left on the clock after so many frames, with so many pieces of gold: the score of a run that wins then."""
    return round(START_S + GOLD_S * gold - frames / FRAMES_PER_SECOND, 3)


def time_text(frames: int) -> str:
    """Time of so many frames, e.g. ``12.567 s``."""
    return f"{seconds(frames):.3f} s"
