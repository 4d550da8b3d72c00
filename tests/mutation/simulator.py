"""Mutations of the simulator's outputs: states, observations, rewards, ends of episodes."""

import numpy as np

from nppsim import reward
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.physics.outcomes import WON
from rl.ppo.ppo import PPO
from rl.ppo.vec_env import BatchVecEnv
from tests.mutation.mutation import Patch, mutation

PERMUTED = np.array([0, 2, 1, 3, 5, 4])  # left and right change places
TRAINED = 16  # environments of the tiny run's training


mutation("left and right change places in the simulator", "tests/rl/ppo/test_vec_env.py").wrap(
    BatchSimulator,
    "step",
    lambda original, sim, actions, *asleep, **named: original(sim, PERMUTED[np.asarray(actions)], *asleep, **named),
)


@mutation("actions take effect one decision late", "tests/rl/ppo/test_vec_env.py")
def _(patch: Patch) -> None:
    stored: dict[int, np.ndarray] = {}

    def changed(original, sim, actions, *asleep, **named):
        late = stored.get(id(sim), np.zeros_like(actions))
        stored[id(sim)] = np.array(actions)
        return original(sim, late, *asleep, **named)

    patch.wrap(BatchSimulator, "step", changed)


@mutation("walls of the levels are a tile away", "tests/rl/ppo/test_vec_env.py").wrap(LevelBank, "__init__")
def _(original, bank, levels, *arguments, **named):
    original(bank, levels, *arguments, **named)
    bank.world.segments["x"] += 24
    bank.world.segments["y"] += 24


@mutation("episodes are cut off at a quarter of their time limit", "tests/nppsim/test_reward.py").wrap(
    BatchSimulator, "_make_static"
)
def _(original, sim):
    static = original(sim)
    return static._replace(time_limit=static.time_limit // 4)


@mutation("positions of switch and exit are 0", "tests/nppsim/test_batch.py").wrap(BatchSimulator, "_run")
def _(original, sim, *arguments):
    original(sim, *arguments)
    if "entity_positions" in sim.obs:
        sim.obs["entity_positions"][:] = 0
    return None


@mutation(
    "path fields of another level are used if its doors are in the same state", "tests/nppsim/test_batch.py"
).wrap(BatchSimulator, "_run")
def _(original, sim, *arguments):
    known = sim._fields.own_level >= 0
    sim._fields.own_level[known] = sim.level[known]
    return original(sim, *arguments)


@mutation("the simulator gets other weights than the preset has", "tests/nppsim/test_reward.py").wrap(
    reward.RewardConfig, "record"
)
def _(original, config):
    record = original(config)
    record["shaping"] = 0.0
    return record


@mutation("no reward reaches the rollout", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_store_outcome")
def _(original, ppo, t):
    original(ppo, t)
    ppo.rollout_buffer.rewards[t] = 0


@mutation("rewards of the last decision of an episode are lost", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_store_outcome")
def _(original, ppo, t):
    original(ppo, t)
    ppo.rollout_buffer.rewards[t][ppo.rollout_buffer.episode_ends[t]] = 0


@mutation("rewards go to the neighbouring environment", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_store_outcome")
def _(original, ppo, t):
    original(ppo, t)
    ppo.rollout_buffer.rewards[t] = ppo.rollout_buffer.rewards[t].roll(1)


@mutation("truncation is reported as termination", "tests/rl/ppo/test_vec_env.py").wrap(BatchSimulator, "step")
def _(original, sim, actions, *asleep, **named):
    obs = original(sim, actions, *asleep, **named)
    sim.terminated |= sim.truncated
    sim.truncated[:] = False
    return obs


@mutation("ends of episodes do not reach the rollout", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_store_outcome")
def _(original, ppo, t):
    original(ppo, t)
    ppo.rollout_buffer.episode_ends[t] = False


@mutation("the level changes in the middle of an episode", "tests/rl/ppo/test_ppo.py").wrap(PPO, "_act")
def _(original, ppo, t):
    actions = original(ppo, t)
    if t == 7:
        ppo.sim.state.ninja["level"][0] = (ppo.sim.state.ninja["level"][0] + 1) % len(ppo.sim.bank)
    return actions


@mutation("only won episodes are recorded", "tests/rl/ppo/test_ppo.py").wrap(PPO, "record_rollout")
def _(original, ppo, seconds):
    ppo.counted_episodes = ppo.counted_episodes[ppo.counted_episodes["outcome"] == WON]
    original(ppo, seconds)


@mutation("decisions are counted by step, not by environment", "tests/rl/ppo/test_ppo.py").wrap(PPO, "after_decision")
def _(original, ppo, t):
    original(ppo, t)
    ppo.num_timesteps -= ppo.sim.num_envs - 1


@mutation("one environment stands still", "tests/rl/ppo/test_vec_env.py")
def _(patch: Patch) -> None:
    stored: dict[int, np.ndarray] = {}

    def changed(original, sim, actions, *asleep, **named):
        if sim.num_envs == TRAINED:
            stored.setdefault(id(sim), sim.snapshot(3))
        obs = original(sim, actions, *asleep, **named)
        if id(sim) in stored and 3 not in sim.finished:
            sim.restore(3, stored[id(sim)])
        return obs

    patch.wrap(BatchSimulator, "step", changed)


@mutation("rewards of the simulator are off by a thousandth", "tests/rl/ppo/test_vec_env.py").wrap(
    BatchSimulator, "_run"
)
def _(original, sim, *arguments, **named):
    original(sim, *arguments, **named)
    sim.rewards *= np.float32(1.001)


@mutation("info dictionaries are shared and written to", "tests/rl/ppo/test_vec_env.py").wrap(BatchVecEnv, "step_wait")
def _(original, env):
    result = original(env)
    result[3][0]["extra"] = 1
    return result
