"""The planner: runs that finish levels, found by search in the exact simulator.

``plan`` follows the geodesic distance to the exit, from the spawn or from any state of a simulator; ``polish`` looks for
shorter runs; ``retime`` moves a 60 Hz recording onto the decision grid.
"""

from nppsim.planner.plan import par_frames, plan
from nppsim.planner.polish import polish
from nppsim.planner.retime import RetimedReplay, retime
from nppsim.planner.search import PlannedRun, PlanStart
