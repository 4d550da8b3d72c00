"""The simulator's kernels against slow twins, written by other methods: a few steps of each, byte by byte."""

import numpy as np

from bc.demonstrations import Places, find_replays
from nppsim.actions import NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from rl.doctor.doctor import REHEARSAL, CheckSkipped, check, require
from rl.ppo.vec_env import BatchVecEnv

ENVS, STEPS = 4, 5
DEMONSTRATIONS = 16  # spread over all, which are followed
MOMENTS = (0.3, 0.6, 0.9)  # shares of a demonstration at which it is compared; and where the switch has just been taken


@check(REHEARSAL)
def slow_twins_agree(env: BatchVecEnv) -> str:
    """Physics, rewards, ends, observations and path distances of a few steps are those of the slow twins."""
    sim = _twin(env, env.sim.bank, ENVS, shadow=True)
    rng = np.random.default_rng(0)
    sim.reset(rng.integers(0, len(sim.bank), ENVS))
    for _ in range(STEPS):
        sim.step(rng.integers(0, NUM_ACTIONS, ENVS))
    return _agreed(sim)


@check(REHEARSAL)
def slow_twins_agree_along_demonstrations(env: BatchVecEnv, replays: Places) -> str:
    """The same in the middle of demonstrations, after switches were taken and before exits, which chance hardly ever sees."""
    skip = env.sim.frame_skip
    files = [file for file in find_replays(replays) if file.replay.success is not False and file.replay.on_grid(skip)]
    if not files:
        raise CheckSkipped(f"no demonstration holds its inputs for {skip} frames")
    chosen = [files[i].replay for i in np.unique(np.linspace(0, len(files) - 1, DEMONSTRATIONS).astype(int))]
    played = [replay.to_decisions(skip) for replay in chosen]
    bank, count = LevelBank([replay.level for replay in chosen]), len(chosen)
    plain, sim = _twin(env, bank, count, shadow=False), _twin(env, bank, count, shadow=True)
    plain.reset(np.arange(count))
    taken, waiting = np.zeros(count, bool), [[round(share * len(some)) for share in MOMENTS] for some in played]
    states, actions = [], []
    for t in range(max(map(len, played))):
        now = plain.state.ninja["switch_taken"][:count].astype(bool)
        for i in (i for i in range(count) if t < len(played[i])):
            if t in waiting[i] or now[i] > taken[i]:
                states.append(plain.snapshot(i))
                actions.append(played[i][t])
        taken |= now
        plain.step(np.array([int(some[t]) if t < len(some) else 0 for some in played]))
    for start in range(0, len(states), count):
        part = states[start : start + count]
        sim.restore(slice(len(part)), np.stack(part))
        sim.observe()
        steps = np.zeros(count, np.int64)
        steps[: len(part)] = actions[start : start + count]
        sim.step(steps)
    return _agreed(sim)


def _twin(env: BatchVecEnv, bank: LevelBank, num_envs: int, *, shadow: bool) -> BatchSimulator:
    """A simulator by the rules of training."""
    return BatchSimulator(
        bank,
        num_envs,
        frame_skip=env.sim.frame_skip,
        observations=env.sim.keys,
        reward=env.sim.reward_config,
        gamma=env.sim.gamma,
        stacking=env.sim.stacking,
        threads=1,
        shadow=shadow,
    )


def _agreed(sim: BatchSimulator) -> str:
    assert sim.shadow is not None
    told = ", ".join(f"{kind} {count}" for kind, count in sim.shadow.kinds.items())
    require(sim.shadow.comparisons > 0, "nothing was compared", "a mistake in the program")
    require(not sim.shadow.mismatches, f"{sim.shadow.mismatches} mismatches: {told}", "see docs/development.md")
    return f"{sim.shadow.comparisons} comparisons"
