"""Kernels of the measuring tools.

They are in a file of their own, because compiled code is cached by the content of the files that it imports (``_cache``),
and the measuring tools import level generators and more.
"""

import numpy as np

from nppsim._kernel import kernel
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick


@kernel
def start_all(ninjas, entities, movers, world, levels):
    """Start environment i on levels[i]."""
    for i in range(len(ninjas)):
        start(ninjas[i], entities[i], movers[i], world, levels[i])


@kernel
def advance(begin, end, ninjas, entities, movers, trail, world, inputs, lengths, frames, restart):
    """Advance environments begin .. end - 1 by ``frames`` frames of their play; physics and nothing else.

    inputs: uint8[levels, frames], of which ``lengths`` are played on each level.
    restart: at the end of the inputs, at death and at a win; without, ``frames`` must not go beyond the inputs.
    """
    for i in range(begin, end):
        ninja = ninjas[i]
        level = ninja["level"]
        for _ in range(frames):
            tick(ninja, entities[i], movers[i], trail[i], world, inputs[level, ninja["frame"]])
            over = ninja["frame"] == lengths[level] or ninja["state"] == DEAD or ninja["state"] == CELEBRATING
            if over and restart:
                start(ninja, entities[i], movers[i], world, level)


@kernel
def spin(n):
    """n iterations that no compiler can shorten; the calibration loop."""
    x = np.uint64(88172645463325252)
    for _ in range(n):  # xorshift
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return n if x else 0
