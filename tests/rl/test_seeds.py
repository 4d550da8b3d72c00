"""Parts draw random numbers of their own."""

import torch

from rl.seeds import LARGEST_SEED, own_seed


def test_parts_and_wholes_have_different_seeds():
    seeds = [own_seed(seed, part) for seed in range(50) for part in range(8)]
    assert len(set(seeds)) == len(seeds)
    assert own_seed(7, 0) == 7
    assert 0 <= min(seeds) <= max(seeds) <= LARGEST_SEED


def test_torch_hears_seeds_up_to_the_largest_and_no_others():
    """The reason for the limit: beyond 32 bits, other seeds are the same random numbers."""

    def draws(seed):
        return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()

    assert draws(3) != draws(LARGEST_SEED)
    assert draws(3) == draws(3 + (1 << 32))
