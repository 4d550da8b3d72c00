"""Seeds of parts that are to draw other random numbers than each other: processes, units of an evaluation."""

LARGEST_SEED = 2**31 - 1  # torch's generator on a CPU reads the lower 32 bits of a seed, and says nothing of the others
# 2**31 divided by the golden ratio: multiples of it keep apart (Knuth, The Art of Computer Programming 3, 6.4), the first
# 200,000 by 9,056 at least.
_STRIDE = 1_327_217_885


def own_seed(seed: int, part: int) -> int:
    """The seed of a part: that of the whole for the first, and others that no part of a whole with a seed near by has."""
    return (seed + _STRIDE * part) % (LARGEST_SEED + 1)
