"""Planner: search in the exact simulator for runs that finish a level.

``plan`` finds a run from the spawn or from any state, guided by the geodesic distance to the exit.  ``better_runs`` shortens
a run or collects gold.  ``retime`` converts a 60 Hz recording to one action per decision.
"""

from typing import TYPE_CHECKING

from nppsim._lazy import import_lazily

if TYPE_CHECKING:
    from nppsim.planner.gold import better_runs, gold_in_level
    from nppsim.planner.plan import par_frames, plan
    from nppsim.planner.retime import RetimedReplay, retime
    from nppsim.planner.search import PlannedRun, PlanStart

_MODULES = {
    "better_runs": "nppsim.planner.gold",
    "gold_in_level": "nppsim.planner.gold",
    "par_frames": "nppsim.planner.plan",
    "plan": "nppsim.planner.plan",
    "RetimedReplay": "nppsim.planner.retime",
    "retime": "nppsim.planner.retime",
    "PlannedRun": "nppsim.planner.search",
    "PlanStart": "nppsim.planner.search",
}
import_lazily(__name__, _MODULES)
