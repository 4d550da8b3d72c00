"""Independent seeds for the parts of a run, e.g. processes or levels of an evaluation."""

LARGEST_SEED = 2**31 - 1  # torch's CPU generator silently ignores bits above 32
# 2**31 divided by the golden ratio, as in Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).  Modulo 2**31,
# the first 200,000 multiples differ by at least 9,056.
_STRIDE = 1_327_217_885


def own_seed(seed: int, part: int) -> int:
    """Return the seed of a part; part 0 has ``seed`` itself.  Parts of nearby seeds have different seeds."""
    return (seed + _STRIDE * part) % (LARGEST_SEED + 1)
