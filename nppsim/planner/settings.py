"""What a search for a run depends on besides the level."""

from dataclasses import dataclass

from nppsim.actions import FRAME_SKIP, FRAMES_PER_SECOND
from nppsim.settings import check_settings, setting


@dataclass(frozen=True)
class PlannerSettings:
    """How runs are searched; the only place where the defaults of ``plan`` and of the command lines are written."""

    frame_skip: int = setting(
        FRAME_SKIP, "frames (1/60 s) per decision", flag="frame-skip", low=1, high=FRAMES_PER_SECOND
    )
    seed: int = setting(0, "of the planner", flag="seed", aliases=("seeds",), low=0)
    runs: int = setting(1, "runs per level, with seeds from --seed on", flag="runs", low=1)
    budget: int = setting(5_000_000, "simulated frames per run", flag="budget", low=1)
    min_hold: int = setting(1, "decisions that an action lasts at least", flag="min-hold", low=1, high=1000)
    noise: float = setting(
        12.0,
        "random part of a state's score; with more of it, runs of different seeds differ more",
        flag="noise",
        metavar="PX",
        low=0,
    )

    def __post_init__(self) -> None:
        check_settings(self)
