"""A small PPO on tiny levels, for tests of training."""

import json

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger

import hardware
from nppsim.batch import BatchSimulator
from nppsim.levels import kinds
from nppsim.observe.statistics import ObservationStatistics
from rl.config import PPOConfig
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.distributed.ranks import SINGLE_PROCESS
from rl.policy.architectures import get_architecture
from rl.policy.checkpoint import from_bytes, to_bytes
from rl.ppo import make_ppo as ppo_for
from rl.ppo.vec_env import BatchVecEnv

from worlds import FLOOR, corridor

LEVELS = [corridor(door=40), corridor(door=60), corridor(entities=[(kinds.MINE, 26, FLOOR)])]
CATEGORIES = ["simplest", "simpler", "mined"]
OBSERVATIONS = get_architecture("vision_free").observations
# The actor of a BC policy learns from the first update on, as fast as it ever will.
AT_ONCE = {"critic_warmup_min_updates": 0, "critic_warmup_max_updates": 0, "learning_rate_warmup_updates": 0}


def stored(state):
    """The state as a checkpoint returns it."""
    return from_bytes(to_bytes(state, "state"))


def as_text(state):
    """A text that is equal for equal states of plain values and arrays."""
    return json.dumps(state, default=lambda values: [values.dtype.str, values.tolist()])


class Patient(BaseCallback):
    """A callback that does nothing."""

    def _on_step(self):
        return True


class Scalars(KVWriter):
    """Stores what is logged: a dictionary per dump."""

    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append(dict(key_values))

    def close(self):
        pass


def make_env(num_envs=4, *, frame_skip=4, gamma=0.995, seed=0, curriculum=None, architecture="vision_free"):
    """Return environments for a network, with levels drawn uniformly or by a curriculum."""
    network = get_architecture(architecture)
    seen = {
        "observations": network.observations,
        "stacking": network.stacking,
        "foresight": network.foresight,
    }
    sim = BatchSimulator(LEVELS, num_envs, frame_skip=frame_skip, **seen, gamma=gamma, threads=1)
    return BatchVecEnv(sim, make_sampler(CATEGORIES, curriculum or CurriculumConfig(), seed))


def make_plan(num_envs=4, rollout_length=32, minibatch_size=32, precision="float32"):
    plan_request = hardware.PlanRequest(
        num_envs=num_envs,
        rollout_length=rollout_length,
        minibatch_size=minibatch_size,
        precision=precision,
        device="cpu",
    )
    return hardware.plan(OBSERVATIONS, plan_request)


def statistics(seed=0, architecture="vision_free"):
    """Return statistics of the observations of random play."""
    env, rng = make_env(architecture=architecture), np.random.default_rng(seed)
    found = ObservationStatistics(env.sim.keys)
    env.reset()
    for _ in range(30):
        env.sim.step(rng.integers(0, 6, env.num_envs))
        found.update({key: env.sim.latest[key] for key in found.float_keys})
    return found


def make_ppo(
    *,
    frame_skip=4,
    num_envs=4,
    rollout_length=32,
    minibatch_size=32,
    seed=0,
    curriculum=None,
    architecture="vision_free",
    from_stage=None,
    ranks=SINGLE_PROCESS,
    precision="float32",
    **settings,
):
    """Return (PPO, its log); settings: fields of PPOConfig.

    ranks: processes that train together; sizes are those of one.
    """
    plan = make_plan(num_envs, rollout_length, minibatch_size, precision)
    config = PPOConfig(**{"total_timesteps": 10_000, "n_epochs": 1} | settings).settled(plan)
    torch.manual_seed(seed)
    world = {"frame_skip": frame_skip, "gamma": config.gamma, "curriculum": curriculum, "architecture": architecture}
    env = make_env(num_envs, seed=seed, **world)
    seen = statistics(architecture=architecture)
    ppo = ppo_for(env, architecture, config, plan, from_stage=from_stage, statistics=seen, seed=seed, ranks=ranks)
    scalars = Scalars()
    ppo.logger = Logger(None, [scalars])
    ppo._setup_learn(config.total_timesteps, Patient())
    return ppo, scalars


def roll_out(ppo):
    """Collect one rollout."""
    callback = Patient()
    callback.init_callback(ppo)
    assert ppo.collect_rollouts(callback)


def logged(ppo, scalars):
    """Return the values logged since the last call."""
    ppo.logger.dump(ppo.num_timesteps)
    return scalars.rows[-1]


def weights(policy):
    """Return a copy of the state dict."""
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}
