"""The simulator's kernels against slow twins, written by other methods: a few steps of each, byte by byte."""

import numpy as np

from nppsim.actions import NUM_ACTIONS
from nppsim.batch import BatchSimulator
from rl.forensics.doctor import REHEARSAL, check, require
from rl.train.vec_env import BatchVecEnv

ENVS, STEPS = 4, 5


@check(REHEARSAL)
def slow_twins_agree(env: BatchVecEnv) -> str:
    """Physics, rewards, ends, observations and path distances of a few steps are those of the slow twins."""
    sim = BatchSimulator(
        env.sim.bank,
        ENVS,
        frame_skip=env.sim.frame_skip,
        observations=env.sim.keys,
        reward=env.sim.reward_config,
        gamma=env.sim.gamma,
        threads=1,
        shadow=True,
    )
    rng = np.random.default_rng(0)
    sim.reset(rng.integers(0, len(sim.bank), ENVS))
    for _ in range(STEPS):
        sim.step(rng.integers(0, NUM_ACTIONS, ENVS))
    assert sim.shadow is not None
    told = ", ".join(f"{kind} {count}" for kind, count in sim.shadow.kinds.items())
    require(sim.shadow.comparisons > 0, "nothing was compared", "please report this")
    require(not sim.shadow.mismatches, f"{sim.shadow.mismatches} mismatches: {told}", "see docs/validation.md")
    return f"{sim.shadow.comparisons} comparisons"
