"""Reinforcement learning: networks and policy, PPO, curriculum, evaluation, films, report, and the experiment."""

import os

from hardware.malloc import keep_freed_memory

# Waiting OpenMP threads sleep instead of spinning; must be set before torch loads OpenMP.  Sleeping costs 4 % of the speed on
# an idle machine.  Spinning makes training 3.5 times as slow if another process uses one of two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

keep_freed_memory()  # must also be called before threads start
