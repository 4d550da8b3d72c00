"""Planner: search in the exact simulator for runs that finish a level.

``plan`` finds a run from the spawn or from any state, guided by the geodesic distance to the exit.  ``better_runs`` shortens
a run or collects gold.  ``retime`` converts a 60 Hz recording to one action per decision.
"""

from nppsim.planner.gold import better_runs, gold_in_level
from nppsim.planner.plan import par_frames, plan
from nppsim.planner.retime import RetimedReplay, retime
from nppsim.planner.search import PlannedRun, PlanStart
