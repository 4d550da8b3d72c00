"""Parts draw random numbers of their own."""

import numpy as np
import torch

from rl.seeds import LARGEST_SEED, own_seed


def test_parts_and_wholes_have_different_seeds():
    """Two hundred thousand parts, of wholes whose seeds are less than 9,056 apart."""
    seeds = np.sort([own_seed(7, part) for part in range(200_000)])
    assert seeds[0] >= 0 and seeds[-1] <= LARGEST_SEED
    assert np.diff(seeds, append=seeds[0] + LARGEST_SEED + 1).min() >= 9_056
    assert own_seed(7, 0) == 7 and own_seed(8, 5) == own_seed(7, 5) + 1


def test_torch_hears_seeds_up_to_the_largest_and_no_others():
    """The reason for the limit: beyond 32 bits, other seeds are the same random numbers."""

    def draws(seed):
        return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()

    assert draws(3) != draws(LARGEST_SEED)
    assert draws(3) == draws(3 + (1 << 32))
