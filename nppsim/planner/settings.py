"""Settings of the planner."""

from dataclasses import dataclass

from nppsim.actions import FRAME_SKIP, FRAMES_PER_SECOND
from nppsim.settings import check_settings, setting

TIME, SCORE, ALL_GOLD = OBJECTIVES = ("time", "score", "all-gold")
LOW_GOLD = "low-gold"  # objective of scripts/solve.py only: least gold, then fastest
OBJECTIVE_HELP = "time: fastest run; score: 90 s + 2 s per piece of gold - time; all-gold: most gold, then fastest"


@dataclass(frozen=True)
class PlannerSettings:
    """Settings of the planner; they define the defaults of ``plan`` and of the flags."""

    frame_skip: int = setting(
        FRAME_SKIP, "frames (1/60 s) per decision", flag="frame-skip", low=1, high=FRAMES_PER_SECOND
    )
    seed: int = setting(0, "seed of the planner", flag="seed", aliases=("seeds",), low=0)
    runs: int = setting(1, "runs per level, with the seeds --seed, --seed + 1, ...", flag="runs", low=1)
    budget: int = setting(5_000_000, "maximum number of simulated frames per run", flag="budget", low=1)
    min_hold: int = setting(1, "minimum number of decisions per action", flag="min-hold", low=1, high=1000)
    noise: float = setting(
        12.0,
        "random part of a state's score, in px; with larger values, runs of different seeds differ more",
        flag="noise",
        metavar="PX",
        low=0,
    )

    def __post_init__(self) -> None:
        check_settings(self)
