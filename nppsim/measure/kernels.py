"""Kernels of ``bench`` and ``fuzz``, in a file of their own: compiled code is kept per content of the files that it depends
on (``_cache``), and what those import, such as the level generators, is none of it.
"""

import numpy as np

from nppsim._kernel import kernel
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick


@kernel
def advance(begin, end, ninjas, entities, movers, world, inputs, lengths, frames):
    """Advance every environment by ``frames`` frames of its play; physics and nothing else."""
    for i in range(begin, end):
        ninja = ninjas[i]
        level = ninja["level"]
        for _ in range(frames):
            tick(ninja, entities[i], movers[i], world, inputs[level, ninja["frame"]])
            if ninja["frame"] == lengths[level] or ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
                start(ninja, entities[i], movers[i], world, level)


@kernel
def start_all(ninjas, entities, movers, world, levels):
    for i in range(len(ninjas)):
        start(ninjas[i], entities[i], movers[i], world, levels[i])


@kernel
def play_all(ninjas, entities, movers, world, inputs):
    """Play every environment on its own level; returns the first whose ninja or movers are nowhere, or -1."""
    for i in range(len(inputs)):
        ninja = ninjas[i]
        start(ninja, entities[i], movers[i], world, i)
        for f in range(inputs.shape[1]):
            tick(ninja, entities[i], movers[i], world, inputs[i, f])
        fine = np.isfinite(ninja["x"] + ninja["y"] + ninja["vx"] + ninja["vy"])
        for m in range(world.level[i]["mover_end"] - world.level[i]["mover_first"]):
            fine &= np.isfinite(movers[i, m]["x"] + movers[i, m]["y"] + movers[i, m]["vx"] + movers[i, m]["vy"])
        if not fine:
            return i
    return -1


@kernel
def spin(n):
    """n iterations that no compiler can shorten; the calibration loop."""
    x = np.uint64(88172645463325252)
    for _ in range(n):  # xorshift
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return n if x else 0
