"""Independent seeds for parts of a run: processes, units of an evaluation."""

LARGEST_SEED = 2**31 - 1  # torch's CPU generator silently ignores bits above 32
# 2**31 divided by the golden ratio: multiples of it keep apart (Knuth, The Art of Computer Programming 3, 6.4), the first
# 200,000 by 9,056 at least.
_STRIDE = 1_327_217_885


def own_seed(seed: int, part: int) -> int:
    """Seed of a part: ``seed`` for part 0, else one that parts of a nearby seed do not have."""
    return (seed + _STRIDE * part) % (LARGEST_SEED + 1)
