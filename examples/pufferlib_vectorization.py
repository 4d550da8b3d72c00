"""Step environments in several processes with PufferLib 3: python examples/pufferlib_vectorization.py [LEVELS]

PufferLib flattens each observation dict into one array.  ``nppsim.NppVectorEnv`` steps the same environments in threads of
one process, which is faster; use PufferLib for its trainers.
"""

import sys
from typing import Any

import pufferlib.emulation
import pufferlib.vector

from nppsim import NppEnv
from nppsim.gym.env import STARTER_LEVELS


def make_env(levels: str, buf: Any = None, seed: int = 0) -> pufferlib.emulation.GymnasiumPufferEnv:
    """Make one environment.  buf: arrays for its results, from PufferLib."""
    settings = {"levels": levels, "observations": ("state", "reachability")}
    return pufferlib.emulation.GymnasiumPufferEnv(env_creator=NppEnv, env_kwargs=settings, buf=buf, seed=seed)


def main(levels: str = str(STARTER_LEVELS), decisions: int = 100) -> float:
    """Take random actions; return the mean reward per decision."""
    multiprocessing = pufferlib.vector.Multiprocessing
    envs = pufferlib.vector.make(
        make_env, env_kwargs={"levels": levels}, backend=multiprocessing, num_envs=8, num_workers=2
    )
    envs.reset()
    total = 0.0
    for _ in range(decisions):
        _observations, rewards, *_ = envs.step(envs.action_space.sample())
        total += float(rewards.mean())
    envs.close()
    print(f"{decisions} decisions in each of 8 environments, mean reward {total / decisions:.4f}")
    return total / decisions


if __name__ == "__main__":
    main(*sys.argv[1:])
