"""Hardware detection, memory and speed estimates, and the plan of sizes for a training run.

``plan`` is the entry point; ``python scripts/hardware_plan.py --architecture NAME`` prints a plan for any machine.
"""

from hardware.compute import Benchmark, ComputeOption, Timings
from hardware.machine import Gpu, Machine, PlanError, detect
from hardware.memory import UpdateMemory, estimate_update, measure_update
from hardware.plan import Plan, Speed, plan, plan_table
from hardware.request import DEVICES, PRECISIONS, PROFILES, PlanRequest, Profile
from hardware.sizes import Chosen
from hardware.throughput import Sizes

__all__ = [
    "DEVICES",
    "PRECISIONS",
    "PROFILES",
    "Benchmark",
    "Chosen",
    "ComputeOption",
    "Gpu",
    "Machine",
    "Plan",
    "PlanError",
    "PlanRequest",
    "Profile",
    "Sizes",
    "Speed",
    "Timings",
    "UpdateMemory",
    "detect",
    "estimate_update",
    "measure_update",
    "plan",
    "plan_table",
]
