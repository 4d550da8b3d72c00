"""Time and score of a run as N++ displays them, in seconds with three decimals.

    seconds(754)                     # 12.567
    score(754, gold=3)               # 83.433: 90 s, 2 s per piece of gold, minus the time

The score is the time left on the game's clock.  The game ends a run when the clock reaches 0.
"""

from nppsim.actions import FRAMES_PER_SECOND

START_S = 90  # time on the clock at the spawn
GOLD_S = 2  # time added to the clock per piece of gold


def seconds(frames: int) -> float:
    """Convert frames to seconds."""
    return round(frames / FRAMES_PER_SECOND, 3)


def score(frames: int, gold: int) -> float:
    """Return the score of a run that wins after ``frames`` frames with ``gold`` pieces of gold."""
    return round(START_S + GOLD_S * gold - frames / FRAMES_PER_SECOND, 3)


def time_text(frames: int) -> str:
    """Format the time of ``frames`` frames, e.g. ``12.567 s``."""
    return f"{seconds(frames):.3f} s"
