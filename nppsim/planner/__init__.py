"""The planner: runs that finish levels, found by search in the exact simulator."""

from nppsim.planner.search import plan, polish, retime
