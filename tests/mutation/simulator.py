"""Mutations of what training reads from the simulator: states, observations, rewards, ends of episodes."""

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


@mutation("left and right change places in the simulator", tests=("tests/rl/ppo/test_vec_env.py",))
def _(patch: Patch) -> None:
    patch.wrap(
        BatchSimulator,
        "step",
        lambda original, sim, actions, *asleep, **named: original(sim, PERMUTED[np.asarray(actions)], *asleep, **named),
    )


@mutation("actions take effect one decision late", tests=("tests/rl/ppo/test_vec_env.py",))
def _(patch: Patch) -> None:
    stored: dict[int, np.ndarray] = {}

    def changed(original, sim, actions, *asleep, **named):
        late = stored.get(id(sim), np.zeros_like(actions))
        stored[id(sim)] = np.array(actions)
        return original(sim, late, *asleep, **named)

    patch.wrap(BatchSimulator, "step", changed)


@mutation("walls of the levels are a tile away", tests=("tests/rl/ppo/test_vec_env.py",))
def _(patch: Patch) -> None:
    def changed(original, bank, levels, *arguments, **named):
        original(bank, levels, *arguments, **named)
        bank.world.segments["x"] += 24
        bank.world.segments["y"] += 24

    patch.wrap(LevelBank, "__init__", changed)


@mutation("episodes are cut off at a quarter of their time limit", tests=("tests/nppsim/test_reward.py",))
def _(patch: Patch) -> None:
    def changed(original, sim):
        static = original(sim)
        return static._replace(time_limit=static.time_limit // 4)

    patch.wrap(BatchSimulator, "_make_static", changed)


@mutation("positions of switch and exit are 0", tests=("tests/nppsim/test_batch.py",))
def _(patch: Patch) -> None:
    def changed(original, sim, *arguments):
        original(sim, *arguments)
        if "entity_positions" in sim.obs:
            sim.obs["entity_positions"][:] = 0
        return None

    patch.wrap(BatchSimulator, "_run", changed)


@mutation("the simulator gets other weights than the preset has", tests=("tests/nppsim/test_reward.py",))
def _(patch: Patch) -> None:
    def changed(original, config):
        record = original(config)
        record["shaping"] = 0.0
        return record

    patch.wrap(reward.RewardConfig, "record", changed)


@mutation("no reward reaches the rollout", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t] = 0

    patch.wrap(PPO, "_store_outcome", changed)


@mutation("rewards of the last decision of an episode are lost", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t][ppo.rollout_buffer.episode_ends[t]] = 0

    patch.wrap(PPO, "_store_outcome", changed)


@mutation("rewards go to the neighbouring environment", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t] = ppo.rollout_buffer.rewards[t].roll(1)

    patch.wrap(PPO, "_store_outcome", changed)


@mutation("truncation is reported as termination", tests=("tests/rl/ppo/test_vec_env.py",))
def _(patch: Patch) -> None:
    def changed(original, sim, actions, *asleep, **named):
        obs = original(sim, actions, *asleep, **named)
        sim.terminated |= sim.truncated
        sim.truncated[:] = False
        return obs

    patch.wrap(BatchSimulator, "step", changed)


@mutation("ends of episodes do not reach the rollout", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.episode_ends[t] = False

    patch.wrap(PPO, "_store_outcome", changed)


@mutation("the level changes in the middle of an episode", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, t):
        actions = original(ppo, t)
        if t == 7:
            ppo.sim.state.ninja["level"][0] = (ppo.sim.state.ninja["level"][0] + 1) % len(ppo.sim.bank)
        return actions

    patch.wrap(PPO, "_act", changed)


@mutation("only won episodes are recorded", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, seconds):
        ppo.counted_episodes = ppo.counted_episodes[ppo.counted_episodes["outcome"] == WON]
        original(ppo, seconds)

    patch.wrap(PPO, "record_rollout", changed)


@mutation("decisions are counted by step, not by environment", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.num_timesteps -= ppo.sim.num_envs - 1

    patch.wrap(PPO, "after_decision", changed)


@mutation("one environment stands still", tests=("tests/rl/ppo/test_vec_env.py",))
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


@mutation("rewards of the simulator are off by a thousandth", tests=("tests/rl/ppo/test_vec_env.py",))
def _(patch: Patch) -> None:
    def changed(original, sim, *arguments, **named):
        original(sim, *arguments, **named)
        sim.rewards *= np.float32(1.001)

    patch.wrap(BatchSimulator, "_run", changed)


@mutation("info dictionaries are shared and written to", tests=("tests/rl/ppo/test_vec_env.py",))
def _(patch: Patch) -> None:
    def changed(original, env):
        result = original(env)
        result[3][0]["extra"] = 1
        return result

    patch.wrap(BatchVecEnv, "step_wait", changed)
