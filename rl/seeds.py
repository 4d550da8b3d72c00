"""Seeds of parts that are to draw other random numbers than each other: processes, units of an evaluation."""

import numpy as np

LARGEST_SEED = 2**31 - 1  # torch's generator on a CPU reads the lower 32 bits of a seed, and says nothing of the others


def own_seed(seed: int, part: int) -> int:
    """The seed of a part: that of the whole for the first, and others that no other whole has for the others."""
    return seed if part == 0 else int(np.random.SeedSequence((seed, part)).generate_state(1)[0] >> 1)
