"""Independent seeds for random generators of training, and for batches of an evaluation."""

import numpy as np

LARGEST_SEED = 2**31 - 1  # torch's CPU generator silently ignores bits above 32
# 2**31 divided by the golden ratio, as in Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).  Modulo 2**31,
# the first 200,000 multiples differ by at least 9,056.
_STRIDE = 1_327_217_885


def spawn_seeds(seed: int, count: int, rank: int = 0) -> list[int]:
    """Return ``count`` seeds, 0 to LARGEST_SEED, for the generators of one process.

    Generators and processes (ranks) have statistically independent streams (numpy's SeedSequence).
    """
    children = np.random.SeedSequence(seed, spawn_key=(rank,)).spawn(count)
    return [int(child.generate_state(1)[0]) & LARGEST_SEED for child in children]


def batch_seed(seed: int, batch: int) -> int:
    """Return the seed of a batch of an evaluation; batch 0 has ``seed`` itself.

    Batches of nearby seeds have different seeds.  Published results of evaluations depend on this rule.
    """
    return (seed + _STRIDE * batch) % (LARGEST_SEED + 1)
