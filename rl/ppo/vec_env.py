"""BatchVecEnv: the batched simulator as a Stable-Baselines3 vector environment, for plain SB3 algorithms.

    levels = LevelSet.open("datasets/train")
    categories = [levels.category(i) for i in range(len(levels))]
    sampler = make_sampler(categories, CurriculumConfig(use_curriculum=True), seed=0)
    env = BatchVecEnv(BatchSimulator(levels, 64), sampler)
    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures}).learn(100_000)

``ScaledFeatures`` (``rl.policy.sb3``) brings the raw observations to one scale; without it, plain networks learn slowly.

Episodes restart inside ``step``.  Only environments whose episode has just ended get an info dictionary of their own,
with "episode" {"r": return, "l": decisions, "t": seconds since the start}, "is_success", "level" (index), "outcome",
"TimeLimit.truncated" and, after a time-out, "terminal_observation"; all others share one empty dictionary.  Episodes that
began at a start state (``rl.curriculum.start_states``) have no "episode" and no "is_success", as they do not count.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from nppsim.actions import NUM_ACTIONS
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.outcomes import NAMES, WON
from nppsim.spaces import as_spaces_have_it, observation_space
from nppsim.states import impossible
from rl.curriculum import CurriculumManager

EPISODES_PER_UPDATE = 256  # of the curriculum, for algorithms that do not say when they update


class BatchVecEnv(VecEnv):
    """A BatchSimulator whose levels are drawn by a sampler, which in turn learns how episodes ended.

    sim: the simulator.  sampler: its levels are those of ``sim.bank``.
    Attributes of single environments (``get_attr``): "level" (index in the bank), "spec" and "render_mode" (both None).
    Methods (``env_method``): "action_masks" -> bool[6], "snapshot" -> uint8[...], "restore" (snapshot).
    """

    observation_space: spaces.Dict
    action_space: spaces.Discrete

    def __init__(self, sim: BatchSimulator, sampler: CurriculumManager):
        if len(sampler.stage_of) != len(sim.bank):
            raise ValueError(f"the sampler knows {len(sampler.stage_of)} levels, the simulator {len(sim.bank)}")
        self.sim = sim
        self.sampler = sampler
        self._actions: np.ndarray | None = None
        self._no_info: dict[str, Any] = {}
        self._since_update = 0  # episodes
        self._begin = time.monotonic()
        super().__init__(sim.num_envs, observation_space(sim.keys, sim.stacking), spaces.Discrete(NUM_ACTIONS))

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the draws of levels from now on (None: leave them); the simulator itself has no randomness."""
        if seed is not None:
            self.sampler.seed(seed)
        return [seed] * self.num_envs

    def reset(self) -> VecEnvObs:
        self.sampler.start(self.sim)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._observations()

    def state(self) -> dict[str, Any]:
        """Everything that the future depends on beside the sampler: the environments, in the middle of their episodes.

        levels: digest of the levels in their order.  snapshots: uint8[N, B], ``sim.snapshot``.  next_level: int32[N].
        """
        sim = self.sim
        return {
            "levels": self._levels_digest(),
            "snapshots": sim.snapshot(slice(None)),
            "next_level": sim.next_level.copy(),
        }

    def load(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        """Go on where ``state`` was taken; returns the observations.  ConfigError if that was with other environments."""
        if state["levels"] != self._levels_digest():
            raise ConfigError(
                "the saved episodes are of other levels, or in another order; go on with the same dataset"
            )
        stored, mine = state["snapshots"].shape, self.sim.snapshot(slice(None)).shape
        if stored != mine:
            raise ConfigError(
                f"the saved episodes are of {stored[0]} environments of {stored[1]} bytes, these are {mine[0]} of {mine[1]}; "
                "go on with the same settings"
            )
        self.sim.restore(slice(None), state["snapshots"])
        waiting = np.asarray(state["next_level"])
        told = impossible(self.sim.state, self.sim.bank, self.num_envs)
        if not told and not (
            waiting.shape == (self.num_envs,) and waiting.min() >= 0 and waiting.max() < len(self.sim.bank)
        ):
            told = "levels wait to be played that do not exist"
        if told:
            raise ConfigError(
                f"the saved episodes cannot be true: {told}; the file was changed, go on from another one"
            )
        self.sim.next_level[:] = waiting
        self.sim.observe()
        return self._observations()

    def _levels_digest(self) -> str:
        names = "".join(level.fingerprint for level in self.sim.bank.levels)
        return hashlib.sha256(names.encode()).hexdigest()[:16]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> VecEnvStepReturn:
        if self._actions is None:
            raise RuntimeError("step_wait() without step_async(); call step()")
        if self.sampler.wants_advantages:
            raise ConfigError(
                "learns from the advantages that this project's PPO works out, which nobody tells it here: all levels would "
                "stay equally likely; choose another one",
                "curriculum",
                self.sampler.config.strategy,
            )
        actions, self._actions = self._actions, None
        sim = self.sim
        self.sampler.watch(sim, actions)
        sim.step(actions)
        if self._no_info:
            raise RuntimeError(
                f"somebody wrote {list(self._no_info)} into the info dictionary that all share; copy it first"
            )
        infos = [self._no_info] * self.num_envs
        finished = sim.finished
        if len(finished):
            for env in finished.tolist():
                infos[env] = self._info(env)
            self.sampler.next_episodes(sim)
            self._since_update += len(finished)
            if self._since_update >= EPISODES_PER_UPDATE:
                self.sampler.update(sim)
                self._since_update = 0
        # Stable-Baselines3 keeps what step returns until after the next step, so the simulator's arrays are copied.
        return self._observations(), sim.rewards.copy(), sim.terminated | sim.truncated, infos

    def close(self) -> None:
        """Nothing to close: there are no processes."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        rows = list(self._get_indices(indices))
        if attr_name == "level":
            return [int(self.sim.level[row]) for row in rows]
        if attr_name in ("spec", "render_mode"):
            return [None] * len(rows)
        if attr_name == "action_masks":  # how sb3-contrib asks whether there are any
            return [lambda row=row: self.sim.action_masks()[row] for row in rows]
        raise AttributeError(f"environments have no attribute {attr_name!r}; they have level, spec and render_mode")

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(
            f"{attr_name!r} cannot be set on single environments: levels come from the sampler, and all else is "
            "fixed when the simulator is made"
        )

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        rows = list(self._get_indices(indices))
        if method_name == "action_masks":
            return list(self.sim.action_masks(*args, **kwargs)[rows])
        if method_name in ("snapshot", "restore"):
            return [getattr(self.sim, method_name)(row, *args, **kwargs) for row in rows]
        raise AttributeError(
            f"environments have no method {method_name!r}; they have action_masks, snapshot and restore"
        )

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """True for Monitor, whose "episode" entries these infos have; there is no other wrapper."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def _info(self, env: int) -> dict[str, Any]:
        sim = self.sim
        episode, truncated = sim.episode[env], bool(sim.truncated[env])
        info = {
            "level": int(episode["level"]),
            "outcome": NAMES[episode["outcome"]],
            "TimeLimit.truncated": truncated,
        }
        if self.sampler.counts(env):
            info["is_success"] = bool(episode["outcome"] == WON)
            info["episode"] = {
                "r": float(episode["ret"]),
                "l": int(episode["decisions"]),
                "t": round(time.monotonic() - self._begin, 6),
            }
        if truncated:
            final = as_spaces_have_it(sim.final_obs)
            info["terminal_observation"] = {key: values[env].copy() for key, values in final.items()}
        return info

    def _observations(self) -> dict[str, np.ndarray]:
        return {key: values.copy() for key, values in as_spaces_have_it(self.sim.obs).items()}


def desynchronize(sim: BatchSimulator, rng: np.random.Generator) -> None:
    """Shorten each environment's current episode to a random length, so that time-outs do not come in waves."""
    limit = sim.bank.time_limit[sim.level]
    frames = rng.integers(0, limit) // sim.frame_skip * sim.frame_skip
    sim.state.ninja["frame"][: sim.num_envs] = frames
    sim.observe()
