"""Seeds of generators, processes and batches differ."""

import numpy as np
import torch

from rl.config import PPOConfig
from rl.distributed.ranks import SingleProcess
from rl.ppo.ppo import PPO
from rl.seeds import LARGEST_SEED, batch_seed, spawn_seeds

from learners import make_env, make_plan, make_ppo, statistics


def test_spawn_seeds_of_many_processes_are_distinct_and_repeatable():
    seeds = [seed for main in (0, 1, LARGEST_SEED) for rank in range(16) for seed in spawn_seeds(main, 4, rank)]
    assert len(set(seeds)) == len(seeds) and min(seeds) >= 0 and max(seeds) <= LARGEST_SEED
    assert spawn_seeds(3, 2, 1) == spawn_seeds(3, 4, 1)[:2]


def test_ppo_in_two_processes_draws_other_actions_minibatches_and_levels(one_thread):
    def draws(rank):
        ranks = SingleProcess()
        ranks.rank = rank
        ppo, _ = make_ppo(seed=5, ranks=ranks)
        return (
            torch.rand(8, generator=ppo.action_rng).tolist(),
            ppo.rng.random(8).tolist(),
            ppo.sampler.draw(64).tolist(),
        )

    first, second, again = draws(0), draws(1), draws(0)
    assert first == again
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_generators_of_one_ppo_have_different_seeds(one_thread):
    env, levels = make_env(), []
    env.seed = levels.append
    config = PPOConfig(n_epochs=1).settled(make_plan())
    ppo = PPO(env, "vision_free", config, make_plan(), statistics=statistics(), seed=5)
    seeds = {5, *levels, torch.initial_seed(), ppo.action_rng.initial_seed()}
    assert len(seeds) == 4
    assert ppo.rng.bit_generator.state not in [np.random.default_rng(seed).bit_generator.state for seed in seeds]


def test_batch_seed_of_many_batches_is_apart_from_those_of_nearby_seeds():
    """Two hundred thousand batches, of evaluations whose seeds are less than 9,056 apart."""
    seeds = np.sort([batch_seed(7, batch) for batch in range(200_000)])
    assert seeds[0] >= 0 and seeds[-1] <= LARGEST_SEED
    assert np.diff(seeds, append=seeds[0] + LARGEST_SEED + 1).min() >= 9_056
    assert batch_seed(7, 0) == 7 and batch_seed(8, 5) == batch_seed(7, 5) + 1


def test_torch_generator_ignores_bits_above_32():
    """The reason for LARGEST_SEED."""

    def draws(seed):
        return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()

    assert draws(3) != draws(LARGEST_SEED)
    assert draws(3) == draws(3 + (1 << 32))
