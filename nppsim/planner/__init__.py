"""Planner: search in the exact simulator for runs that finish levels.

``plan`` follows the geodesic distance to the exit, from the spawn or from any state of a simulator.  ``polish`` searches
for shorter runs.  ``retime`` converts a 60 Hz recording to the decision grid.
"""

from nppsim.planner.plan import par_frames, plan
from nppsim.planner.polish import polish
from nppsim.planner.retime import RetimedReplay, retime
from nppsim.planner.search import PlannedRun, PlanStart
