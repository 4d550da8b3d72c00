"""Hardware detection, memory estimates, and the plan of sizes for a training run.

``plan`` is the entry point; ``python -m hardware plan --architecture NAME`` prints a plan for any machine.
"""

from hardware.compute import Benchmark, Candidate, Timings
from hardware.detect import Gpu, Machine, detect
from hardware.memory import UpdateMemory, estimate_update, measure_update
from hardware.plan import Plan, plan
from hardware.plan_request import DEVICES, PRECISIONS, PlanRequest
from hardware.profiles import PROFILES, PlanError, Profile
from hardware.sizes import Chosen

__all__ = [
    "DEVICES",
    "PRECISIONS",
    "PROFILES",
    "Benchmark",
    "Candidate",
    "Chosen",
    "Gpu",
    "Machine",
    "Plan",
    "PlanError",
    "PlanRequest",
    "Profile",
    "Timings",
    "UpdateMemory",
    "detect",
    "estimate_update",
    "measure_update",
    "plan",
]
