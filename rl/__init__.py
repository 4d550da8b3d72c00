"""Reinforcement learning: networks and policy, PPO, curriculum, evaluation, films, report, and the experiment."""

import os

from hardware.malloc import keep_freed_memory

# Before torch loads OpenMP: its waiting threads sleep and do not spin.  Alone on the machine that costs 4 %; with another
# busy process on one of two cores, spinning costs a factor of 3.5.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

keep_freed_memory()  # likewise before there are threads
