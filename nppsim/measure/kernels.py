"""Numba kernels of the benchmarks.

They have their own file with few imports, because a change of an imported file recompiles the kernels (``_numba.cache``).
"""

import numpy as np

from nppsim._numba.decorators import entry
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick


@entry
def start_all(ninjas, entities, movers, world, levels):
    """Start an episode of environment i on levels[i], for every i."""
    for i in range(len(ninjas)):
        start(ninjas[i], entities[i], movers[i], world, levels[i])


@entry
def advance(begin, end, ninjas, entities, movers, trail, world, inputs, lengths, frames, restart):
    """Advance environments begin .. end - 1 by ``frames`` frames of physics.

    inputs: uint8[levels, frames].  lengths: int64[levels], number of inputs of each level.
    restart: restart a level at the end of its inputs, at a death and at a win; if False, the inputs must suffice.
    """
    for i in range(begin, end):
        ninja = ninjas[i]
        level = ninja["level"]
        for _ in range(frames):
            tick(ninja, entities[i], movers[i], trail[i], world, inputs[level, ninja["frame"]])
            over = ninja["frame"] == lengths[level] or ninja["state"] == DEAD or ninja["state"] == CELEBRATING
            if over and restart:
                start(ninja, entities[i], movers[i], world, level)


@entry
def spin(n):
    """Run the calibration loop: n iterations that a compiler cannot shorten."""
    x = np.uint64(88172645463325252)
    for _ in range(n):  # xorshift
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return n if x else 0
